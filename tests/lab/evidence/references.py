"""What an action refers to: the strings in it that may have come from earlier text.

Each kind is a pattern that people and models copy rather than make up. Whether a string is a reference of a run is
decided later, by where it stands (`history.py`).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from enum import IntEnum

from tests.lab.evidence.reading import lines_of


class ReferenceKind(IntEnum):
    """The kinds. Of several that name the same lines, the least is the name that one would ask by."""

    PATH = 0
    URL = 1
    HASH = 2
    ERROR = 3
    NAME = 4
    NUMBER = 5
    QUOTED = 6
    LINE = 7


NAME_CHARACTERS = 6
KEBAB_CHARACTERS = 8
"""Kebab names are longer, as prose has words with a hyphen."""
LINE_CHARACTERS = 24

_URL = re.compile(r"https?://[^\s\"'`<>()\[\]{}\\]+")
_PATH = re.compile(r"(?<![\w/.~@-])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*\w")
_HASH = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b")
_ERROR = re.compile(rf"\b(?:[A-Z]{{1,6}}-?[0-9]{{2,5}}|{'|'.join(sorted(errno.errorcode.values(), reverse=True))})\b")
_DOTTED = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\b")
_SNAKE = re.compile(r"\b(?=\w*[A-Za-z])\w*[A-Za-z0-9]_\w+\b")
_CAMEL = re.compile(r"\b(?=[A-Z0-9]*[a-z])[A-Za-z][A-Za-z0-9]*[A-Z][A-Za-z0-9]*\b")
_CONSTANT = re.compile(r"\b[A-Z][A-Z0-9]{5,}\b")
_KEBAB = re.compile(r"\b[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)+\b")
_NUMBER = re.compile(r"(?<![\w.])[0-9]{4,}(?!\w)")
_QUOTED = re.compile(r"(?<!\w)(?:\"([^\"\n]{6,80})\"|'([^'\n]{6,80})'|`([^`\n]{6,80})`)(?!\w)")
_WORD = re.compile(r"\w")

_NAMES = ((_DOTTED, NAME_CHARACTERS), (_SNAKE, NAME_CHARACTERS), (_CAMEL, NAME_CHARACTERS))
_MORE_NAMES = ((_CONSTANT, NAME_CHARACTERS), (_KEBAB, KEBAB_CHARACTERS))


def references(texts: Iterable[str]) -> dict[str, ReferenceKind]:
    """Return the candidates in some texts, in order of appearance by kind; of two kinds of one string, the lesser."""
    found: dict[str, ReferenceKind] = {}
    for text in texts:
        for name, kind in _candidates(text):
            if _WORD.search(name):
                found[name] = min(kind, found.get(name, kind))
    return found


def _candidates(text: str) -> Iterator[tuple[str, ReferenceKind]]:
    for address in _URL.findall(text):
        yield address.rstrip(".,;:!?*"), ReferenceKind.URL
    plain = _URL.sub(" ", text)
    for path in _PATH.findall(plain):
        yield from _path(path)
    for code in _HASH.findall(plain):
        yield code, ReferenceKind.HASH
    for code in _ERROR.findall(plain):
        yield code, ReferenceKind.ERROR
    for pattern, least in (*_NAMES, *_MORE_NAMES):
        for name in pattern.findall(plain):
            if len(name) >= least:
                yield name, ReferenceKind.NAME
    for number in _NUMBER.findall(plain):
        if int(number[-2:]):  # the others are round
            yield number, ReferenceKind.NUMBER
    for groups in _QUOTED.findall(text):
        yield "".join(groups), ReferenceKind.QUOTED
    for line in lines_of(text):
        if len(line) >= LINE_CHARACTERS:
            yield line, ReferenceKind.LINE


def _path(path: str) -> Iterator[tuple[str, ReferenceKind]]:
    parts = [part for part in path.split("/") if part not in {"", ".", "..", "~"}]
    if len(path) < NAME_CHARACTERS or not re.search("[A-Za-z]", path):
        return
    yield path, ReferenceKind.PATH
    if len(parts) > 2:
        yield "/".join(parts[-2:]), ReferenceKind.PATH
