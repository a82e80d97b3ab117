"""What the door keeps of a run ends with it, however that comes, and counts as the run's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from prompt_sidecar.calls.conversations import Conversation, Conversations, Opening
from prompt_sidecar.doors.http.hidden import HiddenTurns, Splice
from prompt_sidecar.doors.http.stored_responses import StoredResponse, StoredResponses
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.telemetry.observer import Observer
from tests.client.provider import Says
from tests.doors.http.agents import TOOL, Agent
from tests.doors.http.habits import ALONE, APIS, BOTH, SEARCH, Turn
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted
from tests.promises.engine import Clock

CALLER, RUN = "local", "habits"
NAME = (CALLER, RUN)
EACH_API = pytest.mark.parametrize("api", APIS)


@dataclass
class Losses(Observer):
    """Keeps the causes of hidden turns that were lost."""

    causes: list[str] = field(default_factory=list)

    def hidden_lost(self, cause: str) -> None:
        """One was lost."""
        self.causes.append(cause)


def goes_on(api: str, here: Proxied, hidden: Sequence[Says], between: Any) -> list[Any]:
    """The histories that the provider was sent in two requests of an agent, between which something happens."""
    spoken = APIS[api]
    sent = spoken.upstream(here, scripted(*hidden, Says("Done.")), stream=False)
    history = [spoken.asked("Go")]
    spoken.exchange(here, history, stream=False)
    between()
    spoken.exchange(here, [*history, *spoken.answer_entries(Turn()), spoken.result(Turn(), "line 1")], stream=False)
    bodies, defects = sent()
    assert [] == defects
    return [spoken.entries(each) for each in bodies]


@EACH_API
@pytest.mark.parametrize("hidden", [(BOTH,), ALONE], ids=["beside", "alone"])
@pytest.mark.parametrize("how", ["EndRun", "EndRuns"])
def test_hidden_turns_end_with_their_run(api: str, hidden: Sequence[Says], how: str) -> None:
    """What was recalled in it goes to no provider again; the run that begins under its name goes on without."""
    with proxied(scripted()) as here:

        def end() -> None:
            if how == "EndRun":
                assert here.core.end(CALLER, RUN) is not None
            else:
                assert 1 == here.core.end_all(CALLER)
            assert 0 == here.core.totals().memory_bytes

        *_, last = goes_on(api, here, hidden, end)
        assert (0, 0) == (json.dumps(last).count("; tag="), json.dumps(last).count(SEARCH))
        assert 1 == here.core.figures(CALLER, RUN).calls


@EACH_API
def test_hidden_turns_of_an_idle_run_expire_with_its_originals(api: str) -> None:
    """Whether housekeeping has been there or not; the loss is counted."""
    for sweeps in (False, True):
        clock, observer = Clock(1_000.0), Losses()
        limits = Limits(default_window=4_500, time_to_live=600)
        with proxied(scripted(), clock=clock, limits=limits, observer=observer) as here:

            def waits(here: Proxied = here, clock: Clock = clock, sweeps: bool = sweeps) -> None:
                clock.now += 601
                if sweeps:
                    here.core.sweep()

            *_, last = goes_on(api, here, [BOTH], waits)
        assert 0 == json.dumps(last).count("; tag=")
        assert ["expired"] == observer.causes


def test_a_run_that_is_used_keeps_its_hidden_turns() -> None:
    """The time to live begins again with each request."""
    clock, spoken = Clock(1_000.0), APIS["chat"]
    script = scripted(BOTH, *(Says(f"Step {number}.") for number in range(5)))
    with proxied(script, clock=clock, limits=Limits(default_window=4_500, time_to_live=600)) as here:
        history = [spoken.asked("Go")]
        spoken.exchange(here, history, stream=False)
        history += [*spoken.answer_entries(Turn()), spoken.result(Turn(), "line 1")]
        for number in range(5):
            clock.now += 500
            here.core.sweep()
            spoken.exchange(here, history, stream=False)
            history += [spoken.spoken(f"Step {number}."), spoken.asked("More")]

    assert [1] * 5 == [json.dumps(body).count("; tag=") for body in here.upstream.bodies[1:]]


def test_a_run_that_is_forgotten_takes_them_along() -> None:
    """As the one that was idle for longest, when there are too many."""
    spoken = APIS["chat"]
    with proxied(scripted(), limits=Limits(default_window=4_500, runs=1)) as here:

        def another() -> None:
            here.upstream.model = scripted(Says("Hello."), Says("Done."))
            Agent("openai_chat", stream=False, base=here.url, history=[spoken.asked("Hello")]).ask()

        *_, last = goes_on("chat", here, [BOTH], another)
    assert 0 == json.dumps(last).count("; tag=")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_run_that_is_ended_during_an_answer_leaves_nothing(stream: bool) -> None:
    """What the answer really was is not kept for the next run of that name."""
    spoken, observer = APIS["chat"], Losses()
    with proxied(scripted(), observer=observer) as here:

        def ends(_: Any) -> Says:
            assert here.core.end(CALLER, RUN) is not None
            return BOTH

        here.upstream.model = scripted(ends, Says("Done."))
        history = [spoken.asked("Go")]
        spoken.exchange(here, history, stream=stream)
        spoken.exchange(
            here, [*history, *spoken.answer_entries(Turn()), spoken.result(Turn(), "line 1")], stream=stream
        )

    assert 0 == json.dumps(here.upstream.bodies[-1]).count("; tag=")
    assert ["ended"] == observer.causes


def test_stored_responses_end_with_their_run() -> None:
    """An agent that goes on from one by its id gets no answer of the sidecar's put in."""
    tool = {"type": "function", "name": TOOL, "parameters": {"type": "object", "properties": {}}, "strict": False}
    with proxied(scripted(BOTH, Says("Done."))) as here:
        client = Agent("openai_responses", False, here.url, []).client
        first = client.responses.create(model="scripted", input="Go.", tools=[tool])
        assert 1 == here.core.end_all(CALLER)
        output = {"type": "function_call_output", "call_id": "c1", "output": "log"}
        client.responses.create(model="scripted", input=[output], tools=[tool], previous_response_id=first.id)

    assert ["c1"] == [item["call_id"] for item in here.upstream.bodies[-1]["input"]]


