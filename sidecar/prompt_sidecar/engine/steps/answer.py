"""The answer to a call: the prompt or its edits, facts about what was done, and the bound on its size.

Edits are how the sent prompt becomes the returned one, for agents that patch their own objects. First, from the last
message to the first, dropped messages are removed and trimmed ones replaced; then our own text is inserted, each piece
at its final place. A pointer is therefore valid when its edit is applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from prompt_sidecar.engine.steps.caching import with_caching
from prompt_sidecar.engine.steps.frame import FramedPrompt
from prompt_sidecar.engine.steps.memory import Memory
from prompt_sidecar.engine.steps.opening import OpenedPrompt, PromptWork
from prompt_sidecar.engine.steps.received import SYSTEM
from prompt_sidecar.engine.steps.rendering import items_of
from prompt_sidecar.engine.steps.turn import Result
from prompt_sidecar.errors import AmbiguousJson, TooLarge
from prompt_sidecar.facts.trim_calls import (
    Edit,
    EditOperation,
    NoFit,
    OwnTextPlace,
    ReturnedPrompt,
    RevisionUse,
    TokenFigures,
    TrimAnswer,
    Trimmed,
)
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format, ReasoningRule, Replacement
from prompt_sidecar.prompt.items import Item, Path
from prompt_sidecar.prompt.jsontext import ValuesByPath
from prompt_sidecar.tokens.calibration import InForce, calibrated_tokens
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.inputs import Inputs
from prompt_sidecar.trim.policy import FitStage

BYTES_PER_TRIM: Final = 64
"""An upper bound on one encoded trim: eight small numbers and an id."""
BYTES_PER_LINE: Final = 768
"""An upper bound on one encoded entry of the registry: a name of 64 and arguments of 80 characters, escaped."""
BYTES_AROUND: Final = 65_536
"""An upper bound on everything else: figures, our own text, the revision's fixed part."""


def answer_of(
    work: PromptWork,
    result: Result,
    use: RevisionUse,
    revision: bytes,
    *,
    run_key: bytes = b"",
    follows: bool = False,
) -> TrimAnswer:
    """Build the answer, with raw figures.

    Args:
        work: the prompt.
        result: what was done with it.
        use: how the revision that was sent was used.
        revision: the revision that is returned.
        run_key: the run's key; empty: it belongs to no run.
        follows: whether the prompt's base is the revision of the last answer.
    """
    opened, memory = work.opened, work.opened.memory
    prompt = ReturnedPrompt(
        own_text=result.framed.own,
        revision=revision,
        thinking_invalid_from=_invalid_from(opened, result.framed),
    )
    return TrimAnswer(
        prompt=_with_messages(
            prompt,
            opened,
            result.framed,
            with_caching(opened, result.framed, run_key),
            result.rewritten if follows and _keeps_edits(opened) else None,
        ),
        trimmed=Trimmed(memory.listed.trims, memory.own.entries, result.compacted, memory.ledger.messages.not_holdable),
        tokens=result.tokens,
        no_fit=None if result.tokens.after <= work.inputs.limit else _why_not(memory, work.inputs),
        cache=result.cache,
        iteration=memory.ledger.iteration,
        model=opened.model.name,
        revision_use=use,
        provider_edits=opened.provider_edits,
        size=result.size,
        news=result.news,
    )


def calibrated(answer: TrimAnswer, in_force: InForce, factor: float) -> TrimAnswer:
    """Return the agent's answer from one with raw figures: in tokens as the provider counts them."""
    tokens = calibrated_figures(answer.tokens, in_force, factor)
    if answer.size is None:
        return replace(answer, tokens=tokens)
    # With a factor of one every figure stays the same.
    size = answer.size if factor == 1 else answer.size.scaled(partial(calibrated_tokens, factor=factor))
    kept = min(calibrated_tokens(answer.cache.kept, factor), tokens.after)  # with `rewritten` it adds up to the prompt
    cache = replace(answer.cache, kept=kept, rewritten=tokens.after - kept)
    return replace(answer, tokens=tokens, cache=cache, size=size)


def calibrated_figures(tokens: TokenFigures, in_force: InForce, factor: float) -> TokenFigures:
    """Convert a prompt's raw figures for its answer: multiplied with the factor, the limit in provider tokens.

    A prompt is within the raw limit if and only if it is within the calibrated one.
    """
    return replace(
        tokens,
        before=calibrated_tokens(tokens.before, factor),
        after=calibrated_tokens(tokens.after, factor),
        own_text=calibrated_tokens(tokens.own_text, factor),
        ceiling=min(calibrated_tokens(tokens.ceiling, factor), in_force.limit),
        protected_leaves=None if (left := tokens.protected_leaves) is None else calibrated_tokens(left, factor),
        limit=in_force.limit,
        exact=tokens.exact and factor == 1.0,
        factor=factor,
    )


