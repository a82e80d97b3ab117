"""Streams that cut calls and characters in other ways than OpenAI does, through `complete`."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prompt_sidecar.client import Client, Completion
from prompt_sidecar.client.pieces import WithoutHalves
from tests.answers.test_odd_answers import STREAMS, odd_events
from tests.client.calls_in_pieces import OURS, WAYS, check
from tests.client.serving import PATIENT
from tests.doors.grpc.serving import Serving, serving

ASKED: Final = [{"role": "user", "content": "Which build failed?"}]
MEMBERS: Final = {"openai_responses": "input"}
NAMES: Final = {"openai_chat": "chat/completions", "openai_responses": "responses", "anthropic_messages": "messages"}


@pytest.fixture
def served() -> Iterator[Serving]:
    """A real server."""
    with serving() as running:
        yield running


def chunk(delta: Any, finish: str | None = None) -> Any:
    """A chunk, as JSON."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(call_id: Any, name: Any, arguments: str, index: Any = 0) -> Any:
    """A chunk with a piece of a call."""
    return chunk({"tool_calls": [piece(call_id, name, arguments, index)]})


def piece(call_id: Any, name: Any, arguments: str, index: Any) -> Any:
    """A piece of a call, with all members."""
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


END: Final = chunk({}, "tool_calls")
DONE: Final = [chunk({"content": "Done."}), chunk({}, "stop")]


def completed(
    served: Serving, format: Any, *answers: Sequence[Any]
) -> tuple[list[Any], Completion, list[dict[str, Any]]]:
    """Complete with a model that streams these; return the events that the agent sees, the result, the prompts."""
    left, prompts = list(answers), []

    def create(**words: Any) -> Iterator[Any]:
        prompts.append(copy.deepcopy(words))
        return iter(left.pop(0))

    words: dict[str, Any] = {"model": "scripted", MEMBERS.get(format, "messages"): ASKED}
    with Client(served.address, deadline=PATIENT) as client, client.run("run", context_window=100_000) as run:
        stream = run.complete(format, create, stream=True, **words)
        events = list(stream)
        return events, stream.completion, prompts


@pytest.mark.parametrize("way", WAYS)
def test_our_calls_are_distinguished(way: str, served: Serving) -> None:
    """The agent sees none."""
    pieces = [chunk({"tool_calls": [piece(*each) for each in one]}) for one in WAYS[way]]
    events, done, prompts = completed(served, "openai_chat", [*pieces, END], DONE)

    assert 2 == done.recalls
    assert OURS not in json.dumps(events)
    check(prompts[1])


def test_the_agents_calls_are_distinguished(served: Serving) -> None:
    """In the result and in the events, also with a call of the sidecar's among them."""
    pieces = [call("a", "read", '{"n":1}'), call("o", OURS, "{}"), call("b", "read", '{"n":2}'), END]
    events, done, _ = completed(served, "openai_chat", pieces)

    assert [("a", {"n": 1}), ("b", {"n": 2})] == [(each.id, json.loads(each.arguments)) for each in done.calls]
    seen = [piece for each in events for piece in each["choices"][0]["delta"].get("tool_calls", ())]
    assert [(0, "a"), (1, "b")] == [(each["index"], each["id"]) for each in seen]


@pytest.mark.parametrize(
    ("first", "second", "query"),
    [("\ud83d", "\ude00", "\U0001f600"), ("\ud83d", "-", "\ufffd-"), ("-", "\ude00", "-\ufffd")],
    ids=["pair", "first", "second"],
)
def test_characters_may_be_cut(first: str, second: str, query: str, served: Serving) -> None:
    """The history has what the model wrote; a lone surrogate is U+FFFD there."""
    pieces = [call("a", OURS, '{"query":"' + first), call(None, None, second + '"}'), chunk({"content": first}), END]
    _, done, prompts = completed(served, "openai_chat", pieces, DONE)

    assert 1 == done.recalls
    message = prompts[1]["messages"][-2]
    assert {"query": query} == json.loads(message["tool_calls"][0]["function"]["arguments"])
    json.dumps(prompts[1], ensure_ascii=False).encode()


@pytest.mark.parametrize("format", NAMES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_odd_events_never_fail(format: str, served: Serving, data: st.DataObject) -> None:
    """Whatever their members are: they come through, and the stream ends with a result."""
    streamed = STREAMS[NAMES[format]][0]
    reports = [each for each in streamed.events if not isinstance(each[1], bytes)]
    made = [each for _, each in data.draw(odd_events(reports)) if isinstance(each, dict)]
    if format == "openai_responses":  # without its last event it has no result
        made.append(reports[-1][1])
    events, done, _ = completed(served, format, made)

    assert len(events) <= len(made)
    assert 0 == done.recalls


@pytest.mark.parametrize("text", ['{"a":"\ud83d"}', '{"a":"\\ud83d","b":"\\ud83d\\ude00"}', '{"a":"\\\\ud83d"}', "{}"])
def test_lone_surrogates_go_away_and_come_back(text: str) -> None:
    """As escapes; strict readers take the text without them."""
    whole = WithoutHalves.of(text)
    whole.text.encode()

    assert json.loads(text) == json.loads(whole.back(whole.text))


def test_a_name_in_endless_pieces_is_not_pieced_together(served: Serving) -> None:
    """Each piece would cost as much as all before it."""
    names = [f"{number}{'x' * 300}" for number in range(20)]
    pieces = [call("c" if number == 0 else None, name, "") for number, name in enumerate(names)]
    events, done, _ = completed(served, "openai_chat", [*pieces, call(None, None, "{}"), END])

    assert [*pieces, call(None, None, "{}"), END] == events
    assert "".join(names[:4]) == done.history()[-1]["tool_calls"][0]["function"]["name"]
