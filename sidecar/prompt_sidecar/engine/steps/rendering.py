"""The returned prompt: the present bytes of each record, kept between calls, changed where a decision changed.

An untrimmed record is the same slice that was sent. A trimmed one is that slice with items replaced; if the agent
already sent it in the same trimmed form, it is the sent slice again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.engine.steps.received import SentMessage
from prompt_sidecar.facts.trim_calls import Trim
from prompt_sidecar.prompt.ambiguous import whole_too
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format, Replacement
from prompt_sidecar.prompt.items import Item, ItemKind, Message
from prompt_sidecar.prompt.utf8 import utf8
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import Action, Condensing, Entry, Reason, Record
from prompt_sidecar.trim.first_sight import CondensedResult, Condenser, again
from prompt_sidecar.trim.ledger import Ledger

KEPT_BYTES: Final = 1_048_576
"""Least bytes of a message that stays decoded from its recording until the call ends; see `Sources.keep`."""
CONDENSED_BYTES: Final = 8_388_608
"""Bytes of condensed texts that are kept until the call ends, from the decision to the rendering; further ones are
condensed again. A prompt that begins a run with a long history may have more."""
_BARE_LABELS: Final = frozenset({ItemKind.TEXT, ItemKind.RESULT, ItemKind.IMAGE})
"""Kinds of items that are never missing from their message, and for which clipping leaves only a label."""


@dataclass(slots=True)
class RenderedHistory:
    """The history as it is returned."""

    slices: list[bytes | None]
    """For each record its bytes; None once dropped."""
    forms: list[set[bytes]]
    """For each record the identities of the trimmed forms in which it was returned; the present one is added only when
    it is needed: most agents send their own history, never the returned prompts."""
    unidentified: set[int]
    """Records whose present form is not in `forms` yet."""
    live: list[int]
    """Indices of the returned records, in order."""
    parts: list[bytes]
    """The bytes of these records."""
    size: int = 0
    """Total bytes of `parts`."""

    @classmethod
    def empty(cls) -> RenderedHistory:
        """Return an empty history."""
        return cls([], [], set(), [], [])

    def position(self, index: int) -> int:
        """Return the position among the live records of the first one at or after `index`."""
        return bisect_left(self.live, index)

    def cut(self, length: int) -> None:
        """Forget records from `length` on."""
        del self.slices[length:], self.forms[length:]
        self.unidentified = {index for index in self.unidentified if index < length}
        place = self.position(length)
        self.size -= sum(map(len, self.parts[place:]))
        del self.live[place:], self.parts[place:]

    def append(self, raw: bytes) -> None:
        """Add a record at the end, as it was sent."""
        self.live.append(len(self.slices))
        self.parts.append(raw)
        self.size += len(raw)
        self.slices.append(raw)
        self.forms.append(set())

    def known_forms(self, index: int, format_: Format) -> set[bytes]:
        """Return the identities of all trimmed forms in which a record was returned."""
        raw = self.slices[index]
        if index in self.unidentified and raw is not None:
            self.unidentified.discard(index)
            self.forms[index].add(format_.read(raw, "history").identity)
        return self.forms[index]

    def put(self, index: int, raw: bytes | None, *, dropped_before: bool) -> None:
        """Change one record's bytes; call `rebuild` afterwards if it was added or dropped."""
        self.slices[index] = raw
        if raw is not None and not dropped_before:
            place = self.position(index)
            self.size += len(raw) - len(self.parts[place])
            self.parts[place] = raw

    def rebuild(self) -> None:
        """Collect the live records again, after some were dropped or restored."""
        self.live = [index for index, raw in enumerate(self.slices) if raw is not None]
        self.parts = [raw for raw in self.slices if raw is not None]
        self.size = sum(map(len, self.parts))


