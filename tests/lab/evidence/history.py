"""What each action of a run needed: its references, where they occur in the history, and what they weigh.

Theory. A *reference* of a turn is a string of its action that stands, at word boundaries, in an earlier message and in
no system message, and in at most the larger of five and 5 % of the run's messages. Its *evidence* are the lines, before
the turn, that hold it; references with the same evidence count once. It weighs ln(messages / messages that hold it),
the weights of a turn's references sum to 1, and no more than the 100 heaviest count.

All of that depends on the run alone, neither on a limit nor on a strategy, so it is worked out once. Lines are
numbered by their text; a word's postings are the lines that hold it; a reference is looked for only in the lines of its
rarest word.

What may be a reference is a string of a kind that people and models copy rather than make up; each kind is a pattern.
What an agent writes by habit at many calls (`1,240p`, `in_progress`, `*** Update File: x`) refers to nothing.
"""

from __future__ import annotations

import errno
import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tests.lab.evidence.core import Hit
from tests.lab.evidence.recordings import SOURCES, Kind, Recording, Text, lines_of, texts_of


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
_LETTER = re.compile(r"\w")

_HABIT = re.compile(
    r"(?:[0-9]+,)?[0-9]+p"  # sed -n '1,240p'
    r"|in_progress|completed|pending"  # plans
    r"|require_escalated|use_default|with_escalated_permissions"  # Codex's sandbox
    r"|\*\*\* (?:Begin Patch|End Patch|End of File|(?:Add|Update|Delete) File:.*|Move to:.*)|@@.*"  # apply_patch
)
"""Strings that agents write at many calls without having read them."""
_IDENTIFIER = re.compile(r"\w*(?:[A-Za-z0-9]_\w|[a-z][A-Z]|[A-Za-z][0-9]|[0-9][A-Za-z])\w*")
"""Words that nobody says but who means one thing: snake and camel case, letters with digits."""

_NAMES = ((_DOTTED, NAME_CHARACTERS), (_SNAKE, NAME_CHARACTERS), (_CAMEL, NAME_CHARACTERS))
_MORE_NAMES = ((_CONSTANT, NAME_CHARACTERS), (_KEBAB, KEBAB_CHARACTERS))


def references(texts: Iterable[str]) -> dict[str, ReferenceKind]:
    """Return the candidates in some texts, in order of appearance by kind; of two kinds of one string, the lesser."""
    found: dict[str, ReferenceKind] = {}
    for text in texts:
        for name, kind in _candidates(text):
            if _LETTER.search(name) and not _HABIT.fullmatch(name):
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


MOST_REFERENCES = 100
"""References of one turn that count."""
COMMON_MESSAGES = 5
COMMON_SHARE = 0.05
"""A string in more messages than the larger of these is vocabulary, and no reference."""
CONTEXT_TERMS = 3
"""Words of the action that a question "by context" is made of."""
CONTEXT_CHARACTERS = 4
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Need:
    """One reference of a turn, or several with the same evidence."""

    names: tuple[str, ...]
    """The first is the one to ask by."""
    quotes_line: bool
    """Whether a whole line was quoted."""
    weight: float
    lines: frozenset[int]
    """Lines that hold it, before the turn."""
    source: frozenset[int]
    """Those of the newest tool result or user message that holds it; empty: only the model itself wrote it so far."""
    age: int
    """Iterations since the newest message that holds it; 1: what the last call brought or said."""
    source_age: int
    context: str
    """Other rare words of the action, identifiers first; empty: there are none."""


