"""The ledger: a run's untrimmed history as records, and what was decided about each item.

It is the cache of a fold. A prompt is the history up to some assistant message; the fold looks at the history at each
of these points in turn, with the policy and limit then in force, and decides. So the ledger only grows at its end and
an item only ever shrinks:

    full ──► elided ──► elided further ──► clipped          (an entry's `action` and `kept`)
                    message dropped                         (its record's `dropped`)

If the agent rewrites its history, `rewind` forgets what comes after the point where it differs. What was decided about
the part that stays, stays: an item that was trimmed keeps its bytes.

Records are grouped: a group is an assistant block with all that follows it up to the next one, which is an iteration's
call with its results. What comes before the first assistant block (the opening) is never trimmed but for the cap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush

from sidecar.prompt.items import ItemKind, Role
from sidecar.trim.elide import Kept


class Action(StrEnum):
    """What was done to an item. The order is the only one in which an item can change."""

    ELIDED = "elided"
    CLIPPED = "clipped"
    DROPPED = "dropped"


class Reason(StrEnum):
    """Why an item was trimmed."""

    CAP = "cap"
    FIT = "fit"
    RESIDUE = "residue"


@dataclass(slots=True)
class Entry:
    """One item of the history and what was decided about it."""

    message: int
    item: int
    kind: ItemKind
    size: int
    """Bytes of what its tokens are counted from; the same however the agent spells it."""
    full_tokens: int
    tokens: int
    """Tokens that it takes now."""
    stash_id: str
    tool: str = ""
    arguments: str = ""
    """The start of its call's arguments, for the registry."""
    result: int = -1
    holdable: bool = True
    """Whether the stash can hold the original; an item that it cannot hold is not trimmed."""
    action: Action | None = None
    kept: Kept | None = None
    reason: Reason | None = None
    decided: int = 0
    """The iteration in whose prompt the last decision was made."""
    advertised: bool = True
    """Whether its marker shows the id."""
    stored: bool = False
    """Whether the original was handed to the stash."""


@dataclass(slots=True)
class Record:
    """One message of the untrimmed history."""

    role: Role
    identity: bytes
    chain: bytes
    """Digest of the history up to and including this message."""
    entries: tuple[Entry, ...]
    full_tokens: int
    tokens: int
    """Tokens that it takes now; 0 once dropped."""
    group: int
    """The group it belongs to; -1 in the opening."""
    pinned: bool
    calls: tuple[str, ...]
    answers: tuple[str, ...]
    media: int = 0
    dropped: bool = False
    dropped_in: int = 0
    dropped_for: Reason = Reason.RESIDUE
    touched: int = 0
    """Counts the changes of its rendering, so that a reader can tell whether it has the newest."""


@dataclass(slots=True)
class Group:
    """An assistant block and what follows it."""

    start: int
    reach: int
    """The newest group with an answer to one of its calls, itself if none is later: they are dropped together."""
    back: int
    """The oldest group of whose calls it holds an answer, itself if none is older."""
    unanswered: int = 0
    """Calls that nothing has answered yet; such a group is not dropped, as a late answer would be an orphan."""
    pinned: bool = False


