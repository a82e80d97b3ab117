"""All that a ledger knows, so that two of them can be compared; and states as earlier rules wrote them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import msgspec

from prompt_sidecar.trim.entries import Entry
from prompt_sidecar.trim.ledger import Ledger

Place = tuple[int, int]


def places(entries: Iterable[Entry]) -> list[Place]:
    """Where items are in the history."""
    return [(entry.message, entry.item) for entry in entries]


def state_of(ledger: Ledger) -> dict[str, object]:
    """What each part of a ledger knows of the history and its decisions, or would answer.

    Left out is what concerns this process alone: what has yet to be rendered, what it has returned, how often it would
    have written the registry, and what came before an item's last decision.
    """
    messages, decisions, queues, drops = ledger.messages, ledger.decisions, ledger.queues, ledger.drops
    length = range(len(ledger))
    return {
        "saved": msgspec.to_builtins(ledger.save()),
        "records": [
            (each.group, each.pinned, each.tokens, each.opaque, each.words, each.dropped and each.dropped_for)
            for each in ledger.records
        ],
        "entries": [
            (entry.kind, entry.feedback, entry.stretch, entry.tokens, entry.action)
            for record in ledger.records
            for entry in record.entries
        ],
        "groups": list(ledger.groups),
        "open calls": messages.pairs._open_calls,  # noqa: SLF001
        "by id": set(messages.by_id),
        "of messages": (
            messages.full_opaque,
            messages.media,
            messages.identified,
            messages.not_holdable,
            messages.reasons,
            messages.task,
        ),
        "sums": (decisions.total, decisions.opaque, decisions.words, decisions.evaluated),
        "tokens": [decisions.tokens_between(index, index + 1) for index in length],
        "words": [decisions.spoken_between(index, index + 1) for index in length],
        "newest words": ledger.queues.newest_words,
        "live": [(decisions.next_live(index), decisions.live_before(index)) for index in length],
        "queues": [(ageing, places(queue.entries)) for ageing, queue in queues.by_age.items()],
        "large": places(queues.large.entries),
        "small": places(queues.small.entries),
        "labels": {stretch: places([head]) for stretch, head in ledger.stretches._labels.items()},  # noqa: SLF001
        "counted": (drops.by_carrier, drops.by_placeholder),
        "reasoning": (places(ledger.thinking.left), ledger.thinking.closings, ledger.thinking._answering),  # noqa: SLF001
    }


def state_5(ledger: Ledger, *, tied: bool = True) -> bytes:
    """A ledger's state as rules of version 5 wrote it; `tied`: those that drop system messages with their iteration."""
    state = ledger.save()
    decisions, drops, registry = state.decisions, state.drops, state.registry
    flat = (
        decisions.entries,
        decisions.dropped,
        state.queues.done,
        drops.done,
        state.queues.held,
        drops.carrier,
        registry.listed,
        registry.batch_end,
        registry.batch_group,
        registry.batches,
        state.messages.pins,
        state.messages.marks,
        state.thinking.mid_block,
        registry.unfit_since,
        drops.words_done,
        registry.names,
        registry.named,
        state.thinking.looked_from,
    )
    return zlib.compress(msgspec.msgpack.encode((*flat, True) if tied else flat), 1)
