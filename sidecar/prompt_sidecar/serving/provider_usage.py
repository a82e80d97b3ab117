"""What a provider's answer says about tokens, read from the answer as it passes.

Answers are JSON, server-sent events, or Amazon's event stream. Nothing is held back and nothing is changed. Only what
may hold the figures is parsed: of server-sent events those that name them, of JSON the whole, up to `MOST_BYTES`; a
larger answer is not read. The answer is untrusted: what is not of the known shape counts as unreported.

An answer that refuses the prompt as too long is read too: its message names the limit, and
`prompt_sidecar.tokens.refusals` reads it.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final

from prompt_sidecar.facts.usage_calls import InputCounting, ReportedRefusal, UsageCall
from prompt_sidecar.serving.answer_json import read, sound
from prompt_sidecar.serving.untyped import token_count
from prompt_sidecar.tokens.refusals import MOST_CHARACTERS

MOST_BYTES: Final = 8_388_608
"""Bytes of one JSON answer, or of one event, that are kept until it is whole: a long answer with images has some."""

_TOO_LONG_STATUS: Final = frozenset({400, 413, 422})
_TOO_LONG: Final = (
    b"context_length_exceeded",
    b"context length",
    b"context window",
    b"context limit",
    b"context size",
    b"maximum prompt length",
    b"prompt is too long",
    b"input is too long",
    b"input tokens exceed",
    b"input token count",
    b"request too large",
    b"request_too_large",
    b"too many tokens",
    b"token limit",
)
"""Parts of the errors by which providers refuse a prompt as too long, in lower case."""
_MOST_ERROR: Final = 65_536
"""Bytes of an error that are kept."""

_PRELUDE: Final = 12
"""Bytes before an event's headers in Amazon's event stream: lengths of the event and of its headers, and their CRC."""
_EPILOGUE: Final = 4
"""Bytes after an event's payload: its CRC."""


@dataclass(frozen=True, slots=True)
class ProviderUsage:
    """Tokens as the provider counts; None: not reported."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    model: str = ""
    """The model that answered; empty: unnamed."""
    refusal: str = ""
    """What the provider said of a prompt that is too long; empty: it did not refuse it for that."""

    @property
    def reported(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.refusal) or self.input_tokens is not None

    def call(self, caller: str, run_id: str, revision: bytes) -> UsageCall:
        """Return the report on a run's prompt."""
        refusal = ReportedRefusal(self.refusal) if self.refusal else None
        return UsageCall(
            caller=caller,
            run_id=run_id,
            model=self.model,
            input_tokens=None if refusal else self.input_tokens,
            cached_tokens=None if refusal else self.cached_tokens,
            cache_write_tokens=None if refusal else self.cache_write_tokens,
            output_tokens=None if refusal else self.output_tokens,
            counting=InputCounting.AS_PROVIDER,
            refusal=refusal,
            revision=revision,
        )


class _Kind(Enum):
    JSON = auto()
    EVENTS = auto()
    AMAZON = auto()
    ERROR = auto()
    UNREAD = auto()


class UsageReader:
    """Reads one answer. Not thread-safe.

    Args:
        format_name: the request's format.
        status: of HTTP.
        content_type: the answer's; its parameters do not matter.
        encoded: whether the answer is compressed: then nothing is read.
    """

    def __init__(self, format_name: str, status: int, content_type: str, *, encoded: bool = False) -> None:
        self._format = format_name
        self._kind = _kind(status, content_type, encoded=encoded)
        self._kept = bytearray()
        self._usage = ProviderUsage()

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept until more has come, and are then read at once."""
        return len(self._kept)

    @property
    def reads(self) -> bool:
        """Whether the rest of the answer can still say something."""
        return self._kind is not _Kind.UNREAD

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the answer's body."""
        if self._kind is _Kind.UNREAD:
            return
        if self._kind is _Kind.EVENTS:
            self._lines(piece)
        else:
            self._kept += piece
        if self._kind is _Kind.AMAZON:
            self._frames()
        if len(self._kept) > (_MOST_ERROR if self._kind is _Kind.ERROR else MOST_BYTES):
            self._kind = _Kind.UNREAD
            self._kept.clear()

    def stop(self) -> None:
        """Read nothing more: there is no memory for it."""
        self._kind = _Kind.UNREAD
        self._kept.clear()

    def end(self) -> ProviderUsage:
        """Return what the answer said; its body is over."""
        if self._kind is _Kind.JSON:
            self._json(bytes(self._kept))
        elif self._kind is _Kind.EVENTS:
            self._lines(b"\n")
        elif self._kind is _Kind.ERROR:
            self._error(bytes(self._kept))
        self._kept.clear()
        self._kind = _Kind.UNREAD
        return self._usage

    def _lines(self, piece: bytes) -> None:
        """Read the lines that `piece` ends; only it is searched, as an event may come in many pieces."""
        cut = piece.rfind(b"\n") + 1
        if not cut:
            self._kept += piece
            return
        whole = bytes(self._kept) + piece[:cut]
        self._kept = bytearray(piece[cut:])
        # Few events have figures, and most pieces hold none of them.
        if b"usage" in whole:
            for line in whole.removeprefix(BOM_UTF8).splitlines():
                if line.startswith(b"data:") and b"usage" in line:
                    self._json(bytes(line[5:]))

    def _frames(self) -> None:
        while len(self._kept) >= _PRELUDE:
            total = int.from_bytes(self._kept[:4], "big")
            headers = int.from_bytes(self._kept[4:8], "big")
            if total > MOST_BYTES or total < _PRELUDE + headers + _EPILOGUE:
                self._kind = _Kind.UNREAD
                self._kept.clear()
                return
            if len(self._kept) < total:
                return
            payload = bytes(self._kept[_PRELUDE + headers : total - _EPILOGUE])
            del self._kept[:total]
            if b'"usage"' in payload:
                self._json(payload)

    def _json(self, text: bytes) -> None:
        answer = read(text)
        for each in (
            answer if isinstance(answer, list) else (answer,)
        ):  # Google streams an array unless asked for events
            self._object(each)

    def _object(self, answer: Any) -> None:
        if not isinstance(answer, dict):
            return
        new = read_usage(self._format, answer)
        old = self._usage
        self._usage = replace(
            old,
            input_tokens=_newer(new.input_tokens, old.input_tokens),
            cached_tokens=_newer(new.cached_tokens, old.cached_tokens),
            cache_write_tokens=_newer(new.cache_write_tokens, old.cache_write_tokens),
            output_tokens=_newer(new.output_tokens, old.output_tokens),
            model=new.model or old.model,
        )

    def _error(self, body: bytes) -> None:
        if _names_length(body):
            self._usage = ProviderUsage(refusal=_refusal(body))


