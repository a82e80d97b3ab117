"""One `response.create` on a WebSocket and the answer to it: an exchange as over HTTP, with messages as its bytes.

    response.create ─► Exchange ─► Provided   sends the part of the prompt that the provider lacks, as a message
                          │            │
                          │        Answer     its messages, as the server-sent events that the exchange reads
                          ▼
                       Client ─► Messages     the events that the exchange writes, as messages to the agent

The exchange makes whole prompts. If the agent continues from a response, and the prompt begins with all that the
provider stores of that response, only the rest is sent, with that response's id. Otherwise, because something was cut,
the whole prompt is sent, so that the provider has all that the model needs.
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
"""Bytes of a response's messages that wait for the agent; beyond, nothing is read from the provider until the agent has
read some."""
_KEPT: Final = 2 * wire.MOST_STREAMS
"""Responses of one WebSocket for which the provider's stored input is remembered: the newest of each stream, and one
before it."""
_DIGEST: Final = 16
_STATUSES: Final = 600
"""The first number that is not an HTTP status."""
_JSON: Final = "application/json"


class MessageSource(msgspec.Struct):
    """The fields of a message that say which stream and response it belongs to."""

    type: str
    stream_id: Any = None
    previous_response_id: Any = None
    status: Any = None

    @property
    def stream(self) -> str:
        """The name of its stream, or an empty string."""
        return self.stream_id if isinstance(self.stream_id, str) else ""

    @property
    def previous(self) -> str:
        """The id of the response that it continues from, or an empty string."""
        return self.previous_response_id if isinstance(self.previous_response_id, str) else ""


_HEAD: Final = msgspec.json.Decoder(MessageSource)


def head(data: bytes) -> MessageSource | None:
    """Read the fields of a message; None if it is not a message of this API."""
    try:
        return _HEAD.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# -- to the provider ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """The input and output that the provider stores for a response."""

    sent: int
    """Number of entries sent to the provider."""
    digest: bytes
    """Digest of these entries, as bytes."""
    answer_digests: tuple[bytes, ...]
    """Digests of the entries in its answer, as JSON values."""


class KeptResponses:
    """The input and output that the provider stores for the newest responses of one WebSocket. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, KeptResponse] = OrderedDict()

    def keep(self, response_id: str, kept: KeptResponse) -> None:
        """Remember what the provider stores for a response."""
        with self._lock:
            self._known[response_id] = kept
            self._known.move_to_end(response_id)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)

    def find(self, response_id: str) -> KeptResponse | None:
        """Return what the provider stores for a response, or None if that is not known."""
        with self._lock:
            return self._known.get(response_id)

    def forget(self, response_id: str) -> None:
        """Note that the provider has not stored a response."""
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
    """Return a digest of an entry that does not depend on how its JSON, or that of a call's arguments, is written."""
    found = loads(entry)
    if not isinstance(found, dict):
        return _digest(entry)
    for holder, name, _ in dialect.arguments({"output": [found]}):
        text = holder.get(name)
        if isinstance(text, str) and (arguments := loads(text.encode("utf-8", "surrogatepass"))) is not None:
            holder[name] = arguments
    return _digest(orjson.dumps(found, option=orjson.OPT_SORT_KEYS))


def rest_of(members: Members, dialect: Dialect, kept: KeptResponse) -> list[bytes] | None:
    """Return the entries of a prompt that the provider lacks; None if the prompt does not begin with what it stores."""
    entries = elements(members.raw(dialect.messages))
    end = kept.sent + len(kept.answer_digests)
    if len(entries) <= end or _digest_of(entries[: kept.sent]) != kept.digest:
        return None
    same = tuple(_same(dialect, each) for each in entries[kept.sent : end]) == kept.answer_digests
    return entries[end:] if same else None