class PromptMessages:
    """The messages of the current prompt, by their records.

    A separate object: a reference back to the call would keep the call alive until the garbage collector runs. It
    caches the last requested message, as the steps of a call request the same one, whose text may be most of the
    prompt.
    """

    def __init__(self, split: Split, reads: Sequence[SentMessage], sent_at: Sequence[int]) -> None:
        """`sent_at`: for each record the index of its message; -1 if it is not in the prompt."""
        self._split = split
        self._reads = reads
        self._sent_at = sent_at
        self._last = -1, b""

    def __call__(self, index: int) -> tuple[bytes, bytes] | None:
        """Return a record's bytes and identity in the prompt, or None if it is not in it."""
        at = self._sent_at[index]
        return None if at < 0 else (self.message(at), self._reads[at].identity)

    def size(self, at: int) -> int:
        """Return the bytes that a message of the prompt takes."""
        return self._split.ends[at] - self._split.starts[at]

    def message(self, at: int) -> bytes:
        """Return the bytes of a message of the prompt."""
        if self._last[0] != at:
            self._last = at, self._split.message(at)
        return self._last[1]


class Sources:
    """The messages of the current prompt, decoded again where a decision or an edit needs their text.

    Lives for one call at most: a message is decoded once however many of its items are trimmed.
    """

    def __init__(
        self,
        ledger: Ledger,
        rendered: RenderedHistory,
        sent: Callable[[int], tuple[bytes, bytes] | None],
        format_: Format,
        condenser: Condenser | None = None,
    ) -> None:
        self._condenser = condenser
        self._looked: dict[tuple[int, int], CondensedResult | None] = {}
        """The condensed form of results that may be condensed, by message and item; None: they stay unchanged."""
        self._condensed_bytes = 0
        self._ledger = ledger
        self._rendered = rendered
        self._sent = sent
        self._format = format_
        self._decoded: dict[int, tuple[bytes, Message, bool]] = {}
        self._kept = -1

    def keep(self, index: int, raw: bytes, message: Message) -> None:
        """Keep a record's message as it was decoded for recording, if it is large; of several, the last one.

        It will probably be trimmed, and decoding it again takes a third of a call's memory.
        """
        if len(raw) >= KEPT_BYTES:
            self._decoded.pop(self._kept, None)
            self._kept = index
            self._decoded[index] = raw, message, True

    def source(self, index: int) -> tuple[bytes, Message, bool]:
        """Return a record's bytes and message, and whether these are untrimmed."""
        known = self._decoded.get(index)
        if known is None:
            sent = self._sent(index)
            record = self._ledger.records[index]
            returned = self._rendered.slices[index]
            if sent is not None and (sent[1] == record.identity or returned is None):
                raw, whole = sent[0], sent[1] == record.identity
            else:
                assert returned is not None, "a record that was neither sent nor returned has no text"
                raw, whole = returned, False
            known = self._decoded[index] = (raw, self._format.read(raw, "history", identify=False), whole)
        return known

    def _item(self, entry: Entry) -> Item | None:
        """Return an item as the current message has it, or None; only reasoning can be missing."""
        _, message, _ = self.source(entry.message)
        return items_of(self._ledger.records[entry.message], message)[entry.item]

    def _present(self, entry: Entry) -> Item:
        item = self._item(entry)
        assert item is not None, "only reasoning is ever absent"
        return item

    def ends(self, entry: Entry, most: int | None = None) -> tuple[bytes, bytes]:
        """Return the first and last bytes of an item's text: over `most` or all of it, or what its elision keeps."""
        text, kept = self._base(entry), entry.kept
        if kept is not None:
            tail = text[max(0, len(text) - kept.tail) :].encode()
            return text[: kept.head].encode()[: kept.head], tail[max(0, len(tail) - kept.tail) :]
        if most is not None and len(text) > most:
            return text[: most + 1].encode(), text[len(text) - most - 1 :].encode()
        whole = utf8(text)
        return whole, whole

    def base(self, entry: Entry) -> bytes:
        """Return the UTF-8 of the text that an item's elision starts from."""
        return utf8(self._base(entry))

    def _base(self, entry: Entry) -> str:
        text = self._present(entry).text
        how = entry.condensed
        if how is None or not self.source(entry.message)[2]:  # otherwise it was sent as it was returned
            return text
        key = entry.message, entry.item
        made = self._looked.get(key)
        alike = made is not None and (made.how.version, made.how.level, made.how.page, made.advertised) == (
            how.version,
            how.level,
            how.page,
            entry.advertised,
        )
        if made is None or not alike:
            made = CondensedResult(again(entry, text), how, entry.advertised)
            self._keep_made(key, made)
        return made.text

    def look(self, entry: Entry, text: str) -> Condensing | None:
        """Return how a new result is condensed, or None if it stays unchanged."""
        made = None if self._condenser is None else self._condenser.condense(entry, text)
        self._keep_made((entry.message, entry.item), made)
        return None if made is None else made.how

    def condensed(self, entry: Entry) -> Condensing | None:
        """Return how an examined result is condensed, in this call or an interrupted one, or None."""
        key = entry.message, entry.item
        if key not in self._looked:
            return self.look(entry, self._present(entry).text)
        made = self._looked[key]
        return None if made is None else made.how

    def _keep_made(self, key: tuple[int, int], made: CondensedResult | None) -> None:
        if made is not None:
            self._condensed_bytes += made.how.size
            if self._condensed_bytes > CONDENSED_BYTES:
                return
        self._looked[key] = made

    def has(self, entry: Entry) -> bool:
        """Whether the current prompt has an item, whole or trimmed; reasoning may be missing from its message."""
        sent = self._sent(entry.message)
        if sent is None:
            return False
        raw, message, _ = self.source(entry.message)
        if raw != sent[0]:  # an earlier form than the last returned one
            message = self._format.read(sent[0], "history", identify=False)
        return items_of(self._ledger.records[entry.message], message)[entry.item] is not None

    def shown(self, entry: Entry) -> str:
        """Return what the prompt shows of an item, as decided now."""
        if self._sent(entry.message) is None and self._rendered.slices[entry.message] is None:
            return ""  # dropped, and restored by a rewind: it is dropped again, as the agent does not have it any more
        if entry.action is Action.CLIPPED and entry.kind in _BARE_LABELS and not entry.again:
            return self._label(entry) or ""  # without the message that it is in
        item = self._item(entry)
        if item is None:
            return ""
        return item.text if entry.action is None else self._text(entry, item) or ""

    def arguments(self, entry: Entry, label: str) -> str | None:
        """Return arguments that keep their short strings, or None if they become empty."""
        item = self._present(entry)
        return elide.clipped_arguments(item.text, label, free_text=item.free_text)

    def originals(self, record: Record, renew: Callable[[str], bool]) -> list[tuple[Entry, Item, bytes]]:
        """Return a record's originals that must be stored before it is returned trimmed, and are not yet.

        `renew` returns whether an id is stored already, as it was recorded a moment ago: storing it again would need
        its bytes.

        An opaque item is the whole message: it is stored with the first of its parts that is trimmed, as an agent that
        continues from trimmed prompts does not send the whole again.
        """
        touched = record.dropped or any(entry.action is not None for entry in record.entries)
        wanted = [
            entry
            for entry in record.entries
            if not entry.stored
            and not entry.recalled
            and (record.dropped or entry.action is not None or (touched and entry.kind is ItemKind.OPAQUE))
        ]
        for entry in wanted:
            if entry.kind is not ItemKind.REASONING:  # it may be missing: its message shows that
                entry.stored = renew(entry.stash_id)
        wanted = [entry for entry in wanted if not entry.stored]
        if not wanted:
            return []
        # An item that was trimmed before is stored, so the wanted items are whole even if the message was sent back
        # trimmed.
        raw, message, _ = self.source(wanted[0].message)
        items = items_of(record, message)
        found: list[tuple[Entry, Item]] = []
        for entry in wanted:
            item = items[entry.item]
            if item is None:
                continue
            if entry.kind is ItemKind.REASONING:
                entry.stored = renew(entry.stash_id)
            if not entry.stored:
                found.append((entry, item))
        originals = self._format.originals(raw, [item for _, item in found])
        return [(entry, item, original) for (entry, item), original in zip(found, originals, strict=True)]

    def original(self, entry: Entry) -> tuple[Item, bytes]:
        """Return the original of an item whose message is in the prompt, untrimmed."""
        item = self._present(entry)
        return item, self._format.original(self.source(entry.message)[0], item)

    def render(self, index: int, sent: bytes, *, with_reasoning: bool = False) -> bytes:
        """Return a trimmed record's bytes, as an edit of the sent ones.

        `with_reasoning`: keep reasoning even if it was decided to remove it.
        """
        raw, message, _ = self.source(index)
        if raw != sent:
            message = self._format.read(sent, "history", identify=False)
        replacements: dict[Item, Replacement] = {}
        record = self._ledger.records[index]
        items = items_of(record, message)
        for entry in record.entries:
            item = items[entry.item]
            if entry.action is None or item is None or (with_reasoning and entry.kind is ItemKind.REASONING):
                continue
            text = self._text(entry, item)
            empty = "" if item.free_text else "{}"
            shown = empty if text is None else text
            alike = item.kind is entry.kind or (item.kind, entry.kind) == (ItemKind.TEXT, ItemKind.SNAPSHOT)
            if alike and item.text != shown:
                replacements[item] = text
        return self._format.write(sent, replacements) if replacements else sent

    def _text(self, entry: Entry, item: Item) -> Replacement:
        """Return an item's replacement; `item` is as the current message has it, whole or clipped already."""
        label = entry.stash_id if entry.advertised else ""
        if entry.action is Action.CONDENSED:
            return self._base(entry)
        if entry.action is Action.COLLAPSED:
            return elide.collapsed(entry.counts) if entry.counts else elide.COLLAPSED
        if entry.action is Action.CLIPPED or entry.kept is None:
            if entry.kind is ItemKind.REASONING:
                return elide.placeholder(entry.kind, "", entry.size)
            if entry.again:
                return elide.repeated(label, entry.size, entry.again)
            if entry.kind is ItemKind.SNAPSHOT:
                return elide.clipped_snapshot(item.text, label, entry.size)
            if entry.leaves:
                return elide.clipped_arguments(item.text, label, free_text=item.free_text)
            return self._label(entry)
        head, tail = self.ends(entry)
        return elide.elided(head, tail, entry.base_size, entry.kept, label)

    @staticmethod
    def _label(entry: Entry) -> Replacement:
        """Return the replacement of an item that is not kept at all; None: empty arguments."""
        shown = entry.label
        return elide.carrier(shown, entry.counts[0]) if shown and entry.counts else shown


