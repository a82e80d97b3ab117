"""What the sidecar's tools answer, as a reader takes it: a first line that the sidecar wrote, and quotes in fences.

A fence carries a mark that the sidecar chose and that stands nowhere in what it quotes, so that a quote ends where its
fence ends and nowhere else. A model reads so, and so does the check that compares the quotes with what tools produced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    said: str = ""
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
        found = _MORE.search(self.said)
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
