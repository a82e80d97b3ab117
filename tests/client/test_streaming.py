"""`complete` with `stream=True`: the SDK's events flow, and recall happens inside, for the three APIs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from prompt_sidecar.client import AsyncClient, Client, Completion
from tests.client.histories import FACT, history, result
from tests.client.provider import TOKENS
from tests.client.serving import PATIENT, sdk
from tests.client.test_sdks import FORMATS, api
from tests.doors.grpc.serving import Serving, serving
from tests.integrations.upstream import ANSWER, RECALL, TOOL, WINDOW, Upstream

OPTIONS: Any = {"context_window": WINDOW, "output_reserve": 500}
STEPS = 24
MORE: dict[str, Any] = {"anthropic_messages": {"max_tokens": 500}}


@pytest.fixture
def served() -> Iterator[Serving]:
    """A real server."""
    with serving() as running:
        yield running


def results(done: Completion) -> list[Any]:
    """The agent's answers to the model's calls."""
    return [call.result(result(json.loads(call.arguments)["number"])) for call in done.calls]


def blocking(format: Any, client: Client, there: Upstream) -> tuple[list[list[Any]], Completion, int]:
    """Run an agent; return the events of each call of `complete`, the last result, and the recalls."""
    spoken = api(format)
    create = spoken.blocking(there.url)
    messages, events, recalls = history(format, 0), [], 0
    with client.run("run", **OPTIONS) as run:
        while True:
            stream = run.complete(format, create, stream=True, **spoken.keywords(messages))
            events.append(list(stream))
            done = stream.completion
            recalls += done.recalls
            if not done.calls:
                usage: Any = client.get_run("run").usage
                assert usage.reports == len(there.bodies) == usage.input_tokens / TOKENS["input"]
                return events, done, recalls
            messages = done.history(results(done))


async def asynchronous(format: Any, target: str, there: Upstream) -> tuple[list[list[Any]], Completion, int]:
    """The same for asyncio."""
    spoken = api(format)
    model, create = spoken.asynchronous(there.url)
    messages, events, recalls = history(format, 0), [], 0
    async with model, AsyncClient(target, deadline=PATIENT) as client, client.run("run", **OPTIONS) as run:
        while True:
            stream = await run.complete(format, create, stream=True, **spoken.keywords(messages))
            events.append([event async for event in stream])
            done = stream.completion
            recalls += done.recalls
            if not done.calls:
                return events, done, recalls
            messages = done.history(results(done))


def text(events: list[Any]) -> str:
    """All that the events hold."""
    return "".join(event.model_dump_json() for event in events)


def text_of(format: str, events: list[Any]) -> str:
    """The model's text, put together from the events."""
    if format == "openai_chat":
        return "".join(choice.delta.content or "" for event in events for choice in event.choices)
    if format == "openai_responses":
        return "".join(event.delta for event in events if event.type == "response.output_text.delta")
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    return "".join(delta.text for delta in deltas if delta.type == "text_delta")


def begins_and_ends(format: str, events: list[Any]) -> None:
    """The events of one call of `complete` are those of one answer: one beginning, one end, indexes without a gap."""
    if format == "openai_chat":
        ended = [event for event in events if event.choices and event.choices[0].finish_reason]
        assert [events[-1]] == ended
        indexes = {call.index for event in events for call in event.choices[0].delta.tool_calls or ()}
    elif format == "openai_responses":
        kinds = [event.type for event in events]
        assert 1 == kinds.count("response.created")
        assert 1 == kinds.count("response.completed")
        assert "response.completed" == kinds[-1]
        indexes = {event.output_index for event in events if hasattr(event, "output_index")}
    else:
        kinds = [event.type for event in events]
        assert ("message_start", "message_stop") == (kinds[0], kinds[-1])
        assert 1 == kinds.count("message_start")
        assert 1 == kinds.count("message_stop")
        indexes = {event.index for event in events if hasattr(event, "index")}
    assert set(range(len(indexes))) == indexes


@pytest.mark.parametrize("way", ["blocking", "asyncio"])
@pytest.mark.parametrize("format", FORMATS)
def test_recall_inside_a_stream(format: str, way: str, served: Serving) -> None:
    """The agent sees its own tools' calls and the answer; the turn in which the model recalled is hidden."""
    with Upstream(steps=STEPS) as there, Client(served.address, deadline=PATIENT) as client:
        if way == "blocking":
            events, done, recalls = blocking(format, client, there)
        else:
            events, done, recalls = asyncio.run(asynchronous(format, served.address, there))

    assert ([], 0) == (there.defects, there.refused)
    assert STEPS + 2 == len(there.bodies)
    assert (1, STEPS + 1, 2) == (recalls, len(events), done.turns)
    assert FACT in there.recalled
    assert done.trimmed.trimmed
    assert ANSWER == text_of(format, events[-1])
    assert not any(f'"name":"{RECALL}"' in text(each) for each in events if format != "openai_responses")
    for each in events:
        begins_and_ends(format, each)


@pytest.mark.parametrize("format", FORMATS)
def test_a_mixed_turn(format: str, served: Serving) -> None:
    """The agent sees its own call alone, with the first index; both are answered in the history."""
    with Upstream(steps=STEPS, mixed=True) as there, Client(served.address, deadline=PATIENT) as client:
        events, done, recalls = blocking(format, client, there)

    assert ([], 0) == (there.defects, there.refused)
    assert (1, STEPS + 2, 1) == (recalls, len(events), done.turns)
    mixed = events[-2]
    assert TOOL in text(mixed)
    if format != "openai_responses":  # its last event holds the whole response
        assert RECALL not in text(mixed)
    begins_and_ends(format, mixed)


def test_a_stream_that_is_left_is_closed(served: Serving) -> None:
    """Who stops reading closes the provider's stream; there is no result then."""
    spoken = api("openai_chat")
    with (
        Upstream(steps=STEPS) as there,
        Client(served.address, deadline=PATIENT) as client,
        client.run("run", **OPTIONS) as run,
    ):
        create = spoken.blocking(there.url)
        stream = run.complete("openai_chat", create, stream=True, **spoken.keywords(history("openai_chat", 0)))
        next(iter(stream))
        stream.close()
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = stream.completion


def test_without_the_sidecar_the_stream_flows() -> None:
    """The events come, and the prompt went as it was given."""
    spoken = api("openai_chat")
    with Upstream(steps=0) as there, Client("127.0.0.1:1", deadline=PATIENT) as client:
        run = client.run("run", **OPTIONS)
        create = spoken.blocking(there.url)
        stream = run.complete("openai_chat", create, stream=True, **spoken.keywords(history("openai_chat", 0)))
        assert ANSWER == text_of("openai_chat", list(stream))
        assert not stream.completion.trimmed.trimmed


def test_the_usage_is_shown_to_those_who_asked(served: Serving) -> None:
    """The chunk with the usage is the agent's only if it asked for it; it is reported in any case."""
    spoken = api("openai_chat")
    sdk("openai")
    with Upstream(steps=0) as there, Client(served.address, deadline=PATIENT) as client:
        for asked, shown in (({}, 0), ({"stream_options": {"include_usage": True}}, 1)):
            run = client.run(f"run-{shown}", **OPTIONS)
            words = spoken.keywords(history("openai_chat", 0), **asked)
            stream = run.complete("openai_chat", spoken.blocking(there.url), stream=True, **words)
            assert shown == sum(event.usage is not None for event in stream)
            usage: Any = client.get_run(f"run-{shown}").usage
            assert 1 == usage.reports
