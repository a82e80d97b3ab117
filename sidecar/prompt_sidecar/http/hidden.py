"""Hidden turns: what the model said and was answered without the agent, put back into later requests where it was.

A *splice* holds, for one answer that the agent was given, the gists of what it holds of it, and what the model's
history really has in that place. Splices are kept by run, within budgets of bytes; the oldest go first. A run that has
lost one says so once, since thinking behind its place is valid no more.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from prompt_sidecar.serving.dialects.base import Dialect
from prompt_sidecar.serving.members import loads

_FRAME: Final = 200
"""Bytes of a splice's own objects."""
_WITHOUT_ID: Final = ("None\x1e", "\x1e")
"""How a call without an id begins in a gist."""
RUN_BOUND: Final = "http.run_hidden_bytes"
ALL_BOUND: Final = "http.hidden_bytes"


@dataclass(frozen=True, slots=True)
class Splice:
    """What one answer really was."""

    visible: tuple[str, ...]
    """Gists of the entries that the agent holds, in order."""
    entries: tuple[bytes, ...]
    """The entries in their place."""
    answers: tuple[Any, ...] = ()
    """Entries that answer the sidecar's calls among those of the agent's, to stand before its results."""
    place: int = -1
    """How many entries the agent held before the answer; -1: not known."""
    hidden: tuple[str, ...] = ()
    """Gists of what the model said in the first `hidden_entries` of the entries, which the agent was not given."""
    hidden_entries: int = 0

    @property
    def calls(self) -> frozenset[str]:
        """Gists of hidden calls that have ids of their own."""
        return frozenset(
            gist
            for gist in self.hidden
            if (named := gist.split("\x1f")[1:]) and not any(each.startswith(_WITHOUT_ID) for each in named)
        )

    @property
    def size(self) -> int:
        """What it takes, estimated."""
        texts = (*self.visible, *self.hidden, *self.entries)
        return _FRAME + sum(map(len, texts)) + len(orjson.dumps(self.answers))


@dataclass(slots=True)
class _Kept:
    splices: list[Splice] = field(default_factory=list)
    bytes: int = 0
    lost: bool = False


class HiddenTurns:
    """The splices of all runs. Thread-safe."""

    def __init__(self, run_bytes: int, all_bytes: int, reached: Callable[[str], None] = lambda _: None) -> None:
        self._run_bytes = run_bytes
        self._all_bytes = all_bytes
        self._reached = reached
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._bytes = 0

    def keep(self, run: tuple[str, str], splice: Splice) -> None:
        """Keep a splice of a run, by its caller and id."""
        with self._lock:
            kept = self._runs.setdefault(run, _Kept())
            self._runs.move_to_end(run)
            kept.splices.append(splice)
            self._add(kept, splice.size)
            while kept.bytes > self._run_bytes and kept.splices:
                self._drop(kept, RUN_BOUND)
            while self._bytes > self._all_bytes and len(self._runs) > 1:
                oldest = next(iter(self._runs.values()))
                if not oldest.splices:
                    self._runs.popitem(last=False)
                    continue
                self._drop(oldest, ALL_BOUND)

    def _add(self, kept: _Kept, size: int) -> None:
        kept.bytes += size
        self._bytes += size

    def _drop(self, kept: _Kept, bound: str) -> None:
        self._add(kept, -kept.splices.pop(0).size)
        kept.lost = True
        self._reached(bound)

    def lost(self, run: tuple[str, str]) -> bool:
        """Whether a splice of the run was lost since this was last asked."""
        with self._lock:
            kept = self._runs.get(run)
            if kept is None or not kept.lost:
                return False
            kept.lost = False
            return True

    def restored(
        self, run: tuple[str, str], dialect: Dialect, history: Callable[[], list[bytes]]
    ) -> list[bytes] | None:
        """Put a run's hidden turns back into a history; None: nothing of it belongs there."""
        with self._lock:
            kept = self._runs.get(run)
            splices = list(kept.splices) if kept is not None else []
        if not splices:
            return None
        return _restored(splices, dialect, history())


def _restored(splices: Sequence[Splice], dialect: Dialect, entries: list[bytes]) -> list[bytes] | None:
    """Put splices into a history.

    One that fits where its answer was given belongs there. Where an agent has changed its history, they are looked for
    in their order, so that of two answers with the same words each gets its own. An agent may hold hidden turns itself,
    such as one that reads its history from the provider; these are not put in again, wherever their calls are now. Nor
    are those of an answer that the history now begins with, if the provider takes no calls there.
    """
    values = [loads(entry) for entry in entries]
    gists, first = dialect.gists(values), 0
    if not dialect.calls_may_come_first:
        first = next((at for at, value in enumerate(values) if dialect.speaker(value) != "model"), len(values))
    placed = {
        splice.place: splice
        for splice in splices
        if 0 <= splice.place < len(entries) and _matches(splice.visible, gists, splice.place)
    }
    settled = {id(splice) for splice in placed.values()}
    waiting: dict[str, list[Splice]] = {}
    """By the first gist of what the agent holds."""
    for splice in splices:
        if splice.visible and id(splice) not in settled:
            waiting.setdefault(splice.visible[0], []).append(splice)
    there, calls = set(gists), Counter(each for splice in splices for each in splice.calls)
    made: list[bytes] = []
    at, known, changed = 0, 0, False
    while at < len(entries):
        known = max(known, at)
        while known < len(entries) and gists[known] is None:
            known += 1
        candidates = waiting.get(gists[known] or "", []) if known < len(entries) else []
        if at in placed:
            candidates = [placed[at]]
        if at < first:
            candidates = []
        for splice in candidates:
            end, held = _matches(splice.visible, gists, known), _held(splice.hidden, gists, at)
            # A call that several answers have may be another's.
            if end and (held or not any(each in there and calls[each] == 1 for each in splice.calls)):
                candidates.remove(splice)
                made += splice.entries[splice.hidden_entries if held else 0 :]
                at, changed = end, True
                if splice.answers:
                    made += dialect.joined(splice.answers, entries[end : end + 1])
                    at = end + 1
                break
        else:
            made.append(entries[at])
            at += 1
    return made if changed else None


def _held(hidden: Sequence[str], gists: Sequence[str | None], at: int) -> bool:
    """Whether what the model said last before an answer that begins at `at` is what was hidden of it."""
    left = len(hidden)
    while left and at and (not gists[at - 1] or gists[at - 1] == hidden[left - 1]):
        at -= 1
        left -= bool(gists[at])
    return bool(hidden) and not left


def _matches(visible: Sequence[str], gists: Sequence[str | None], at: int) -> int:
    """Return where an answer that begins at `at` ends, reasoning in it included; 0: it is another."""
    wanted = 0
    while at < len(gists) and wanted < len(visible):
        gist = gists[at]
        if gist is None:
            at += 1
        elif gist == visible[wanted] and gist:
            at, wanted = at + 1, wanted + 1
        else:
            return 0
    return at if wanted == len(visible) else 0