def as_sent(answer: TrimAnswer, opened: OpenedPrompt) -> TrimAnswer:
    """Return an answer with the prompt unchanged and no later effect; its figures show what would be done.

    It has none of our own text, no edits and no revision: a revision would make a later process repeat what was not
    done.
    """
    call, body = opened.call, opened.body
    if call.edits:
        prompt = ReturnedPrompt(observed_only=True)
    elif opened.format.is_json:  # with a base, the sent part is the end of what is returned
        prompt = ReturnedPrompt(body.raw if call.base_revision else call.body, observed_only=True)
    else:
        whole = [body.message(index) for index in range(len(body))]
        sent = whole if call.base_revision or call.messages is None else call.messages
        prompt = ReturnedPrompt(messages=sent, observed_only=True)
    return replace(answer, prompt=prompt)


def _invalid_from(opened: OpenedPrompt, framed: FramedPrompt) -> int | None:
    """Return the first message from which thinking is invalid in the agent's own prompt, or None."""
    if opened.format.reasoning is not ReasoningRule.BOUND:
        return None
    if any(piece.place in (OwnTextPlace.SYSTEM, OwnTextPlace.CALLER) for piece in framed.own):
        return 0
    ledger = opened.memory.ledger
    changed = [index for index, record in enumerate(ledger.records) if record.touched or record.dropped][:1]
    inside = [ledger.groups[0].start] if framed.own and ledger.groups else []  # our text follows it
    return min((*changed, *inside, *_first_masked(opened)), default=None)


def _first_masked(opened: OpenedPrompt) -> Sequence[int]:
    """Return the first record that the agent sent unmasked; empty if there is none."""
    sent, body, received = opened.guard.sent, opened.body, opened.memory.received
    if sent is body or received is None:
        return ()
    if any(sent.field(name) != body.field(name) for name in sent.fields):
        return (0,)
    places = (row.place for index, row in enumerate(received.rows) if sent.message(index) != body.message(index))
    return [max(place, 0) for place in places][:1]


def _keeps_edits(opened: OpenedPrompt) -> bool:
    """Whether the agent has kept the edits of the answer before, and all messages of that prompt are as they were."""
    return opened.call.changed_edits_only and opened.continues and opened.body.same == opened.guard.sent.same


def _with_messages(
    prompt: ReturnedPrompt,
    opened: OpenedPrompt,
    framed: FramedPrompt,
    cached: FramedPrompt | None,
    rewritten: frozenset[int] | None,
) -> ReturnedPrompt:
    """Add the prompt in the requested form: edits, a body, or typed messages.

    An unchanged body is returned as sent, with the space between its messages. `cached`: the prompt with marks and key
    for its provider's cache; None if it gets none. `rewritten`: see `edits_of`.
    """
    split, listed = opened.body, opened.memory.listed
    if opened.call.edits:
        return replace(prompt, edits=edits_of(opened, framed, rewritten), edits_since_base=rewritten is not None)
    if not opened.format.is_json:
        return replace(prompt, messages=framed.parts)
    if cached is not None:
        return replace(prompt, body=_body(cached))
    if not framed.own and not framed.members and not listed.trims and len(framed.parts) == len(split):
        return replace(prompt, body=split.raw)
    return replace(prompt, body=_body(framed))


def _body(framed: FramedPrompt) -> bytes:
    """Return a prompt's bytes, copied once."""
    pieces = [b","] * (2 * len(framed.parts) - 1)
    pieces[::2] = framed.parts
    return b"".join((framed.head, *pieces, framed.tail))


def most_bytes(opened: OpenedPrompt) -> int:
    """Return the most bytes that the answer to a prompt can take, known before anything is done."""
    body = opened.body
    items = len(opened.memory.ledger.messages.by_id) + 8 * (len(body) - body.same)
    return len(body.raw) + BYTES_AROUND + BYTES_PER_TRIM * items


def check_size(answer: TrimAnswer, accept: int) -> None:
    """Check the size of an answer. Raises TooLarge if it may take more bytes than the caller accepts."""
    prompt, trimmed = answer.prompt, answer.trimmed
    size = len(prompt.body or b"") + sum(len(message) + 6 for message in prompt.messages or ()) + len(prompt.revision)
    size += sum(len(edit.value) + 64 for edit in prompt.edits)
    size += sum(len(own.text.encode()) + 16 for own in prompt.own_text)
    size += BYTES_PER_TRIM * (len(trimmed.trims) + 4) + BYTES_PER_LINE * len(trimmed.stash_entries)
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
    return NoFit.NOT_STASHABLE if memory.ledger.messages.not_holdable else NoFit.PROTECTED_TEXT


