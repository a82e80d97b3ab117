"""Repeated calls: the same tool with the same arguments, and the same result again.

A model that reads a file twice, or polls a status that does not change, pays twice for one text. Each repetition is
reported, with the places of the older result, so that a policy may clip that to a pointer to the newer one.

A call is identified by a digest of the tool's name, its arguments in canonical JSON (so that neither the order of keys
nor white space makes it another call) and its whole result. Calls in between do not matter: if the result is the same
again, so is the one that the pointer leads to.

    call ──► open, by id ──► its result comes ──► (tool, arguments, result) seen before? ──► Repetition
             of the block that made it

Items know a call's id only, and ids may be empty or used again. A result answers the newest block of assistant messages
that has an open call with its id, as in the ledger; within a block results follow the order of the calls, as providers
without ids require.

The state is a fold over the messages, and a journal of its steps undoes them one by one, so that after a rewind it is
what a fresh process makes of the history that is left. A step costs constant time either way. Nothing is forgotten
otherwise: what is kept grows with the calls in the history (about 0.6 KB for a call and its result, and no text of a
result; where results are condensed, up to `KEPT_CHARACTERS` of the call's arguments too), which `limits.run_messages`
and `limits.run_items` bound. A window of the last calls would save less than the ledger's own
records of them take, and could not be undone.

Calls of our own tools are left out: `prompt_sidecar.tools.shown` bounds what they show.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from operator import attrgetter
from typing import Final, NamedTuple

import orjson

from prompt_sidecar.errors import InvalidJson, TooLarge
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Path
from prompt_sidecar.prompt.jsontext import DIGEST_BYTES, canonical, digest, load
from prompt_sidecar.prompt.utf8 import utf8, utf8_pieces, utf8_size
from prompt_sidecar.trim.condense.calls import SourceCall as ReadCall
from prompt_sidecar.trim.condense.calls import UnreadCall, kept_call
from prompt_sidecar.trim.own_text import ARGUMENTS_CHARACTERS, NAME_CHARACTERS

MOST_LISTED: Final = 100
"""Repetitions that one answer lists, the newest: a process that takes over a long run finds all of them at once, and
the run's figures count them. A prompt brings rarely more than the results of one iteration."""

_CALL_ID: Final = attrgetter("call_id")

About = ReadCall | UnreadCall
"""A call, for what it indicates about its result."""

Place = tuple[int, int]
"""A message's index in the history, and an item's index in the message."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """A call with the same arguments and the same result as an earlier one."""

    tool: str
    """The tool's name as the model gave it, cut to one character more than a plain name has."""
    iteration: int
    """The newer result's iteration."""
    first_iteration: int
    """The first such result's iteration."""
    times: int
    """How often the call has had this result, this time included: 2 or more."""
    tokens: int
    """Tokens of the newer result, untrimmed."""
    message: int
    """Index of the newer result's message in the history."""
    older: tuple[Place, ...]
    """Places of the texts of the previous result; earlier results were reported with that one. Empty if it had no text.
    """


@dataclass(frozen=True, slots=True)
class RepeatedFigures:
    """Repetitions in a run's present history."""

    calls: int = 0
    tokens: int = 0
    """Tokens of their results, untrimmed."""


# A step is kept as tuples: two of them and a call are made for each call of a run, and a frozen dataclass takes three
# times as long to create.


class _MadeCall(NamedTuple):
    """A call of the model; `known` is None if it is not compared."""

    call_id: str
    block: int
    tool: str
    known: bytes | None
    arguments: str = ""
    """The start of its arguments, for the registry."""
    about: About | None = None
    """The call for what it indicates about its result, where that is needed."""


class _SeenResult(NamedTuple):
    """A result of a call."""

    iteration: int
    message: int
    items: tuple[int, ...]
    tokens: int


class _UndoStep(NamedTuple):
    """A step to undo: a call was opened, or (`answered`) removed from the open ones; `key` identifies its result."""

    message: int
    call: _MadeCall
    answered: bool
    key: bytes | None = None


@dataclass(slots=True)
class _OpenCalls:
    """Open calls of one block of assistant messages with one id, oldest first."""

    block: int
    calls: deque[_MadeCall] = field(default_factory=deque)


