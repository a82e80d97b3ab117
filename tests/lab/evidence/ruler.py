"""The one ruler laid to all prompts of a run: what a piece of a prompt weighs, and which lines of the run it shows.

A piece is a message, or a block of the system prompt. Each distinct one is looked at once. Tokens are the sidecar's own
count (o200k_base), so that a limit means the same for everybody.

In chat completions' form, which some peers need, a message weighs what the ones it replaces weigh in the run's own
format: reasoning, which has no place there, is thus carried along and paid for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prompt_sidecar.errors import SidecarError
from tests.lab.evidence.core import PRIMING, weigh_message, weigh_text
from tests.lab.evidence.history import History, of_texts, stands
from tests.lab.evidence.reading import by_what_is_shown, read_back
from tests.lab.evidence.recordings import Kind, Recording, Text, texts_of
from tests.oracle.runs import dumps

Prompt = tuple[int, ...]
"""Numbers of a prompt's pieces, those of the system prompt first."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a prompt."""

    tokens: int
    message: Any = field(repr=False)
    """Decoded; None for a block of the system prompt."""
    shown: frozenset[int] = field(repr=False)
    """Lines of the run that it shows."""
    sources: frozenset[int] = field(repr=False)
    """Those of them in a tool result or a user's words."""
    rest: str = field(repr=False)
    """Its other lines: our own text, labels, lines that were cut."""
    derived: frozenset[int] = field(repr=False, default=frozenset())
    """Lines of the run that can be read back from a condensed result in it."""


@dataclass(slots=True)
class Ruler:
    """A run in one form, and all pieces of its prompts that were met so far."""

    run: Recording
    history: History = field(repr=False)
    """Of the run in its own format."""
    pieces: list[Piece] = field(init=False, repr=False, default_factory=list)
    slices: list[bytes] = field(init=False, repr=False)
    sent: Prompt = ()
    """The system prompt and all messages."""
    _known: dict[tuple[bytes, bool], int] = field(init=False, repr=False, default_factory=dict)
    _sums: list[int] = field(init=False, repr=False, default_factory=list)
    _on_a_terminal: dict[str, list[int]] = field(init=False, repr=False, default_factory=dict)
    """Numbers of the lines with codes of a terminal, by what that shows of them."""

    def __post_init__(self) -> None:
        self._on_a_terminal = by_what_is_shown(self.history.ids)
        self.slices = self.run.slices
        head = [self.piece(raw, system=True) for raw in self.run.head]
        self.sent = tuple(head + [self.piece(raw) for raw in self.slices])
        if self.run.format != self.history.run.format:
            self._weigh_as(self.history.run)
        self._sum()

    @property
    def head(self) -> int:
        """Pieces of the sent system prompt."""
        return len(self.sent) - len(self.slices)

    def prompt(self, turn: int) -> Prompt:
        """Return the prompt of a turn as the agent sends it."""
        return self.sent[: self.head + self.run.starts[turn]]

    def size(self, turn: int) -> int:
        """Return the tokens of the prompt of a turn as the agent sends it."""
        return PRIMING + self._sums[self.head + self.run.starts[turn]]

    def least(self, turn: int) -> int:
        """Return the tokens of what no strategy should touch: system prompt, opening and newest turn."""
        opening, newest = self.run.starts[0], self.run.starts[max(turn - 1, 0)]
        return self.size(turn) - self._sums[self.head + newest] + self._sums[self.head + opening]

    @property
    def final(self) -> int:
        """Tokens of the prompt that all messages would be."""
        return PRIMING + self._sums[-1]

    def tokens(self, prompt: Prompt) -> int:
        """Return the tokens of a prompt, with what opens the answer."""
        return PRIMING + sum(self.pieces[number].tokens for number in prompt)

    def piece(self, raw: bytes, *, system: bool = False) -> int:
        """Take in a piece as JSON, and return its number."""
        number = self._known.get((raw, system))
        if number is None:
            number = self._known[raw, system] = len(self.pieces)
            self.pieces.append(self._looked_at(raw, system=system))
        return number

    def messages(self, prompt: Prompt) -> list[Any]:
        """Return the decoded messages of a prompt."""
        found = (self.pieces[number].message for number in prompt)
        return [message for message in found if message is not None]

    def _looked_at(self, raw: bytes, *, system: bool) -> Piece:
        decoded = json.loads(raw)
        if system:
            texts = [Text(Kind.SYSTEM, text) for text in _system_texts(decoded)]
            return Piece(sum(weigh_text(text) for _, text in texts), None, *of_texts(texts, self.history.ids))
        try:
            tokens = weigh_message(self.run.format, raw)
        except SidecarError:
            tokens = weigh_text(raw.decode())
        texts = texts_of(self.run.format, decoded)
        return Piece(tokens, decoded, *of_texts(texts, self.history.ids), frozenset(self._derived(texts)))

    def _derived(self, texts: Sequence[Text]) -> Iterator[int]:
        """Yield the numbers of the lines that can be read back from condensed results."""
        for line in (line for kind, text in texts if kind is Kind.RESULT for line in read_back(text)):
            yield from self._on_a_terminal.get(line, ())
            if line in self.history.ids:
                yield self.history.ids[line]

    def _weigh_as(self, own: Recording) -> None:
        """Give each message of the chat form the weight that it has in the run's own format."""
        weights = [weigh_message(own.format, raw) for raw in own.slices]
        owed = 0
        for unit in own.units():
            owed += sum(weights[unit.start : unit.end])
            numbers = [self._known[dumps(message), False] for message in unit.chat]
            if numbers:
                first, *others = numbers
                owed = max(owed - sum(self.pieces[number].tokens for number in others), 1)
                self.pieces[first] = _weighing(self.pieces[first], owed)
                owed = 0

    def _sum(self) -> None:
        self._sums = [0]
        for number in self.sent:
            self._sums.append(self._sums[-1] + self.pieces[number].tokens)


