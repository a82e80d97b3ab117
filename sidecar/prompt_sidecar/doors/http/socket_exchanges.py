"""One `response.create` on a WebSocket and the answer to it: an exchange as over HTTP, with messages for its bytes.

    response.create ─► Exchange ─► Provided   what of the prompt the provider does not have goes to it, as a message
                          │            │
                          │        Answer     its messages, as the server-sent events that the exchange reads
                          ▼
                       Client ─► Messages     the events that the exchange writes, as messages to the agent

The exchange makes whole prompts. Where the agent goes on from a response, so does what is sent: if the prompt begins
with all that the provider has of it, only the rest goes, with that response's id. If it does not, as something was cut,
the whole prompt takes its place, and the provider forgets nothing that the model needs.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from types import TracebackType
from typing import Any, Final

import aiohttp
import msgspec
import orjson
from aiohttp import WSMsgType, web
from multidict import CIMultiDict

from prompt_sidecar.answers.answer_json import write_sound
from prompt_sidecar.answers.base import Dialect, ModelTurn, error_text
from prompt_sidecar.answers.sse import EVENTS
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.work import CallWorkers
from prompt_sidecar.doors.http.agents import RequestingAgent
from prompt_sidecar.doors.http.exchange import HttpExchange
from prompt_sidecar.doors.http.prompting import SentPrompt
from prompt_sidecar.prompt.members import Members, array, elements, loads
from prompt_sidecar.providers import responses_socket as wire
from prompt_sidecar.providers.server_sent_events import EventBytes
from prompt_sidecar.providers.untyped import member

MOST_WAITING: Final = 1_048_576
"""Bytes of a response's messages that wait for its agent; no more are read of the provider until it has taken some."""
_KEPT: Final = 2 * wire.MOST_STREAMS
"""Responses of one WebSocket of which is known what the provider has: of each stream the newest, and one before it."""
_DIGEST: Final = 16
_STATUSES: Final = 600
"""The first number that is no status of HTTP."""
_JSON: Final = "application/json"


class MessageSource(msgspec.Struct):
    """What of a message says where it belongs."""

    type: str
    stream_id: Any = None
    previous_response_id: Any = None
    status: Any = None

    @property
    def stream(self) -> str:
        """The name of its stream; empty: it has none."""
        return self.stream_id if isinstance(self.stream_id, str) else ""

    @property
    def previous(self) -> str:
        """The id of the response that it goes on from; empty: none."""
        return self.previous_response_id if isinstance(self.previous_response_id, str) else ""


_HEAD: Final = msgspec.json.Decoder(MessageSource)


def head(data: bytes) -> MessageSource | None:
    """Read where a message belongs; None: it is none of this API."""
    try:
        return _HEAD.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# -- to the provider ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """What the provider has of a response."""

    sent: int
    """How many entries it was sent."""
    digest: bytes
    """Of those, as bytes."""
    said: tuple[bytes, ...]
    """Digests of what it answered, as JSON's values."""


class KeptResponses:
    """What the provider keeps of the newest responses of one WebSocket. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, KeptResponse] = OrderedDict()

    def keep(self, response_id: str, kept: KeptResponse) -> None:
        """Note what it has of a response."""
        with self._lock:
            self._known[response_id] = kept
            self._known.move_to_end(response_id)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)

    def find(self, response_id: str) -> KeptResponse | None:
        """Return what it has of a response; None: nothing is known of that."""
        with self._lock:
            return self._known.get(response_id)

    def forget(self, response_id: str) -> None:
        """Note that it has not kept a response."""
        with self._lock:
            self._known.pop(response_id, None)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST).digest()


def _digest_of(entries: Sequence[bytes]) -> bytes:
    made = blake2b(digest_size=_DIGEST)
    for each in entries:
        made.update(len(each).to_bytes(8, "big"))
        made.update(each)
    return made.digest()


def _same(dialect: Dialect, entry: bytes) -> bytes:
    """A digest that is the same for all ways of writing an entry, and a call's arguments."""
    found = loads(entry)
    if not isinstance(found, dict):
        return _digest(entry)
    for holder, name, _ in dialect.arguments({"output": [found]}):
        text = holder.get(name)
        if isinstance(text, str) and (arguments := loads(text.encode("utf-8", "surrogatepass"))) is not None:
            holder[name] = arguments
    return _digest(orjson.dumps(found, option=orjson.OPT_SORT_KEYS))


def rest_of(members: Members, dialect: Dialect, kept: KeptResponse) -> list[bytes] | None:
    """Return the entries of a prompt behind what the provider has; None: it does not begin with that."""
    entries = elements(members.raw(dialect.messages))
    end = kept.sent + len(kept.said)
    if len(entries) <= end or _digest_of(entries[: kept.sent]) != kept.digest:
        return None
    same = tuple(_same(dialect, each) for each in entries[kept.sent : end]) == kept.said
    return entries[end:] if same else None


