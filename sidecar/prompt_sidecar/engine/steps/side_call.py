"""Side calls: a slice of the history, trimmed with the run's decisions, for validators and judges. Changes nothing.

Messages are found by their identity anywhere in the history. A message that the run has dropped, or does not know,
stays as it was sent; no own text is written. A slice is another prompt than the one that produced its thinking: where
thinking is bound to its prompt, all of it is removed. Elsewhere the last turn of a slice needs its thinking, which may
have been removed in the run, where that turn is finished.
"""

from __future__ import annotations

from collections.abc import Sequence

from prompt_sidecar.engine.steps.answer import pointer_base
from prompt_sidecar.engine.steps.memory import Memory
from prompt_sidecar.engine.steps.opening import OpenedPrompt
from prompt_sidecar.engine.steps.rendering import Sources
from prompt_sidecar.facts.trim_calls import (
    CacheFigures,
    Edit,
    EditOperation,
    NoFit,
    ReturnedPrompt,
    TokenFigures,
    Trim,
    TrimAnswer,
    Trimmed,
)
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format, ReasoningRule
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import Reason
from prompt_sidecar.trim.inputs import Inputs


def _without_reasoning(raw: bytes, format_: Format) -> tuple[bytes, int]:
    """Return a message without its reasoning, and the least tokens of encrypted text that this saves."""
    items = [item for item in format_.read(raw, "history", identify=False).items if item.kind is ItemKind.REASONING]
    if not items:
        return raw, 0
    label = elide.placeholder(ItemKind.REASONING, "", len(raw))
    return format_.write(raw, dict.fromkeys(items, label)), sum(item.opaque for item in items)


def _with_reasoning(memory: Memory, place: int, sent: tuple[bytes, bytes], format_: Format) -> bytes:
    """Return a message as the run has trimmed it, except for its reasoning. `sent`: its bytes and identity."""
    sources = Sources(memory.ledger, memory.rendered, lambda _: sent, format_)
    return sources.render(place, sent[0], with_reasoning=True)


def trim_slice(opened: OpenedPrompt, inputs: Inputs) -> TrimAnswer:
    """Answer a side call."""
    memory, split, reads, format_, model = opened.memory, opened.body, opened.reads, opened.format, opened.model
    where = {record.identity: index for index, record in enumerate(memory.ledger.records)}
    parts: list[bytes] = []
    shown: set[int] = set()
    before = after = inputs.overhead
    leading = format_.leading_system
    ledger = memory.ledger
    closings = set(ledger.thinking.closings)
    words = max((index for index, read in enumerate(reads) if where.get(read.identity) in closings), default=-1)
    for index, read in enumerate(reads):
        raw = split.message(index)
        leading = leading and read.role is Role.SYSTEM
        place = where.get(read.identity, -1)
        now = memory.rendered.slices[place] if place >= 0 else None
        seen = index >= opened.unseen
        if now is not None and memory.ledger.records[place].touched and not split.is_text:
            parts.append(now)
            shown.add(place)
            after += memory.ledger.records[place].tokens
            removed = [entry for entry in ledger.records[place].entries if entry.reason is Reason.REASONING]
            if removed and index > words and format_.reasoning is ReasoningRule.CLOSED_TURNS:
                parts[-1] = _with_reasoning(memory, place, (raw, read.identity), format_)
                after += sum(entry.full_tokens - entry.tokens for entry in removed)
        else:
            parts.append(raw)
            after += 0 if leading or not seen else read.tokens
        if format_.reasoning is ReasoningRule.BOUND and read.role is Role.ASSISTANT and seen:
            parts[-1], saved = _without_reasoning(parts[-1], format_)
            after -= saved
        before += 0 if leading or not seen else read.tokens
    base = pointer_base(split, format_)
    sent = opened.guard.sent
    edits = [
        Edit(EditOperation.REPLACE, f"{base}{index}", part)
        for index, part in enumerate(parts)
        if part != sent.message(index)
    ]
    trims: list[Trim] = [trim for trim in memory.listed.trims if trim.message_index in shown]
    if opened.call.edits:
        prompt = ReturnedPrompt(edits=edits)
    elif format_.is_json:
        prompt = ReturnedPrompt(_body(split, parts))
    else:
        prompt = ReturnedPrompt(messages=parts)
    return TrimAnswer(
        prompt=prompt,
        trimmed=Trimmed(trims),
        tokens=TokenFigures(
            before, after, inputs.limit, model.encoding, model.exact, 1.0, 0, window_assumed=model.window_assumed
        ),
        no_fit=None if after <= inputs.limit else NoFit.POLICY,
        cache=CacheFigures(-1, 0, after, batch_point=False, batch_points=memory.ledger.registry.batches),
        iteration=memory.ledger.iteration,
        model=model.name,
    )


def _body(split: Split, parts: Sequence[bytes]) -> bytes:
    """Return the body with its messages in their places; the bytes between them are unchanged."""
    pieces: list[bytes] = []
    at = 0
    for start, end, part in zip(split.starts, split.ends, parts, strict=True):
        pieces += (split.raw[at:start], part)
        at = end
    return b"".join((*pieces, split.raw[at:]))
