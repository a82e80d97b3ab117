"""Prompts of OpenAI's Responses API on a WebSocket: each is handled as the same body over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.facts.untrimmed import Untrimmed
from prompt_sidecar.guard.options import GuardOptions
from tests.agents.running import Seen
from tests.client.provider import MODEL, Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.socket_provider import SocketProvider
from tests.doors.http.test_bodies import held
from tests.doors.http.test_silent_agents import Watched
from tests.doors.http.upstream import Model, scripted
from tests.oracle import data
from tests.waiting import until

TOOLS: Final = [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}]
ENDS: Final = ("response.completed", "response.incomplete", "response.failed", "error")


@contextmanager
def behind(model: Model, **more: Any) -> Iterator[tuple[Proxied, SocketProvider, Seen]]:
    """A door that trims WebSockets, the provider behind it, and what was seen."""
    seen = Seen()
    made = SocketProvider(model)
    with proxied(scripted(), websocket="trim", observer=more.pop("observer", seen), **more) as here:
        here.upstream.other = made.opened
        yield here, made, seen


def create(*entries: Any, previous: str = "", **more: Any) -> dict[str, Any]:
    """A request."""
    body = {"type": "response.create", "model": MODEL, "store": False, "tools": TOOLS, "input": list(entries)}
    return body | ({"previous_response_id": previous} if previous else {}) | more


def user(text: str) -> Any:
    """What a user says."""
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> Any:
    """The answer to a call."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


async def answered(socket: Any, message: Any = None) -> list[Any]:
    """Send a request, and return the events of the answer to it."""
    if message is not None:
        await socket.send_str(json.dumps(message))
    events: list[Any] = []
    while not events or events[-1]["type"] not in ENDS:
        found = await socket.receive()
        assert found.type is WSMsgType.TEXT, found
        events.append(json.loads(found.data))
    return events


def agent(here: Proxied, does: Callable[[Any], Awaitable[Any]], **headers: str) -> Any:
    """Open a WebSocket, and return what the agent's side returns."""

    async def connect() -> Any:
        async with (
            asyncio.timeout(PATIENCE),
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{here.url}/v1/responses", compress=15, max_msg_size=0, headers=headers) as socket,
        ):
            return await does(socket)

    return asyncio.run(connect())


def test_one_request() -> None:
    """It goes on as it came, its answer comes as the provider's events, and it is counted as a prompt of a run."""
    with behind(scripted(Says("Hello."))) as (here, provider, seen):

        async def does(socket: Any) -> list[Any]:
            return await answered(socket, create(user("Hi."), stream_id="main"))

        events = agent(here, does)
        assert ["response.created", "response.completed"] == [events[0]["type"], events[-1]["type"]]
        assert {"main"} == {event["stream_id"] for event in events}
        assert "Hello." == events[-1]["response"]["output"][0]["content"][0]["text"]
        assert [] == provider.defects
        assert ["responses", "answered"] == list(seen.requests[0][:2])
        assert 1 == len(seen.trimmed_prompts) == len(here.core)
    assert [("responses", "opened", 101)] == seen.requests[1:]
    assert 1 == seen.reports


LOG: Final = "\n".join(f"line {number} of a log that nobody reads twice" for number in range(150))


def run_of(here: Proxied, turns: int, *, chained: bool, reported: Seen | None = None, **more: Any) -> list[list[Any]]:
    """An agent that reads logs until its model is done; it goes on from each response, or sends all of it again.

    `reported`: each request waits until the usage of the answer before it, by which tokens are estimated, is reported.
    """

    async def does(socket: Any) -> list[list[Any]]:
        history: list[Any] = [user("Read the logs.")]
        new, previous, found = list(history), "", []
        for turn in range(turns):
            events = await answered(socket, create(*(new if chained else history), previous=previous, **more))
            found.append(events)
            if events[-1]["type"] != "response.completed":
                break
            if reported is not None:
                await asyncio.to_thread(until, _reports(reported, turn + 1))
            output = events[-1]["response"]["output"]
            calls = [item for item in output if item["type"] == "function_call"]
            new = [result(call["call_id"], f"{turn}: {LOG}") for call in calls]
            history += [*output, *new]
            previous = events[-1]["response"]["id"] if chained else ""
            if not calls:
                break
        return found

    return agent(here, does)  # type: ignore[no-any-return]