def items_of(record: Record, message: Message) -> Sequence[Item | None]:
    """Return for each entry of a record its item in the current message, which may lack its reasoning.

    Reasoning is removed from a message all at once, so all of it is present or none.
    """
    items = message.items
    if any(entry.kind is ItemKind.OPAQUE for entry in record.entries[-1:]):
        items = whole_too(items)  # a duplicate key is not searched again
    if len(items) == len(record.entries):
        return items
    if record.only_reasoning:
        return (None,) * len(record.entries)
    others = iter(items)
    return [None if entry.kind is ItemKind.REASONING else next(others, None) for entry in record.entries]


def trims_of(record: Record) -> list[Trim]:
    """Return the items of a message that are trimmed now; an opaque item only if its message is dropped."""
    return [_trim(record, entry) for entry in record.entries if record.dropped or entry.action is not None]


def _trim(record: Record, entry: Entry) -> Trim:
    return Trim(
        message_index=entry.message,
        item_index=entry.item,
        kind=entry.kind,
        action=_action(record, entry),
        reason=record.dropped_for if record.dropped else entry.reason or Reason.FIT,
        tokens_saved=entry.full_tokens - (0 if record.dropped else entry.tokens),
        stash_id=entry.stash_id,
        decided_iteration=record.dropped_in if record.dropped else entry.decided,
    )


def _action(record: Record, entry: Entry) -> Action:
    if record.dropped and record.dropped_for is not Reason.FEEDBACK:
        return Action.DROPPED
    return entry.action or Action.CLIPPED