class Ledger:
    """A run's records, entries and decisions. Not thread-safe; a run holds it under its lock."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.groups: list[Group] = []
        self.light: list[Entry] = []
        """Arguments and text of assistant messages, oldest first: clipped before anything else."""
        self.heavy: list[Entry] = []
        """Results and images, oldest first."""
        self.light_done = 0
        """Entries of `light` that clipping has passed."""
        self.heavy_done = 0
        self.largest: list[tuple[int, int, int, Entry]] = []
        """Heap of results by tokens, largest first; an item of it is out of date once its entry has other tokens."""
        self.drop_done = 0
        """Groups that dropping has passed."""
        self.total = 0
        """Tokens of all records as they are now."""
        self.media = 0
        """Images in the history."""
        self.evaluated = 0
        """Records that the last evaluation saw."""
        self.batch_end = 0
        """Records that there were at the last batch point; 0: there was none."""
        self.batch_group = -1
        """The group before which the registry stands, in formats that allow it."""
        self.batches = 0
        self.dirty: set[int] = set()
        """Records whose rendering has changed since the caller last cleared this."""
        self.by_id: dict[str, Entry] = {}
        self.not_holdable = 0
        self._open_calls: dict[str, list[int]] = {}

    @property
    def iteration(self) -> int:
        """The iteration of a prompt that ends here: assistant blocks, plus one."""
        return len(self.groups) + 1

    def __len__(self) -> int:
        return len(self.records)

    @property
    def chain(self) -> bytes:
        """Digest of the whole history."""
        return self.records[-1].chain if self.records else b""

    def append(self, record: Record) -> None:
        """Take a message at the end of the history; its group is set here."""
        index = len(self.records)
        if record.role is Role.ASSISTANT and (index == 0 or self.records[-1].role is not Role.ASSISTANT):
            self.groups.append(Group(index, len(self.groups), len(self.groups)))
        record.group = len(self.groups) - 1
        self.records.append(record)
        self.total += record.tokens
        self.media += record.media
        self._pair(record)
        if record.pinned:
            self.pin(index)
        for entry in record.entries:
            self.by_id[entry.stash_id] = entry
            self.not_holdable += not entry.holdable
            if record.group < 0 or record.pinned:
                continue
            if entry.kind in (ItemKind.RESULT, ItemKind.IMAGE):
                self.heavy.append(entry)
                if entry.kind is ItemKind.RESULT:
                    self.offer(entry)
            elif record.role is Role.ASSISTANT and entry.kind in (ItemKind.TEXT, ItemKind.ARGUMENTS):
                self.light.append(entry)

    def offer(self, entry: Entry) -> None:
        """Make a result known to `pop_largest`, with the tokens that it takes now."""
        heappush(self.largest, (-entry.tokens, entry.message, entry.item, entry))

    def pop_largest(self) -> Entry | None:
        """Take the result that takes most tokens, the oldest of equals, out of the choice; None if there is none."""
        while self.largest:
            tokens, _, _, entry = heappop(self.largest)
            if -tokens == entry.tokens and entry.action is not Action.CLIPPED:
                record = self.records[entry.message]
                if not record.dropped and not record.pinned:
                    return entry
        return None

    def pin(self, index: int) -> None:
        """Pin a message: what was trimmed of it stays so, nothing more is."""
        record = self.records[index]
        record.pinned = True
        if record.group >= 0:
            self.groups[record.group].pinned = True

    def set_entry(self, entry: Entry, action: Action, kept: Kept | None, tokens: int, reason: Reason) -> None:
        """Write down a decision about an item."""
        record = self.records[entry.message]
        saved = entry.tokens - tokens
        entry.action, entry.kept, entry.tokens, entry.reason = action, kept, tokens, reason
        entry.decided = self.iteration
        record.tokens -= saved
        record.touched += 1
        self.total -= saved
        self.dirty.add(entry.message)

    def drop(self, group: int, reason: Reason = Reason.RESIDUE) -> bool:
        """Drop a group's messages but the system's; whether there was anything to drop."""
        any_dropped = False
        for index in self.members(group):
            record = self.records[index]
            if record.dropped or record.role in (Role.SYSTEM, Role.OTHER):
                continue
            any_dropped = True
            self.drop_record(index, self.iteration, reason)
        return any_dropped

    def drop_record(self, index: int, iteration: int, reason: Reason = Reason.RESIDUE) -> None:
        """Drop one message."""
        record = self.records[index]
        record.dropped = True
        record.dropped_in = iteration
        record.dropped_for = reason
        record.touched += 1
        self.total -= record.tokens
        self.dirty.add(index)

    def members(self, group: int) -> range:
        """Indices of a group's records."""
        last = self.groups[group + 1].start if group + 1 < len(self.groups) else len(self.records)
        return range(self.groups[group].start, last)

    def trimmed(self) -> Iterator[tuple[Record, Entry]]:
        """Entries that are trimmed, by message."""
        for record in self.records:
            if record.dropped or record.touched:
                for entry in record.entries:
                    if entry.action is not None or record.dropped:
                        yield record, entry

    def rewind(self, length: int) -> None:
        """Forget the history from record `length` on. Decisions about what stays are kept."""
        if length >= len(self.records):
            return
        for record in self.records[length:]:
            for entry in record.entries:
                self.not_holdable -= not entry.holdable
                if self.by_id.get(entry.stash_id) is entry:
                    del self.by_id[entry.stash_id]
        del self.records[length:]
        while self.groups and self.groups[-1].start >= length:
            self.groups.pop()
        for entries in (self.light, self.heavy):
            while entries and entries[-1].message >= length:
                entries.pop()
        self.light_done = min(self.light_done, len(self.light))
        self.heavy_done = min(self.heavy_done, len(self.heavy))
        self.drop_done = min(self.drop_done, len(self.groups))
        self.evaluated = min(self.evaluated, length)
        self.batch_end = min(self.batch_end, length)
        self.batch_group = min(self.batch_group, len(self.groups) - 1)
        self.dirty = {index for index in self.dirty if index < length}
        self._pair_again()
        self._revive_last_unit()
        self.total = sum(record.tokens for record in self.records if not record.dropped)
        self.media = sum(record.media for record in self.records)
        self.rebuild_largest()

    def rebuild_largest(self) -> None:
        """Make the heap of results anew, after entries came or went otherwise than at the end."""
        self.largest = [
            (-entry.tokens, entry.message, entry.item, entry) for entry in self.heavy if entry.kind is ItemKind.RESULT
        ]
        heapify(self.largest)

    def unit_end(self, group: int) -> int:
        """The last group that must be dropped together with `group` and those between."""
        end = group
        while group <= end:
            end = max(end, self.groups[group].reach)
            group += 1
        return end

    def _revive_last_unit(self) -> None:
        """Messages may now follow in the last group; if it was dropped, its calls would lack and it must come back."""
        first = len(self.groups) - 1
        for group in range(first, -1, -1):
            if self.groups[group].reach >= first or group == first:
                first = group
        for group in range(max(first, 0), len(self.groups)):
            for index in self.members(group):
                record = self.records[index]
                if record.dropped:
                    record.dropped = False
                    record.touched += 1
                    self.dirty.add(index)
        self.drop_done = min(self.drop_done, max(first, 0))

    def _pair_again(self) -> None:
        self._open_calls = {}
        for index, group in enumerate(self.groups):
            group.reach, group.back, group.unanswered, group.pinned = index, index, 0, False
        for record in self.records:
            if record.pinned and record.group >= 0:
                self.groups[record.group].pinned = True
            self._pair(record)

    def _pair(self, record: Record) -> None:
        """Match results to calls: a result answers the newest open call with its id."""
        for call_id in record.calls:
            self._open_calls.setdefault(call_id, []).append(record.group)
            if record.group >= 0:
                self.groups[record.group].unanswered += 1
        for call_id in record.answers:
            waiting = self._open_calls.get(call_id)
            if not waiting:
                continue
            group = waiting.pop()
            if group < 0:
                continue
            self.groups[group].unanswered -= 1
            self.groups[group].reach = max(self.groups[group].reach, record.group)
            self.groups[record.group].back = min(self.groups[record.group].back, group)