def _system_texts(value: Any) -> list[str]:
    """The texts of a system prompt, or of a block of one."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        blocks = value.get("parts", [value])
        return [str(block.get("text", "")) for block in (blocks if isinstance(blocks, list) else [blocks])]
    return []


def _weighing(piece: Piece, tokens: int) -> Piece:
    return replace(piece, tokens=tokens)


@dataclass(slots=True)
class Sight:
    """What can be seen in a strategy's prompts, prompt after prompt; only what changed is looked at."""

    pieces: Sequence[Piece]
    prompt: Prompt = ()
    _shown: Counter[int] = field(default_factory=Counter)
    _sources: Counter[int] = field(default_factory=Counter)
    _derived: Counter[int] = field(default_factory=Counter)
    _rest: str | None = None

    def move(self, prompt: Prompt) -> int:
        """Look at the next prompt; return how many pieces it begins with that the last one began with."""
        kept = 0
        for old, new in zip(self.prompt, prompt, strict=False):
            if old != new:
                break
            kept += 1
        for number in prompt[kept:]:
            piece = self.pieces[number]
            self._shown.update(piece.shown)
            self._sources.update(piece.sources)
            self._derived.update(piece.derived)
        for number in self.prompt[kept:]:
            piece = self.pieces[number]
            self._shown.subtract(piece.shown)
            self._sources.subtract(piece.sources)
            self._derived.subtract(piece.derived)
        self.prompt = prompt
        self._rest = None
        return kept

    def shows(self, lines: frozenset[int]) -> bool:
        """Whether the prompt has one of these lines."""
        return any(self._shown[line] > 0 for line in lines)

    def shows_source(self, lines: frozenset[int]) -> bool:
        """Whether a tool result or a user's message has one of these lines."""
        return any(self._sources[line] > 0 for line in lines)

    def derives(self, lines: frozenset[int]) -> bool:
        """Whether one of these lines can be read back from a condensed result."""
        return any(self._derived[line] > 0 for line in lines)

    def names(self, names: Sequence[str]) -> bool:
        """Whether the prompt has one of these strings, in a line that is none of the run's."""
        if self._rest is None:
            self._rest = "\n".join(rest for number in self.prompt if (rest := self.pieces[number].rest))
        return any(stands(name, self._rest) for name in names)
