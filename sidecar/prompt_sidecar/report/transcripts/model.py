"""A run as recorded in its transcript: the prompts that were sent, and the provider's counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from prompt_sidecar.prompt.formats import FORMATS


class TranscriptError(Exception):
    """A file cannot be used as a transcript; the message gives the reason, without text from the file."""


@dataclass(frozen=True, slots=True)
class CallUsage:
    """Tokens that the provider counted for one model call."""

    input: int
    """The whole prompt: cached and written tokens are included."""
    cached: int = 0
    written: int = 0
    output: int = 0
    written_hour: int = 0
    """Those of the written tokens that are kept for an hour."""


@dataclass(frozen=True, slots=True)
class RecordedPrompt:
    """One prompt as the agent sent it."""

    messages: Sequence[bytes]
    """Each message's JSON. A message of several prompts is the same object in each."""
    head: bytes = b""
    """A JSON object with the body's other members: model, system prompt, tools. Empty if the file has none."""
    model: str = ""
    usage: CallUsage | None = None

    def body(self, form: str) -> bytes:
        """Return the request body in the format `form`: the bare array of messages if there is no head."""
        joined = b"[" + b",".join(self.messages) + b"]"
        if not self.head:
            return joined
        members = self.head.rstrip()[:-1].rstrip()
        comma = b"" if members.endswith(b"{") else b","
        return members + comma + b'"' + FORMATS[form].messages_field.encode() + b'":' + joined + b"}"


@dataclass(frozen=True, slots=True)
class Transcript:
    """A run: at least one prompt."""

    name: str
    """The file's name, and which of its runs if it has several."""
    source: str
    """The kind of the file, in words."""
    form: str
    """The messages' format, a key of `prompt_sidecar.prompt.formats.FORMATS`."""
    prompts: Sequence[RecordedPrompt]
    missing: Sequence[str] = ()
    """What was sent and is missing from the file, in sentences."""
    lacks_head: bool = False
    """Whether the file lacks all or part of what precedes the messages of every prompt."""
    project: str = ""
    """The name of the agent's working folder; empty if the file has none."""
    date: str = ""
    """The date on which it began, as YYYY-MM-DD; empty if the file has none."""

    @property
    def model(self) -> str:
        """Return the model of most prompts; empty if the file names none."""
        names = Counter(prompt.model for prompt in self.prompts if prompt.model)
        return names.most_common(1)[0][0] if names else ""


def project_of(folder: str) -> str:
    """Return the name of a project, by the folder that the agent worked in."""
    return re.split(r"[/\\]", folder.rstrip("/\\"))[-1]


def date_of(timestamp: str) -> str:
    """Return the date of an ISO 8601 time; empty for any other text."""
    found = re.match(r"\d{4}-\d{2}-\d{2}(?=T|$)", timestamp)
    return found[0] if found else ""
