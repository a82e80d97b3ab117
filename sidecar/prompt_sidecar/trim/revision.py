"""Revisions: the state of the decisions as bytes that an agent can carry to a process that has not seen the run.

A fresh process that is sent the untrimmed history under constant inputs makes the same decisions anyway. Where inputs
changed on the way, or the agent branched, it could not; so a revision states the decision about each item, not how it
was reached. It is opaque to the agent and signed: a process accepts it only for the run and history it was made for.
All who get it can read it, so what it says of texts are digests made with the run's key.

    tag (16 bytes, keyed)  version (1)  run (8)  length, chain (16)  own text (n × 8)  state (deflated)

A revision of another version is ignored, as is one that does not match: the run's decisions are then made again.

The state is a list of JSON numbers, deflated: a run with 500 trimmed items takes about 2 kB.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from typing import Final

import msgspec

from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim import own_text
from prompt_sidecar.trim.elide import Kept
from prompt_sidecar.trim.entries import ALONE, Action, Ageing, Entry, Feedback, Reason
from prompt_sidecar.trim.ids import sign
from prompt_sidecar.trim.ledger import Ledger

_TAG: Final = 16
VERSION: Final = 5
"""Version of a revision's content, and of the rules that the decisions in it follow; version 1 had no version byte."""
DIRECTIVES: Final = own_text.ALL_DIRECTIVES
"""All directives that a run can have, none included; a revision refers to one by its index."""
_ACTIONS: Final = (None, Action.ELIDED, Action.CLIPPED, Action.COLLAPSED)
_REASONS: Final = tuple(Reason)
_MARKS: Final = (None, *Feedback)
"""What an annotation marks an item as; None: a snapshot."""
_ACTION_NUMBERS: Final = {action: number for number, action in enumerate(_ACTIONS)}
_REASON_NUMBERS: Final = {reason: number for number, reason in enumerate(_REASONS)}
MAX_STATE_BYTES: Final = 8_388_608
"""Most bytes of a decompressed state. A signed revision cannot be a decompression bomb; this enforces it."""


class EntryState(msgspec.Struct, frozen=True, array_like=True):
    """What was decided about one item."""

    message: int
    item: int
    action: int
    head: int
    tail: int
    tokens: int
    reason: int
    decided: int
    first: int
    advertised: bool
    counts: list[int]
    again: int
    leaves: bool


class State(msgspec.Struct, frozen=True, array_like=True):
    """A ledger's decisions."""

    entries: list[EntryState]
    dropped: list[tuple[int, int, int, int]]
    """First record, the one after the last, the iteration in which they were dropped, and the reason."""
    done: list[int]
    """Entries of each queue that clipping has processed, in the order of `Ageing`."""
    drop_done: int
    held: int
    carrier: tuple[int, int]
    """Message and item of the ledger's carrier; (-1, -1): there is none."""
    listed: int
    batch_end: int
    batch_group: int
    batches: int
    pins: list[int]
    """Messages that the agent pinned. Pins, like marks, hold from first sight, so they cannot be derived again."""
    marks: list[tuple[int, int, int]]
    """Message, item, and the agent's annotation of it as an index into `_MARKS`."""
    mid_block: int
    unfit_since: int
    words_done: int
    names: list[tuple[int, int]]
    """Names listed under the registry, as places: a message, and which of its names."""
    named: int
    reasoning_from: int = 0
    """First message whose reasoning has yet to be looked at for removal."""
    tied: bool = False
    """Whether system messages were dropped with their iterations (`Record.tied`), as earlier versions did not."""


class Revision(msgspec.Struct, frozen=True, array_like=True):
    """A revision, opened."""

    run: bytes
    length: int
    """Records of the untrimmed history; the last evaluation saw all of them."""
    chain: bytes
    own: list[bytes]
    """Keyed digests of our own messages in the prompt that this revision came with."""
    state: bytes
    directives: int = 0
    """Index into `DIRECTIVES` of what the run was given; later inputs do not change it."""
    registry_room: int = 0
    """Token budget of the registry when it was last written."""
    closing_room: int = 0
    """Token budget of the registry's end at that time."""
    factor: float = 1.0
    """The factor of token counts that was in force."""
    opaque_factor: float = 1.0
    """That of encrypted text."""
    bound: bool = False
    """Whether reasoning was treated as bound to its prompt."""
    learned_limit: int = 0
    """The limit learned from provider errors; 0: none."""
    rules: bytes = b""
    """Digest of the guard's rules by which the history is masked; empty: it is not."""
    ids: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    """Message, item and id of what was trimmed before its message was masked."""
    used: tuple[int, float, int] = (0, 0.0, 0)
    """What the run has used: input tokens, cost, model calls."""


# Made before there are threads: msgspec crashes the process where two of them decode a type for the first time at once.
_revision: Final = msgspec.msgpack.Decoder(Revision)
_state: Final = msgspec.msgpack.Decoder(State)


def run_digest(of_run: bytes) -> bytes:
    """Digest of the run in a revision, from which the run id cannot be derived."""
    return sha256(of_run).digest()[:8]