@dataclass(slots=True)
class _Where:
    """Messages that hold a line, in order; and those of them that the model did not write."""

    messages: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """A run's lines, and what its turns needed of them."""

    run: Recording
    ids: dict[str, int] = field(init=False, repr=False, default_factory=dict)
    """Numbers of lines by their text."""
    _where: list[_Where] = field(init=False, repr=False, default_factory=list)
    _lines: list[str] = field(init=False, repr=False, default_factory=list)
    _postings: dict[str, list[int]] = field(init=False, repr=False, default_factory=dict)
    _found: dict[str, tuple[int, ...]] = field(init=False, repr=False, default_factory=dict)
    _word_messages: dict[str, list[int]] = field(init=False, repr=False, default_factory=dict)
    _system: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        system = [self.run.system]
        for place, message in enumerate(self.run.messages):
            for kind, text in texts_of(self.run.format, message):
                if kind is Kind.SYSTEM:
                    system.append(text)
                    continue
                for line in lines_of(text):
                    self._add(line, place, source=kind in SOURCES)
        self._system = "\n".join(system)

    def _add(self, line: str, place: int, *, source: bool) -> None:
        number = self.ids.get(line)
        if number is None:
            number = self.ids[line] = len(self._where)
            self._where.append(_Where())
            self._lines.append(line)
            for word in set(_WORD.findall(line)):
                self._postings.setdefault(word, []).append(number)
        where = self._where[number]
        for places in (where.messages, where.sources) if source else (where.messages,):
            if not places or places[-1] != place:
                places.append(place)

    @property
    def common(self) -> float:
        """The most messages that may hold a reference."""
        return max(COMMON_MESSAGES, COMMON_SHARE * len(self.run.messages))

    def needs(self, turn: int) -> list[Need]:
        """Return what the action of a turn refers to."""
        start = self.run.starts[turn]
        texts = [
            text
            for message in self.run.answer(turn)
            for kind, text in texts_of(self.run.format, message)
            if kind not in SOURCES and kind is not Kind.SYSTEM
        ]
        groups: dict[frozenset[int], list[tuple[ReferenceKind, str]]] = {}
        for name, kind in references(texts).items():
            lines = frozenset(line for line in self.find(name) if self._where[line].messages[0] < start)
            if lines and len(self._messages(self.find(name))) <= self.common and not stands(name, self._system):
                groups.setdefault(lines, []).append((kind, name))
        total = len(self.run.messages)
        weights = {
            lines: math.log(total / len(self._messages(self.find(min(names)[1])))) for lines, names in groups.items()
        }
        # A stable order, so that of equal weights the first in the action count.
        heaviest = sorted((lines for lines in groups if weights[lines] > 0), key=lambda lines: -weights[lines])
        heaviest = heaviest[:MOST_REFERENCES]
        scale = sum(weights[lines] for lines in heaviest)
        rare = self._rare_words(texts, start) if heaviest else []
        return [self._need(groups[lines], lines, turn, weights[lines] / scale, rare) for lines in heaviest]

    def find(self, name: str) -> tuple[int, ...]:
        """Return the lines of the whole run that hold a string at word boundaries."""
        found = self._found.get(name)
        if found is None:
            postings = [self._postings.get(word, ()) for word in _WORD.findall(name)]
            rarest: Sequence[int] = min(postings, key=len, default=())
            found = self._found[name] = tuple(line for line in rarest if stands(name, self._lines[line]))
        return found

    def shown(self, hit: Hit, lines: frozenset[int]) -> bool:
        """Tell whether a snippet shows one of some lines whole."""
        if hit.is_json:
            # In JSON the lines of a string are escaped, and share a line of text.
            return any(spelling in hit.text for line in lines for spelling in _spellings(self._lines[line]))
        return any(self.ids.get(line) in lines for line in lines_of(hit.text))

    def _need(
        self,
        group: Iterable[tuple[ReferenceKind, str]],
        lines: frozenset[int],
        turn: int,
        weight: float,
        rare: Sequence[str],
    ) -> Need:
        start = self.run.starts[turn]
        ordered = sorted(group, key=lambda named: named[0])
        names = tuple(name for _, name in ordered)
        newest = max(_before(self._where[line].messages, start) for line in lines)
        sources = {line: _before(self._where[line].sources, start) for line in lines}
        source = max(sources.values())
        own = "\n".join(names).casefold()
        others = [word for word in rare if word.casefold() not in own]
        return Need(
            names=names,
            quotes_line=any(kind is ReferenceKind.LINE for kind, _ in ordered),
            weight=weight,
            lines=lines,
            source=frozenset(line for line, place in sources.items() if place == source >= 0),
            age=self._age(newest, turn),
            source_age=self._age(source, turn) if source >= 0 else 0,
            context=" ".join(others[:CONTEXT_TERMS]),
        )

    def _age(self, place: int, turn: int) -> int:
        """Iterations between a message and a turn: a message belongs to the call whose answer or result it is."""
        call = bisect_left(self.run.starts, place + 1)
        return turn + 1 - call

    def _messages(self, lines: Sequence[int]) -> set[int]:
        return {place for line in lines for place in self._where[line].messages}

    def _rare_words(self, texts: Sequence[str], start: int) -> list[str]:
        """Words of the action that few messages hold, and one before the turn; identifiers first, then the rarest."""
        seen: dict[str, int] = {}
        for word in (word for text in texts for word in _WORD.findall(text) if len(word) >= CONTEXT_CHARACTERS):
            if word not in seen:
                places = self._messages_of(word)
                seen[word] = bisect_left(places, start) if len(places) <= self.common else 0
        known = (word for word, count in seen.items() if count and not _HABIT.fullmatch(word))
        return sorted(known, key=lambda word: (not _IDENTIFIER.fullmatch(word), seen[word]))

    def _messages_of(self, word: str) -> list[int]:
        places = self._word_messages.get(word)
        if places is None:
            places = self._word_messages[word] = sorted(self._messages(self._postings.get(word, ())))
        return places


def stands(name: str, text: str) -> bool:
    """Tell whether a text holds a string at word boundaries."""
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        if not (at and _inside(text[at - 1], name[0])) and not (end < len(text) and _inside(text[end], name[-1])):
            return True
        at = text.find(name, at + 1)
    return False


def _spellings(line: str) -> tuple[str, str]:
    """A line as a JSON string, with and without escapes for what is not ASCII."""
    return json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1]


def _inside(outer: str, inner: str) -> bool:
    """Whether two neighbouring characters are of one word."""
    return (outer.isalnum() or outer == "_") and (inner.isalnum() or inner == "_")


def _before(places: Sequence[int], start: int) -> int:
    """The last of some places before `start`; -1: there is none."""
    at = bisect_left(places, start)
    return places[at - 1] if at else -1


def of_texts(texts: Iterable[Text], ids: Mapping[str, int]) -> tuple[frozenset[int], frozenset[int], str]:
    """Return the known lines in some texts, those that the model did not write, and the rest as a text."""
    shown: set[int] = set()
    sources: set[int] = set()
    rest: list[str] = []
    for kind, text in texts:
        for line in lines_of(text):
            number = ids.get(line) if kind is not Kind.SYSTEM else None
            if number is None:
                rest.append(line)
                continue
            shown.add(number)
            if kind in SOURCES:
                sources.add(number)
    return frozenset(shown), frozenset(sources), "\n".join(rest)