def _reports(seen: Seen, count: int) -> Callable[[], bool]:
    return lambda: seen.reports >= count


def reads(turns: int) -> Model:
    """A model that reads so many logs."""
    return scripted(*[Says("", [(f"c{turn}", "read", {})]) for turn in range(turns)], Says("Done."))


def test_a_chain_is_cut() -> None:
    """Beyond the window a chain is trimmed: what fits goes on from the provider's, a cut is a whole input."""
    with behind(reads(12)) as (here, provider, seen):
        found = run_of(here, 13, chained=True)
        assert ["response.completed"] * 13 == [events[-1]["type"] for events in found]
        assert [] == provider.defects
        chained = [bool(each.message.get("previous_response_id")) for each in provider.asked]
        assert [False, True, True] == chained[:3]
        assert 0 < chained.count(False) - 1 < 6
        assert all(answer.fits for answer in seen.trimmed_prompts)
        assert any(answer.cache.batch_point for answer in seen.trimmed_prompts)
        last = provider.asked[-1].whole
        assert len(json.dumps(last)) < 13 * len(LOG)
    assert {"answered"} == {word for _, word, status in seen.requests if status == 200}


def test_many_turns_are_as_over_http() -> None:
    """A run that sends all of its history each time, and one that goes on from responses, show the model the same."""
    with behind(reads(8)) as (here, provider, seen):
        run_of(here, 9, chained=False, reported=seen)
        whole = [each.whole for each in provider.asked]
        assert all("previous_response_id" not in each.message for each in provider.asked)
        assert [] == provider.defects
    with behind(reads(8)) as (here, provider, seen):
        run_of(here, 9, chained=True, reported=seen)
        chained = [each.whole for each in provider.asked]
        assert [] == provider.defects
    assert [_text_of(body) for body in whole] == [_text_of(body) for body in chained]


def _text_of(body: Any) -> str:
    """A prompt without ids, of which the sidecar's are of its run."""
    return json.dumps(body["input"], sort_keys=True)


RECALL: Final = "recall_elided_content"


@pytest.mark.parametrize("store", [True, False])
def test_recall_on_a_chain(store: bool) -> None:
    """A call of the sidecar's tool is answered here; the agent sees one response, and goes on from it."""

    def recalls(body: Any) -> Says:
        label = json.dumps(body["input"]).split("id=", 1)[1][:10]
        return Says("I look.", [("own", RECALL, {"id": label})])

    before, after = ([Says("", [(f"{name}{turn}", "read", {})]) for turn in range(9)] for name in ("c", "d"))
    with behind(scripted(*before, recalls, *after[:2], Says("Done.")), window=16_000) as (here, provider, seen):
        found = run_of(here, 12, chained=True, store=store)
        assert "response.completed" == found[-1][-1]["type"]
        assert [] == provider.defects
        assert RECALL not in json.dumps(found)
        assert [False] * 10 + [True] * 3 == ['"own"' in json.dumps(each.whole["input"]) for each in provider.asked]
        hidden, *following = provider.asked[10:]
        call, answer = (item for item in hidden.whole["input"] if item.get("call_id") == "own")
        assert ("function_call", "line 149 of a log" in answer["output"]) == (call["type"], True)
        # The hidden turn goes on from the one before it, and what follows from that.
        went_on = [(each.message["previous_response_id"], len(each.message["input"])) for each in (hidden, *following)]
        assert [("resp-10", 1), ("resp-11", 1), ("resp-12", 1)] == went_on
        assert [("responses", "answered", 200)] * 12 == seen.requests[:12]


SECRET: Final = "ghp_" + "NoTrEaL2eItHeR9bUtInAtHoUgHtOfAmOdEl"
MASK: Final = re.compile("⟦github_token:[a-z0-9]{10}⟧")


