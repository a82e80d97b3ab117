"""One run's memory: its history with the decisions, what was sent and returned last, and how a call changes it.

    split ─► read ─► align ─► fold ─► stash ─► render ─► frame
    (body)   (new    (places   (ledger) (originals (slices)  (own text,
             slices)  in the             first)               body)
                      history)

Everything that can fail on the caller's account (a wrong body, a deadline) happens in the first two steps, which change
nothing. Not thread-safe: a run is used under its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from prompt_sidecar.facts.trim_calls import Trim
from prompt_sidecar.prompt.body import equal_slice
from prompt_sidecar.prompt.format import Format, ReasoningRule, Stands
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.tokens.weigh import weigh
from prompt_sidecar.trim import own_text
from prompt_sidecar.trim.entries import Record
from prompt_sidecar.trim.ledger import Ledger, weighed
from prompt_sidecar.trim.own_text import Room
from prompt_sidecar.trim.policy import NotePlace, Policy
from prompt_sidecar.trim.repeated_calls import Repetition
from prompt_sidecar.trim.residue import drop_again
from prompt_sidecar.trim.revision import DIRECTIVES, Revision, apply_state, pack_state
from prompt_sidecar.trim.stages import Evaluation
from prompt_sidecar.turn.alignment import align
from prompt_sidecar.turn.frame import OwnTexts, Places, frame
from prompt_sidecar.turn.news import Gathered
from prompt_sidecar.turn.own_state import OwnState
from prompt_sidecar.turn.prefix import Prefix
from prompt_sidecar.turn.received import OWN, SYSTEM, TOGETHER, Read, Received
from prompt_sidecar.turn.recording import Recorder, Said
from prompt_sidecar.turn.rendering import Rendered, Sources, trims_of
from prompt_sidecar.turn.size_tracker import SizeTracker, around_of
from prompt_sidecar.turn.work import Count, Result, Served, Store, Work

RECORD_AT_ONCE: Final = 128
"""New items handed to the stash in one go, under one lock: 0.3 ms at most, so that no other call waits longer."""


@dataclass(slots=True)
class Memory:
    """See the file's docstring."""

    recorder: Recorder
    ledger: Ledger = field(default_factory=Ledger)
    received: Received | None = None
    rendered: Rendered = field(default_factory=Rendered.empty)
    sent_at: list[int] = field(default_factory=list)
    """For each record its index in the last prompt; -1 if it was absent."""
    system: list[bytes] = field(default_factory=list)
    """The leading system messages of the last prompt, without ours."""
    own: OwnState = field(default_factory=OwnState)
    prefix: Prefix = field(default_factory=Prefix)
    members: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Members of the body that take tokens, as last seen, with their tokens."""
    room_for: tuple[tuple[str, int, Policy], Room] | None = None
    """The room for our own text, with what it follows from."""
    trims: Sequence[Trim] = ()
    labelled: int = 0
    """Of them, those that the note counts: reasoning leaves no label."""
    told: dict[int, list[Trim]] = field(default_factory=dict)
    """For each record that is or was trimmed, its part of `trims`."""
    packed: bytes = b""
    respelled: set[int] = field(default_factory=set)
    """Records that came in other bytes than before, though they decode to a form that is known."""
    size: SizeTracker = field(default_factory=SizeTracker)
    repetitions: list[Repetition] = field(default_factory=list)
    """Repeated calls among the new messages of the call in hand."""
    gathered: Gathered = field(default_factory=Gathered)
    """News of the call in hand."""
    shown: set[str] = field(default_factory=set)
    """Ids that markers and registry have shown."""
    returned: int = 0
    """Records that there were at the last prompt that was returned, as far as they still are. There are more after a
    call that had to end before it was done: what it decided stays, as if its prompt had ended there."""
    ended: bool = False
    """Whether the last call had to end so."""
    batches: int = 0
    listings: int = 0
    recall: bool = True
    """Whether the last prompt's model could recall."""
    sealed_batches: int = -1
    """Batch points of the revision that was applied."""
    returned_at: list[int] = field(default_factory=list)
    """Lengths of the untrimmed histories whose prompts were returned, on the branch at hand; ascending."""

    # -- one call ----------------------------------------------------------------------------------------------------

    def take(self, work: Work, count: Count, store: Store) -> Result:
        """Take a prompt: align, record what is new, decide, stash, render.

        Raises only what `work.check` raises. The records and decisions made until then stay: they are those of the
        prompt's beginning, and as decisions are a fold over the history, the next prompt goes on from there. Nothing is
        returned of them before that.
        """
        known = self.returned
        bound = work.format.reasoning is ReasoningRule.BOUND
        if not self.ended:
            self.gathered, self.repetitions = Gathered(0 if known else work.since), []
        before = self.prefix.place()
        changed_from, first_new = self._align(work)
        if bound and known and self.recall != work.inputs.recall:  # our text comes or goes, in front of all thinking
            self.ledger.moved = True
            work = replace(work, served=Served(iterations=0))
        moved = self.ledger.moved or not bound
        sources = Sources(self.ledger, self.rendered, self.sent, work.format)
        applied = self._extend(work, count, store, sources, first_new)
        changed_from = min(changed_from, known)
        dirty = self.ledger.dirty
        batch = self.ledger.batches != self.batches and applied is not True
        anew = self.ledger.listings != self.listings or self.recall != work.inputs.recall
        self._store(sources, store)
        drop_again(self.ledger, [index for index in dirty if self.sent(index) is None], count)
        rewritten, cut = changed_from < known, min(dirty, default=known) < min(changed_from, known)
        changed_from = min(changed_from, min(dirty, default=changed_from))
        self._render(sources, work)
        if dirty or anew or changed_from < known or not self.own.chosen or applied is True:
            # A registry that was written before the revision is written as it was then.
            as_then = applied is True and work.revision is not None and self.ledger.batches == self.sealed_batches
            then = work.revision if as_then else None
            # Where thinking is bound to it, our text stays as it is when the agent rewrites what comes after it.
            lists = anew or (rewritten and moved) or applied is True
            self._write(work, count, store, lists=lists, then=then)
        self._note(work, count)
        result = self._finish(work, count, changed_from, known)
        # What is told of the trimmed moves at a batch, so the prefix may end before the first message that was trimmed.
        moved = batch and bool(known) and not rewritten and result.kept < before.tokens
        result.batch_point = (cut and applied is not True) or moved
        result.news = self.gathered.news(
            self.prefix.broken(before, result.kept, rewritten=rewritten) if known else None
        )
        around = around_of(
            work.format,
            work.split,
            result.framed,
            self.members,
            overhead=work.inputs.overhead,
            system_messages=len(self.system),
            own_tokens=result.own_tokens,
        )
        result.size = self.size.measure(self.ledger, around, work.inputs.limit, work.inputs.opaque_factor)
        result.repetitions = self.repetitions
        result.compacted = bool(dirty) and applied is not True
        result.revision_applied = applied
        self.batches, self.listings, self.recall = self.ledger.batches, self.ledger.listings, work.inputs.recall
        self.returned = len(self.ledger)
        self.ledger.dirty = set()
        self.returned_at.append(len(self.ledger))
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
        if format_.leading_system:
            for read in reads:
                if read.role is not Role.SYSTEM:
                    break
                tokens += 0 if self.own.is_own(read.identity) else read.tokens
        return tokens

    # -- align -------------------------------------------------------------------------------------------------------

    def _align(self, work: Work) -> tuple[int, int]:
        """Find the prompt's place in the history; the first record that differs, and the first message that is new."""
        before = self.received
        received = Received(work.split, work.reads, [], [], [], [], [])
        if before is not None:
            received.carried = self._carried(before, work.split.same)
        aligned = align(
            received,
            before,
            self.ledger,
            lambda index: self.rendered.known_forms(index, work.format),
            lambda read: self.own.is_own(read.identity),
            leading_system=work.format.leading_system,
        )
        changed = known = len(self.ledger)
        if aligned.kept < known:
            changed = aligned.kept
            self.ledger.rewind(aligned.kept)
            self.returned = min(self.returned, aligned.kept)
            self.shown.intersection_update(self.ledger.by_id)  # an agent that branches for ever must not grow it
            self.recorder.repeated.rewind(aligned.kept)
            self.rendered.cut(aligned.kept)
            self.told = {index: trims for index, trims in self.told.items() if index < aligned.kept}
            del self.sent_at[aligned.kept :]
            self.returned_at = [length for length in self.returned_at if length <= aligned.kept]
        self.received = received
        self._place(received, before, changed)
        for index in work.pinned:
            place = received.places[index] if index < len(received.places) else OWN
            if 0 <= place < changed and not self.ledger.records[place].pinned:
                self.ledger.pin(place)
        return changed, aligned.first_new

    def _extend(self, work: Work, count: Count, store: Store, sources: Sources, first_new: int) -> bool | None:
        """Take the messages that are new, some at a time; see `_fold` for what is returned."""
        received = self.received
        assert received is not None
        evaluation = Evaluation(self.ledger, work.inputs, sources, count, work.count_many)
        received.forget_texts(received.split.same, first_new)
        last = len(received.reads)
        if (work.revision is not None and not len(self.ledger)) or work.served is not None:
            # What it says is said of a whole history: up to there nothing may be decided, nor can a call end.
            pending = self._append(work, received, first_new, last, count, store)
            if work.format.reasoning is ReasoningRule.BOUND:
                self._find_foreign(work, pending)
            applied = self._fold(work, evaluation, pending)
        else:
            applied = None
            self.ended = True
            try:
                for start in range(first_new, last, TOGETHER):
                    work.check()
                    pending = self._append(work, received, start, min(start + TOGETHER, last), count, store)
                    self._fold(work, evaluation, pending)
                if last - first_new > TOGETHER:  # a prompt that brings a few messages is taken whole or not at all
                    work.check()
            except BaseException:
                received.end(len(received.places))
                raise
        evaluation.run()
        self.ended = False
        self.system = []
        for index, place in enumerate(received.places):
            if place >= 0:
                break
            if place == SYSTEM:
                self.system.append(work.split.message(index))
        return applied

    def _carried(self, before: Received, same: int) -> int:
        """How many of the messages that are the same bytes as in the last prompt stand for the same ones.

        Trimmed messages can look alike, so where one was dropped the same bytes may stand for the next one; but not in
        a prompt that has all of the last one and goes on from there.
        """
        if same == len(before.places):
            return same
        records = self.ledger.records
        return next(
            (at for at, place in enumerate(before.places[:same]) if place >= 0 and records[place].dropped), same
        )

    def _append(  # noqa: PLR0915, PLR0917 - one pass, as an unseen prompt has thousands of messages
        self, work: Work, received: Received, first_new: int, last_new: int, count: Count, store: Store
    ) -> list[Record]:
        """Make records of the messages that are new, and places for them; their items go into the run's history."""
        pending: list[Record] = []
        recorded: list[tuple[HistoryItem, bytes]] = []
        plain = Said(work.inputs.policy)
        iteration, last = len(self.ledger.groups), self.ledger.records[-1].role if len(self.ledger) else None
        tokens = received.tokens[-1] if received.tokens else 0
        opaque = received.opaque[-1] if received.opaque else 0
        whole = received.whole[-1] if received.whole else 0
        leading = work.format.leading_system and all(place < 0 for place in received.places)
        for index in range(first_new, last_new):
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
                    weight = weigh([message], lambda texts: [count(text) for text in texts], work.format.call_tokens)[0]
                    read = read._replace(message=message, weight=weight)
                chain = pending[-1].chain if pending else self.ledger.chain
                iteration += read.role is Role.ASSISTANT and last is not Role.ASSISTANT
                last = read.role
                pinned, annotation = index in work.pinned, work.annotations.get(index)
                said = Said(work.inputs.policy, pinned, annotation) if pinned or annotation else plain
                assert read.message is not None
                assert read.weight is not None
                repeated = self.recorder.repeated.observe(read.message, read.weight.items, place, max(iteration, 1))
                self.gathered.repeat(repeated, self.ledger, passes=read.message.untouchable and max(iteration, 1))
                self.repetitions += repeated
                record, items = self.recorder.record(read, raw, place, chain, max(iteration, 1), said=said)
                pending.append(record)
                recorded += [(of_history, work.format.original(raw, item)) for of_history, item in items]
                if len(recorded) >= RECORD_AT_ONCE:
                    store.record(recorded)
                    recorded = []
                self.rendered.append(raw)
                self.sent_at.append(index)
                tokens += read.tokens
                opaque += read.opaque
                whole += 1
            received.places.append(place)
            received.nexts.append(len(self.rendered.slices))
            received.tokens.append(tokens)
            received.opaque.append(opaque)
            received.whole.append(whole)
        if recorded:
            store.record(recorded)
        received.forget_texts(first_new, last_new)
        return pending

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

    def _find_foreign(self, work: Work, pending: Sequence[Record]) -> None:
        """Mark what the model said to prompts that the sidecar did not return, or whose answer the agent never got."""
        served, ledger = work.served, self.ledger
        if served is None:
            return
        known, returned = len(ledger), set(self.returned_at)
        sealed = served.revision
        covered = -1
        if sealed is not None and 0 < sealed.length <= known + len(pending):
            last = sealed.length - 1
            record = ledger.records[last] if last < known else pending[last - known]
            covered = sealed.length if record.chain == sealed.chain else -1
        group, before, foreign = len(ledger.groups), ledger.records[-1].role if known else None, False
        for index, record in enumerate(pending, known):
            if record.role is Role.ASSISTANT:
                if before is not Role.ASSISTANT or index == known:
                    said = served.iterations
                    foreign = group >= said if said is not None else index > covered
                    if said is None and sealed is None:
                        foreign = index not in returned
                    group += before is not Role.ASSISTANT
                record.foreign = foreign
            before = record.role

    # -- decide ------------------------------------------------------------------------------------------------------

    def _fold(self, work: Work, evaluation: Evaluation, pending: list[Record]) -> bool | None:
        """Take new records one by one, evaluating before each assistant message. At the end of all it must be, too.

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
        # An evaluation must not see what comes after it, though all that is pending was observed before.
        repeated: dict[int, list[Repetition]] = {}
        for again in reversed(self.repetitions):
            if again.message < len(ledger):
                break
            repeated.setdefault(again.message, []).append(again)
        for record in pending:
            waiting = sealed is not None and not applied
            # Not again what an earlier call evaluated and returned: the model answered that prompt, so a limit that
            # has come down since may change it only together with what the model said.
            if record.role is Role.ASSISTANT and len(ledger) > ledger.evaluated and not waiting:
                evaluation.run()
            ledger.append(record)
            for again in reversed(repeated.get(len(ledger) - 1, ())):
                ledger.repeated += [(ledger.records[at].entries[item], again.iteration) for at, item in again.older]
            if waiting and sealed is not None and len(ledger) == sealed.length:
                applied = apply_state(ledger, sealed.state)
                self.own.choose(DIRECTIVES[sealed.directives])
                self.sealed_batches = ledger.batches
                if applied:
                    self.gathered.since = ledger.iteration  # what it brings was decided, and told, elsewhere
        return applied

    # -- stash and render --------------------------------------------------------------------------------------------

    def _store(self, sources: Sources, store: Store) -> None:
        """Hand originals to the stash: of what was trimmed just now, and of what expired and has come again."""
        for stash_id in store.missing():
            entry = self.ledger.by_id.get(stash_id)
            came = self.sent(entry.message) if entry is not None else None
            if entry is not None and came is not None and came[1] == self.ledger.records[entry.message].identity:
                item, original = sources.original(entry)
                store.again(stash_id, original, item.content_type)
        for index in sorted(self.ledger.dirty):
            for entry, item, original in sources.originals(self.ledger.records[index]):
                store.put(entry.stash_id, original, item.content_type)
                entry.stored = True

    def _render(self, sources: Sources, work: Work) -> None:
        rendered, ledger = self.rendered, self.ledger
        moved = False
        for index in sorted(ledger.dirty | self.respelled):
            record = ledger.records[index]
            was_dropped = rendered.slices[index] is None
            if record.dropped:
                moved |= not was_dropped
                rendered.known_forms(index, work.format)
                rendered.put(index, None, dropped_before=was_dropped)
                continue
            came = self.sent(index)
            assert came is not None, "what the agent no longer has is dropped"
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

    def _write(self, work: Work, count: Count, store: Store, *, lists: bool, then: Revision | None) -> None:
        """Write anew what depends on decisions; the lists with the room of an earlier call, where they are its own."""
        new = self._tell_trims()
        self.packed = pack_state(self.ledger)
        bound = work.format.reasoning is ReasoningRule.BOUND
        room = 0 if self._has_tail(work) else work.room.note if then is None else then.closing_room
        if bound:  # only what another process writes too: it may know other tasks, and hold other originals
            room = 0
        if lists:
            self.own.closing_room = room
        self.own.write(
            self.ledger,
            work.room,
            count,
            (lambda: ()) if bound else store.dead,
            recall=work.inputs.recall,
            closing=own_text.closing(work.told, room, count) if room else ("", ""),
            lists=lists,
            until=self.ledger.stuck or None if work.format.placement.lists is Stands.INSIDE else self.ledger.listed,
            registry_room=then.registry_room if then is not None else None,
        )
        self.gathered.show(new, self.own.entries if lists else (), self.ledger, self.shown)
        self.gathered.registry_cut = lists and own_text.is_cut(self.own.texts.registry)

    def _note(self, work: Work, count: Count) -> None:
        """Write the note, which is another one at each call."""
        note = ""
        if work.inputs.recall and self._has_tail(work):
            note = own_text.note(self.ledger, self.labelled, work.told, work.room.note, count)
        self.own.tail(note, count)

    @staticmethod
    def _has_tail(work: Work) -> bool:
        # A note that is gone at the next call would stand before thinking that is bound to it.
        bound = work.format.reasoning is ReasoningRule.BOUND
        return work.format.placement.takes_note and not bound and work.inputs.policy.note_place is NotePlace.TAIL

    def _tell_trims(self) -> Sequence[Trim]:
        """List every item that is trimmed; those of records that have not changed are the same objects as before.

        Returns:
            What is new in it.
        """
        told = self.told
        new: list[Trim] = []
        for index in self.ledger.dirty:
            record = self.ledger.records[index]
            trims = trims_of(record)
            new += self.gathered.trim(told.get(index, ()), trims, record)
            told[index] = trims
        self.trims = [trim for index in sorted(told) for trim in told[index]]
        self.labelled = sum(trim.kind is not ItemKind.REASONING for trim in self.trims)
        return new

    def _finish(self, work: Work, count: Count, changed_from: int, known: int) -> Result:
        own, texts = self.own, self.own.texts
        places = self._places() if work.format.placement.lists is Stands.INSIDE else Places(0, 0)
        if work.format.placement.after_user:
            texts = self._standing(texts, places)
        framed = frame(
            work.split,
            self.system,
            self.rendered.parts,
            texts=texts,
            places=places,
            format_=work.format,
            is_own_text=own.is_own_text,
            drop_invalid=work.inputs.policy.reasoning_drop_invalid,
        )
        self.gathered.texts_forgotten += own.remember(work.format, framed.own)
        first, kept = self.prefix.compare(
            work.split,
            framed.sent_system,
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
            opaque_factor=work.inputs.opaque_factor,
        )
        sent = 0
        if self.received is not None and self.received.tokens:
            sent = self.received.tokens[-1] + weighed(self.received.opaque[-1], work.inputs.opaque_factor)
        after = work.inputs.overhead + own.tokens + self.ledger.weight(work.inputs.opaque_factor)
        return Result(framed, own.tokens, sent, after, first, kept, opaque=self.ledger.opaque)

    def _standing(self, texts: OwnTexts, places: Places) -> OwnTexts:
        """Our texts without those that may not stand in their place: between a user's message and the model's.

        That a place is wrong is as sticky as the place.
        """
        live, records = self.rendered.live, self.ledger.records

        def may_stand(at: int) -> bool:
            after_user = at > 0 and records[live[at - 1]].role in (Role.USER, Role.SYSTEM)
            return after_user and (at == len(live) or records[live[at]].role is Role.ASSISTANT)

        return replace(
            texts,
            dropped=texts.dropped if may_stand(places.dropped) else "",
            registry=texts.registry if may_stand(places.registry) else "",
        )

    def _places(self) -> Places:
        groups, batch, held = self.ledger.groups, self.ledger.batch_group, max(self.ledger.held, 0)
        gap = self.rendered.position(groups[held].start if held < len(groups) else len(self.ledger))
        return Places(gap, max(gap, self.rendered.position(groups[batch].start)) if 0 <= batch < len(groups) else gap)
