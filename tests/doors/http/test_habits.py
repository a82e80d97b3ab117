"""Hidden turns are found again whatever an agent makes of the answer that it was given, and stay where they are."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from prompt_sidecar.doors.http.placing import identity
from prompt_sidecar.telemetry.observer import Observer
from tests.client.provider import Says
from tests.doors.http.agents import FORMATS, TOOL, Agent, log_of
from tests.doors.http.habits import ALONE, APIS, BOTH, HABITS, REFERENCES, SEARCH, Turn
from tests.doors.http.serving import proxied
from tests.doors.http.test_sdks import CALLS, Script
from tests.doors.http.upstream import scripted
from tests.oracle.data import present

EACH_API = pytest.mark.parametrize("api", APIS)
EACH_TURN = pytest.mark.parametrize("hidden", [(BOTH,), ALONE], ids=["beside", "alone"])
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
OTHER = Turn("Something else.", "other-1", "other_tool", '{"all": true}')


def times(entries: Sequence[Any], name: str) -> int:
    """How often a tool is called in a history."""
    answers = [part for entry in entries for part in entry.get("parts", []) if "functionResponse" in part]
    member = f'"name": "{name}"'
    return json.dumps(entries).count(member) - json.dumps(answers).count(member)


@pytest.mark.parametrize("mark", ["cache_control", "prompt_cache_breakpoint", "cachePoint"])
def test_marks_of_where_to_cache_make_no_other_entry(mark: str) -> None:
    """An entry by which a hidden turn's place is known is the same one with a mark."""
    part = {"type": "text", "text": "one"}
    plain, marked = ({"role": "user", "content": [each]} for each in (part, part | {mark: {"type": "default"}}))
    assert identity(json.dumps(plain).encode()) == identity(json.dumps(marked).encode())


def exchanged(
    api: str, hidden: Sequence[Says], turn: Turn, *, stream: bool, rest: Sequence[Any] = ()
) -> tuple[list[list[Any]], list[str]]:
    """The histories of an agent's second and third request as the provider got them, and what it has against them."""
    spoken = APIS[api]
    history = [spoken.asked("Go")]
    with proxied(scripted()) as here:
        sent = spoken.upstream(here, scripted(*hidden, Says("Done."), Says("Bye.")), stream=stream)
        spoken.exchange(here, history, stream=stream)
        history += [*spoken.answer_entries(turn), spoken.result(turn, "line 1 of the log"), *rest]
        spoken.exchange(here, history, stream=stream)
        history += [spoken.spoken("Done."), spoken.asked("More")]
        spoken.exchange(here, history, stream=stream)
        bodies, defects = sent()
        return [spoken.entries(each) for each in bodies[-2:]], defects


def check_found(bodies: list[list[Any]], defects: list[str], turn: Turn) -> None:
    """Both histories hold both calls with their results once, beside each other, and the first begins the second."""
    assert [] == defects
    second, third = bodies
    assert second == third[: len(second)]
    for entries in bodies:
        text = json.dumps(entries)
        assert (1, 1) == (times(entries, SEARCH), times(entries, TOOL))
        assert (1, 1) == (text.count("; tag="), text.count("line 1 of the log"))
    if turn.call != "c1":  # call and result have it
        assert 2 == json.dumps(second).count(f'"{turn.call}"')
    assert json.dumps(second).index("; tag=") < json.dumps(second).index("line 1 of the log")
    if turn.text:
        assert turn.text in json.dumps(second)


@EACH_API
@EACH_TURN
@STREAMED
@pytest.mark.parametrize("habit", HABITS)
def test_a_hidden_turn_is_found(api: str, hidden: Sequence[Says], habit: str, stream: bool) -> None:
    """Whatever the agent leaves of its text and ids."""
    turn = HABITS[habit]
    bodies, defects = exchanged(api, hidden, turn, stream=stream)

    check_found(bodies, defects, turn)


@EACH_TURN
@STREAMED
@pytest.mark.parametrize("habit", REFERENCES)
def test_items_that_are_named_by_their_ids_are_found(hidden: Sequence[Says], habit: str, stream: bool) -> None:
    """As an agent does that leaves its items to the provider."""
    turn = REFERENCES[habit]
    turn = replace(turn, message=turn.message.format(len(hidden)))
    bodies, defects = exchanged("responses", hidden, turn, stream=stream)

    check_found(bodies, defects, turn)