def test_masks_under_a_guard_that_enforces() -> None:
    """No secret reaches the provider, on a chain neither; the agent's calls get their values back."""

    def calls(body: Any) -> Says:
        mask = MASK.search(json.dumps(body["input"], ensure_ascii=False))
        assert mask is not None, body
        return Says("", [("c1", "read", {"token": mask[0]})])

    guard = GuardOptions(mode="enforce", restore=("read:github_token",), scan_seconds=60)
    with behind(scripted(calls, Says("Done.")), guard=guard) as (here, provider, _):

        async def does(socket: Any) -> Any:
            first = await answered(socket, create(user(f"Use {SECRET} and go.")))
            more = create(result("c1", f"key {SECRET}"), previous=first[-1]["response"]["id"])
            return first, await answered(socket, more)

        first, _ = agent(here, does)
        assert json.dumps({"token": SECRET}) == first[-1]["response"]["output"][0]["arguments"]
        assert SECRET not in "".join(provider.raw)
        assert [] == provider.defects
        assert ("resp-1", 1) == (
            provider.asked[1].message["previous_response_id"],
            len(provider.asked[1].message["input"]),
        )


def test_what_a_rule_refuses() -> None:
    """The request is refused by an event with the status of HTTP, nothing goes on, and the WebSocket stays open."""
    guard = GuardOptions(mode="enforce", actions=("github_token=refuse",))
    with behind(scripted(Says("Hello.")), guard=guard) as (here, provider, seen):

        async def does(socket: Any) -> Any:
            refused = await answered(socket, create(user(f"Use {SECRET}."), stream_id="a"))
            return refused, await answered(socket, create(user("Hi.")))

        refused, following = agent(here, does)
        assert [("error", 400, "a")] == [(event["type"], event["status"], event["stream_id"]) for event in refused]
        assert "response.completed" == following[-1]["type"]
        assert 1 == len(provider.raw)
        assert ("responses", "refused", 0) == seen.requests[0]


def test_a_warm_up() -> None:
    """A request that only makes the provider ready is no prompt of a run; the first turn goes on from it."""
    with behind(scripted(Says("Hello."))) as (here, provider, seen):

        async def does(socket: Any) -> Any:
            system = {"role": "developer", "content": "Be brief."}
            ready = await answered(socket, create(system, generate=False))
            return await answered(socket, create(user("Hi."), previous=ready[-1]["response"]["id"]))

        assert "Hello." in json.dumps(agent(here, does))
        assert [("responses", "answered", 200)] * 2 == seen.requests[:2]
        assert [] == provider.defects
        assert "resp-1" == provider.asked[1].message["previous_response_id"]
        assert "Be brief." in json.dumps(provider.asked[1].whole)
        assert "Be brief." not in json.dumps(provider.asked[1].message)
        names = [[tool["name"] for tool in each.message["tools"]] for each in provider.asked]
        assert names[0] == names[1]
        assert RECALL in names[0]
    assert (1, 1) == (len(seen.trimmed_prompts), seen.reports)


def test_conversations_beside_each_other() -> None:
    """Those of two streams are made at once, those of one stream one after another; each stream has its own run."""
    with behind(lambda body: Says(f"To {body['input'][-1]['content']}")) as (here, provider, seen):
        waits, go_on = set[str](), asyncio.Event()

        async def before(_: Any) -> None:
            waits.add(asyncio.current_task().get_name())  # type: ignore[union-attr]
            if len(waits) > 1:
                go_on.set()
            await go_on.wait()

        async def does(socket: Any) -> Any:
            for name, text in (("a", "one"), ("b", "two"), ("a", "three")):
                await socket.send_str(json.dumps(create(user(text), stream_id=name)))
            return [each for _ in range(3) for each in await answered(socket)]

        provider.before = before
        events = agent(here, does)
        texts = [(each["stream_id"], each["text"]) for each in events if each["type"] == "response.output_text.done"]
        assert [("a", "To one"), ("a", "To three")] == [each for each in texts if each[0] == "a"]
        assert [("b", "To two")] == [each for each in texts if each[0] == "b"]
        assert 3 == len(here.core) == len(seen.trimmed_prompts)


def test_a_fork() -> None:
    """A stream goes on from another one's response."""
    with behind(scripted(Says("One."), Says("Two."))) as (here, provider, _):

        async def does(socket: Any) -> Any:
            first = await answered(socket, create(user("Hi."), stream_id="a"))
            return await answered(socket, create(user("And?"), previous=first[-1]["response"]["id"], stream_id="b"))

        agent(here, does)
        assert ("resp-1", "b") == tuple(
            provider.asked[1].message[name] for name in ("previous_response_id", "stream_id")
        )
        assert 1 == len(here.core)