class ResponseMessages:
    """The messages of one response as they come, until it is answered."""

    def __init__(self, went_on: Callable[[int], None]) -> None:
        """`went_on` is told of the bytes of each message that is taken."""
        self._went_on = went_on
        self._messages: deque[bytes] = deque()
        self._waiting = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = self._lost = self._ended = False

    async def put(self, data: bytes, *, ends: bool) -> None:
        """Hand a message on, the last one if it `ends` the response; wait while too many wait."""
        self._ended = self._ended or ends
        if self._closed:
            self._went_on(len(data))
            return
        self._messages.append(data)
        self._waiting += len(data)
        self._changed.set()
        if self._waiting > MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    def lose(self) -> None:
        """Note that no more comes, as the provider has gone."""
        self._lost = True
        self._changed.set()
        self._room.set()

    async def next(self) -> list[bytes]:
        """Return the messages that have come; none: the response has ended. Raises ClientConnectionError."""
        while not self._messages:
            if self._ended:
                return []
            if self._lost:
                raise aiohttp.ClientConnectionError("the provider has closed the WebSocket")
            self._changed.clear()
            await self._changed.wait()
        return self._taken()

    def close(self) -> None:
        """Take nothing more: what still comes of the response is nobody's."""
        self._closed = True
        self._taken()

    def _taken(self) -> list[bytes]:
        taken = list(self._messages)
        self._messages.clear()
        self._waiting = 0
        self._room.set()
        for each in taken:
            self._went_on(len(each))
        return taken


class SocketAnswer:
    """One answer of the provider, in the form of aiohttp's, with server-sent events for its messages."""

    reason: Final = None

    def __init__(self, first: Sequence[bytes], stream: ResponseMessages) -> None:
        self._first = list(first)
        self._stream = stream
        found = head(first[0]) if first else None
        refused = found is not None and found.type == "error"
        status = None if found is None else found.status
        told = isinstance(status, int) and wire.REFUSED <= status < _STATUSES
        self.status = 200 if not refused else status if told else wire.REFUSED
        self.refused = refused
        self.told = first[0] if refused else b""
        """The refusal."""
        self.headers = CIMultiDict({"content-type": _JSON if refused else EVENTS})
        self.content = self

    async def readany(self) -> bytes:
        """Return what has come, as events; a refusal as it is. Empty: it is over."""
        if self._first:
            first, self._first = self._first, []
            return first[0] if self.refused else b"".join(map(_event, first))
        return b"" if self.refused else b"".join(map(_event, await self._stream.next()))

    async def iter_any(self) -> Any:
        """Yield what has come until it is over."""
        while piece := await self.readany():
            yield piece


def _event(data: bytes) -> bytes:
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"data: " + data + b"\n\n"


@dataclass(slots=True)
class PromptSender:
    """Sends the prompts of one exchange to the provider: a `Sends`."""

    socket: Any
    """The provider's WebSocket."""
    open: Callable[[], ResponseMessages]
    """Makes what the next answer comes by."""
    dialect: Dialect
    work: CallWorkers
    kept: KeptResponses
    name: str
    """Of the stream on the WebSocket; empty: it has none."""
    previous: str = ""
    """The provider's id of the response to go on from; empty: none."""
    goes_on: bool = False
    """Whether the agent goes on from a response, and so may its hidden turns."""
    sent: tuple[int, bytes] | None = None
    """The number of entries of the prompt that was sent last, and their digest; None: the provider has more."""
    injected: bool = False
    """Whether the response was, or may have been, given more input while it was made: then it holds what nobody sends
    again, and what goes on from it is known to the provider alone."""

    def address(self, *_: object) -> tuple[str, int]:
        """See `Sends`: it is known of the WebSocket alone."""
        return "", 0

    def send(self, *request: Any) -> _Asking:
        """See `Sends`."""
        return _Asking(self, request[-1])

    def framed(self, body: bytes, *, whole: bool) -> tuple[bytes, bool]:
        """Return a prompt as the message that is sent, and whether that goes on from a response; `whole`: it may not.

        In a worker thread.
        """
        members = Members(body)
        messages = self.dialect.messages
        if self.dialect.continues_stored(members):  # of a response that is not known here
            self.sent = None
            return body, False
        kept = self.kept.find(self.previous) if self.previous and self.goes_on and not whole else None
        rest = rest_of(members, self.dialect, kept) if kept is not None else None
        entries = elements(members.raw(messages))
        self.sent = len(entries), _digest_of(entries)
        if rest is None:
            return members.bytes(), False
        members.set(messages, array(rest))
        members.set(wire.PREVIOUS, orjson.dumps(self.previous))
        return members.bytes(), True

    def answered(self, turn: ModelTurn, prompt: SentPrompt) -> None:
        """Note what the provider has after an answer. In a worker thread."""
        if self.injected or not turn.response_id or self.sent is None or prompt.members is None or not turn.whole:
            return
        said = self.dialect.sendable(turn.entries, prompt.members)
        self.kept.keep(
            turn.response_id, KeptResponse(*self.sent, tuple(_same(self.dialect, write_sound(each)) for each in said))
        )
        self.previous = turn.response_id