class ResponseMessages:
    """Queue of the messages of one response, until the response has ended."""

    def __init__(self, went_on: Callable[[int], None]) -> None:
        """`went_on` is called with the bytes of each message that is taken out."""
        self._went_on = went_on
        self._messages: deque[bytes] = deque()
        self._waiting = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = self._lost = self._ended = False

    async def put(self, data: bytes, *, ends: bool) -> None:
        """Add a message, the last one if it `ends` the response; wait while too many bytes are queued."""
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
        """Note that no more messages arrive, as the connection to the provider is lost."""
        self._lost = True
        self._changed.set()
        self._room.set()

    async def next(self) -> list[bytes]:
        """Return the messages received; none if the response has ended. Raises ClientConnectionError."""
        while not self._messages:
            if self._ended:
                return []
            if self._lost:
                raise aiohttp.ClientConnectionError("the provider has closed the WebSocket")
            self._changed.clear()
            await self._changed.wait()
        return self._taken()

    def close(self) -> None:
        """Discard messages of the response that arrive from now on."""
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
    """One answer of the provider, with aiohttp's interface: its messages as server-sent events."""

    reason: Final = None

    def __init__(self, first: Sequence[bytes], stream: ResponseMessages) -> None:
        self._first = list(first)
        self._stream = stream
        found = head(first[0]) if first else None
        refused = found is not None and found.type == "error"
        status = None if found is None else found.status
        has_status = isinstance(status, int) and wire.REFUSED <= status < _STATUSES
        self.status = 200 if not refused else status if has_status else wire.REFUSED
        self.refused = refused
        self.refusal = first[0] if refused else b""
        """The refusal, or empty."""
        self.headers = CIMultiDict({"content-type": _JSON if refused else EVENTS})
        self.content = self

    async def readany(self) -> bytes:
        """Return what was received, as events; a refusal unchanged. Empty if the answer has ended."""
        if self._first:
            first, self._first = self._first, []
            return first[0] if self.refused else b"".join(map(_event, first))
        return b"" if self.refused else b"".join(map(_event, await self._stream.next()))

    async def iter_any(self) -> Any:
        """Yield what is received, until the answer has ended."""
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
    """Creates the queue for the next answer."""
    dialect: Dialect
    work: CallWorkers
    kept: KeptResponses
    name: str
    """Name of the stream on the WebSocket; empty if it has none."""
    previous: str = ""
    """The provider's id of the response to continue from; empty if there is none."""
    goes_on: bool = False
    """Whether the agent continues from a response, so that its hidden turns may as well."""
    sent: tuple[int, bytes] | None = None
    """Number and digest of the entries in the prompt sent last; None if the provider stores more than these."""
    injected: bool = False
    """Whether the response got, or may have got, further input while it was generated. The response then holds input
    that is not sent again, and only the provider has what continues from it."""

    def address(self, *_: object) -> tuple[str, int]:
        """See `Sends`: the WebSocket has one address."""
        return "", 0

    def send(self, *request: Any) -> _Asking:
        """See `Sends`."""
        return _Asking(self, request[-1])

    def framed(self, body: bytes, *, whole: bool) -> tuple[bytes, bool]:
        """Return a prompt as the message to send, and whether it continues from a response; `whole`: it must not.

        In a worker thread.
        """
        members = Members(body)
        messages = self.dialect.messages
        if self.dialect.continues_stored(members):  # the response is not known here
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
        """Remember what the provider stores after an answer. In a worker thread."""
        if self.injected or not turn.response_id or self.sent is None or prompt.members is None or not turn.whole:
            return
        entries = self.dialect.sendable(turn.entries, prompt.members)
        self.kept.keep(
            turn.response_id,
            KeptResponse(*self.sent, tuple(_same(self.dialect, write_sound(each)) for each in entries)),
        )
        self.previous = turn.response_id


class _Asking:
    """Sends a prompt, and waits until its answer begins."""

    def __init__(self, by: PromptSender, body: bytes) -> None:
        self._by = by
        self._body = body
        self._stream: ResponseMessages | None = None

    async def __aenter__(self) -> SocketAnswer:
        answer, goes_on = await self._ask(whole=False)
        if goes_on and answer.refused and wire.NOT_FOUND.encode() in answer.refusal:
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
    """An answer to the agent whose events are sent as messages."""

    def __init__(self, socket: web.WebSocketResponse, name: str) -> None:
        """`name`: of the stream on the WebSocket; empty if it has none."""
        super().__init__()
        self._to = socket
        self._name = name
        self._events = EventBytes()

    async def prepare(self, _: Any) -> None:
        """Do nothing: the WebSocket is open."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the complete events."""
        for event in self._events.feed(bytes(data)):
            await self._send(event)

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the remaining events."""
        await self.write(data)
        for event in self._events.last():
            await self._send(event)

    async def _send(self, event: bytes) -> None:
        lines = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
        if lines:
            await self._to.send_frame(named(b"\n".join(lines), self._name), WSMsgType.TEXT)


def named(data: bytes, name: str) -> bytes:
    """Return an event with the stream's name, which events made here lack; unchanged if there is no name."""
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
        """`lost` is called when an answer cannot continue; `name` is that of the stream."""
        super().__init__(request, limits, reached)
        self._socket = socket
        self._name = name
        self._lost = lost

    def begun(self, status: int, reason: str | None, headers: Mapping[str, str]) -> web.StreamResponse:
        """Begin an answer that is sent in messages; return its response object."""
        del status, reason, headers
        return EventMessages(self._socket, self._name)

    async def send(
        self, body: bytes, headers: Mapping[str, str], status: int = 200, reason: str | None = None
    ) -> web.StreamResponse:
        """Send a refusal unchanged."""
        response = self.begun(status, reason, headers)
        await self.taken(self._socket.send_frame(body, WSMsgType.TEXT))
        return response

    def cut_off(self) -> None:
        """Close the WebSocket, since the provider's is closed."""
        self._lost()

    async def _ended(self, response: web.StreamResponse) -> None:
        await response.write_eof()

    def _not_taken(self) -> None:
        self._reached("server.answer_timeout")
        super().cut_off()


class SocketExchange(HttpExchange):
    """An exchange on a WebSocket."""

    provided: PromptSender
    """Sends its prompts to the provider; set before it runs."""

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
        """End a response that has begun, by a refusal's event: on a WebSocket no end of a stream shows it."""
        assert self._response is not None
        found = member(loads(body), "error") if body else None
        error = found or {"type": "server_error", "code": str(status), "message": error_text(body, status)}
        event = wire.refusal(status, error, self.provided.name)
        await self.agent.write(self._response, b"data: " + event + b"\n\n")
        await self.agent.end(self._response)
        return self._response