def test_steering_is_given_back() -> None:
    """Nothing of it goes on; the agent is told by the event that the API has for this."""
    with behind(scripted()) as (here, provider, _):
        sent = {"type": "response.steer", "previous_response_id": "resp-1", "input": f"Use {SECRET}.", "stream_id": "a"}

        async def does(socket: Any) -> Any:
            await socket.send_str(json.dumps(sent))
            return json.loads((await socket.receive()).data)

        event = agent(here, does)
        assert ("response.steer.failed", "steering_not_supported", "a") == (
            event["type"],
            event["error"]["code"],
            event["stream_id"],
        )
        assert {"previous_response_id": "resp-1", "input": f"Use {SECRET}."} == event["steer"]
        assert [] == provider.raw


@pytest.mark.parametrize("injects", [True, False])
def test_what_is_injected_goes_on_masked(*, injects: bool) -> None:
    """And what goes on from that response is the provider's history: a whole input would lack what was injected."""
    given = {"type": "response.inject", "response_id": "resp-1", "input": [result("c1", f"Use {SECRET}.")]}
    model = scripted(Says("One."), Says("Two."))
    with behind(model, guard=GuardOptions(mode="enforce")) as (here, provider, seen):
        events = itertools.count()

        async def wait(_: Any) -> None:
            behind_first = next(events) > 0
            while behind_first and injects and not provider.other:  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0)

        async def does(socket: Any) -> Any:
            await socket.send_str(json.dumps(create(user("Hi."))))
            assert "response.created" == json.loads((await socket.receive()).data)["type"]
            if injects:
                await socket.send_str(json.dumps(given))
            first = await answered(socket)
            return await answered(socket, create(user("And?"), previous=first[-1]["response"]["id"]))

        provider.before = wait
        assert "response.completed" == agent(here, does)[-1]["type"]
        assert SECRET not in "".join(provider.raw)
        assert injects is bool(provider.other)
        if injects:
            assert ("response.inject", "resp-1") == (provider.other[0]["type"], provider.other[0]["response_id"])
            assert "c1" == provider.other[0]["input"][0]["call_id"]
        assert "resp-1" == provider.asked[1].message["previous_response_id"]
    reasons = [each.untrimmed for each in seen.asked]
    assert [Untrimmed.NO_NEED, Untrimmed.STORED_BY_PROVIDER if injects else Untrimmed.NO_NEED] == reasons


def test_what_says_nothing_to_a_model_passes() -> None:
    """Codex tells which response it has read."""
    with behind(scripted(Says("Hello."))) as (here, provider, _):

        async def does(socket: Any) -> Any:
            await socket.send_str(json.dumps({"type": "response.processed", "response_id": "resp-1"}))
            return await answered(socket, create(user("Hi.")))

        agent(here, does)
        assert [{"type": "response.processed", "response_id": "resp-1"}] == provider.other


def test_a_response_that_is_not_known() -> None:
    """Its history is the provider's: the request goes on from it, untrimmed and masked, and that is counted."""
    guard = GuardOptions(mode="enforce")
    with behind(scripted(), guard=guard) as (here, provider, seen):

        async def does(socket: Any) -> Any:
            return await answered(socket, create(user(f"Use {SECRET}."), previous="resp-unknown"))

        assert "previous_response_not_found" == agent(here, does)[-1]["error"]["code"]
        assert "resp-unknown" == provider.asked[0].message["previous_response_id"]
        assert SECRET not in provider.raw[0]
        assert [] == seen.trimmed_prompts
        assert ("responses", "upstream_refused", 400) == seen.requests[0]


def test_what_the_provider_has_forgotten() -> None:
    """The whole prompt goes in place of the response that it does not find; the agent sees nothing of that."""
    with behind(reads(4), window=20_000) as (here, provider, _):
        provider.forgets = {3}
        found = run_of(here, 5, chained=True)
        assert ["response.completed"] * 5 == [events[-1]["type"] for events in found]
        assert [False, True, True, False, True, True] == [
            bool(each.message.get("previous_response_id")) for each in provider.asked
        ]


