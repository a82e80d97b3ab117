"""Logs of requests: JSONL of request bodies, or of pairs of a body and the provider's answer.

A pair has the body under one of `REQUESTS`, and the answer, whose usage is read, under one of `ANSWERS`. One log holds
the requests of many runs: a request continues the run whose last prompt has the most messages in common with its own,
from the first on; if that is fewer than half, it begins another run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from prompt_sidecar.providers.messages import CACHE_MARKS
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.report.transcripts.files import (
    Members,
    TranscriptLine,
    array_of,
    count_in,
    members_of,
    object_in,
    text_in,
    value_in,
)
from prompt_sidecar.report.transcripts.model import CallUsage, RecordedPrompt, Transcript, TranscriptError
from prompt_sidecar.report.transcripts.run_files import LISTS, format_of, of_messages, other_members
from prompt_sidecar.report.transcripts.shapes import format_named, heads

SOURCE: Final = "request log"
REQUESTS: Final = ("request", "body", "request_body", "requestBody", "kwargs", "params")
ANSWERS: Final = ("response", "response_body", "responseBody", "answer", "result")
_LATEST: Final = 32
"""Runs that a request is compared with, the most recently continued ones: agents seldom run more at once."""
_SHARE: Final = 0.5


def fits(lines: Sequence[TranscriptLine]) -> bool:
    """Whether these are requests: bodies, or pairs with one."""
    return any(_request(line.members) for line in lines)


def read(path: Path, lines: Sequence[TranscriptLine], named: str | None) -> list[Transcript]:
    """Return the runs of a log. Raises TranscriptError."""
    found: list[_Run] = []
    known: dict[bytes, bytes] = {}
    others = referring = 0
    for line in lines:
        body = _request(line.members)
        messages = messages_of(body) if body else None
        shown = heads(messages) if messages else None
        if not messages or shown is None:
            others += 1
            continue
        format_name = named or text_in(line.members, "format")
        form = format_named(f"{path}, line {line.number}", format_name) if format_name else format_of(body, messages)
        referring += bool(text_in(body, "previous_response_id"))
        prompt = RecordedPrompt(messages, other_members(body), text_in(body, "model"), _usage(line.members))
        digests = _digests(messages, known)
        _continued(found, form, digests).add(prompt, digests)
    if not found:
        raise TranscriptError(f"{path} holds no request with messages")
    missing = []
    if others:
        missing.append(f"{others} lines that hold no request with messages were passed over")
    if referring:
        missing.append(f"{referring} requests refer to an earlier response, whose history the log does not have")
    if len(lines) == 1:
        # One request is a whole history: it is replayed turn by turn.
        body = _request(lines[0].members)
        return [of_messages(path, found[0].prompts[0].messages, body, found[0].form)]
    return [
        Transcript(
            path.name if len(found) == 1 else f"{path.name}, run {number}", SOURCE, run.form, run.prompts, missing
        )
        for number, run in enumerate(found, start=1)
    ]


@dataclass(slots=True)
class _Run:
    """A run while its requests are collected."""

    form: str
    prompts: list[RecordedPrompt] = field(default_factory=list)
    digests: Sequence[bytes] = ()
    """Digests of the last prompt's messages."""
    known: dict[bytes, bytes] = field(default_factory=dict)
    """Messages by digest, so that prompts share them, whatever cache marks they have then."""

    def add(self, prompt: RecordedPrompt, digests: Sequence[bytes]) -> None:
        """Add a prompt with its messages' digests."""
        self.digests = digests
        pairs = zip(digests, prompt.messages, strict=True)
        shared = [self.known.setdefault(digest, message) for digest, message in pairs]
        self.prompts.append(RecordedPrompt(shared, prompt.head, prompt.model, prompt.usage))


def _continued(found: list[_Run], form: str, digests: Sequence[bytes]) -> _Run:
    best, most = None, 0
    for run in reversed(found[-_LATEST:]):
        common = _common(run.digests, digests) if run.form == form else 0
        if common > most and common >= _SHARE * len(run.digests):
            best, most = run, common
    if best is None:
        best = _Run(form)
    else:
        found.remove(best)
    found.append(best)
    return best


def _common(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    return next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
    )


def _digests(messages: Sequence[bytes], known: dict[bytes, bytes]) -> list[bytes]:
    """Return digests of messages; cache marks, which move from request to request, are ignored."""
    return [known.get(message) or known.setdefault(message, _digest(message)) for message in messages]


def _digest(message: bytes) -> bytes:
    content = _without_marks(msgspec.json.decode(message))
    return blake2b(msgspec.json.encode(content, order="sorted"), digest_size=16).digest()


def _without_marks(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_marks(one) for name, one in value.items() if name not in CACHE_MARKS}
    if isinstance(value, list):
        return [_without_marks(one) for one in value if not (isinstance(one, dict) and one.keys() == {"cachePoint"})]
    return value


def _request(members: Members) -> Members:
    """Return a line's request body: the line itself, or one of its members; empty if there is none."""
    if any(name in members for name in LISTS):
        return members
    for name in REQUESTS:
        body = object_in(members, name)
        if not body and (text := text_in(members, name)):
            body = members_of(text.encode()) or {}
        inner = object_in(body, "body")
        if any(list_ in (inner or body) for list_ in LISTS):
            return inner or body
    return {}


def messages_of(body: Members) -> list[bytes] | None:
    """Return a body's messages, each as JSON; None if it has no list of them."""
    field = next(name for name in LISTS if name in body)
    raw = bytes(body[field]).strip()
    if field == "input" and raw[:1] == b'"':  # responses accept a plain text as one message of the user
        return [b'{"type":"message","role":"user","content":' + raw + b"}"]
    return array_of(raw)


def _usage(members: Members) -> CallUsage | None:
    for name in ANSWERS:
        answer = object_in(members, name)
        answer = object_in(answer, "body") or answer
        if found := usage_in(answer):
            return found
    return usage_in(members)


def usage_in(answer: Members) -> CallUsage | None:
    """Return an answer's usage, in whichever API's names; None if it has none."""
    found = next(filter(None, (object_in(answer, api.usage.usage) for api in APIS.values())), {})
    values = {name: value_in(found, name) for name in found}
    counts = [(api.usage.cached_apart, *api.usage.counts(values)) for api in APIS.values()]
    known = [each for each in counts if each[1] is not None]
    if not known:
        return None
    # Two APIs have the same name for the input: the answer belongs to the one with more of its names.
    apart, *tokens = max(known, key=lambda each: sum(count is not None for count in each[1:]))
    whole, cached, written, output = (count or 0 for count in tokens)
    hour = count_in(object_in(found, "cache_creation"), "ephemeral_1h_input_tokens")
    if apart:
        return CallUsage(whole + cached + written, cached, written, output, min(hour, written))
    cached = min(cached, whole)
    return CallUsage(whole, cached, min(written, whole - cached), output) if whole else None
