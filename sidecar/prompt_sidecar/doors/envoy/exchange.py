"""One HTTP exchange as Envoy presents it: request headers, the buffered body, then the response in pieces.

    request_headers ──► request_body ──► over, or where usage is read: response_headers ──► response_body … ──► over

An exchange decides the answer to each message. Only trimming, restoring masks in a whole response, and reporting take
long: they are returned to the caller, as `TrimBody`, `RestoreWhole` and by `report`, to be run in a thread. Pieces of a
stream are searched for masks here, as each takes microseconds; a long piece may have thousands of events, and goes
through `take_ahead` first. The end of a long event may take a second: if `is_long` says so, `take` has to run in a
thread, too. The processor may end the stream at any point: the rest of the exchange then continues without the sidecar,
so the stream ends as soon as nothing more is to be done.

Envoy buffers each piece of a response until it is answered, and forwards unanswered pieces when the sidecar fails. So a
piece is answered only when all of it can continue: while a part of a mask or of an event is waiting, answers are owed.
So at any moment the bytes sent to the agent and those buffered by Envoy are the whole response, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.answers.answer_stream import READ_AT_ONCE, piece_end
from prompt_sidecar.answers.base import Dialect
from prompt_sidecar.answers.reported_usage import UsageReader
from prompt_sidecar.answers.restored_answers import JSON, RestoredStream, RestoredWhole
from prompt_sidecar.answers.restoring import Restore
from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.calls.content_types import unread_kind
from prompt_sidecar.calls.headers import PREFIX
from prompt_sidecar.calls.memory import ANSWER_COPIES, REQUEST_COPIES
from prompt_sidecar.calls.passing import passes
from prompt_sidecar.doors.envoy import messages
from prompt_sidecar.doors.envoy.processor import Guard, ProcessedRequest
from prompt_sidecar.doors.envoy.v1 import ext_proc_pb2 as wire
from prompt_sidecar.facts.envoy_calls import EnvoyOutcome, MasksStay
from prompt_sidecar.facts.guard_calls import Unread
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.untrimmed import Handled, Through, Untrimmed
from prompt_sidecar.providers.api import signs_body
from prompt_sidecar.providers.table import PathFound, api_of
from prompt_sidecar.providers.usage import ProviderUsage

_PIECES: Final = frozenset({messages.STREAMED, messages.BUFFERED})
"""Modes of response bodies in which a piece may be changed."""
_ORDER: Final = (
    "request_headers",
    "request_body",
    "request_trailers",
    "response_headers",
    "response_body",
    "response_trailers",
)
"""Order of an exchange's messages. Each is sent at most once, except pieces of the response's body."""
_PASSES: Final = {
    EnvoyOutcome.INVALID: Untrimmed.UNREADABLE,
    EnvoyOutcome.TOO_LARGE: Untrimmed.TOO_LARGE,
    EnvoyOutcome.BUSY: Untrimmed.OVERLOADED,
    EnvoyOutcome.STOPPING: Untrimmed.STOPPING,
    EnvoyOutcome.UNAUTHENTICATED: Untrimmed.UNAUTHENTICATED,
    EnvoyOutcome.LATE: Untrimmed.LATE,
}
"""Why a request with an outcome continued unchanged; see `EnvoyExchange.handled` for the others."""
_DIGITS: Final = 15
"""Digits of a content-length that are read."""
_SUCCESS: Final = 2
"""The first digit of a status."""
_ERRORS: Final = 400
"""The first status that is an error."""


@dataclass(frozen=True, slots=True)
class SendAnswer:
    """Send this reply; `last`: then end the stream. `outcome`: of the request, if it is known now."""

    reply: bytes | None
    last: bool = False
    outcome: EnvoyOutcome | None = None
    before: int = 0
    """Owed answers to earlier pieces of the response: these pieces are emptied, as `reply` has their text."""
    owed: bool = False
    """Whether the answer is sent with a later piece."""
    then: bytes | None = None
    """A second message to send after `reply`."""


@dataclass(frozen=True, slots=True)
class TrimBody:
    """Trim this body, and pass the result to `EnvoyExchange.trimmed`."""

    path: PathFound
    body: bytes


@dataclass(frozen=True, slots=True)
class RestoreWhole:
    """Restore the masks in a whole response, and pass the result to `EnvoyExchange.restored`."""

    dialect: Dialect
    body: bytes
    restore: Restore


class EnvoyExchange:
    """The state of one exchange."""

    def __init__(
        self, *, usage: bool, answer_bytes: int, guards: Callable[[Mapping[str, str]], bool] = lambda _: False
    ) -> None:
        """Create the state.

        Args:
            usage: whether the response is read.
            answer_bytes: largest response in which masks are restored.
            guards: whether no body of a request with these headers may be forwarded unread.
        """
        self._guards = guards
        self._why: Unread | None = None
        """Why the guard cannot read the request's body, by its content type."""
        self._guarded = False
        """Whether the guard must search the request's body."""
        self._signed = False
        """Whether a signature covers the request's body."""
        self._usage = usage
        self._answer_bytes = answer_bytes
        self._path: PathFound | None = None
        self._place = -1
        """Index of the last message in the order of messages; -1 before the first."""
        self._buffered = False
        """Whether Envoy says that it sends the request's body in one piece."""
        self._processed: ProcessedRequest | None = None
        self._reader: UsageReader | None = None
        self._provider_failed = False
        """Whether the response is an error."""
        self._stream: RestoredStream | None = None
        """The response, if it is a stream with masks."""
        self._whole = False
        """Whether the response is an answer with masks that is read whole."""
        self._ends = False
        """Whether the response has ended."""
        self._changes = True
        """Whether Envoy is configured so that a response can be changed."""
        self._stay: MasksStay | None = None
        self._owed = 0
        """Pieces of the response that are not answered yet."""
        self._made = bytearray()
        """Bytes that will replace these pieces."""
        self._taken = 0
        """Bytes of the next piece that `take_ahead` has processed."""
        self.headers: dict[str, str] = {}
        """The request's headers."""
        self._body_bytes = 0
        """Bytes of the request's body received so far."""

    @property
    def reads(self) -> bool:
        """Whether a response is being read, or is an error, so that `report` may return something."""
        return self._reader is not None or self._provider_failed

    @property
    def format(self) -> str:
        """The format of the request's body; empty if not known."""
        return self._path.format if self._path is not None else ""

    def handled(self, outcome: EnvoyOutcome) -> Handled | None:
        """Return what was done about the request, given its outcome; None if it is not forwarded."""
        if outcome is EnvoyOutcome.REFUSED:
            return None
        if outcome is EnvoyOutcome.ANSWERED and self._processed is not None:
            return self._processed.handled
        why = self._passes(outcome)
        recall = None if why is Untrimmed.NO_PROMPT else RecallOffer.UNTRIMMED
        path = self.headers.get(":path", "").partition("?")[0]
        return Handled(Through.ENVOY, why, self._body_bytes, recall, path=path)

    def _passes(self, outcome: EnvoyOutcome) -> Untrimmed:
        """Return why the request continues unchanged."""
        if self._processed is not None and self._processed.untrimmed is not None:
            return self._processed.untrimmed
        headers = self.headers
        if outcome is EnvoyOutcome.NOT_A_PROMPT:
            path = headers.get(":path", "")
            found = api_of(path)
            counts = found is not None and found.counts and headers.get(":method") == "POST"
            return Untrimmed.COUNTING if counts else passes(headers.get(":method", ""), path.partition("?")[0], headers)
        if outcome is EnvoyOutcome.UNREADABLE and signs_body(headers):
            return Untrimmed.SIGNED
        if outcome is EnvoyOutcome.UNREADABLE:
            return Untrimmed.ENCODED if _encoded(headers) else Untrimmed.UNBUFFERED
        return _PASSES.get(outcome, Untrimmed.INTERNAL)

    @property
    def is_guarded(self) -> bool:
        """Whether the request's body must not be forwarded unread, and the request has no outcome yet."""
        return self._guarded and self._processed is None

    @property
    def is_counted(self) -> bool:
        """Whether the outcome of the request is known; a request is counted once, whatever its response is."""
        return self._processed is not None

    @property
    def kept_bytes(self) -> int:
        """Bytes of the response that are buffered until more arrives, and are then read at once."""
        reader = self._reader.kept_bytes if self._reader is not None else 0
        return max(reader, self._stream.unsplit_bytes if self._stream is not None else 0)

    def needs(self, more: int) -> int:
        """Return the bytes of memory that the exchange may need, with a message of so many bytes.

        Before the request's body has arrived, they are computed from its content-length.
        """
        if self._place < _ORDER.index("request_body"):
            length = self.headers.get("content-length", "") if self._path is not None or self._guarded else ""
            declared = int(length) if length.isascii() and length.isdigit() and len(length) <= _DIGITS else 0
            return REQUEST_COPIES * max(more, declared)
        if not self.is_counted:
            return REQUEST_COPIES * more
        taken = self._stream.taken_bytes if self._stream is not None else 0
        return ANSWER_COPIES * (more + self.kept_bytes) + taken

    def without_memory(self) -> SendAnswer:
        """Continue without the sidecar, which has no memory for the next message."""
        if self._changing and self.stay is None:
            self._stay = MasksStay.TOO_LONG
        return SendAnswer(None, last=True, outcome=None if self.is_counted else EnvoyOutcome.TOO_LARGE)

    @property
    def stay(self) -> MasksStay | None:
        """Return why masks are left in the response; None if they are not, or there are none."""
        return self._stay or (self._stream.stay if self._stream is not None else None)

    @property
    def is_long(self) -> bool:
        """Whether a long event is buffered that may end with the next piece."""
        return self._stream is not None and self._stream.unsplit_bytes > READ_AT_ONCE

    def take_ahead(self, message: wire.ProcessingRequest) -> Iterator[None]:
        """Process a long piece of a response in parts, yielding to others after each; `take` does the last."""
        if message.WhichOneof("request") != "response_body" or not self._follows_headers or message.observability_mode:
            return
        piece = message.response_body.body
        while self._searches and not self.is_long and (end := piece_end(piece, self._taken)) < len(piece):
            part, self._taken = piece[self._taken : end], end
            if self._reader is not None:
                self._reader.feed(part)
            if self._stream is not None:
                self._made += self._stream.feed(part)
            yield

    @property
    def _follows_headers(self) -> bool:
        """Whether a piece of the response may follow now."""
        return self._place >= 0 and _ORDER[self._place] in ("response_headers", "response_body")

    @property
    def _searches(self) -> bool:
        """Whether the pieces of a response are searched for masks or usage."""
        if self._stream is not None and self._stream.stay is None:
            return True
        return not self._whole and self._reader is not None and self._reader.reads

    def take(self, message: wire.ProcessingRequest) -> SendAnswer | TrimBody | Guard | RestoreWhole:
        """Process a message of Envoy's. One that is out of order, or has too many headers, ends the stream."""
        kind = message.WhichOneof("request")
        if message.observability_mode or kind is None or not self._follows(kind):
            return self._left()
        try:
            return self._took(kind, message)
        except messages.TooManyHeaders:
            if kind == "request_headers":
                self._guarded = not message.request_headers.end_of_stream and self._guards({})
            return self._left()

    def _left(self) -> SendAnswer:
        """End the stream: the rest of the exchange continues without the sidecar."""
        return SendAnswer(None, last=True, outcome=None if self.is_counted else EnvoyOutcome.UNREADABLE)

    def _follows(self, kind: str) -> bool:
        """Whether a message of a kind is in order now."""
        place = _ORDER.index(kind)
        follows = place > self._place if self._place >= 0 else not place
        follows = follows or kind == "response_body" == _ORDER[self._place]
        self._place = place
        return follows

    def _took(self, kind: str, message: wire.ProcessingRequest) -> SendAnswer | TrimBody | Guard | RestoreWhole:
        """Process a message that is in order."""
        if kind == "request_headers":
            return self._request_headers(message)
        if kind == "request_body":
            self._body_bytes = len(message.request_body.body)
            # A body that trailers follow does not end its stream, but is complete.
            if self._guarded and (self._path is None or self._signed):
                whole = message.request_body.end_of_stream or self._buffered
                outcome = EnvoyOutcome.UNREADABLE if self._signed else EnvoyOutcome.NOT_A_PROMPT
                passed = ProcessedRequest(outcome, messages.request_body(None))
                why = self._why or (None if whole else Unread.UNBUFFERED)
                return Guard(message.request_body.body, passed, why, self._signed)
            if self._path is None or not (message.request_body.end_of_stream or self._buffered):
                return SendAnswer(messages.request_body(None), last=True, outcome=EnvoyOutcome.UNREADABLE)
            return TrimBody(self._path, message.request_body.body)
        if kind == "request_trailers":
            return SendAnswer(messages.request_trailers())
        if kind == "response_headers":
            return self._response_headers(message)
        if kind == "response_body":
            return self._response_body(message)
        return self._response_trailers()

    def trimmed(self, processed: ProcessedRequest) -> SendAnswer:
        """Answer with the processed body."""
        self._processed = processed
        reads = self._usage or processed.restore is not None
        goes_on = reads and processed.outcome is EnvoyOutcome.ANSWERED
        return SendAnswer(processed.reply, last=not goes_on, outcome=processed.outcome)

    def report(self) -> tuple[ProcessedRequest, ProviderUsage | None] | None:
        """Return what to report of the response, once: its usage, or None for an error. None: nothing to report."""
        reader, self._reader = self._reader, None
        failed, self._provider_failed = self._provider_failed, False
        if self._processed is None:
            return None
        usage = reader.end() if reader is not None else None
        if usage is not None and usage.reported:
            return self._processed, usage
        return (self._processed, None) if failed else None

    def _request_headers(self, message: wire.ProcessingRequest) -> SendAnswer | Guard:
        self.headers = headers = messages.headers_of(message.request_headers)
        own = [name for name in headers if name.startswith(PREFIX)]
        path = api_of(headers.get(":path", "")) if headers.get(":method") == "POST" else None
        path = None if path is not None and not path.asks else path
        if not message.request_headers.end_of_stream and self._guards(headers):
            return self._guarded_headers(message, path, own)
        if path is None or message.request_headers.end_of_stream:
            return SendAnswer(messages.request_headers(own), last=True, outcome=EnvoyOutcome.NOT_A_PROMPT)
        if (
            _encoded(headers)
            or signs_body(headers)
            or message.protocol_config.request_body_mode not in {0, messages.BUFFERED}  # 0: an Envoy that does not say
        ):
            return SendAnswer(messages.request_headers(own), last=True, outcome=EnvoyOutcome.UNREADABLE)
        return self._reading(message, path, own)

    def _guarded_headers(
        self, message: wire.ProcessingRequest, path: PathFound | None, own: list[str]
    ) -> SendAnswer | Guard:
        """Process the headers of a request whose body must not be forwarded unread."""
        self._guarded = True
        passed = ProcessedRequest(EnvoyOutcome.UNREADABLE, messages.request_headers(own))
        if message.protocol_config.request_body_mode not in {0, messages.BUFFERED} or _never_ends(self.headers):
            return Guard(b"", passed, Unread.UNBUFFERED)
        if _encoded(self.headers):
            return Guard(b"", passed, Unread.ENCODED)
        self._signed = signs_body(self.headers)
        self._why = unread_kind(self.headers.get("content-type", "")) if path is None else None
        return self._reading(message, path, own)

    def _reading(self, message: wire.ProcessingRequest, path: PathFound | None, own: list[str]) -> SendAnswer:
        """Ask for the body."""
        self._path = path
        self._buffered = message.protocol_config.request_body_mode == messages.BUFFERED
        self._changes = not message.HasField("protocol_config") or (
            message.protocol_config.response_body_mode in _PIECES
        )
        return SendAnswer(messages.request_headers(own, plain=self._usage and path is not None))

    def _response_headers(self, message: wire.ProcessingRequest) -> SendAnswer:
        headers = messages.headers_of(message.response_headers)
        added = self._processed.headers if self._processed is not None else None
        status = headers.get(":status", "")
        number = int(status) if status.isascii() and status.isdigit() else 0
        encoded = _encoded(headers)
        kind = headers.get("content-type", "")
        reader = UsageReader(self._path.format if self._path is not None else "", number, kind, encoded=encoded)
        reads = self._usage and reader.reads
        self._provider_failed = self._usage and number >= _ERRORS
        if not message.response_headers.end_of_stream and number // 100 == _SUCCESS:
            self._restores(kind.partition(";")[0].strip().lower(), encoded=encoded)
        over = message.response_headers.end_of_stream or not (reads or self._changing)
        self._reader = reader if reads and not over else None
        return SendAnswer(messages.response_headers(added or {}, whole=self._whole), last=over)

    @property
    def _changing(self) -> bool:
        """Whether the response is searched for masks."""
        return self._whole or self._stream is not None

    def _restores(self, kind: str, *, encoded: bool) -> None:
        """Prepare to restore masks in a response of a content type, if there is anything to restore."""
        restore = self._processed.restore if self._processed is not None else None
        if restore is None or self._path is None:
            return
        dialect = DIALECTS[self._path.format]
        if encoded:
            self._stay = MasksStay.ENCODED
        elif not self._changes:
            self._stay = MasksStay.UNCHANGEABLE
        elif kind == dialect.streamed or (kind == JSON and self._in_array):
            self._stream = RestoredStream(dialect, restore, self._answer_bytes, array=kind == JSON)
        elif kind == JSON:
            self._whole = True
        else:
            self._stay = MasksStay.UNREADABLE

    @property
    def _in_array(self) -> bool:
        """Whether the response is a JSON array that is sent as a stream."""
        return self._path is not None and self._path.streams and self._path.api.may_stream_array

    def _response_body(self, message: wire.ProcessingRequest) -> SendAnswer | RestoreWhole:
        piece, ends = message.response_body.body, message.response_body.end_of_stream
        taken, self._taken = self._taken, 0
        if self._reader is not None:
            self._reader.feed(piece[taken:])
        if self._whole and self._path is not None and self._processed is not None and self._processed.restore:
            self._ends = ends
            if len(piece) > self._answer_bytes:
                return self.restored(RestoredWhole(None, MasksStay.TOO_LONG))
            return RestoreWhole(DIALECTS[self._path.format], piece, self._processed.restore)
        if self._stream is None:
            return self._passed(None, ends=ends)
        return self._streamed(self._stream, piece, taken, ends=ends)

    def restored(self, whole: RestoredWhole) -> SendAnswer:
        """Answer with a whole, processed response."""
        # A whole response that trailers follow does not end its stream, but can be read.
        in_pieces = not self._ends and whole.stay is MasksStay.UNREADABLE
        self._stay = MasksStay.UNCHANGEABLE if in_pieces else whole.stay
        self._whole = self._whole and not in_pieces
        return self._passed(whole.body, ends=self._ends)

    def _streamed(self, stream: RestoredStream, piece: bytes, taken: int, *, ends: bool) -> SendAnswer:
        """Answer with the part of a stream that can continue, or owe the answer; `taken` bytes are processed."""
        self._made += stream.feed(piece[taken:], last=ends)
        if stream.waits:
            self._owed += 1
            return SendAnswer(None, owed=True)
        before, self._owed = self._owed, 0
        made, self._made = bytes(self._made), bytearray()
        if stream.stay is not None:
            self._stay, self._stream = stream.stay, None
        return self._passed(None if made == piece and not before else made, ends=ends, before=before)

    def _response_trailers(self) -> SendAnswer:
        """Let trailers continue, after the buffered rest of a stream: no further piece follows."""
        stream, before = self._stream, self._owed
        if stream is None or not before:
            return SendAnswer(messages.response_trailers(), last=True)
        body = bytes(self._made) + stream.feed(b"", last=True)
        self._stay, self._owed = stream.stay, 0
        self._made.clear()
        return SendAnswer(messages.response_body(body), last=True, before=before - 1, then=messages.response_trailers())

    def _passed(self, body: bytes | None, *, ends: bool, before: int = 0) -> SendAnswer:
        over = ends or not (self._changing or (self._reader is not None and self._reader.reads))
        return SendAnswer(messages.response_body(body), last=over, before=before)


def _never_ends(headers: Mapping[str, str]) -> bool:
    """Whether a request opens a connection for both sides, such as a WebSocket, and so has no body that ends."""
    return headers.get(":method") == "CONNECT" or headers.get("upgrade", "").strip().lower() == "websocket"


def _encoded(headers: Mapping[str, str]) -> bool:
    """Whether a body is compressed."""
    return headers.get("content-encoding", "").strip().lower() not in ("", "identity")
