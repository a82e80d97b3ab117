"""Replaces masks in the calls of a provider's answer by their values, on their way to the agent.

A model can only repeat a mask in its prompt, so answers to prompts without masks are not searched. A whole answer is
processed at its end. A stream is forwarded, except a call's arguments from their first mask on: they wait for the end
of the call, before which no agent can run it, and are sent to the sidecar as a whole, as a mask may be in JSON within
JSON. The result is forwarded in one piece. Answers in Amazon's binary frames are forwarded unchanged.

Sources: the API references of OpenAI (chat completions, responses), Anthropic (messages) and Google (generateContent),
read in November 2026.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from prompt_sidecar.client.engine import Engine, Steps
from prompt_sidecar.client.errors import ClientError
from prompt_sidecar.client.model_calls import has_masks
from prompt_sidecar.integrations import exact_json
from prompt_sidecar.providers.call_pieces import LONGEST_NAME, CallKey, CallPiece, CallPlace, another
from prompt_sidecar.providers.messages import Format
from prompt_sidecar.providers.server_sent_events import EventBytes
from prompt_sidecar.providers.surrogates import paired
from prompt_sidecar.providers.table import APIS

_log = logging.getLogger("prompt_sidecar.client")
MOST_BYTES: Final = 67_108_864
"""Longest answer that is processed: the size of the longest prompts. A longer one is forwarded unchanged, with its
masks."""
MOST_CALLS: Final = 1_000
"""Calls of an answer whose masks are restored: as many as one request to the sidecar may contain."""
TOO_MUCH: Final = (
    f"the rest of an answer keeps its masks: it has more than {MOST_BYTES:,} bytes or {MOST_CALLS:,} calls"
)
FAILED: Final = "the rest of an answer keeps its masks: %s"
_IN_PROMPT: Final = re.compile(
    rb"(?:\xe2\x9f\xa6|(?<!\\)\\+u(?:27e6|\{0{0,2}27e6\}))[a-z0-9_]{1,64}:[a-z0-9]{10}", re.IGNORECASE
)
"""A mask in a prompt. The sidecar's own text describes masks too, with a shorter id."""
_BEGUN: Final = re.compile(r"⟦|(?<!\\)\\+u(?:27e6|\{0{0,2}27e6\})|%e2%9f%a6|(?<!\\)\\+342\\+237\\+246", re.IGNORECASE)
_CUT: Final = re.compile(r"(?:[\ud800-\udbff]|%[e29fa%]{0,8}|\\[\\u{0}27e346]{0,64})\Z", re.IGNORECASE)
"""A possible first part of a mask's beginning, or the first surrogate of a pair."""


def prompt_has_masks(body: bytes) -> bool:
    """Whether a prompt, as JSON text, may contain masks."""
    return _IN_PROMPT.search(body) is not None


def places(format: Format, answer: Any) -> Iterator[CallPlace]:
    """Return the places of calls' arguments in a whole answer."""
    return APIS[format].call_places(answer) if isinstance(answer, dict) else iter(())


class MaskValues:
    """Requests the values of masks in the calls of one answer from the sidecar, once for each."""

    def __init__(self, engine: Engine, run_id: str) -> None:
        self._engine, self._run_id = engine, run_id
        self._known: dict[tuple[str, str], str] = {}

    def put(self, found: Iterable[CallPlace]) -> Steps[bool]:
        """Replace masks by values; return whether anything has changed."""
        masked: list[tuple[CallPlace, tuple[str, str]]] = []
        for place in found:
            holder, member, name = place
            value = holder.get(member)
            if not isinstance(value, str | dict):
                continue
            text = value if isinstance(value, str) else exact_json.dumps(value, marked=True)
            if has_masks(text):
                masked.append((place, (name, text)))
        yield from self._ask(dict.fromkeys(call for _, call in masked))
        changed = False
        for (holder, member, _), call in masked:
            made = self._known.get(call, call[1])
            if made != call[1]:
                holder[member] = made if isinstance(holder[member], str) else exact_json.loads(made)
                changed = True
        return changed

    def of(self, name: str, arguments: str) -> Steps[str]:
        """Return one call's arguments with values."""
        holder = {"arguments": arguments}
        yield from self.put([(holder, "arguments", name)])
        return holder["arguments"]

    def _ask(self, calls: Iterable[tuple[str, str]]) -> Steps[None]:
        room = MOST_CALLS - len(self._known)
        new = [call for call in calls if call not in self._known and _is_json(call[1])][:room]
        if not new:
            return
        try:
            restored = yield from self._engine.restore_secrets(self._run_id, new)
        except ClientError:
            if not self._engine.options.fail_open:
                raise
            return
        self._known.update((call, each.arguments) for call, each in zip(new, restored, strict=True))


