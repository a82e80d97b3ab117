"""A request body as those see it who get it: a checker its raw slices, a model its text.

A model is told nothing but the prompt. So whatever the scripted agent recalls, it finds here: in registry lines of
system messages, and in the markers that stand in what its tools answered. What the sidecar's tools answer begins with a
line that the sidecar wrote; quotes stand in fences. A fence carries a mark that stands nowhere in what it quotes, so
that a quote ends where its fence ends and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from tests.oracle.shapes import role_of, texts_of

LABEL = re.compile(
    r"\[content (?:elided to fit context window|clipped) — id=(\w+), [\d,]+ bytes"
    r"(?:; names in what is clipped so far: [^\]]+?)?(?:; [\d,]+\+? other iterations? dropped)?\]"
)
_REGISTRY_LINE = re.compile(
    r'^id=(?P<id>\w+) tool=(?P<tool>\S+) args="(?P<arguments>.*)" iteration=(?P<iteration>\d+) bytes=(?P<size>\d+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the registry as a reader takes it."""

    id: str
    tool: str
    arguments: str
    iteration: int
    size: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A body: each message as raw bytes and decoded, and the fields beside the messages as raw bytes."""

    slices: tuple[bytes, ...]
    messages: tuple[Mapping[str, Any], ...]
    fields: Mapping[str, bytes]

    @classmethod
    def of(cls, body: bytes) -> Prompt:
        """Split a body."""
        raw = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        slices = tuple(bytes(piece) for piece in msgspec.json.decode(raw.pop("messages"), type=list[msgspec.Raw]))
        return cls(
            slices, tuple(_decoded(piece) for piece in slices), {name: bytes(value) for name, value in raw.items()}
        )

    @property
    def decoded(self) -> dict[str, Any]:
        """The body as JSON values."""
        return {"messages": list(self.messages)} | {name: json.loads(value) for name, value in self.fields.items()}

    def system_text(self) -> str:
        """All that stands in system and developer messages: what a model takes for instructions."""
        return "\n".join(
            text
            for message in self.messages
            if role_of(message) in ("system", "developer")
            for text in texts_of(message["content"])
        )

    def registry(self) -> list[Line]:
        """The lines of the registry; looked for in system text only, as the directives say."""
        return [
            Line(found["id"], found["tool"], found["arguments"], int(found["iteration"]), int(found["size"]))
            for found in _REGISTRY_LINE.finditer(self.system_text())
        ]

    def label_in_result(self, call_id: str) -> str:
        """The id that the label in a tool's answer shows; empty if there is none."""
        found = LABEL.search(self.result(call_id))
        return found[1] if found else ""

    def last_answer(self, name: str) -> tuple[str, str]:
        """Call id and answer of the newest call of a tool; empty if the prompt has none."""
        for message in reversed(self.messages):
            for call in message.get("tool_calls", ()):
                if call["function"]["name"] == name:
                    return str(call["id"]), self.result(call["id"])
        return "", ""

    def holds(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern matches anywhere in the text of a message."""
        return any(pattern.search(text) for message in self.messages for text in texts_of(message.get("content")))

    def result(self, call_id: str) -> str:
        """What stands in the prompt as the answer to a call; empty if it is gone."""
        answers = [message["content"] for message in self.messages if message.get("tool_call_id") == call_id]
        return "".join(texts_of(answers))


@lru_cache(maxsize=5_000)
def _decoded(piece: bytes) -> Any:
    return json.loads(piece)


_FIRST = re.compile(r"\[(?P<kind>recalled|found|tasks|notice)(?: id=(?P<id>\w+))?: (?P<said>.*); tag=(?P<tag>\w+)\]")
_MARK = re.compile(r"Quotes stand between <<(\w+) and \1>>\.$", re.MULTILINE)
_MORE = re.compile(r"more follows at offset (\d+)(?:;|$)")
_SNIPPET = re.compile(r"snippet \d+ of \d+, .*, iteration (?P<iteration>\d+), id (?P<id>\w+), lines .*")
_EXAMPLE = re.compile(r"^Example: (\w+)\((.*)\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Quote:
    """A quoted stretch, and the line of the sidecar's above it."""

    label: str
    text: str

    @property
    def named(self) -> tuple[str, int] | None:
        """Id and iteration of the item that a snippet is from; None if this is no snippet."""
        found = _SNIPPET.fullmatch(self.label)
        return (found["id"], int(found["iteration"])) if found else None


@dataclass(frozen=True, slots=True)
class Envelope:
    """An answer in its parts; all empty if the text is none."""

    kind: str = ""
    stash_id: str = ""
    notice: str = ""
    """What the first line states."""
    tag: str = ""
    quotes: tuple[Quote, ...] = ()
    rest: str = ""
    """All after the first line."""

    @classmethod
    def of(cls, text: str) -> Envelope:
        """Read an answer."""
        first, _, rest = text.partition("\n")
        found = _FIRST.fullmatch(first)
        if found is None:
            return cls()
        return cls(found["kind"], found["id"] or "", found["said"], found["tag"], quotes(rest), rest)

    @property
    def next_offset(self) -> int | None:
        """Where the next page begins; None after the last."""
        found = _MORE.search(self.notice)
        return int(found[1]) if found else None

    @property
    def example(self) -> tuple[str, str] | None:
        """Tool and arguments of the call that is shown as a right one."""
        found = _EXAMPLE.search(self.rest)
        return (found[1], found[2]) if found else None

    @property
    def quoted(self) -> str:
        """The text of all quotes, one after another."""
        return "".join(quote.text for quote in self.quotes)


def quotes(text: str) -> tuple[Quote, ...]:
    """Read the quotes below the line that shows their fence."""
    marked = _MARK.search(text)
    if marked is None:
        return ()
    mark, at = marked[1], marked.end() + 1
    found: list[Quote] = []
    while (opened := text.find(f"\n<<{mark}\n", at)) >= 0:
        start = opened + len(f"\n<<{mark}\n")
        end = text.find(f"\n{mark}>>", start - 1)
        if end < 0:
            break
        found.append(Quote(text[at:opened], text[start:end]))
        at = end + len(f"\n{mark}>>\n")
    return tuple(found)