@dataclass(slots=True)
class RepeatedCalls:
    """The calls of one run's history. See the file's docstring; not thread-safe."""

    is_own_tool: Callable[[str], bool] = field(default=lambda _: False)
    """Whether a tool is one of ours."""
    looks: bool = False
    """Whether calls are read for what they indicate about their results."""
    figures: RepeatedFigures = field(default_factory=RepeatedFigures)
    _reached: list[int] = field(default_factory=list)
    """For each number of times, less one: how many calls have had some result at least that often."""
    _answered: list[_MadeCall | None] = field(default_factory=list, compare=False)
    """For each result of the last observed message, the call that it answers."""
    _made: dict[Path, About | None] = field(default_factory=dict, compare=False)
    """For each call of the last observed message, by its arguments' path, the call for what it indicates about its
    result."""
    _open: dict[str, list[_OpenCalls]] = field(default_factory=dict)
    _seen: dict[bytes, list[_SeenResult]] = field(default_factory=dict)
    _journal: list[_UndoStep] = field(default_factory=list)

    def observe(self, message: Message, weights: Sequence[int], index: int, iteration: int) -> list[Repetition]:
        """Add the next message of the history and return the repetitions among its results.

        Args:
            message: the message, untrimmed.
            weights: tokens of each of its items.
            index: its place in the history: larger than that of every message before it.
            iteration: the iteration that it belongs to; assistant messages of one block have the same.
        """
        self._made = {}
        if message.calls:
            self._open_calls(message, index, iteration)
        self._answered = []
        if not message.answers:
            return []
        found: list[Repetition] = []
        results = _Results(message)
        for number, call_id in enumerate(message.answers):
            call = self._take(call_id)
            self._answered.append(call)
            if call is None:
                continue
            key = None if call.known is None else results.key(call.known, number)
            self._journal.append(_UndoStep(index, call, True, key))
            if key is None:
                continue
            items = results.items.get(number, ())
            texts = tuple(place for place in items if message.items[place].kind is ItemKind.RESULT)
            now = _SeenResult(iteration, index, texts, sum(weights[place] for place in items))
            before = self._seen.setdefault(key, [])
            if before:
                found.append(_repetition(call, before, now))
                self._sum_up(1, now)
            before.append(now)
            self._count(len(before), 1)
        return found

    def answered(self, result: int) -> tuple[str, str, About | None] | None:
        """Return tool, start of arguments and call for a result of the last message; None if its call is unknown.

        The call is for what it indicates about its result.
        """
        call = self._answered[result] if result < len(self._answered) else None
        return (call.tool, call.arguments, call.about) if call is not None and call.tool else None

    def about(self, path: Path) -> About | None:
        """Return the last message's call whose arguments have this path, or None."""
        return self._made.get(path)

    @property
    def most(self) -> int:
        """Return how often the most repeated call has had its result; 0 if there is no result."""
        return len(self._reached)

    def rewind(self, length: int) -> None:
        """Forget the messages from `length` on."""
        while self._journal and self._journal[-1].message >= length:
            step = self._journal.pop()
            if not step.answered:
                self._undo_open(step.call)
                continue
            self._undo_take(step.call)
            if step.key is not None:
                seen = self._seen[step.key]
                self._count(len(seen), -1)
                last = seen.pop()
                if seen:
                    self._sum_up(-1, last)
                else:
                    del self._seen[step.key]

    # -- pairing -----------------------------------------------------------------------------------------------------

    def _open_calls(self, message: Message, index: int, block: int) -> None:
        for call_id, item in zip(message.calls, arguments_of(message), strict=True):
            if item is None:
                call = _MadeCall(call_id, block, "", None)
            else:
                known = None if self.is_own_tool(item.tool) else known_call(item)
                tool, start = item.tool[: NAME_CHARACTERS + 1], item.text[:ARGUMENTS_CHARACTERS]
                about = kept_call(item.tool, item.text) if self.looks and known is not None else None
                call = _MadeCall(call_id, block, tool, known, start, about)
                self._made[item.path] = about
            blocks = self._open.setdefault(call_id, [])
            if not blocks or blocks[-1].block != block:
                blocks.append(_OpenCalls(block))
            blocks[-1].calls.append(call)
            self._journal.append(_UndoStep(index, call, False))

    def _take(self, call_id: str) -> _MadeCall | None:
        blocks = self._open.get(call_id)
        if not blocks:
            return None
        call = blocks[-1].calls.popleft()
        self._tidy(call_id, blocks)
        return call

    def _undo_take(self, call: _MadeCall) -> None:
        blocks = self._open.setdefault(call.call_id, [])
        if not blocks or blocks[-1].block != call.block:
            blocks.append(_OpenCalls(call.block))
        blocks[-1].calls.appendleft(call)

    def _undo_open(self, call: _MadeCall) -> None:
        blocks = self._open[call.call_id]
        blocks[-1].calls.pop()
        self._tidy(call.call_id, blocks)

    def _tidy(self, call_id: str, blocks: list[_OpenCalls]) -> None:
        if not blocks[-1].calls:
            blocks.pop()
        if not blocks:
            del self._open[call_id]

    def _count(self, times: int, sign: int) -> None:
        if times > len(self._reached):
            self._reached.append(0)
        self._reached[times - 1] += sign
        if not self._reached[-1]:
            self._reached.pop()

    def _sum_up(self, sign: int, seen: _SeenResult) -> None:
        self.figures = RepeatedFigures(self.figures.calls + sign, self.figures.tokens + sign * seen.tokens)