def _is_json(text: str) -> bool:
    """Whether a text is JSON: a call that was cut off is not, and the sidecar would reject it."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class WholeAnswer:
    """An answer that is one JSON text, or an array of them as Gemini streams it without events."""

    def __init__(self, format: Format, values: MaskValues) -> None:
        self._format, self._values = format, values
        self._chunks: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Steps[bytes]:
        """Process a piece; return the bytes to send now."""
        yield from ()
        self._chunks.append(chunk)
        self._size += len(chunk)
        return self._all() if self._size > MOST_BYTES else b""

    def end(self) -> Steps[bytes]:
        """Return the rest."""
        raw = self._all()
        try:
            answer = exact_json.loads(raw)
        except (ValueError, RecursionError):
            return raw
        found = [place for each in (answer if isinstance(answer, list) else [answer]) for place in self._places(each)]
        try:
            changed = yield from self._values.put(found)
            return exact_json.dumps(answer).encode() if changed else raw
        except ClientError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
            _log.error(FAILED, type(error).__name__)
            return raw

    def _places(self, answer: Any) -> Iterator[CallPlace]:
        return places(self._format, answer)

    def _all(self) -> bytes:
        chunks, self._chunks = self._chunks, []
        return b"".join(chunks)


@dataclass(slots=True, eq=False)
class _StreamedCall:
    """A call in a stream."""

    more: Callable[[str], dict[str, Any]]
    """Creates an event with a further piece of its arguments."""
    id: str = ""
    name: str = ""
    begun: bool = False
    """Whether its arguments have begun."""
    sent: list[str] = field(default_factory=list)
    kept: str = ""
    """Received text that was not sent."""
    waits: list[str] | None = None
    """Text received since the first mask, which waits for the end of the call; None before a mask."""

    def feed(self, text: str) -> str:
        """Process a piece; return the text to send now."""
        if self.waits is not None:
            self.waits.append(text)
            return ""
        text = paired(self.kept + text)
        found = _BEGUN.search(text) or _CUT.search(text)
        end = found.start() if found else len(text)
        self.kept = text[end:]
        if _BEGUN.match(self.kept):
            self.waits, self.kept = [self.kept], ""
        self.sent.append(text[:end])
        return text[:end]

    def undo(self) -> Callable[[], None]:
        """Return a function that undoes the pieces processed from now on."""
        kept, waited, sent = self.kept, None if self.waits is None else len(self.waits), len(self.sent)

        def undo() -> None:
            self.kept = kept
            self.waits = None if self.waits is None or waited is None else self.waits[:waited]
            del self.sent[sent:]

        return undo

    def rest(self) -> str:
        """Return the text that was not sent, unchanged."""
        return paired("".join(self.waits or ()) + self.kept)

    def end(self, values: MaskValues) -> Steps[str]:
        """Return the text that was not sent, with values."""
        sent, rest = "".join(self.sent), self.rest()
        if self.waits is None:
            return rest
        made = yield from values.of(self.name, sent + rest)
        return made[len(sent) :] if made.startswith(sent) else rest


class JsonEvents:
    """Processes the events of a stream, as JSON objects."""

    def __init__(self, format: Format, values: MaskValues) -> None:
        self._api, self._values = APIS[format], values
        self._calls: dict[CallKey, _StreamedCall] = {}
        """Calls that have not ended."""
        self._count = 0
        self._more = 0
        """Number of added events: events of OpenAI's responses are numbered."""
        self._size = 0
        self._undo: list[Callable[[], object]] = []
        """Functions that undo the last event, in order."""

    @property
    def too_much(self) -> bool:
        """Whether the limit of kept text is reached: no further event may be processed."""
        return self._size > MOST_BYTES or self._count > MOST_CALLS

    def take(self, data: dict[str, Any]) -> Steps[tuple[list[dict[str, Any]], bool]]:
        """Process an event in place; return events to send before it, and whether it has changed."""
        self._undo = [partial(setattr, self, "_more", self._more)]
        read = self._api.call_event(data, self._name_of)
        changed = yield from self._values.put(read.whole)
        before: list[dict[str, Any]] = []
        here: dict[CallKey, CallPiece] = {}
        """The last piece of each call in this event."""
        for piece in read.pieces:
            call = self._calls.get(piece.key)
            if call is not None and self._begins(piece, call):
                changed = (yield from self._end(piece.key, here.pop(piece.key, None), before, data)) or changed
                call = None
            if call is None:
                call = self._calls[piece.key] = _StreamedCall(piece.more)
                self._undo.append(partial(self._calls.pop, piece.key, None))
                self._count += 1
            changed = self._taken(piece, call) or changed
            here[piece.key] = piece
        ended = dict.fromkeys(read.ended)
        if read.ended_choices:
            ended |= {key: None for key in self._calls if key[0] in read.ended_choices}
        for key in ended:
            if key in self._calls:
                changed = (yield from self._end(key, here.get(key), before, data)) or changed
        if self._more and isinstance(number := data.get("sequence_number"), int):
            data["sequence_number"], changed = number + self._more, True
        return before, changed

    def _name_of(self, key: CallKey) -> str | None:
        call = self._calls.get(key)
        return None if call is None else call.name

    @staticmethod
    def _begins(piece: CallPiece, call: _StreamedCall) -> bool:
        """Whether a piece begins another call than the one with its key."""
        return piece.begins or another(piece.id, piece.name, call.id, call.name, begun=call.begun)

    def _taken(self, piece: CallPiece, call: _StreamedCall) -> bool:
        """Process a piece; return whether it has changed."""
        call.id = call.id or (piece.id if isinstance(piece.id, str) else "")
        if isinstance(piece.name, str) and not call.begun and piece.name != call.name and len(call.name) < LONGEST_NAME:
            call.name += piece.name
        text = piece.holder.get(piece.member)
        if not isinstance(text, str):
            return False
        self._size += len(text)
        call.begun = call.begun or bool(text)
        call.more = piece.more
        self._undo.append(call.undo())
        made = call.feed(text)
        piece.holder[piece.member] = made
        return made != text

    def _end(
        self, key: CallKey, last: CallPiece | None, before: list[dict[str, Any]], data: dict[str, Any]
    ) -> Steps[bool]:
        """End a call: its waiting text goes behind its last piece, or before the event. Return whether that changed."""
        call = self._calls.pop(key)
        self._undo.append(partial(self._calls.__setitem__, key, call))
        rest = yield from call.end(self._values)
        if not rest:
            return False
        if last is not None and isinstance(last.holder.get(last.member), str):
            last.holder[last.member] += rest
            return True
        before.append(self._added(call, rest, data))
        return False

    def undo(self) -> None:
        """Undo the last event, which is sent unchanged; `flushed` then returns the text waiting before it."""
        while self._undo:
            self._undo.pop()()

    def flushed(self) -> list[dict[str, Any]]:
        """Return the waiting text unchanged, as events: a call that has not ended cannot be run."""
        rests = [(call, call.rest()) for call in self._calls.values()]
        self._calls.clear()
        return [self._added(call, rest, None) for call, rest in rests if rest]

    def _added(self, call: _StreamedCall, text: str, behind: dict[str, Any] | None) -> dict[str, Any]:
        """Create a separate event for waiting text; `behind` is the event that follows it."""
        made = call.more(text)
        if "sequence_number" in made:
            number = (behind or made).get("sequence_number")
            made["sequence_number"] = number + self._more if isinstance(number, int) else number
            self._more += 1
        return made


