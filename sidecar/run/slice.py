"""Side calls: a slice of the history, trimmed with the run's decisions, for validators and judges. Changes nothing.

Messages are found by their identity wherever in the history they stand. One that the run has dropped, or does not know,
stays as it was sent; no own text is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.prompt.body import Split
from sidecar.prompt.format import Format
from sidecar.prompt.items import Role
from sidecar.run.calls import (
    CacheFigures,
    Edit,
    EditOperation,
    NoFit,
    Phases,
    RevisionUse,
    TokenFigures,
    Trim,
    TrimAnswer,
)
from sidecar.run.edits import pointer_base
from sidecar.run.memory import Memory
from sidecar.run.received import Read
from sidecar.trim.stages import Inputs


def trim_slice(
    memory: Memory,
    split: Split,
    reads: Sequence[Read],
    format_: Format,
    *,
    inputs: Inputs,
    encoding: str,
    exact: bool,
    as_edits: bool,
) -> TrimAnswer:
    """Answer a side call."""
    where = {record.identity: index for index, record in enumerate(memory.ledger.records)}
    parts: list[bytes] = []
    shown: set[int] = set()
    before = after = inputs.overhead
    leading = format_.leading_system
    for index, read in enumerate(reads):
        raw = split.message(index)
        leading = leading and read.role is Role.SYSTEM
        place = where.get(read.identity, -1)
        now = memory.rendered.slices[place] if place >= 0 else None
        if now is not None and memory.ledger.records[place].touched and not split.is_text:
            parts.append(now)
            shown.add(place)
            after += memory.ledger.records[place].tokens
        else:
            parts.append(raw)
            after += 0 if leading else read.tokens
        before += 0 if leading else read.tokens
    base = pointer_base(split, format_)
    edits = [
        Edit(EditOperation.REPLACE, f"{base}{index}", part)
        for index, part in enumerate(parts)
        if part != split.message(index)
    ]
    trims: list[Trim] = [trim for trim in memory.trims if trim.message_index in shown]
    fits = after <= inputs.limit
    whole = not as_edits
    return TrimAnswer(
        body=b"".join((split.head, b",".join(parts), split.tail)) if whole and format_.is_json else None,
        messages=parts if whole and not format_.is_json else None,
        edits=edits if as_edits else (),
        trims=trims,
        stash_entries=(),
        tokens=TokenFigures(before, after, inputs.limit, encoding, exact, 1.0, 0),
        fits=fits,
        no_fit=None if fits else NoFit.POLICY,
        revision=b"",
        revision_use=RevisionUse.NONE,
        cache=CacheFigures(-1, 0, after, batch_point=False, batch_points=memory.ledger.batches),
        own_text=(),
        compacted=False,
        iteration=memory.ledger.iteration,
        not_stashable=0,
        phases=Phases(),
    )
