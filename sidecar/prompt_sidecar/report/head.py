"""The part before the messages of every prompt that the file lacks: system text, tools, attachments.

Session files lack this head, and it is large: 30,000 to 45,000 tokens in Claude Code. The file has the provider's own
count of each call, so the head's size is known: the count of the first counted call, less our count of that call's
visible part times the tokenizer's factor. A text of that size is put in its place, so that the core counts it, never
trims it, and leaves less of the limit to the messages, as in the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.report.transcripts.files import members_of
from prompt_sidecar.report.transcripts.model import RecordedPrompt, Transcript

LEAST: Final = 256
"""Tokens: a smaller difference is the error of an estimate, not a missing head."""
_WORD: Final = " a"
"""One token in every vocabulary in use."""

Size = Callable[[RecordedPrompt], tuple[int, float]]
"""Returns a prompt's estimated tokens, and the factor that is included in them."""


def headed(transcript: Transcript, size: Size) -> tuple[Transcript, int]:
    """Return the run with a text in place of the missing head, and that head's tokens; 0 if none is known."""
    first = next((prompt for prompt in transcript.prompts if prompt.usage is not None), None)
    member = FORMATS[transcript.form].system
    if not transcript.lacks_head or first is None or first.usage is None or member is None:
        return transcript, 0
    visible, factor = size(first)
    tokens = first.usage.input - visible
    if tokens < LEAST:
        return transcript, 0
    text = _WORD * round(tokens / factor)
    heads: dict[bytes, bytes] = {}

    def with_text(head: bytes) -> bytes:
        members = dict(members_of(head) or {}) if head else {}
        name = next((name for name in member.names if name in members), member.names[0])
        value = bytes(members[name]) if name in members else None
        return msgspec.json.encode({**members, name: msgspec.Raw(member.add(value, text))})

    def whole(prompt: RecordedPrompt) -> RecordedPrompt:
        if prompt.head not in heads:
            heads[prompt.head] = with_text(prompt.head)
        return replace(prompt, head=heads[prompt.head])

    return replace(transcript, prompts=[whole(prompt) for prompt in transcript.prompts]), tokens