class EventStream:
    """An answer in server-sent events, as bytes."""

    def __init__(self, format: Format, values: MaskValues) -> None:
        self._events = JsonEvents(format, values)
        self._split = EventBytes()
        self._size = 0
        self._gave_up = False

    def feed(self, chunk: bytes) -> Steps[bytes]:
        """Process a piece; return the bytes to send now."""
        if self._gave_up:
            return chunk
        self._size += len(chunk)
        out = []
        for raw in self._split.feed(chunk):
            out += [(yield from self._event(raw))]
        if self._size > MOST_BYTES or self._events.too_much:
            self._gave_up = True
            _log.warning(TOO_MUCH)
        if self._gave_up:
            out.append(self._flushed())
        return b"".join(out)

    def end(self) -> Steps[bytes]:
        """Return the waiting bytes unchanged; an event whose end is known now is the last."""
        out = b""
        if self._split.ends_at_carriage_return:
            for raw in self._split.last():
                out += yield from self._event(raw)
        return out + self._flushed()

    def _flushed(self) -> bytes:
        return b"".join([*map(_written, self._events.flushed()), *self._split.last()])

    def _event(self, raw: bytes) -> Steps[bytes]:
        if self._gave_up:
            return raw
        lines = raw.splitlines()
        try:
            data = exact_json.loads(b"\n".join(line[5:] for line in lines if line.startswith(b"data:")) or b"null")
        except (ValueError, RecursionError):
            return raw
        if not isinstance(data, dict):
            return raw
        try:
            before, changed = yield from self._events.take(data)
        except ClientError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
            self._gave_up = True
            self._events.undo()
            _log.error(FAILED, type(error).__name__)
            return b"".join(map(_written, self._events.flushed())) + raw
        kept = [line for line in lines if line and not line.startswith(b"data:")]
        return b"".join(map(_written, before)) + (_written(data, kept) if changed else raw)


def _written(data: Mapping[str, Any], lines: Sequence[bytes] | None = None) -> bytes:
    """Write an event with these lines before its data, or else with its type as its name."""
    if lines is None:
        lines = [f"event: {data['type']}".encode()] if isinstance(data.get("type"), str) else []
    return b"\n".join([*lines, b"data: " + exact_json.dumps(data).encode()]) + b"\n\n"


def restoring(
    engine: Engine, run_id: str, format: Format, headers: Mapping[str, str]
) -> WholeAnswer | EventStream | None:
    """Return what restores masks in an answer with these headers; None if it is forwarded unchanged."""
    if headers.get("content-encoding", "identity") != "identity":
        return None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    values = MaskValues(engine, run_id)
    if kind == "text/event-stream" and APIS[format].streams_events:
        return EventStream(format, values)
    return WholeAnswer(format, values) if kind == "application/json" else None