@EACH_API
@EACH_TURN
@STREAMED
def test_where_nothing_matches_the_answer_stands_at_the_end(
    api: str, hidden: Sequence[Says], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """And there in later requests; the loss is logged once."""
    caplog.set_level(logging.WARNING, "prompt_sidecar.http")
    bodies, defects = exchanged(api, hidden, OTHER, stream=stream)

    assert [] == defects
    second, third = bodies
    assert second == third[: len(second)]
    assert (1, 0, 1) == (times(second, SEARCH), times(second, TOOL), times(second, "other_tool"))
    assert "; tag=" in json.dumps(second[-1])
    assert 1 == json.dumps(third).count("; tag=")
    assert 1 == sum("nothing that shows where" in each.getMessage() for each in caplog.records)


class Losses(Observer):
    """Keeps the causes of hidden turns that were lost."""

    def __init__(self) -> None:
        self.causes: list[str] = []

    def hidden_lost(self, cause: str) -> None:
        """One was lost."""
        self.causes.append(cause)


def without_text(entry: Any) -> list[Any]:
    """An entry as agents send it that drop what the model says beside its calls."""
    if entry.get("tool_calls"):
        return [{**entry, "content": None}]
    blocks = entry.get("content")
    if isinstance(blocks, list) and any(each["type"] == "tool_use" for each in blocks):
        return [{**entry, "content": [each for each in blocks if each["type"] != "text"]}]
    return [] if entry.get("type") == "message" else [entry]


def with_ids_of_its_own(entry: Any) -> list[Any]:
    """An entry with other ids of calls."""
    return [json.loads(json.dumps(entry).replace('"call-', '"mine-'))]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("habit", [without_text, with_ids_of_its_own], ids=["no text", "own ids"])
def test_sixty_calls_of_an_agent_with_a_habit(format: str, habit: Callable[[Any], list[Any]]) -> None:
    """Over the limit, with a hidden turn now and then: none is lost, and the provider refuses nothing."""
    script, observer = Script(), Losses()
    with proxied(script, observer=observer) as here:
        agent = Agent(format, stream=False, base=here.url, history=[{"role": "user", "content": "Which build failed?"}])
        while (heard := agent.ask()).calls:
            agent.answer(heard, log_of)
            agent.history = [made for entry in agent.history for made in habit(entry)]

    assert ([], []) == (here.upstream.defects, observer.causes)
    assert CALLS == script.calls
    assert "own-" in json.dumps(here.upstream.bodies[-1])


def test_recorded_habits() -> None:
    """Each way in which agents were seen to send an answer back; skipped without the data."""
    files = present("failing/hidden_turn_habits.json")
    if not files:
        pytest.skip("recorded data failing/hidden_turn_habits.json not found; PROMPT_SIDECAR_DATA names the folder")
    for entry in json.loads(files[0].read_text())["the agent's next request gives the turn back as"].values():
        call = entry["tool_calls"][0]
        turn = Turn(
            entry.get("content"), call["id"], arguments=call["function"]["arguments"], without="content" not in entry
        )
        bodies, defects = exchanged("chat", [BOTH], turn, stream=False)
        assert [entry] == list(APIS["chat"].answer_entries(turn))
        check_found(bodies, defects, turn)


def test_an_answer_that_the_agent_drops_stands_at_the_end() -> None:
    """It has asked the model something else; in a conversation that begins otherwise nothing is put."""
    spoken = APIS["chat"]
    with proxied(scripted(BOTH, Says("Done."), Says("A title."), Says("Bye."))) as here:
        spoken.exchange(here, [spoken.asked("Go")], stream=False)
        history = [spoken.asked("Go"), spoken.asked("Go now")]
        spoken.exchange(here, history, stream=False)
        spoken.exchange(
            here, [spoken.asked("Give it a title"), spoken.spoken("Sure."), spoken.asked("Well?")], stream=False
        )
        history += [spoken.spoken("Done."), spoken.asked("More")]
        spoken.exchange(here, history, stream=False)

    dropped, title, last = (spoken.entries(each) for each in here.upstream.bodies[1:])
    assert [] == here.upstream.defects
    assert (1, 0) == (json.dumps(dropped).count("; tag="), json.dumps(title).count("; tag="))
    assert dropped == last[: len(dropped)]


def test_what_stood_at_the_end_goes_with_what_was_before_it() -> None:
    """An agent that rewrites its history there has the rest of it as it is; the loss is counted."""
    spoken, observer = APIS["chat"], Losses()
    with proxied(scripted(BOTH, Says("Done."), Says("Bye.")), observer=observer) as here:
        history = [spoken.asked("Go")]
        spoken.exchange(here, history, stream=False)
        history += [*spoken.answer_entries(OTHER), spoken.result(OTHER, "line 1 of the log")]
        spoken.exchange(here, history, stream=False)
        history[-1] = spoken.result(OTHER, "[cleared]")
        spoken.exchange(here, [*history, spoken.spoken("Done."), spoken.asked("More")], stream=False)

    assert ["unmatched", "rewritten"] == observer.causes
    assert [1, 0] == [json.dumps(each).count("; tag=") for each in here.upstream.bodies[1:]]
    assert [] == here.upstream.defects


def test_a_prompt_that_is_sent_again_puts_nothing_at_its_end() -> None:
    """The agent holds the second answer: the first one's hidden turn is none of its history."""
    spoken, observer = APIS["chat"], Losses()
    with proxied(scripted(BOTH, Says("Done."), Says("Bye.")), observer=observer) as here:
        for _ in range(2):
            spoken.exchange(here, [spoken.asked("Go")], stream=False)
        spoken.exchange(here, [spoken.asked("Go"), spoken.spoken("Done."), spoken.asked("More")], stream=False)

    assert [] == observer.causes
    assert [0, 0] == [json.dumps(each).count("; tag=") for each in here.upstream.bodies[1:]]


def test_items_that_the_agent_holds_are_not_named_twice() -> None:
    """Text of a hidden turn is shown under the id of its item, which providers take once."""
    script = scripted(Says("I look.", BOTH.calls[1:]), Says("Step.", BOTH.calls[:1]), Says("Done."))
    with proxied(script) as here:
        agent = Agent("openai_responses", stream=False, base=here.url, history=[APIS["responses"].asked("Go")])
        agent.answer(agent.ask(), str)
        agent.history = json.loads(json.dumps(agent.history).replace(TOOL, "other_tool").replace("c1", "other-1"))
        assert "Done." == agent.ask().text

    last = here.upstream.bodies[-1]["input"]
    assert [] == here.upstream.defects
    assert (1, 1) == (times(last, SEARCH), json.dumps(last).count("I look."))


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_call_with_half_a_character_joins_the_agents(api: str) -> None:
    """Models write such; it is not lost for that."""
    both = Says("Step.", [BOTH.calls[0], ("c2", SEARCH, {"query": "\ud83d x"})])
    turn = HABITS["a call id of its own"]
    bodies, defects = exchanged(api, [both], turn, stream=False)

    check_found(bodies, defects, turn)
