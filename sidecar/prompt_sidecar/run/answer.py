"""The answer to a call: facts about what was done, and the bound on its size."""

from __future__ import annotations

from typing import Final

from prompt_sidecar.errors import TooLarge
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.run.calls import CacheFigures, NoFit, OwnTextPlace, Phases, RevisionUse, TokenFigures, TrimAnswer
from prompt_sidecar.run.edits import edits_of
from prompt_sidecar.run.frame import Framed
from prompt_sidecar.run.memory import Memory
from prompt_sidecar.run.work import Result, Work
from prompt_sidecar.trim.policy import FitStage
from prompt_sidecar.trim.stages import Inputs

BYTES_PER_TRIM: Final = 64
"""An upper bound on one encoded trim: eight small numbers and an id."""
BYTES_PER_LINE: Final = 768
"""An upper bound on one encoded entry of the registry: a name of 64 and arguments of 80 characters, escaped."""
BYTES_AROUND: Final = 65_536
"""An upper bound on the rest: figures, our own text, the revision's fixed part."""


def answer_of(
    work: Work,
    memory: Memory,
    result: Result,
    use: RevisionUse,
    encoding: str,
    *,
    exact: bool,
    as_edits: bool,
    revision: bytes,
) -> TrimAnswer:
    """Put the answer together."""
    inputs, framed, ledger, format_ = work.inputs, result.framed, memory.ledger, work.format
    tokens = TokenFigures(
        before=inputs.overhead + result.sent_tokens,
        after=result.after,
        limit=inputs.limit,
        encoding=encoding,
        exact=exact and not ledger.media,
        factor=1.0,
        own_text=result.own_tokens,
    )
    fits = tokens.after <= tokens.limit
    body = messages = None
    if not as_edits:
        if format_.is_json:
            body = _joined(work.split, framed, memory)
        else:
            messages = framed.parts
    return TrimAnswer(
        body=body,
        messages=messages,
        edits=edits_of(work.split, framed, memory, format_) if as_edits else (),
        trims=memory.trims,
        stash_entries=memory.own.entries,
        tokens=tokens,
        fits=fits,
        no_fit=None if fits else _why_not(memory, inputs),
        revision=revision,
        revision_use=use,
        cache=CacheFigures(
            first_changed=result.first_changed,
            kept=result.kept,
            rewritten=tokens.after - result.kept,
            batch_point=result.batch_point,
            batch_points=ledger.batches,
        ),
        own_text=framed.own,
        compacted=result.compacted,
        iteration=ledger.iteration,
        not_stashable=ledger.not_holdable,
        phases=Phases(),
        news=result.news,
        thinking_invalid_from=_invalid_from(work, memory, framed),
    )


def _invalid_from(work: Work, memory: Memory, framed: Framed) -> int | None:
    """The first message from which on thinking is not valid in the agent's own prompt, as the returned one differs."""
    if work.format.reasoning is not ReasoningRule.BOUND:
        return None
    if any(piece.place in (OwnTextPlace.SYSTEM, OwnTextPlace.CALLER) for piece in framed.own):
        return 0
    ledger = memory.ledger
    changed = [index for index, record in enumerate(ledger.records) if record.touched or record.dropped][:1]
    inside = [ledger.groups[0].start] if framed.own and ledger.groups else []  # our text stands after that
    return min((*changed, *inside), default=None)


def _joined(split: Split, framed: Framed, memory: Memory) -> bytes:
    """The body that is returned; if all of it stays, the one that was sent, with the space between its messages."""
    if not framed.own and not framed.members and not memory.trims and len(framed.parts) == len(split):
        return split.raw
    return b"".join((framed.head, b",".join(framed.parts), framed.tail))


def most_bytes(body: Split, memory: Memory) -> int:
    """Bytes that the answer to a body takes at the most, known before anything is done."""
    items = len(memory.ledger.by_id) + 8 * (len(body) - body.same)
    return len(body.raw) + BYTES_AROUND + BYTES_PER_TRIM * items


def check_size(answer: TrimAnswer, accept: int) -> None:
    """Raises TooLarge if the answer may take more bytes than the caller accepts."""
    size = len(answer.body or b"") + sum(len(message) + 6 for message in answer.messages or ()) + len(answer.revision)
    size += sum(len(edit.value) + 64 for edit in answer.edits)
    size += sum(len(own.text.encode()) + 16 for own in answer.own_text)
    size += BYTES_PER_TRIM * (len(answer.trims) + 4) + BYTES_PER_LINE * len(answer.stash_entries)
    if size > accept:
        raise TooLarge(
            f"the answer may take {size:,} bytes and the caller accepts {accept:,}; "
            "raise its receive limit and accept_bytes, or ask for edits",
            field="accept_bytes",
            bound="accept_bytes",
        )


def _why_not(memory: Memory, inputs: Inputs) -> NoFit:
    if inputs.policy.fit_stage is FitStage.OFF:
        return NoFit.POLICY
    return NoFit.NOT_STASHABLE if memory.ledger.not_holdable else NoFit.PROTECTED_TEXT