def pack_state(ledger: Ledger) -> bytes:
    """Encode the decisions, as a `State` of `EntryState`s; tuples of the same fields are made faster."""
    entries = [
        (
            entry.message,
            entry.item,
            _ACTION_NUMBERS[entry.action],
            entry.kept.head if entry.kept is not None else 0,
            entry.kept.tail if entry.kept is not None else 0,
            entry.tokens,
            _REASON_NUMBERS[entry.reason or Reason.FIT],
            entry.decided,
            entry.first,
            entry.advertised,
            entry.counts,
            entry.again,
            entry.leaves,
        )
        for record in ledger.records
        if record.touched
        for entry in record.entries
        if entry.action is not None
    ]
    dropped: list[tuple[int, int, int, int]] = []
    for index, record in enumerate(ledger.records):
        if not record.dropped:
            continue
        how = record.dropped_in, _REASON_NUMBERS[record.dropped_for]
        if dropped and dropped[-1][1:] == (index, *how):
            dropped[-1] = (dropped[-1][0], index + 1, *how)
        else:
            dropped.append((index, index + 1, *how))
    state = (
        entries,
        dropped,
        [ledger.queues[ageing].done for ageing in Ageing],
        ledger.drop_done,
        ledger.held,
        (ledger.carrier.message, ledger.carrier.item) if ledger.carrier is not None else (-1, -1),
        ledger.listed,
        ledger.batch_end,
        ledger.batch_group,
        ledger.batches,
        [index for index, record in enumerate(ledger.records) if record.pinned],
        [
            (entry.message, entry.item, _MARKS.index(entry.feedback))
            for record in ledger.records
            for entry in record.entries
            if entry.annotated
        ],
        ledger.mid_block,
        ledger.unfit_since,
        ledger.words_done,
        ledger.names,
        ledger.named,
        ledger.reasoning_from,
        True,
    )
    return zlib.compress(msgspec.msgpack.encode(state), 1)


def seal(key: bytes, revision: Revision) -> bytes:
    """Encode and sign."""
    content = bytes([VERSION]) + msgspec.msgpack.encode(revision)
    return sign(key, content) + content


def unseal(key: bytes, sealed: bytes) -> Revision | None:
    """Open a revision; None if this key did not sign it, or it is of another version."""
    tag, content = sealed[:_TAG], sealed[_TAG:]
    if len(tag) < _TAG or not compare_digest(sign(key, content), tag) or content[:1] != bytes([VERSION]):
        return None
    return _revision.decode(content[1:])


def apply_state(ledger: Ledger, packed: bytes, fit: Callable[[Entry, Kept], Kept | None] | None = None) -> bool:
    """Write a revision's decisions into a ledger with the same history and no decisions; False if it cannot.

    `fit` gives what an elision keeps of a text that has been masked since; None: it stays whole.
    """
    inflater = zlib.decompressobj()
    plain = inflater.decompress(packed, MAX_STATE_BYTES)
    if inflater.unconsumed_tail:
        return False
    state = _state.decode(plain)
    for message, item, mark in state.marks:
        ledger.annotate(ledger.records[message].entries[item], _MARKS[mark])
    for index in state.pins:
        ledger.pin(index)
    if state.marks or state.pins:
        ledger.requeue()
    for was in state.entries:
        entry = ledger.records[was.message].entries[was.item]
        action = _ACTIONS[was.action]
        if action is None:
            continue
        kept = Kept(was.head, was.tail) if action is Action.ELIDED else None
        if kept is not None and fit is not None and (kept := fit(entry, kept)) is None:
            continue
        if entry.kind is ItemKind.REASONING:
            ledger.remove_reasoning(entry, was.tokens, drop=False)
        else:
            ledger.set_entry(entry, action, kept, was.tokens, _REASONS[was.reason])
        entry.decided = was.decided
        entry.first = was.first
        entry.advertised = was.advertised
        entry.counts = tuple(was.counts)
        entry.again = was.again
        entry.leaves = was.leaves
    _drop(ledger, state)
    for ageing, done in zip(Ageing, state.done, strict=True):
        ledger.queues[ageing].done = done
    ledger.drop_done = state.drop_done
    ledger.held = state.held
    message, item = state.carrier
    if message >= 0:
        ledger.carrier = ledger.records[message].entries[item]
        ledger.carrier.counts = ()  # the next evaluation counts
    ledger.listed = state.listed
    ledger.mid_block = state.mid_block
    ledger.queue_reasoning(state.reasoning_from)
    ledger.count_dropped_groups()
    ledger.batch_end = state.batch_end
    ledger.batch_group = state.batch_group
    ledger.batches = state.batches
    ledger.unfit_since = state.unfit_since
    ledger.words_done = state.words_done
    ledger.named = state.named
    # What is a name may differ from one version to another; a wrong one is a name of the same message.
    ledger.names = [(message, name) for message, name in state.names if name < len(ledger.records[message].names)]
    ledger.evaluated = len(ledger)
    ledger.rebuild_largest()
    ledger.count_words()
    ledger.gather_stretches()
    return True


def _drop(ledger: Ledger, state: State) -> None:
    """Drop the messages that a state says were dropped."""
    for first, end, iteration, reason in state.dropped:
        for index in range(first, end):
            ledger.drop_record(index, iteration, _REASONS[reason])
    if not state.tied:
        _drop_tied(ledger)


def _drop_tied(ledger: Ledger) -> None:
    """Drop system messages whose iterations an earlier version dropped without them.

    That version may also have placed our own text next to others, where it is no longer written. So reasoning that is
    bound to the prompts that it returned is no longer valid.
    """
    for index, record in enumerate(ledger.records):
        if not record.tied:
            continue
        ledger.moved = True
        opens = ledger.records[ledger.groups[record.group].start] if record.group >= 0 else record
        if opens.dropped and opens.dropped_for not in ALONE and not (record.dropped or record.kept):
            ledger.drop_record(index, opens.dropped_in, opens.dropped_for)
