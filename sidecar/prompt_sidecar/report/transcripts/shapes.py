"""What a message itself shows: its author, and its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.likeness import message_format
from prompt_sidecar.providers.table import MESSAGES
from prompt_sidecar.report.transcripts.model import TranscriptError

JSON_FORMATS: Final = tuple(name for name, form in FORMATS.items() if form.is_json)
_LOOKED_AT: Final = 400
"""Messages from which a format is guessed: an agent calls a tool earlier."""


class Head(msgspec.Struct):
    """The members that show a message's author.

    Items of OpenAI's responses have a type, and a role only if they are messages.
    """

    role: str = ""
    type: str = ""

    @property
    def known(self) -> bool:
        """Whether it can be a message."""
        return bool(self.role or self.type)

    def of_model(self, form: str) -> bool:
        """Whether it is from the model, in this format."""
        return form in MESSAGES and MESSAGES[form].from_model({"role": self.role} if self.role else {"type": self.type})


_head: Final = msgspec.json.Decoder(Head)


def heads(messages: Iterable[bytes]) -> list[Head] | None:
    """Return each message's head; None if one cannot be a message."""
    try:
        found = [_head.decode(message) for message in messages]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if all(head.known for head in found) else None


def turns(found: Sequence[Head], form: str) -> list[int]:
    """Return how many messages each prompt of a history had: those before each answer of the model, and all of them."""
    models = [head.of_model(form) for head in found]
    starts = [
        place for place, head in enumerate(found) if place and models[place] and (head.role or not models[place - 1])
    ]
    return [*starts, len(found)]


def format_named(path: object, named: str) -> str:
    """Return the format of a name, or of its beginning. Raises TranscriptError."""
    wanted = named.lower().replace(".", "_")
    found = [name for name in JSON_FORMATS if wanted and name.startswith(wanted)]
    if len(found) != 1:
        raise TranscriptError(f"{path}: the format is {named[:64]!r}; it may be one of {', '.join(JSON_FORMATS)}")
    return found[0]


def guessed(messages: Iterable[bytes], otherwise: str) -> str:
    """Return the format of most messages, by parts that only that format has; `otherwise` if there are none."""
    found = Counter(name for message in islice(messages, _LOOKED_AT) if (name := message_format(_object(message))))
    return found.most_common(1)[0][0] if found else otherwise


def _object(message: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
