"""A single tool result, capped and kept on its own, before the agent puts it into its history.

The result gets a memory of its own for the one call, as a history of one message, so the run's history and decisions
stay unchanged. It shares the run's stash and the history that is searched: there the result belongs to the run's
current iteration. Its ids are derived from the run and the content, so the same result has the same ids however often
it is sent. No text of the sidecar's own is added to a result.

When the capped result is sent inside a prompt later, it and its marker are ordinary text there; its ids remain good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from prompt_sidecar.engine.runs.guarding import finding_of
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.runs.run_store import RunStore
from prompt_sidecar.engine.runs.stopwatch import Stopwatch
from prompt_sidecar.engine.steps.answer import answer_of
from prompt_sidecar.engine.steps.memory import Memory
from prompt_sidecar.engine.steps.opening import OpenedPrompt, PromptWork
from prompt_sidecar.engine.steps.turn import take
from prompt_sidecar.facts.trim_calls import (
    CacheFigures,
    Edit,
    EditOperation,
    GuardFacts,
    ReturnedPrompt,
    RevisionUse,
    StashEntry,
    Trim,
    TrimAnswer,
)
from prompt_sidecar.trim.inputs import Inputs
from prompt_sidecar.trim.own_text import NoteFacts, Room

_NO_ROOM: Final = Room(0, "", 0, 0)


def trim_single(run: Run, opened: OpenedPrompt, limit: int, store: RunStore, watch: Stopwatch) -> TrimAnswer:
    """Cap one result to fit `limit`, in raw tokens; nothing is stored until the store is committed."""
    as_edits, opened = opened.call.edits, replace(opened, call=replace(opened.call, edits=False))
    inputs = Inputs(opened.policy, limit, 0, 0, not opened.call.recall_unavailable)
    encoding = opened.model.encoding
    work = PromptWork(opened, inputs, _NO_ROOM, NoteFacts(), watch.counting(encoding), watch.counting_many(encoding))
    watch.mark()
    result = take(work, store)
    watch.mark()
    answer = answer_of(work, result, RevisionUse.NONE, b"")
    ledger, trims = run.memory.ledger, answer.trimmed.trims
    iteration, batches = ledger.iteration, ledger.registry.batches
    return replace(
        answer,
        prompt=_as_edits(answer.prompt, opened) if as_edits else answer.prompt,
        trimmed=replace(
            answer.trimmed, trims=_at(iteration, trims), stash_entries=_entries(opened.memory, trims, iteration)
        ),
        news=replace(answer.news, trims=_at(iteration, answer.news.trims), repeated=()),
        cache=CacheFigures(-1, 0, answer.tokens.after, batch_point=False, batch_points=batches),
        iteration=iteration,
        size=None,
        guard=GuardFacts([finding_of(each, 0) for each in opened.guard.sightings]),
    )


def _as_edits(prompt: ReturnedPrompt, opened: OpenedPrompt) -> ReturnedPrompt:
    """Return the whole result as an edit, if anything was trimmed."""
    written = prompt.body or b""
    edits = () if written == opened.guard.sent.raw else (Edit(EditOperation.REPLACE, "", written),)
    return replace(prompt, body=None, edits=edits)


def _at(iteration: int, trims: Sequence[Trim]) -> tuple[Trim, ...]:
    return tuple(replace(trim, decided_iteration=iteration) for trim in trims)


def _entries(memory: Memory, trims: Sequence[Trim], iteration: int) -> tuple[StashEntry, ...]:
    """Return registry entries for what was trimmed; the call is not known here, so neither is its tool."""
    items = [memory.ledger.records[0].entries[trim.item_index] for trim in trims]
    return tuple(StashEntry(item.stash_id, item.kind, "", "", iteration, item.size) for item in items)
