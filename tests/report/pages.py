"""A page as a reader's program sees it: its elements, by the standard library's parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})


@dataclass
class Element:
    """An element with its attributes and the text directly in it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    inside: list[Element] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Element] = []
        self.open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, inside=list(self.open))
        self.found.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1].text += data


def elements(page: str) -> list[Element]:
    """All elements; fails if one is not closed where it should be."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert [] == reader.open
    return reader.found