class _Asking:
    """Sends a prompt, and waits for the beginning of its answer."""

    def __init__(self, by: PromptSender, body: bytes) -> None:
        self._by = by
        self._body = body
        self._stream: ResponseMessages | None = None

    async def __aenter__(self) -> SocketAnswer:
        answer, goes_on = await self._ask(whole=False)
        if goes_on and answer.refused and wire.NOT_FOUND.encode() in answer.told:
            self._by.kept.forget(self._by.previous)
            answer, _ = await self._ask(whole=True)
        return answer

    async def _ask(self, *, whole: bool) -> tuple[SocketAnswer, bool]:
        by = self._by
        message, goes_on = await by.work.run(lambda: by.framed(self._body, whole=whole), size=len(self._body))
        self._leave()
        self._stream = by.open()
        try:
            await by.socket.send_frame(message, WSMsgType.TEXT)
        except (ConnectionError, RuntimeError) as error:
            raise aiohttp.ClientConnectionError("the provider has closed the WebSocket") from error
        return SocketAnswer(await self._stream.next(), self._stream), goes_on

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.close()


# -- to the agent ------------------------------------------------------------------------------------------------------


class EventMessages(web.StreamResponse):
    """An answer to the agent: its events go as messages."""

    def __init__(self, socket: web.WebSocketResponse, name: str) -> None:
        """`name` of the stream on the WebSocket; empty: it has none."""
        super().__init__()
        self._to = socket
        self._name = name
        self._events = EventBytes()

    async def prepare(self, _: Any) -> None:
        """The WebSocket is open."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the events that are whole."""
        for event in self._events.feed(bytes(data)):
            await self._send(event)

    async def write_eof(self, data: bytes = b"") -> None:
        """Send what is left."""
        await self.write(data)
        for event in self._events.last():
            await self._send(event)

    async def _send(self, event: bytes) -> None:
        lines = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
        if lines:
            await self._to.send_frame(named(b"\n".join(lines), self._name), WSMsgType.TEXT)


def named(data: bytes, name: str) -> bytes:
    """Return an event with the name of its stream, which events that are made here lack; empty: it has none."""
    if not name or f'"{wire.STREAM}"'.encode() in data:
        return data
    found = loads(data)
    return orjson.dumps({**found, wire.STREAM: name}) if isinstance(found, dict) else data


class SocketClient(RequestingAgent):
    """The agent's side of one `response.create`."""

    def __init__(  # noqa: PLR0917 - as an agent's, with its WebSocket
        self,
        request: web.Request,
        limits: ServerOptions,
        reached: Callable[[str], None],
        socket: web.WebSocketResponse,
        name: str,
        lost: Callable[[], None],
    ) -> None:
        """`lost` is called when an answer cannot go on; `name` is that of the stream."""
        super().__init__(request, limits, reached)
        self._socket = socket
        self._name = name
        self._lost = lost

    def begun(self, status: int, reason: str | None, headers: Mapping[str, str]) -> web.StreamResponse:
        """Return an answer that comes in messages."""
        del status, reason, headers
        return EventMessages(self._socket, self._name)

    async def send(
        self, body: bytes, headers: Mapping[str, str], status: int = 200, reason: str | None = None
    ) -> web.StreamResponse:
        """Send a refusal as it came."""
        response = self.begun(status, reason, headers)
        await self.taken(self._socket.send_frame(body, WSMsgType.TEXT))
        return response

    def cut_off(self) -> None:
        """Have the WebSocket closed, as the provider's is."""
        self._lost()

    async def _ended(self, response: web.StreamResponse) -> None:
        await response.write_eof()

    def _not_taken(self) -> None:
        self._reached("server.answer_timeout")
        super().cut_off()


class SocketExchange(HttpExchange):
    """An exchange on a WebSocket."""

    provided: PromptSender
    """By what its prompts go to the provider; set before it runs."""

    async def _step(self, prompt: SentPrompt) -> SentPrompt | web.StreamResponse:
        chain = prompt.asked.chain
        if chain is not None and chain.before is not None and not self.provided.goes_on:
            self.provided.goes_on, self.provided.previous = True, chain.previous
        return await super()._step(prompt)

    async def _keep(self, prompt: SentPrompt, size: int) -> None:
        if self.provided.injected:
            prompt = replace(prompt, asked=replace(prompt.asked, chain=None))
        await super()._keep(prompt, size)
        events = self._filter
        assert events is not None
        await self.work.run(lambda: self.provided.answered(events.turn(), prompt), size=size)

    async def _next(self, prompt: SentPrompt, turn: ModelTurn) -> SentPrompt:
        await self.work.run(self.provided.answered, turn, prompt)
        return await super()._next(prompt, turn)

    async def _end_with_error(self, status: int, body: bytes) -> web.StreamResponse:
        """End a response that has begun by the event that refuses one: no end of a stream shows it."""
        assert self._response is not None
        found = member(loads(body), "error") if body else None
        error = found or {"type": "server_error", "code": str(status), "message": error_text(body, status)}
        event = wire.refusal(status, error, self.provided.name)
        await self.agent.write(self._response, b"data: " + event + b"\n\n")
        await self.agent.end(self._response)
        return self._response
