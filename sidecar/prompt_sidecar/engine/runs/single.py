"""A single tool result, capped and kept on its own, before the agent puts it into its history.

It gets a memory of its own for the one call, as a history of one message, so the run's history and what was decided
about it stay as they are. What the run shares with it are the stash and the record that search reads: there the result
belongs to the run's current iteration. Its ids follow from the run and the content, so the same result has
the same ids however often it comes. No text of ours is written, since a result is no place for it.

When the capped result comes back inside a prompt it is ordinary text there, marker and all; its ids remain good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.runs.run_store import LaterStore
from prompt_sidecar.engine.runs.stopwatch import Stopwatch
from prompt_sidecar.engine.steps.answer import answer_of
from prompt_sidecar.engine.steps.memory import Memory
from prompt_sidecar.engine.steps.opening import Opened, Work
from prompt_sidecar.engine.steps.turn import take
from prompt_sidecar.facts.trim_calls import (
    CacheFigures,
    Edit,
    EditOperation,
    RevisionUse,
    StashEntry,
    Trim,
    TrimAnswer,
)
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.stash import Stash
from prompt_sidecar.trim.inputs import Inputs
from prompt_sidecar.trim.own_text import NoteFacts, Room

_NO_ROOM: Final = Room(0, "", 0, 0)
_SPACE: Final = b" \t\r\n"


class StoreAtIteration(LaterStore):
    """Stores nothing until `commit`, and records at the run's current iteration."""

    def __init__(self, stash: Stash, run: Run, caller: str) -> None:
        """As LaterStore."""
        super().__init__(stash, run, caller)
        self._iteration = run.memory.ledger.iteration

    def record(self, items: Sequence[tuple[HistoryItem, bytes]]) -> None:
        """Remember to record."""
        super().record([(item._replace(iteration=self._iteration), original) for item, original in items])


def trim_single(run: Run, opened: Opened, limit: int, store: LaterStore, watch: Stopwatch) -> TrimAnswer:
    """Cap one result to fit `limit`, in raw tokens; nothing is stored until the store is committed."""
    opened = replace(opened, call=replace(opened.call, edits=False))  # those of a history; see `as_edits`
    inputs = Inputs(opened.policy, limit, 0, 0, not opened.call.recall_unavailable)
    encoding = opened.encoding
    work = Work(opened, inputs, _NO_ROOM, NoteFacts(), watch.counting(encoding), watch.counting_many(encoding))
    watch.mark()
    result = take(work, store)
    watch.mark()
    answer = answer_of(work, result, RevisionUse.NONE, b"")
    iteration = run.memory.ledger.iteration
    return replace(
        answer,
        trims=_at(iteration, answer.trims),
        news=replace(answer.news, trims=_at(iteration, answer.news.trims)),
        stash_entries=_entries(opened.memory, answer.trims, iteration),
        cache=CacheFigures(-1, 0, answer.tokens.after, batch_point=False, batch_points=run.memory.ledger.batches),
        iteration=iteration,
        size=None,
        repeated=(),
    )


def as_edits(answer: TrimAnswer, opened: Opened) -> TrimAnswer:
    """The answer in edits: the whole result replaced, if anything was taken from it."""
    written = answer.body or b""
    edits = () if written == opened.sent.raw else (Edit(EditOperation.REPLACE, "", written),)
    return replace(answer, body=None, edits=edits)


def _at(iteration: int, trims: Sequence[Trim]) -> tuple[Trim, ...]:
    return tuple(replace(trim, decided_iteration=iteration) for trim in trims)


def _entries(memory: Memory, trims: Sequence[Trim], iteration: int) -> tuple[StashEntry, ...]:
    """What the registry would say of what was taken; the call is not known here, so neither is its tool."""
    items = [memory.ledger.records[0].entries[trim.item_index] for trim in trims]
    return tuple(StashEntry(item.stash_id, item.kind, "", "", iteration, item.size) for item in items)
