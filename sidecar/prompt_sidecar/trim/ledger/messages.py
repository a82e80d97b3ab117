"""The untrimmed history: records of its messages, in groups. Only what the history itself does not show is saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import BlockGroup, Entry, Feedback, Record
from prompt_sidecar.trim.ledger.pairs import Pairs

_MARKS: Final = (None, *Feedback)
"""The kinds that an annotation can give an item; None: a snapshot."""


class MessagesState(msgspec.Struct, frozen=True, array_like=True):
    """The agent's annotations of messages. They hold from first sight, so they cannot be derived again."""

    pins: list[int]
    marks: list[tuple[int, int, int]]
    """Message, item, and the agent's annotation of it as an index into `_MARKS`."""


class Messages:
    """A run's untrimmed history."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.groups: list[BlockGroup] = []
        self.pairs = Pairs(self.groups)
        self.by_id: dict[str, Entry] = {}
        """Items by stash id, except pages that recall returned, which have the id of their original."""
        self.full_opaque = 0
        """Tokens of encrypted text in the untrimmed history."""
        self.media = 0
        """Number of images."""
        self.identified = 0
        """Messages with provider ids, for which the provider may require their reasoning."""
        self.not_holdable = 0
        """Items that the stash cannot store."""
        self.reasons = 0
        """Items of reasoning."""
        self.task = -1
        """Index of the first user message, which is never changed; -1 if there is none yet."""
        self.settled = 0
        """Number of messages before a provider's newest compaction."""
        self.compaction = -1
        """Index of the message with that compaction; -1 if there is none."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def iteration(self) -> int:
        """The iteration of a prompt that ends here: the number of assistant blocks plus one."""
        return len(self.groups) + 1

    def members(self, group: int) -> range:
        """Indices of a group's records."""
        last = self.groups[group + 1].start if group + 1 < len(self.groups) else len(self.records)
        return range(self.groups[group].start, last)

    def units(self) -> Sequence[int]:
        """Return for each group the first group of the unit that can only be dropped as a whole."""
        firsts: list[int] = []
        first = end = -1
        for number, group in enumerate(self.groups):
            if number > end:
                first = number
            end = max(end, group.reach)
            firsts.append(first)
        return firsts

    @property
    def first_own(self) -> int:
        """The first group before which our own text may be placed: what precedes a compaction is not changed."""
        return self.records[self.compaction].group + 1 if self.compaction >= 0 else 0

    @property
    def first_trimmable(self) -> int:
        """The first message that may be trimmed at all, behind the opening and a compaction."""
        return max(self.groups[0].start if self.groups else len(self.records), self.compaction + 1)

    def append(self, record: Record) -> None:
        """Add a message at the end of the history and set its group."""
        index = len(self.records)
        if record.role is Role.ASSISTANT and (index == 0 or self.records[-1].role is not Role.ASSISTANT):
            self.groups.append(BlockGroup(index, len(self.groups), len(self.groups)))
        record.group = len(self.groups) - 1
        if self.task < 0 and record.role is Role.USER:
            self.task = index
        self.settled += record.settled
        if record.compacts:
            self.compaction = index
        self.records.append(record)
        self._count(record, 1)
        self.by_id.update((entry.stash_id, entry) for entry in record.entries if not entry.recalled)
        self.pairs.add(record)
        if (record.pinned or record.kept) and record.group >= 0:
            self.groups[record.group].pinned = True

    def _count(self, record: Record, sign: int) -> None:
        self.full_opaque += sign * record.full_opaque
        self.media += sign * record.media
        self.identified += sign * record.identified
        for entry in record.entries:
            self.not_holdable += sign * (not entry.holdable)
            self.reasons += sign * (entry.kind is ItemKind.REASONING)

    def answer(self, asked: int, output_tokens: int) -> None:
        """Record for the newest group the tokens of the prompt that it answers, and of the model's earlier messages."""
        group = self.groups[-1]
        group.asked, group.output_tokens = asked, output_tokens

    def pin(self, index: int) -> None:
        """Pin a message: items that are trimmed stay trimmed, and no more are trimmed."""
        record = self.records[index]
        record.pinned = True
        if record.group >= 0:
            self.groups[record.group].pinned = True

    def rewind(self, length: int) -> None:
        """Forget the messages from `length` on."""
        for record in self.records[length:]:
            self._count(record, -1)
            for entry in record.entries:
                if self.by_id.get(entry.stash_id) is entry:
                    del self.by_id[entry.stash_id]
        del self.records[length:]
        while self.groups and self.groups[-1].start >= length:
            self.groups.pop()
        self.task = self.task if self.task < length else -1
        self.settled = min(self.settled, length)
        self.compaction = self.compaction if self.compaction < length else -1
        self.pairs.rebuild(self.records)
        if self.groups:
            left = (self.records[index] for index in self.members(len(self.groups) - 1))
            self.groups[-1].pinned = any(record.pinned or record.kept for record in left)

    def save(self) -> MessagesState:
        """Return the agent's annotations."""
        annotated = [entry for record in self.records for entry in record.entries if entry.annotated]
        return MessagesState(
            [index for index, record in enumerate(self.records) if record.pinned and not record.settled],
            [(entry.message, entry.item, _MARKS.index(entry.feedback)) for entry in annotated],
        )

    def load(self, state: MessagesState) -> None:
        """Load annotations that the agent made elsewhere."""
        for message, item, mark in state.marks:
            entry = self.records[message].entries[item]
            if entry.fixed:
                continue
            entry.annotated, entry.feedback = True, _MARKS[mark]
            if entry.feedback is None:
                entry.kind = ItemKind.SNAPSHOT
        for index in state.pins:
            self.pin(index)
