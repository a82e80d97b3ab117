"""A fetched page as text: without markup, scripts and styles; the address of a link follows its words."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final

from prompt_sidecar.trim.condense.output import Output

OPENING: Final = "[text of an HTML page without its markup]"
_TAG: Final = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)((?:\s[^<>]*)?)>|<!--|<![A-Za-z][^<>]*>")
_ADDRESS: Final = re.compile(r"""\shref\s?=\s?["']?((?:https?:|/)[^"'\s>]+)""", re.IGNORECASE)
_SPACES: Final = re.compile(r"[ \t\r\f]+")
_BLANK: Final = re.compile(r" ?\n\s*")
_HIDDEN: Final = frozenset({"script", "style", "svg", "noscript", "template"})
_BREAKING: Final = frozenset(
    {
        *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption", "footer", "form"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "option", "p", "pre"),
        *("section", "table", "title", "tr", "ul"),
    }
)
_CELLS: Final = frozenset({"td", "th"})
_LOOKED_AT: Final = 3_000


def as_text(output: Output) -> str | None:
    """Return the text of a page, or None if it is not HTML."""
    start = output.text[:_LOOKED_AT].lower()
    if "<html" not in start and "<!doctype html" not in start:
        return None
    shown = _SPACES.sub(" ", "".join(_pieces(output.text)))
    return f"{OPENING}\n{_BLANK.sub(chr(10), shown).strip()}"


def _pieces(text: str) -> Iterator[str]:
    """Yield the page's texts, with breaks and addresses.

    Each character is read once, however many tags are left open.
    """
    at, hidden, address = 0, "", ""
    while found := _TAG.search(text, at):
        if not hidden:
            yield html.unescape(text[at : found.start()])
        at = found.end()
        name = (found[2] or "").lower()
        if found[0] == "<!--":
            end = text.find("-->", at)
            at = end + 3 if end >= 0 else len(text)
        elif hidden:
            hidden = "" if found[1] and name == hidden else hidden
        elif name in _HIDDEN and not found[1] and not found[3].endswith("/"):
            hidden = name
        elif name == "a":
            if found[1] and address:
                yield f" ({address})"
            link = _ADDRESS.search(found[3])
            address = html.unescape(link[1]) if link and not found[1] else ""
        elif name in _BREAKING:
            yield "\n"
        elif name in _CELLS:
            yield " "
    if not hidden:
        yield html.unescape(text[at:])