def test_another_websocket_goes_on() -> None:
    """What is known here of a response outlives its WebSocket: the whole prompt goes on the next one."""
    with behind(scripted(Says("One."), Says("Two."))) as (here, provider, _):

        async def first(socket: Any) -> Any:
            return (await answered(socket, create(user("Hi."))))[-1]["response"]["id"]

        previous = agent(here, first)

        async def second(socket: Any) -> Any:
            return await answered(socket, create(user("And?"), previous=previous))

        assert "Two." in json.dumps(agent(here, second))
        assert "previous_response_id" not in provider.asked[1].message
        assert ["Hi.", "And?"] == [
            each["content"] for each in provider.asked[1].whole["input"] if each["role"] == "user"
        ]


def test_a_response_that_was_cut_off() -> None:
    """What follows it is trimmed, too: the whole prompt goes, without the call of which half came."""
    call = Says("Words.", [("c1", "read", {})])
    with behind(scripted(Says("One."), call, Says("Done."), Says("Bye."))) as (here, provider, seen):
        provider.cut_off = {2}

        async def does(socket: Any) -> None:
            previous = ""
            for text in ("Hi.", "Go.", "Go on.", "Thanks."):
                previous = (await answered(socket, create(user(text), previous=previous)))[-1]["response"]["id"]

        agent(here, does)
        assert [False, True, False, True] == [bool(each.message.get("previous_response_id")) for each in provider.asked]
        assert ("Words." in json.dumps(provider.asked[2].whole), '"c1"' in json.dumps(provider.asked[2].whole)) == (
            True,
            False,
        )
        assert ([], 4) == (provider.defects, len(seen.trimmed_prompts))


def test_a_prompt_that_the_provider_refuses_as_too_long() -> None:
    """It is trimmed again, to the limit that the refusal tells; the agent sees only the answer."""
    refusal = "This model's maximum context length is 3000 tokens. However, your messages resulted in 3600 tokens."
    with behind(reads(4)) as (here, provider, _):
        provider.refuses = {3: {"message": refusal, "code": "context_length_exceeded"}}
        found = run_of(here, 5, chained=True)
        assert ["response.completed"] * 5 == [events[-1]["type"] for events in found]
        assert 6 == len(provider.asked)


