"""What precedes the messages of every prompt and is not in the file: system text, tools, attachments.

Session files lack it, and it is much: 30,000 to 45,000 tokens in Claude Code. The file has the provider's own count of
each call, so its size is known: what the first counted call took, less what is visible of that call by our count, times
the tokenizer's factor. A text of that size is put there, so that the core counts it, never trims it, and lets
less of the limit to the messages, as it was in the run.
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
"""Tokens below which nothing is missing but the error of an estimate."""
_WORD: Final = " a"
"""One token in every vocabulary that is used."""

Size = Callable[[RecordedPrompt], tuple[int, float]]
"""Gives a prompt's tokens as estimated, and the factor that is in them."""


def headed(transcript: Transcript, size: Size) -> tuple[Transcript, int]:
    """Return the run with a text in place of the head that its file lacks, and that head's tokens; 0: none is known."""
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