def _kind(status: int, content_type: str, *, encoded: bool) -> _Kind:
    kind = content_type.partition(";")[0].strip().lower()
    if encoded:
        return _Kind.UNREAD
    if status in _TOO_LONG_STATUS:
        return _Kind.ERROR
    if not 200 <= status < 300:
        return _Kind.UNREAD
    if kind == "text/event-stream":
        return _Kind.EVENTS
    if kind == "application/vnd.amazon.eventstream":
        return _Kind.AMAZON
    return _Kind.JSON if kind == "application/json" else _Kind.UNREAD


def too_long(status: int, body: bytes) -> str:
    """Return the text with which a provider refused a prompt as too long; empty: it did not."""
    return _refusal(body) if status in _TOO_LONG_STATUS and _names_length(body) else ""


def _names_length(body: bytes) -> bool:
    return any(words in body[:_MOST_ERROR].lower() for words in _TOO_LONG)


def _refusal(body: bytes) -> str:
    return body[: 4 * MOST_CHARACTERS].decode("utf-8", "replace")[:MOST_CHARACTERS]


def _newer(new: int | None, old: int | None) -> int | None:
    return old if new is None else new


def _model(answer: Mapping[str, Any], name: str = "model") -> str:
    model = answer.get(name)
    return sound(model[:256]) if isinstance(model, str) else ""


def _chat(answer: Mapping[str, Any]) -> ProviderUsage:
    usage = answer.get("usage")
    return ProviderUsage(
        token_count(usage, "prompt_tokens"),
        token_count(usage, "prompt_tokens_details", "cached_tokens"),
        None,
        token_count(usage, "completion_tokens"),
        _model(answer),
    )


def _responses(answer: Mapping[str, Any]) -> ProviderUsage:
    whole = answer.get("response", answer)  # of a stream, the last event holds the whole response
    if not isinstance(whole, dict):
        return ProviderUsage()
    usage = whole.get("usage")
    return ProviderUsage(
        token_count(usage, "input_tokens"),
        token_count(usage, "input_tokens_details", "cached_tokens"),
        None,
        token_count(usage, "output_tokens"),
        _model(whole),
    )


def _anthropic(answer: Mapping[str, Any]) -> ProviderUsage:
    whole = answer.get("message", answer)  # of a stream, the first event; the last ones have what changed since
    if not isinstance(whole, dict):
        return ProviderUsage()
    usage = whole.get("usage")
    return ProviderUsage(
        token_count(usage, "input_tokens"),
        token_count(usage, "cache_read_input_tokens"),
        token_count(usage, "cache_creation_input_tokens"),
        token_count(usage, "output_tokens"),
        _model(whole),
    )


def _gemini(answer: Mapping[str, Any]) -> ProviderUsage:
    usage = answer.get("usageMetadata")
    thoughts, shown = token_count(usage, "thoughtsTokenCount"), token_count(usage, "candidatesTokenCount")
    return ProviderUsage(
        token_count(usage, "promptTokenCount"),
        token_count(usage, "cachedContentTokenCount"),
        None,
        None if shown is None and thoughts is None else (shown or 0) + (thoughts or 0),
        _model(answer, "modelVersion"),
    )


def _bedrock(answer: Mapping[str, Any]) -> ProviderUsage:
    usage = answer.get("usage")
    return ProviderUsage(
        token_count(usage, "inputTokens"),
        token_count(usage, "cacheReadInputTokens"),
        token_count(usage, "cacheWriteInputTokens"),
        token_count(usage, "outputTokens"),
    )


_READERS: Final = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _anthropic,
    "gemini_contents": _gemini,
    "bedrock_converse": _bedrock,
}


def read_usage(format_name: str, answer: Mapping[str, Any]) -> ProviderUsage:
    """Return what one answer, or one event of it, says."""
    read = _READERS.get(format_name)
    return ProviderUsage() if read is None else read(answer)
