"""A single tool result, capped and kept on its own, before the agent puts it into its history.

It gets a memory of its own for the one call, as a history of one message, so the run's history and what was decided
about it stay as they are. What the run shares with it are the stash and the record that search reads: there the result
stands at the iteration that the run has come to. Its ids follow from the run and the content, so the same result has
the same ids however often it comes. No text of ours is written, since a result is no place for it.

When the capped result comes back inside a prompt it is ordinary text there, marker and all; its ids remain good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.trim_calls import (
    CacheFigures,
    Edit,
    EditOperation,
    RevisionUse,
    StashEntry,
    Trim,
    TrimAnswer,
    TrimCall,
)
from prompt_sidecar.prompt.body import FIELD, Split
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.stash import Stash
from prompt_sidecar.runs.run import Run
from prompt_sidecar.runs.run_store import LaterStore
from prompt_sidecar.runs.stopwatch import Stopwatch
from prompt_sidecar.tokens import encoding_for
from prompt_sidecar.tokens.weigh import weigh
from prompt_sidecar.trim.own_text import Room, Told
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.stages import Inputs
from prompt_sidecar.turn.answer import answer_of, check_size
from prompt_sidecar.turn.memory import Memory
from prompt_sidecar.turn.received import Read
from prompt_sidecar.turn.work import Work

_NO_ROOM: Final = Room(0, "", 0, 0)
_SPACE: Final = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Single:
    """One result to cap, with what is in force for it."""

    call: TrimCall
    format: Format
    policy: Policy
    limit: int
    """Tokens, raw."""
    accept_bytes: int
    """Bytes that the caller can receive."""


class _AtIteration(LaterStore):
    """Stores nothing until `commit`, and tells the history the iteration that the run has come to."""

    def __init__(self, stash: Stash, run: Run, caller: str, iteration: int) -> None:
        super().__init__(stash, run, caller)
        self._iteration = iteration

    def record(self, items: Sequence[tuple[HistoryItem, bytes]]) -> None:
        """Remember to record."""
        super().record([(item._replace(iteration=self._iteration), original) for item, original in items])


def body_of(call: TrimCall) -> Split:
    """The body as a split of one message: all but the white space around it.

    Raises:
        InvalidRequest: the call asks for what only a history has.
    """
    if call.base_revision:
        raise InvalidRequest(
            "base_revision goes with a history; a single result is sent whole, without it", field="base_revision"
        )
    raw = call.body
    first, last = len(raw) - len(raw.lstrip(_SPACE)), len(raw.rstrip(_SPACE))
    return Split(raw, [first], [max(first, last)], {}, is_object=False)


def trim_single(
    run: Run, single: Single, body: Split, stash: Stash, watch: Stopwatch, *, check: Callable[[], None]
) -> TrimAnswer:
    """Cap one result. `check` is called now and then before anything is stored; what it raises ends the call.

    Raises:
        InvalidRequest: the body is not of the format's shape; nothing has changed.
        TooLarge: the answer is larger than the caller accepts; nothing has changed.
    """
    call, format_ = single.call, single.format
    encoding, exact = encoding_for(call.model)
    message = format_.read(body.message(0), FIELD)
    weight = weigh([message], watch.counting_many(encoding, check))[0]
    reads = [Read(message.identity, weight.total, message.role, message, weight)]
    watch.mark()
    inputs = Inputs(single.policy, single.limit, 0, 0, not call.recall_unavailable)
    work = Work(
        format_,
        body,
        reads,
        inputs,
        _NO_ROOM,
        call.pinned,
        call.annotations,
        None,
        watch.counting_many(encoding),
        Told(),
    )
    iteration = run.memory.ledger.iteration
    memory, store = run.new_memory(), _AtIteration(stash, run, call.caller, iteration)
    result = memory.take(work, watch.counting(encoding), store)
    watch.mark()
    answer = answer_of(work, memory, result, RevisionUse.NONE, encoding, exact=exact, as_edits=False, revision=b"")
    answer = replace(
        answer,
        trims=_at(iteration, answer.trims),
        news=replace(answer.news, trims=_at(iteration, answer.news.trims)),
        stash_entries=_entries(memory, answer.trims, iteration),
        cache=CacheFigures(-1, 0, answer.tokens.after, batch_point=False, batch_points=run.memory.ledger.batches),
        iteration=iteration,
    )
    if call.edits:
        answer = replace(answer, body=None, edits=_edits(body, answer.body or b""))
    watch.mark()
    if not (call.dry_run or call.side_call):
        check_size(answer, single.accept_bytes)
        store.commit()
    return replace(answer, phases=watch.phases())


def _at(iteration: int, trims: Sequence[Trim]) -> tuple[Trim, ...]:
    return tuple(replace(trim, decided_iteration=iteration) for trim in trims)


def _entries(memory: Memory, trims: Sequence[Trim], iteration: int) -> tuple[StashEntry, ...]:
    """What the registry would say of what was taken; the call is not known here, so neither is its tool."""
    items = [memory.ledger.records[0].entries[trim.item_index] for trim in trims]
    return tuple(StashEntry(item.stash_id, item.kind, "", "", iteration, item.size) for item in items)


def _edits(body: Split, written: bytes) -> tuple[Edit, ...]:
    """The whole result replaced, if anything was taken from it."""
    return () if written == body.raw else (Edit(EditOperation.REPLACE, "", written),)
