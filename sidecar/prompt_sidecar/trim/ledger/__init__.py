"""The ledger: a run's untrimmed history as records, and what was decided about each item.

It caches the result of a fold. A prompt is the history up to some assistant message; the fold evaluates the history at
each of these points in turn, with the policy and limit in force there. So the ledger only grows at its end and an item
only ever shrinks:

    full ──► elided ──► elided further ──► clipped          (an entry's `action` and `kept`)
                    old feedback collapsed                  (its `action` and its stretch's counts)
                    message dropped                         (its record's `dropped`)

If the agent rewrites its history, `rewind` forgets everything from the point where it differs. Earlier decisions are
kept: a trimmed item keeps its bytes.

Records are grouped: a group is an assistant block and everything up to the next one, that is one iteration's calls and
their results. The opening, which precedes the first assistant block, is never trimmed except by the cap.

The state is in parts, and only a part changes its own:

    messages    the records and groups, calls and their answers     saved: what the agent said of messages
    decisions   what is left of each item and message, and tokens   saved: each decision
    queues      items by age and by size                            saved: how far they were processed
    stretches   feedback that is collapsed together                 follows from the first two
    drops       dropped iterations, and who counts them             saved: how far, and the carrier
    thinking    reasoning that is left, prompts that were returned  saved: how far it was looked at
    registry    batch points, and what is listed of them            saved
    superseded  frameworks' texts that a later one replaces         follows from the history
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from prompt_sidecar.trim.entries import CUTS, BlockGroup, Entry, Record
from prompt_sidecar.trim.ledger.decisions import Decisions, DecisionsState, Fit
from prompt_sidecar.trim.ledger.drops import Drops, DropsState
from prompt_sidecar.trim.ledger.feedback import Stretches
from prompt_sidecar.trim.ledger.messages import Messages, MessagesState
from prompt_sidecar.trim.ledger.queues import Queues, QueuesState
from prompt_sidecar.trim.ledger.registry import Registry, RegistryState
from prompt_sidecar.trim.ledger.superseded import Superseded
from prompt_sidecar.trim.ledger.thinking import Thinking, ThinkingState


class LedgerState(msgspec.Struct, frozen=True, array_like=True):
    """The state that does not follow from the history, part by part. New fields go to a part's end, with defaults."""

    messages: MessagesState
    decisions: DecisionsState
    queues: QueuesState
    drops: DropsState
    thinking: ThinkingState
    registry: RegistryState


STATE: Final = msgspec.msgpack.Decoder(LedgerState)
"""Created before threads start: msgspec crashes where two threads decode a type for the first time at once."""


class Ledger:
    """A run's history and decisions. Not thread-safe; a run holds it under its lock."""

    def __init__(self) -> None:
        messages = self.messages = Messages()
        self.records: Sequence[Record] = messages.records
        self.groups: Sequence[BlockGroup] = messages.groups
        decisions = self.decisions = Decisions(messages)
        self.queues = Queues(messages)
        self.stretches = Stretches(messages, decisions)
        self.drops = Drops(messages, decisions)
        self.thinking = Thinking(messages, decisions)
        self.registry = Registry(messages)
        self.superseded = Superseded(messages)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def iteration(self) -> int:
        """The iteration of a prompt that ends here: the number of assistant blocks plus one."""
        return self.messages.iteration

    @property
    def chain(self) -> bytes:
        """Digest of the whole history."""
        return self.records[-1].chain if self.records else b""

    def append(self, record: Record) -> None:
        """Add a message at the end of the history and set its group."""
        self.messages.append(record)
        self.decisions.append(record)
        self.queues.append(record)
        self.stretches.append(record)
        self.thinking.append(record)
        self.superseded.append(record)

    @property
    def own_from(self) -> int:
        """The group before which the placeholder of dropped iterations is placed, and the registry at the earliest."""
        return max(self.queues.held, self.messages.first_own, 0)

    def rewind(self, length: int, sent: Collection[int] | None = None) -> None:
        """Forget the history from record `length` on; decisions about the rest are kept.

        `sent`: the records that the current prompt has; None: all. Dropped records that are not among them have no text
        any more, so they stay dropped.
        """
        if length >= len(self.records):
            return
        before = self._own_places()
        self.decisions.rewind(length)
        self.messages.rewind(length)
        self.queues.rewind(length)
        self.stretches.derive()
        self.drops.rewind(length, sent)
        self.thinking.rewind(length)
        self.registry.rewind(length)
        self.superseded.rewind()
        if self._own_places() != before:
            self.thinking.own_text_moved()

    def _own_places(self) -> tuple[object, ...]:
        """Return the values that determine positions and counts of our own text inside the history."""
        carrier, drops = self.drops.carrier, self.drops
        place = carrier and (carrier.message, carrier.item)
        return self.registry.batch_group, self.own_from, place, drops.by_carrier, drops.by_placeholder

    def save(self) -> LedgerState:
        """Return what another process needs to go on with the same history."""
        return LedgerState(
            self.messages.save(),
            self.decisions.save(),
            self.queues.save(),
            self.drops.save(),
            self.thinking.save(),
            self.registry.save(),
        )

    def load(self, state: LedgerState, fit: Fit | None = None) -> None:
        """Load the saved state of the same history, about which nothing was decided here.

        `fit` adapts elisions to texts that have been masked since; None if no text has.
        """
        self.messages.load(state.messages)
        self.decisions.load(state.decisions, fit)
        self.queues.load(state.queues)
        self.stretches.derive()
        self.drops.load(state.drops, count_again=fit is not None)
        self.thinking.load(state.thinking)
        self.registry.load(state.registry)

    # -- what concerns several parts ---------------------------------------------------------------------------------

    def pin(self, index: int) -> None:
        """Pin a message: items that are trimmed stay trimmed, and no more are trimmed."""
        self.decisions.pin(index)
        self.messages.pin(index)
        self.queues.pin(self.records[index])

    def hold(self, groups: int) -> None:
        """Keep the results of the oldest `groups` groups whole."""
        self.queues.hold(groups)
        self.drops.advance(groups)

    def release(self) -> bool:
        """Stop keeping the oldest groups whole; return whether any was."""
        any_held = self.queues.release()
        if any_held:
            self.drops.restart()
        return any_held

    def trimmed(self) -> Iterator[tuple[Record, Entry]]:
        """Yield entries that are partly or wholly hidden, in the order of their messages."""
        for record in self.records:
            if record.dropped or record.touched:
                for entry in record.entries:
                    if entry.action in CUTS or record.dropped:
                        yield record, entry