def test_hidden_turns_count_as_their_runs() -> None:
    """In the figure of what runs keep, and so in their budget."""
    with proxied(scripted()) as here:
        spoken = APIS["chat"]
        here.upstream.model = scripted(Says("Hello."), BOTH)
        spoken.exchange(here, [spoken.asked("Hello")], stream=False)
        before = here.core.totals().memory_bytes
        spoken.exchange(here, [spoken.asked("Hello"), spoken.spoken("Hello."), spoken.asked("Go")], stream=False)
        run = here.core.table.known(CALLER, RUN)
        assert run is not None
        kept = here.core.totals().memory_bytes - run.kept().total
        answered = here.core.table.doors

        assert before > 0
        assert kept == sum(door.kept_bytes(NAME) for door in answered)
        assert kept > 2_500


def test_what_is_kept_of_other_callers_stays() -> None:
    """Their runs have the same names."""
    hidden, stored = HiddenTurns(1 << 20, 1 << 20), StoredResponses(100, 1 << 20)
    known = Conversations(b"k" * 32, 100, "test-")
    for caller in ("one", "two"):
        opening = Opening(caller, "", b"", True, b"Go", b"")
        hidden.keep((caller, RUN), Splice(("OK",), (b"OK",)))
        stored.keep(caller, "resp-1", StoredResponse("resp-1", Conversation(RUN, opening)))
        known.named(caller, RUN, partial(Opening, caller, "", b"", True, b"Go", b""))
        known.of(opening)
    derived = known.of(Opening("one", "", b"", True, b"Go", b"")).run_id
    assert [True] * 3 == [each.kept_bytes(("one", RUN)) > 0 for each in (hidden, stored, known)]
    assert known.kept_bytes(("one", derived)) > 0

    for each in (hidden, stored, known):
        each.forget_all("one")
    assert [0] * 3 == [each.kept_bytes(("one", RUN)) for each in (hidden, stored, known)]
    assert [True] * 3 == [each.kept_bytes(("two", RUN)) > 0 for each in (hidden, stored, known)]
    assert (None, 2) == (stored.find("one", "resp-1"), len(known))


def test_idle_responses_expire() -> None:
    """By their time, also where nobody has swept."""
    clock = Clock(0.0)
    stored = StoredResponses(100, 1 << 20, clock=clock)
    stored.life = 600
    opening = Opening(CALLER, "", b"", True, b"Go", b"")
    for number in range(3):
        stored.keep(CALLER, str(number), StoredResponse(str(number), Conversation(RUN, opening)))
        clock.now += 250
    assert [None, "1"] == [found and found.id for found in (stored.find(CALLER, "0"), stored.find(CALLER, "1"))]
    stored.sweep(clock.now - 600)
    clock.now += 400
    stored.sweep(clock.now - 600)
    assert [None, "1", None] == [found and found.id for found in (stored.find(CALLER, str(at)) for at in range(3))]
