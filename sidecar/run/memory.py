"""One run's memory: its history with the decisions, what was sent and returned last, and how a call changes it.

    split ─► read ─► align ─► fold ─► stash ─► render ─► frame
    (body)   (new    (places   (ledger) (originals (slices)  (own text,
             slices)  in the             first)               body)
                      history)

Everything that can fail on the caller's account (a wrong body, a deadline) happens in the first two steps, which change
nothing. Not thread-safe: a run is used under its lock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from sidecar.prompt.body import equal_slice
from sidecar.prompt.format import Format
from sidecar.prompt.items import Item, ItemKind, Role
from sidecar.prompt.jsontext import digest
from sidecar.run.calls import Trim
from sidecar.run.frame import Places, frame
from sidecar.run.history import align
from sidecar.run.own_state import OwnState
from sidecar.run.prefix import Prefix
from sidecar.run.received import OWN, SYSTEM, Read, Received
from sidecar.run.rendering import Rendered, Sources, trims_of
from sidecar.run.weigh import weigh
from sidecar.run.work import Count, Put, Result, Work
from sidecar.trim import own_text
from sidecar.trim.ids import mint
from sidecar.trim.ledger import Entry, Ledger, Record
from sidecar.trim.own_text import Room
from sidecar.trim.policy import NotePlace, Policy
from sidecar.trim.revision import DIRECTIVES, apply_state, pack_state
from sidecar.trim.stages import Evaluation

NEVER: Final = sys.maxsize


@dataclass(slots=True)
class Memory:
    """See the file's docstring."""

    of_run: bytes
    """The run's key for ids."""
    hold_bytes: int
    """Bytes of the largest original that the stash can hold."""
    ledger: Ledger = field(default_factory=Ledger)
    received: Received | None = None
    rendered: Rendered = field(default_factory=Rendered.empty)
    sent_at: list[int] = field(default_factory=list)
    """For each record its index in the last prompt; -1 if it was absent."""
    system: list[bytes] = field(default_factory=list)
    """The leading system messages of the last prompt, without ours."""
    own: OwnState = field(default_factory=OwnState)
    prefix: Prefix = field(default_factory=Prefix)
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For each call id, newest first to be found: the tool's name and the start of its arguments."""
    members: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Members of the body that take tokens, as last seen, with their tokens."""
    room_for: tuple[tuple[str, int, Policy], Room] | None = None
    """The room for our own text, with what it follows from."""
    trims: Sequence[Trim] = ()
    dropped_at: int = NEVER
    """The first message of the last prompt whose record was dropped by it."""
    told: dict[int, list[Trim]] = field(default_factory=dict)
    """For each record that is or was trimmed, its part of `trims`."""
    packed: bytes = b""
    respelled: set[int] = field(default_factory=set)
    """Records that came in other bytes than before, though they decode to a form that is known."""
    batches: int = 0
    sealed_batches: int = -1
    """Batch points of the revision that was applied."""

    # -- one call ----------------------------------------------------------------------------------------------------

    def take(
        self, work: Work, count: Count, put: Put, dead: Callable[[], Collection[str]], missing: Sequence[str]
    ) -> Result:
        """Take a prompt: align it, decide, stash, render. Raises nothing on the caller's account."""
        known = len(self.ledger)
        changed_from, pending = self._align(work, count)
        sources = Sources(self.ledger, self.rendered, self.sent, work.format)
        applied = self._fold(work, count, sources, pending)
        dirty = self.ledger.dirty
        batch_point = self.ledger.batches != self.batches and applied is not True
        self._store(sources, put, missing)
        changed_from = min(changed_from, min(dirty, default=changed_from))
        self._render(sources, work)
        if dirty or changed_from < known or not self.own.chosen or applied is True:
            # A registry that was written before the revision is written as it was then.
            as_then = applied is True and work.revision is not None and self.ledger.batches == self.sealed_batches
            self._write(
                work,
                count,
                dead,
                lists=batch_point or changed_from < known or applied is True,
                registry_room=work.revision.registry_room if as_then and work.revision is not None else None,
            )
        result = self._finish(work, count, changed_from, known)
        result.batch_point = batch_point
        result.compacted = bool(dirty) and applied is not True
        result.revision_applied = applied
        self.batches = self.ledger.batches
        self.ledger.dirty = set()
        return result

    def sent(self, index: int) -> tuple[bytes, bytes] | None:
        """A record's bytes and identity as the last prompt had them; None if it was absent."""
        at = self.sent_at[index]
        if at < 0 or self.received is None:
            return None
        return self.received.split.message(at), self.received.reads[at].identity

    def member_tokens(self, name: str, value: bytes, weigh_member: Callable[[bytes], int]) -> int:
        """Tokens of a member of the body, counted only when it has changed."""
        known = self.members.get(name)
        if known is None or known[0] != value:
            known = self.members[name] = (value, weigh_member(value))
        return known[1]

    def room(self, encoding: str, limit: int, policy: Policy, count: Count) -> Room:
        """The room for our own text, worked out only when what it follows from has changed."""
        asked = (encoding, limit, policy)
        if self.room_for is None or self.room_for[0] != asked:
            made = own_text.room(
                limit, policy.own_text_max_tokens, policy.note_max_tokens, policy.registry_share, count
            )
            self.room_for = (asked, made)
        return self.room_for[1]

    def leading_tokens(self, reads: Sequence[Read], format_: Format) -> int:
        """Tokens of the leading system messages that are not ours."""
        tokens = 0
        if format_.system_message is not None:
            for read in reads:
                if read.role is not Role.SYSTEM:
                    break
                tokens += 0 if self.own.is_own(read.identity) else read.tokens
        return tokens

    # -- align -------------------------------------------------------------------------------------------------------

    def _align(self, work: Work, count: Count) -> tuple[int, list[Record]]:
        """Find the prompt's place in the history; the first record that differs, and the records that are new."""
        before = self.received
        received = Received(work.split, work.reads, [], [], [], [])
        if before is not None:
            # Trimmed messages can look alike, so where one was dropped the same bytes may stand for the next one.
            received.carried = min(work.split.same, self.dropped_at)
        self.dropped_at = NEVER
        zone = work.format.system_message is not None
        aligned = align(
            received,
            before,
            self.ledger,
            lambda index: self.rendered.known_forms(index, work.format),
            lambda read: self.own.is_own(read.identity),
            leading_system=zone,
        )
        changed = known = len(self.ledger)
        if aligned.kept < known:
            changed = aligned.kept
            self.ledger.rewind(aligned.kept)
            self.rendered.cut(aligned.kept)
            del self.sent_at[aligned.kept :]
        self.received = received
        pending = self._append(work, received, aligned.first_new, count)
        self._place(received, before, changed)
        self.system = []
        for index, place in enumerate(received.places):
            if place >= 0:
                break
            if place == SYSTEM:
                self.system.append(work.split.message(index))
        for index in work.pinned:
            place = received.places[index]
            if 0 <= place < changed and not self.ledger.records[place].pinned:
                self.ledger.pin(place)
        return changed, pending

    def _append(self, work: Work, received: Received, first_new: int, count: Count) -> list[Record]:
        """Make records of the messages that are new, and places for them."""
        pending: list[Record] = []
        tokens = received.tokens[-1] if received.tokens else 0
        whole = received.whole[-1] if received.whole else 0
        leading = work.format.system_message is not None and all(place < 0 for place in received.places)
        for index in range(first_new, len(received.reads)):
            read = received.reads[index]
            place = len(self.rendered.slices)
            if read.role is Role.SYSTEM and self.own.is_own(read.identity):
                place = OWN
            elif leading and read.role is Role.SYSTEM:
                place = SYSTEM
            else:
                leading = False
                raw = work.split.message(index)
                if read.message is None or read.weight is None:  # known bytes, but now at another place in the history
                    message = work.format.read(raw, "history")
                    weight = weigh([message], lambda texts: [count(text) for text in texts])[0]
                    read = Read(read.identity, read.tokens, read.role, message, weight)
                chain = pending[-1].chain if pending else self.ledger.chain
                pending.append(self._record(read, raw, place, chain, pinned=index in work.pinned))
                self.rendered.append(raw)
                self.sent_at.append(index)
                tokens += read.tokens
                whole += 1
            received.places.append(place)
            received.nexts.append(len(self.rendered.slices))
            received.tokens.append(tokens)
            received.whole.append(whole)
        for index in range(received.split.same, len(received.reads)):
            read = received.reads[index]
            if read.message is not None:  # its text is not kept
                received.reads[index] = Read(read.identity, read.tokens, read.role)
        return pending

    def _record(self, read: Read, raw: bytes, index: int, chain: bytes, *, pinned: bool) -> Record:
        message, weight = read.message, read.weight
        assert message is not None
        assert weight is not None
        entries = tuple(
            self._entry(item, index, number, tokens=weight.items[number], identity=read.identity, whole=len(raw))
            for number, item in enumerate(message.items)
        )
        return Record(
            role=read.role,
            identity=read.identity,
            chain=digest(chain + read.identity),
            entries=entries,
            full_tokens=weight.total,
            tokens=weight.total,
            group=-1,
            pinned=pinned,
            calls=message.calls,
            answers=message.answers,
            media=message.media,
        )

    def _entry(self, item: Item, index: int, number: int, *, tokens: int, identity: bytes, whole: int) -> Entry:
        call = item.call_id
        if item.kind is ItemKind.ARGUMENTS:
            tool, arguments = item.tool, item.text[: own_text.ARGUMENTS_CHARACTERS]
            self.calls[call] = (tool[: own_text.NAME_CHARACTERS + 1], arguments)
        elif item.result >= 0:
            tool, arguments = self.calls.get(call, (item.tool[: own_text.NAME_CHARACTERS + 1], ""))
        else:
            tool = arguments = ""
        size = len(item.text) if item.text.isascii() else len(item.text.encode())
        if item.kind is ItemKind.OPAQUE:
            size = whole
        return Entry(
            message=index,
            item=number,
            kind=item.kind,
            size=size,
            full_tokens=tokens,
            tokens=tokens,
            stash_id=mint(self.of_run, index, number, identity),
            tool=tool,
            arguments=arguments,
            result=item.result,
            # An original that is raw JSON is as long as it is spelled: at most as the message that it stands in.
            holdable=(whole if item.raw_json else size) <= self.hold_bytes,
        )

    def _place(self, received: Received, before: Received | None, changed: int) -> None:
        """Note where in the prompt each record stands, and which known ones came in other bytes. Only what moved."""
        if before is None:
            return
        same = received.carried
        for place in before.places[same:]:
            if 0 <= place < changed:
                self.sent_at[place] = -1
        for index in range(same, len(received.places)):
            place = received.places[index]
            if place < 0:
                continue
            self.sent_at[place] = index
            if place < changed and not (
                index < len(before.places)
                and before.places[index] == place
                and equal_slice(received.split, before.split, index)
            ):
                self.respelled.add(place)

    # -- decide ------------------------------------------------------------------------------------------------------

    def _fold(self, work: Work, count: Count, sources: Sources, pending: list[Record]) -> bool | None:
        """Take new records one by one, evaluating before each assistant message and at the end.

        Returns:
            Whether the revision's decisions were taken; None if none was sent or this process knew the run.
        """
        ledger = self.ledger
        sealed = work.revision if not len(ledger) else None
        applied: bool | None = None
        if sealed is not None:
            fits = 0 < sealed.length <= len(pending) and pending[sealed.length - 1].chain == sealed.chain
            if not fits or not sealed.state:
                applied, sealed = False, None
        evaluation = Evaluation(ledger, work.inputs, sources, count, work.count_many)
        for record in pending:
            waiting = sealed is not None and not applied
            if record.role is Role.ASSISTANT and len(ledger) and not waiting:
                evaluation.run()
            ledger.append(record)
            if waiting and sealed is not None and len(ledger) == sealed.length:
                applied = apply_state(ledger, sealed.state)
                self.own.choose(DIRECTIVES[sealed.directives])
                self.sealed_batches = ledger.batches
        evaluation.run()
        return applied

    # -- stash and render --------------------------------------------------------------------------------------------

    def _store(self, sources: Sources, put: Put, missing: Sequence[str]) -> None:
        """Hand originals to the stash: of what was trimmed just now, and of what expired and has come again."""
        indices = set(self.ledger.dirty)
        for stash_id in missing:
            entry = self.ledger.by_id.get(stash_id)
            if entry is None:
                continue
            came = self.sent(entry.message)
            if came is not None and came[1] == self.ledger.records[entry.message].identity:
                entry.stored = False
                indices.add(entry.message)
        for index in sorted(indices):
            for entry, item, original in sources.originals(self.ledger.records[index]):
                put(entry.stash_id, original, item.content_type)
                entry.stored = True

    def _render(self, sources: Sources, work: Work) -> None:
        rendered, ledger = self.rendered, self.ledger
        moved = False
        for index in sorted(ledger.dirty | self.respelled):
            record = ledger.records[index]
            was_dropped = rendered.slices[index] is None
            if record.dropped:
                moved |= not was_dropped
                if self.sent_at[index] >= 0:
                    self.dropped_at = min(self.dropped_at, self.sent_at[index])
                rendered.known_forms(index, work.format)
                rendered.put(index, None, dropped_before=was_dropped)
                continue
            came = self.sent(index)
            if came is None:  # a rewind brought it back, but the agent no longer has it
                ledger.drop_record(index, record.dropped_in, record.dropped_for)
                continue
            raw = sources.render(index, came[0]) if record.touched else came[0]
            if index in ledger.dirty:
                rendered.known_forms(index, work.format)  # the form that goes: a slow agent may still send it
                rendered.unidentified.add(index)
            moved |= was_dropped
            rendered.put(index, raw, dropped_before=was_dropped)
        if moved:
            rendered.rebuild()
        self.respelled = set()

    # -- what is returned --------------------------------------------------------------------------------------------

    def _write(
        self,
        work: Work,
        count: Count,
        dead: Callable[[], Collection[str]],
        *,
        lists: bool,
        registry_room: int | None,
    ) -> None:
        """Write anew what depends on decisions."""
        self._tell_trims()
        self.packed = pack_state(self.ledger)
        self.own.write(
            self.ledger,
            len(self.trims),
            work.room,
            count,
            dead,
            recall=work.inputs.recall,
            note=work.inputs.policy.note_place is NotePlace.TAIL and work.format.system_message is not None,
            lists=lists,
            registry_room=registry_room,
        )

    def _tell_trims(self) -> None:
        """List every item that is trimmed; those of records that have not changed are the same objects as before."""
        told = self.told
        for index in [index for index in told if index >= len(self.ledger)]:
            del told[index]
        for index in self.ledger.dirty:
            record = self.ledger.records[index]
            told[index] = trims_of(record)
        self.trims = [trim for index in sorted(told) for trim in told[index]]

    def _finish(self, work: Work, count: Count, changed_from: int, known: int) -> Result:
        own, texts = self.own, self.own.texts
        places = self._places()
        framed = frame(
            work.split,
            self.system,
            self.rendered.parts,
            texts=texts,
            places=places,
            format_=work.format,
            is_own_text=own.is_own_text,
        )
        own.remember(work.format, framed.own)
        first, kept = self.prefix.compare(
            work.split,
            self.system,
            work.format,
            own,
            places=places,
            rendered=self.rendered,
            ledger=self.ledger,
            overhead=work.inputs.overhead,
            changed_from=changed_from,
            known=known,
            count=count,
        )
        tokens = self.received.tokens if self.received is not None else []
        after = work.inputs.overhead + self.ledger.total + own.tokens
        return Result(framed, own.tokens, tokens[-1] if tokens else 0, after, first, kept)

    def _places(self) -> Places:
        groups = self.ledger.groups
        opening = self.rendered.position(groups[0].start if groups else len(self.ledger))
        batch = self.ledger.batch_group
        return Places(opening, self.rendered.position(groups[batch].start) if 0 <= batch < len(groups) else opening)