def arguments_of(message: Message) -> Sequence[Item | None]:
    """Return for each call of a message the item of its arguments; None where that is ambiguous.

    A call of a kind that no reader knows has no item. Several calls with the same id cannot be distinguished.
    """
    items = [item for item in message.items if item.kind is ItemKind.ARGUMENTS]
    if tuple(map(_CALL_ID, items)) == message.calls:  # nearly always: each call has its own, in order
        return items
    by_id: dict[str, deque[Item]] = {}
    for item in items:
        by_id.setdefault(item.call_id, deque()).append(item)
    clear = {call_id for call_id, made in Counter(message.calls).items() if len(by_id.get(call_id, ())) == made}
    return [by_id[call_id].popleft() if call_id in clear else None for call_id in message.calls]


def known_call(call: Item) -> bytes:
    """Return what identifies a call: its tool and its arguments, however they are spelled."""
    return digest(orjson.dumps(call.tool) + _canonical_arguments(call.text))


def _canonical_arguments(text: str) -> bytes:
    """Return arguments in one spelling; unchanged if not strict JSON, as models write too, or slow to decode."""
    if not text or text.isspace():
        return b"{}"  # some clients send no text where a tool takes no arguments
    raw = utf8(text)
    try:
        return canonical(load(raw, "arguments"), "arguments")
    except (InvalidJson, TooLarge):
        return raw


class _Results:
    """The results of one message."""

    def __init__(self, message: Message) -> None:
        self.items: dict[int, list[int]] = {}
        """For each result, the indices of its items."""
        self._message = message
        self._other = b""
        """Blocks that no reader knows: each may belong to any of the results."""
        for place, item in enumerate(message.items):
            if item.result >= 0:
                self.items.setdefault(item.result, []).append(place)
            if item.kind is ItemKind.OPAQUE and not self._other:
                self._other = digest(message.other.encode())

    def key(self, known: bytes, number: int) -> bytes:
        """Return the digest of a call and its whole result."""
        of_result = sha256(known + self._other)
        for place in self.items.get(number, ()):
            item = self._message.items[place]
            of_result.update(b"%s %d " % (item.kind.encode(), utf8_size(item.text)))
            for piece in utf8_pieces(item.text):
                of_result.update(piece)
        return of_result.digest()[:DIGEST_BYTES]


def _repetition(call: _MadeCall, before: Sequence[_SeenResult], now: _SeenResult) -> Repetition:
    last = before[-1]
    return Repetition(
        tool=call.tool,
        iteration=now.iteration,
        first_iteration=before[0].iteration,
        times=len(before) + 1,
        tokens=now.tokens,
        message=now.message,
        older=tuple((last.message, item) for item in last.items),
    )