def test_a_refusal_comes_as_it_is() -> None:
    """With its status, and the agent goes on."""
    with behind(scripted(Says("Hello."))) as (here, provider, seen):
        provider.refuses = {1: {"message": "Slow down.", "code": "rate_limit_exceeded", "status": 429}}

        async def does(socket: Any) -> Any:
            return await answered(socket, create(user("Hi."))), await answered(socket, create(user("Hi.")))

        refused, following = agent(here, does)
        error = {"type": "invalid_request_error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None}
        assert [{"type": "error", "status": 429, "error": error}] == refused
        assert "response.completed" == following[-1]["type"]
        assert ("responses", "upstream_refused", 429) == seen.requests[0]


async def closing_of(socket: Any) -> tuple[Any, Any]:
    """With what code and reason a WebSocket is closed."""
    while (message := await socket.receive()).type is not WSMsgType.CLOSE:
        assert message.type in {WSMsgType.TEXT, WSMsgType.BINARY}, message
    return message.data, message.extra


@pytest.mark.parametrize(
    "sent",
    [
        "{",
        "[]",
        "7",
        '{"input": []}',
        '{"type": 1}',
        b"\xff\x00",
        {"type": "response.inject", "input": []},
        '{"type": "response.inject", "response_id": "resp-1", "input": ["\\ud800"]]}',
        "x" * 200_000,
    ],
    ids=["cut", "array", "number", "no type", "odd type", "bytes", "unknown", "injected wrong", "too long"],
)
def test_what_cannot_be_read(sent: Any) -> None:
    """It closes the WebSocket, nothing goes on, and the session's next one is answered 426; the one after is opened."""
    with behind(scripted(), max_body_bytes=100_000) as (here, provider, seen):

        async def does(socket: Any) -> Any:
            await (socket.send_bytes(sent) if isinstance(sent, bytes) else socket.send_str(_text(sent)))
            return await closing_of(socket)

        assert agent(here, does, session_id="s1")[0] == (1009 if len(sent) > 1_000 else 1008)
        until(lambda: bool(here.door._handler.sockets._refused))  # type: ignore[union-attr]  # noqa: SLF001
        agent(here, _nothing, session_id="s2")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            agent(here, _nothing, session_id="s1")
        assert 426 == refused.value.status
        agent(here, _nothing, session_id="s1")
        assert [] == provider.raw
    assert 1 == seen.requests.count(("responses", "sent_to_http", 0))


async def _nothing(_: Any) -> None:
    """Close at once."""


def _text(sent: Any) -> str:
    return sent if isinstance(sent, str) else json.dumps(sent)


def test_what_the_guard_cannot_read() -> None:
    """Under a guard that enforces, a request that it cannot read closes the WebSocket, too."""
    guard = GuardOptions(mode="enforce")
    nested = "[" * 2_000 + "]" * 2_000
    with behind(scripted(), guard=guard) as (here, provider, _):

        async def does(socket: Any) -> Any:
            body = json.dumps(create(user(f"Use {SECRET}."))).replace('"store": false', f'"metadata": {nested}')
            await socket.send_str(body)
            return await closing_of(socket)

        assert 1008 == agent(here, does)[0]
        assert SECRET not in "".join(provider.raw)


def test_an_agent_that_takes_nothing() -> None:
    """It is cut off after `server.answer_timeout`; until then little is read of what the provider sends."""
    server = ServerOptions(listen="", sweep_interval=3_600, answer_timeout=0.3)
    observer, most, left = Watched(), 0, threading.Event()
    with behind(scripted(), server=server, observer=observer) as (here, _, _seen):

        async def opened(request: web.Request) -> web.WebSocketResponse:
            nonlocal most
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.receive()
            event = json.dumps({"type": "response.output_text.delta", "delta": "x" * 500_000})
            with suppress(ConnectionError):
                while not socket.closed:
                    await socket.send_str(event)
                    most = max(most, held(here))
            left.set()
            return socket

        async def does(socket: Any) -> None:
            socket._writer.transport.pause_reading()  # noqa: SLF001
            await socket.send_str(json.dumps(create(user("Hi."))))
            await asyncio.to_thread(left.wait, PATIENCE)
            socket._writer.transport.abort()  # noqa: SLF001

        here.upstream.other = opened
        agent(here, does)
    assert "server.answer_timeout" in observer.bounds
    assert 0 < most < 32_000_000


def test_an_agent_that_leaves() -> None:
    """In the middle of an answer: the provider is told, and what it has counted until then is reported."""
    with behind(scripted(Says("Hello. " * 2_000))) as (here, provider, seen):

        async def does(socket: Any) -> Any:
            await socket.send_str(json.dumps(create(user("Hi."))))
            await socket.receive()

        agent(here, does)
        until(lambda: len(seen.requests) == 2)
        assert ("responses", "cancelled", 200) == seen.requests[0]
        until(lambda: bool(provider.closed))


def test_a_provider_that_leaves() -> None:
    """In the middle of an answer the agent is closed with the provider's code: it takes no part for the whole."""
    with behind(scripted(Says("Hello."))) as (here, provider, seen):

        async def before(socket: Any) -> None:
            await socket.close(code=4_000, message=b"over")

        async def does(socket: Any) -> Any:
            await socket.send_str(json.dumps(create(user("Hi."))))
            return await closing_of(socket)

        provider.before = before
        assert (4_000, "over") == agent(here, does)
    assert {("responses", "upstream_failed", 0), ("responses", "opened", 101)} == set(seen.requests)


@pytest.mark.parametrize(("status", "answer"), [(401, 401), (429, 429), (404, 426), (405, 426), (426, 426)])
def test_a_provider_that_opens_none(status: int, answer: int) -> None:
    """Where it has none, the agent uses HTTP; any other refusal is the provider's."""
    with behind(scripted()) as (here, _, _seen):

        async def refuse(_: web.Request) -> web.Response:
            return web.Response(status=status, headers={"retry-after": "7"})

        here.upstream.other = refuse
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            agent(here, _nothing)
        assert answer == refused.value.status


def test_its_opening() -> None:
    """Headers go on both ways; nothing is compressed, as a small frame could become any size."""
    with behind(scripted()) as (here, provider, _):

        async def does(socket: Any) -> Any:
            return socket.compress, socket._response.headers["x-codex-turn-state"]  # noqa: SLF001

        assert (0, "sticky") == agent(here, does, authorization="Bearer key", x_own="1")
        assert ("Bearer key", "1") == (provider.headers[0]["authorization"], provider.headers[0]["x_own"])
        assert "sec-websocket-extensions" not in provider.headers[0]


def test_more_websockets_than_a_caller_may_have() -> None:
    """The agent is told to use HTTP, and the bound is counted."""
    observer = Watched()
    with behind(scripted(), caller_websockets=1, observer=observer) as (here, _, _seen):

        async def does(_: Any) -> int:
            async with aiohttp.ClientSession() as session:
                try:
                    await session.ws_connect(f"{here.url}/v1/responses")
                except aiohttp.WSServerHandshakeError as error:
                    return error.status
            return 101

        assert 426 == agent(here, does)
        assert {"http.caller_websockets"} == observer.bounds


@pytest.mark.parametrize("bound", ["websocket_idle", "websocket_time"])
def test_one_that_is_open_for_too_long(bound: str) -> None:
    """It is closed, behind the answer that is made: the agent opens another one."""
    observer = Watched()
    with behind(scripted(Says("Hello.")), observer=observer, **{bound: 1.0}) as (here, _, _seen):

        async def does(socket: Any) -> Any:
            return await answered(socket, create(user("Hi."))), await closing_of(socket)

        events, closed = agent(here, does)
        assert ("response.completed", 1001) == (events[-1]["type"], closed[0])
        assert {f"http.{bound}"} == observer.bounds


def test_a_stop_waits_for_answers() -> None:
    """A WebSocket on which nothing is asked is closed at once, another one behind the answer."""
    with behind(scripted(Says("Hello."))) as (here, provider, _):

        async def before(_: Any) -> None:
            here.door.drain()

        async def does(socket: Any) -> Any:
            return await answered(socket, create(user("Hi."))), await closing_of(socket)

        provider.before = before
        events, closed = agent(here, does)
        assert ("response.completed", 1001) == (events[-1]["type"], closed[0])


def test_chains_are_bounded() -> None:
    """Beyond `http.chain_bytes` a request goes on from what the provider keeps, untrimmed, and says so."""
    observer = Watched()
    with behind(reads(3), chain_bytes=6_000, window=20_000, observer=observer) as (here, provider, _):
        found = run_of(here, 4, chained=True)
        assert ["response.completed"] * 4 == [events[-1]["type"] for events in found]
        assert {"http.chain_bytes"} == observer.bounds
        assert [True] * 3 == [bool(each.message.get("previous_response_id")) for each in provider.asked[1:]]


def test_a_chain_ends_with_its_run() -> None:
    """Nothing of a run that was ended is kept."""
    with behind(reads(1)) as (here, _, _seen):
        run_of(here, 1, chained=True)
        run = next(iter(here.core.table._runs))  # noqa: SLF001
        stored = here.door._handler._prompter._stored  # type: ignore[union-attr]  # noqa: SLF001
        assert stored.kept_bytes(run) > 0
        stored.forget(run)
        assert (0, 0, 0) == (stored.kept_bytes(run), stored._chain_bytes, len(stored._known))  # noqa: SLF001


def test_a_recorded_request() -> None:
    """It has 800 kB, for a window of 128,000 tokens: what reaches the provider fits, and counts as a prompt."""
    asked_for = json.loads(data.need("failing/websocket_untrimmed.json").read_text())
    message = asked_for["message"]
    for number in range(220):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"}
        message["input"] += [call, result(f"c{number}", f"{number} line of a log\n" * 200)]
    with behind(scripted(Says("Done."))) as (here, provider, seen):

        async def does(socket: Any) -> Any:
            return await answered(socket, message)

        assert "response.completed" == agent(here, does)[-1]["type"]
        assert ([], 1) == (provider.defects, len(here.core))
        assert seen.trimmed_prompts[0].fits
        assert len(provider.raw[0]) < len(json.dumps(message)) / 1.4