# -- edits -----------------------------------------------------------------------------------------------------------


def edits_of(opened: OpenedPrompt, framed: FramedPrompt, rewritten: frozenset[int] | None = None) -> list[Edit]:
    """Return the edits that turn the sent prompt into the returned one.

    A message without a decision is returned unchanged, and not examined. `rewritten`: the records that may have other
    edits than in the last answer, with which the prompt goes on: those of other known messages are left out; None: all
    are returned.
    """
    split, memory = opened.guard.sent, opened.memory
    if memory.received is None:
        return []
    base = pointer_base(split, opened.format)
    edits: list[Edit] = []
    known = split.same if rewritten is not None else 0
    for index in range(len(split) - 1, known - 1, -1):
        edits += _message_edits(opened, index, base)
    for index in sorted((memory.sent_at[place] for place in rewritten or ()), reverse=True):
        if 0 <= index < known:  # one that had an edit, and has none now, gets its own bytes again
            whole = Edit(EditOperation.REPLACE, f"{base}{index}", split.message(index))
            edits += _message_edits(opened, index, base) or [whole]
    edits.extend(
        Edit(EditOperation.INSERT, f"{base}{own.message_index}", framed.parts[own.message_index])
        for own in framed.own
        if own.message_index >= 0
    )
    members = {name: opened.body.field(name) or b"" for name in split.fields} if split is not opened.body else {}
    members = {name: value for name, value in members.items() if value != split.field(name)}
    for name, value in (members | dict(framed.members)).items():
        operation = EditOperation.REPLACE if name in split.fields else EditOperation.INSERT
        edits.append(Edit(operation, f"/{name}", value))
    return edits


def _message_edits(opened: OpenedPrompt, index: int, base: str) -> Sequence[Edit]:
    """Return the edits of one message that was sent."""
    split, body, memory = opened.guard.sent, opened.body, opened.memory
    assert memory.received is not None
    place = memory.received.rows[index].place
    if split is body and (place == SYSTEM or (place >= 0 and not memory.ledger.records[place].touched)):
        return ()
    now = memory.rendered.slices[place] if place >= 0 else body.message(index) if place == SYSTEM else None
    if now is None and opened.call.in_place and place >= 0:
        now = clipped_whole(opened, index, place)
    elif now is None:
        return (Edit(EditOperation.REMOVE, f"{base}{index}", b""),)
    elif now == body.message(index):
        return masking_edits(opened, index, base)
    return (Edit(EditOperation.REPLACE, f"{base}{index}", now),) if now != split.message(index) else ()


def clipped_whole(opened: OpenedPrompt, index: int, place: int) -> bytes:
    """Return a dropped message with a label in place of each longer item; it is recognised when it is sent back."""
    rendered, record = opened.memory.rendered, opened.memory.ledger.records[place]
    raw, read = opened.body.message(index), opened.format.read
    replacements: dict[Item, Replacement] = {}
    for entry, item in zip(record.entries, items_of(record, read(raw, "history", identify=False)), strict=True):
        label = "" if opened.call.recall_unavailable else entry.stash_id
        shown = elide.placeholder(entry.kind, label, entry.size)
        if item is not None and not item.opaque and (shown is None or len(shown) < entry.size):
            replacements[item] = "" if shown is None and item.free_text else shown
    made = opened.format.write(raw, replacements) if replacements else raw
    rendered.forms[place].add(read(made, "history").identity)
    return made


def masking_edits(opened: OpenedPrompt, index: int, base: str) -> list[Edit]:
    """Return the edits that mask a message: its texts are replaced one by one.

    A typed message, a bare text, and a message that two parsers may read differently are replaced as a whole.
    """
    if opened.guard.sent is opened.body:
        return []
    raw, masked = opened.guard.sent.message(index), opened.body.message(index)
    if raw == masked:
        return []
    strings, where = opened.format.strings, opened.format.messages_path
    whole = [Edit(EditOperation.REPLACE, f"{base}{index}", masked)]
    if not opened.format.is_json or opened.body.is_text:
        return whole
    try:
        pairs = zip(strings.leaves(raw, where), strings.leaves(masked, where), strict=True)
    except AmbiguousJson:
        return whole
    values = ValuesByPath(masked)
    return [
        Edit(EditOperation.REPLACE, f"{base}{index}" + _pointer(new.path), values.at(new.path))
        for old, new in pairs
        if old.text != new.text
    ]


def _pointer(path: Path) -> str:
    """Return a path as the end of a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def pointer_base(split: Split, format_: Format) -> str:
    """Return the beginning of a JSON pointer to a message."""
    return f"/{format_.messages_field}/" if split.is_object or not format_.is_json else "/"
