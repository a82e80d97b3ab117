"""One prompt through one run.

    open ─► align ─► record ─► fold ─► stash ─► render ─► frame
    (body,  (places   (new      (ledger) (originals (slices)  (own text,
     slices) in the    items)             first)               body)
             history)

Every failure that the caller causes (a wrong body, a deadline while it is read) has happened by then, when the prompt
was opened, which changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from prompt_sidecar.engine.steps.alignment import align, carried_rows
from prompt_sidecar.engine.steps.frame import FramedPrompt, OwnTexts, Places, frame
from prompt_sidecar.engine.steps.memory import Brought, ListedItems
from prompt_sidecar.engine.steps.news import GatheredNews
from prompt_sidecar.engine.steps.opening import PromptWork, Served
from prompt_sidecar.engine.steps.own_state import Lists
from prompt_sidecar.engine.steps.prefix import Prefix, Since, compare
from prompt_sidecar.engine.steps.received import FIRST, OWN, SYSTEM, TOGETHER, MessageRow, ReceivedPrompt, forget_texts
from prompt_sidecar.engine.steps.recording import IncomingMessage, MessageAnnotations, is_own_tool
from prompt_sidecar.engine.steps.rendering import PromptMessages, Sources, trims_of
from prompt_sidecar.engine.steps.size_tracker import Around, around_of, of_recall
from prompt_sidecar.facts.history_size import HistorySize
from prompt_sidecar.facts.trim_calls import CacheFigures, News, TokenFigures, Trim
from prompt_sidecar.guard import masks
from prompt_sidecar.prompt.body import equal_slice
from prompt_sidecar.prompt.format import ReasoningRule, Stands
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Role
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.tokens.weigh import Weight, weigh
from prompt_sidecar.trim import own_text
from prompt_sidecar.trim.condense.condensing import VERSION
from prompt_sidecar.trim.elide import KeptBytes, refitted
from prompt_sidecar.trim.entries import CUTS, Condensing, Entry, Record
from prompt_sidecar.trim.first_sight import Condenser
from prompt_sidecar.trim.inputs import aim, too_little_left
from prompt_sidecar.trim.ledger.decisions import weighed
from prompt_sidecar.trim.policy import NotePlace
from prompt_sidecar.trim.repeated_calls import Repetition
from prompt_sidecar.trim.revision import COMPACTED, DIRECTIVES, RULES_9, RULES_10, Revision, apply_state, pack_state
from prompt_sidecar.trim.stages import Evaluation

RECORD_AT_ONCE: Final = 128
"""New items handed to the stash at once, under one lock: 0.3 ms at most, so that no other call waits longer."""
RECORD_BYTES: Final = 1_048_576
"""Bytes of a message whose items are handed over immediately, so that they are not kept together with it."""


class Store(Protocol):
    """Where a run's originals go: the stash, and the history that is searched."""

    def record(self, items: Sequence[tuple[HistoryItem, bytes]]) -> None:
        """Keep new items before any stage changes them. They may be missing later: a budget may evict them.

        `items` and their originals are not changed afterwards.
        """
        ...

    def put(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Store an original that is trimmed now; it must be stored when this returns."""
        ...

    def renew(self, stash_id: str) -> bool:
        """Renew a recorded original: as `put`, without its bytes. Returns False if it is not stored any more."""
        ...

    def again(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Store an original that had expired and was sent again."""
        ...

    def dead(self) -> Collection[str]:
        """Ids that can no longer be retrieved."""
        ...

    def missing(self) -> Sequence[str]:
        """Ids that have expired and were not stored again."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """Result of taking one prompt. Tokens are raw."""

    framed: FramedPrompt
    tokens: TokenFigures
    cache: CacheFigures
    opaque: int
    """Those of the returned tokens that are encrypted text, as counted."""
    untrimmed: int
    """Tokens of the whole prompt without the sidecar: nothing trimmed, and nothing recalled."""
    untrimmed_kept: int
    """Those of them that the previous one began with too."""
    recalls: bool
    """Whether all new results are answers of the sidecar's own tools."""
    same: bool
    """Whether the agent's history, tools and system prompt are the same as in the previous prompt."""
    size: HistorySize
    compacted: bool
    news: News
    rewritten: frozenset[int]
    """Records whose returned bytes may differ from those in the last returned prompt; new ones may be missing."""
    revision_applied: bool | None
    """None if no revision was sent, or this process knew the run."""


def take(work: PromptWork, store: Store) -> Result:
    """Take a prompt into its run's memory: align, record what is new, decide, stash, render.

    Raises only what `work.check` raises. Records and decisions made until then stay: they belong to the prompt's
    beginning, and as decisions are a fold over the history, the next prompt continues from there. None of them is
    returned before that.
    """
    return _Turn(work, store).take()


class _Turn:
    """One prompt on its way through the steps."""

    def __init__(self, work: PromptWork, store: Store) -> None:
        opened = work.opened
        self._work, self._store, self._opened = work, store, opened
        self._count = work.count
        self._format, self._body, self._reads = opened.format, opened.body, opened.reads
        self._memory = memory = opened.memory
        self._bound = opened.format.reasoning is ReasoningRule.BOUND
        self._served = work.served
        self._compaction, self._unseen = opened.compaction, opened.unseen
        self._last = memory.answered
        """The state that the last prompt left."""
        if memory.brought is None:
            memory.brought = Brought(GatheredNews(0 if self._last.records else work.since))
        self._brought = memory.brought
        self._long = False
        """Whether it has many new messages: then the call may end until it is rendered."""
        self._rows: list[MessageRow] = []
        if work.revision is not None:
            memory.recorder.supersedes = work.revision.supersedes
            memory.began_under = work.revision.began_under
            memory.recorder.ids_of_revision = {(place, item): stash_id for place, item, stash_id in work.revision.ids}
        self._use_memory()
        memory.format = opened.format

    def _use_memory(self) -> None:
        memory, opened = self._memory, self._opened
        self._ledger, self._rendered = memory.ledger, memory.rendered
        self._sent = PromptMessages(opened.body, opened.reads, memory.sent_at)
        recall, version = self._work.inputs.recall, VERSION if memory.began_under >= RULES_9 else 1
        condenser = Condenser.of(opened.policy, self._work.count, recall=recall, version=version)
        memory.recorder.repeated.looks = condenser.level is not None
        self._sources = Sources(memory.ledger, memory.rendered, self._sent, opened.format, condenser)

    def take(self) -> Result:
        """See `take`."""
        memory, last, inputs = self._memory, self._last, self._work.inputs
        before, known = memory.received, last.records
        changed_from = self._align(before)
        ledger = self._ledger  # it may be another object now
        if self._bound and known and last.recall != inputs.recall:  # our text is added or removed, before all thinking
            ledger.thinking.own_text_moved()
            self._served = Served(iterations=0)
        moved = ledger.thinking.moved or not self._bound
        applied = self._extend()
        changed_from = agents_first = min(changed_from, known)
        dirty = ledger.decisions.dirty
        relist = ledger.registry.listings != last.listings or last.recall != inputs.recall
        passed = ledger.thinking.looked_from != last.reasoning_from
        self._put_originals()
        ledger.drops.drop_again([index for index in dirty if self._sent(index) is None], self._count)
        # An interrupted call may have rewound the history before this call.
        rewritten, cut = changed_from < last.length, min(dirty, default=known) < min(changed_from, known)
        changed_from = min(changed_from, min(dirty, default=changed_from))
        self._render()
        rewritten_now = frozenset(ledger.decisions.dirty | self._brought.respelled)
        if not memory.own.chosen:
            memory.own.note_waits = self._opened.model.breakpoints
        if dirty or relist or passed or changed_from < last.length or not memory.own.chosen or applied is True:
            # A registry that was written before the revision is written as it was then.
            as_then = applied is True and ledger.registry.batches == memory.sealed_batches
            # Where thinking is bound to our text, the text stays unchanged when the agent rewrites what follows it.
            lists = relist or (rewritten and moved) or applied is True
            self._write(lists=lists, then=self._work.revision if as_then else None)
        self._note()
        framed = self._frame()
        prefix, memory.prefix = memory.prefix, self._prefix(framed)
        since = Since(ledger, self._rendered, changed_from, last.length)
        placement = self._format.placement
        shared = compare(prefix, memory.prefix, since, placement, inputs.opaque_factor, self._count)
        batch = ledger.registry.batches != last.batches and applied is not True
        # The registry moves at a batch, so the prefix may end before the first message that was trimmed.
        moved = batch and bool(known) and not rewritten and shared.kept < prefix.tokens
        broken = memory.prefix.broken(prefix, shared.kept, rewritten=rewritten) if last.length >= 0 else None
        # Decisions after the revision that was loaded; all of that is new to this memory.
        added = applied is True and ledger.registry.batches != memory.sealed_batches
        news = self._brought.news.news(broken, self._schemas())
        size = memory.size.measure(ledger, self._around(framed), inputs.limit, inputs.opaque_factor)
        tokens = self._tokens()
        result = Result(
            framed=framed,
            tokens=tokens,
            cache=CacheFigures(
                first_changed=shared.first_changed,
                kept=shared.kept,
                rewritten=tokens.after - shared.kept,
                batch_point=(cut and applied is not True) or moved or added,
                batch_points=ledger.registry.batches,
            ),
            opaque=ledger.decisions.opaque,
            untrimmed=size.tokens_sent - memory.size.recalls,
            untrimmed_kept=self._untrimmed_kept(prefix, size, agents_first) if last.length >= 0 else 0,
            recalls=self._recalls(known),
            same=agents_first == last.length == len(ledger) and memory.prefix.agents == prefix.agents,
            size=size,
            compacted=bool(news.cuts)
            if applied is True
            else not all(ledger.records[index].only_condensed for index in dirty),
            news=news,
            rewritten=rewritten_now,
            revision_applied=applied,
        )
        memory.returned(inputs.recall)
        return result

    def _tokens(self) -> TokenFigures:
        inputs, ledger, own, model = self._work.inputs, self._ledger, self._memory.own, self._opened.model
        end = self._rows[-1] if self._rows else FIRST
        return TokenFigures(
            before=inputs.overhead + end.tokens + weighed(end.opaque, inputs.opaque_factor),
            after=inputs.overhead + own.tokens + ledger.decisions.weight(inputs.opaque_factor),
            limit=inputs.limit,
            encoding=model.encoding,
            exact=model.exact and not ledger.messages.media,
            factor=1.0,
            own_text=own.tokens,
            window_assumed=model.window_assumed,
            ceiling=below if (below := aim(ledger, inputs)) < inputs.limit else 0,
            protected_leaves=too_little_left(ledger, inputs),
        )

    def _untrimmed_kept(self, last: Prefix, size: HistorySize, stayed: int) -> int:
        """Return the tokens shared with the previous untrimmed prompt; `stayed`: records that both begin with."""
        if self._memory.prefix.agents != last.agents:
            return 0
        new = self._ledger.records[stayed:]
        opaque = weighed(sum(record.full_opaque for record in new), self._work.inputs.opaque_factor)
        added = sum(record.full_tokens - of_recall(record) for record in new)
        return max(0, size.tokens_sent - self._memory.size.recalls - opaque - added)

    def _recalls(self, known: int) -> bool:
        """Whether the model was called only because of the sidecar's own tools."""
        results = [
            entry.tool for record in self._ledger.records[known:] for entry in record.entries if entry.result >= 0
        ]
        return bool(results) and all(map(is_own_tool, results))

    # -- align -------------------------------------------------------------------------------------------------------

    def _align(self, before: ReceivedPrompt | None) -> int:
        """Find the prompt's place in the history. Returns the first record that differs."""
        memory, ledger = self._memory, self._ledger
        carried = carried_rows(before, self._body.same, self._reads, ledger.records) if before is not None else []
        rows = self._rows = align(
            self._reads,
            carried,
            ledger,
            lambda index: self._rendered.known_forms(index, self._format),
            memory.own.is_own,
            leading_system=self._format.leading_system,
            unseen=self._unseen,
        )
        kept = rows[-1].next if rows else 0
        if self._compacts_otherwise(min(kept, len(ledger))):
            self._begin_again(kept)
            return 0
        changed = min(kept, len(ledger))
        if kept < len(ledger):
            memory.rewind(kept, {row.place for row in rows})
        if before is not None:
            self._place(before, len(carried), changed)
        for index in self._opened.call.pinned:
            place = rows[index].place if index < len(rows) else OWN
            if 0 <= place < changed and not ledger.records[place].pinned:
                ledger.pin(place)
        return changed

    def _compacts_otherwise(self, kept: int) -> bool:
        """Whether a provider's newest compaction is not among the `kept` first records."""
        ledger = self._ledger
        if not len(ledger) or self._format.compaction is None:
            return False
        settled = kept  # it is new, and all known messages precede it
        if self._compaction < len(self._rows):
            settled = max(self._rows[self._compaction].place, 0) if self._compaction >= 0 else 0
        return min(ledger.messages.settled, kept) != settled

    def _begin_again(self, kept: int) -> None:
        """Process the whole history again, like a process that has not seen the run.

        What precedes the new compaction stays unchanged from here on, whatever was decided about it.
        """
        self._memory.begin_again(self._work.since, kept)
        assert self._memory.brought is not None
        self._brought = self._memory.brought
        self._rows = []
        self._use_memory()

    def _place(self, before: ReceivedPrompt, same: int, changed: int) -> None:
        """Record where in the prompt each record is, and which known records were sent in other bytes.

        Only moved ones.
        """
        sent_at = self._memory.sent_at
        for row in before.rows[same:]:
            if 0 <= row.place < changed:
                sent_at[row.place] = -1
        for index, row in enumerate(self._rows[same:], same):
            place = row.place
            if place < 0:
                continue
            sent_at[place] = index
            if place < changed and not (
                index < len(before.rows)
                and before.rows[index].place == place
                and equal_slice(self._body, before.split, index)
            ):
                self._brought.respelled.add(place)

    # -- record ------------------------------------------------------------------------------------------------------

    def _extend(self) -> bool | None:
        """Add the new messages, some at a time; see `_fold` for the result."""
        memory, work, reads = self._memory, self._work, self._reads
        evaluation = Evaluation(
            self._ledger,
            work.inputs,
            self._sources,
            self._count,
            work.count_many,
            since_9=memory.began_under >= RULES_9,
            since_10=memory.began_under >= RULES_10,
        )
        first_new, last = len(self._rows), len(reads)
        self._long = last - first_new > TOGETHER  # a prompt with a few new messages is taken whole or not at all
        forget_texts(reads, self._body.same, first_new)
        applied = None
        try:
            if (work.revision is not None and not len(self._ledger)) or self._served is not None:
                # The revision covers a whole history: up to there nothing may be decided, nor can a call end.
                pending = self._append(first_new, last)
                if self._bound:
                    self._find_foreign(pending)
                applied = self._fold(evaluation, pending)
            else:
                for start in range(first_new, last, TOGETHER):
                    work.check()
                    self._fold(evaluation, self._append(start, min(start + TOGETHER, last)))
                self._look()
        finally:
            memory.received = ReceivedPrompt.of(self._body, self._opened.guard.sent, reads, self._rows)
        evaluation.run()
        memory.system = [self._body.message(index) for index in self._leading()]
        self._look()
        return applied

    def _leading(self) -> Iterator[int]:
        """Yield the indices of the agent's leading system messages in the prompt."""
        for index, row in enumerate(self._rows):
            if row.place >= 0:
                return
            if row.place == SYSTEM:
                yield index

    def _look(self) -> None:
        """End a long call here, if its caller does not wait any more."""
        if self._long:
            self._work.check()

    def _append(self, first: int, last: int) -> list[Record]:
        """Make records of new messages, and rows for them; their items are added to the run's history."""
        memory, call, rows = self._memory, self._opened.call, self._rows
        pending: list[Record] = []
        recorded: list[tuple[HistoryItem, bytes]] = []
        plain = MessageAnnotations(self._opened.policy)
        iteration = len(self._ledger.groups)
        speaker = self._ledger.records[-1].role if len(self._ledger) else None
        _, _, tokens, opaque, whole = rows[-1] if rows else FIRST
        leading = self._format.leading_system and all(row.place < 0 for row in rows)
        for index in range(first, last):
            read = self._reads[index]
            place = len(self._rendered.slices)
            if read.role is Role.SYSTEM and memory.own.is_own(read.identity):
                place = OWN
            elif leading and read.role is Role.SYSTEM:
                place = SYSTEM
            else:
                leading = False
                message, weight = self._decoded(index)
                chain = pending[-1].chain if pending else self._ledger.chain
                iteration += read.role is Role.ASSISTANT and speaker is not Role.ASSISTANT
                speaker = read.role
                pinned, annotation = index in call.pinned, call.annotations.get(index)
                annotations = (
                    MessageAnnotations(self._opened.policy, pinned, annotation) if pinned or annotation else plain
                )
                now = max(iteration, 1)
                repeated = memory.recorder.repeated.observe(message, weight.items, place, now)
                self._brought.news.repeat(repeated, self._ledger, passes=message.ambiguous and now)
                size = self._sent.size(index)
                settled, unseen = index < self._compaction, index < self._unseen
                incoming = IncomingMessage(
                    message,
                    weight,
                    size,
                    place,
                    now,
                    self._unmasked(index, place),
                    settled,
                    unseen,
                    self._format.name,
                    opening=not iteration,
                )
                record, items = memory.recorder.record(incoming, chain, annotations)
                self._look_at(record, message, now)
                pending.append(record)
                recorded += self._originals(index, message, items)
                if len(recorded) >= RECORD_AT_ONCE or size > RECORD_BYTES:
                    self._store.record(recorded)
                    recorded = []
                raw = self._sent.message(index)  # not earlier, as it may be as long as everything recorded from it
                self._rendered.append(raw)
                self._sources.keep(place, raw, message)
                memory.sent_at.append(index)
                tokens += weight.total
                opaque += weight.opaque
                whole += 1
            rows.append(MessageRow(place, len(self._rendered.slices), tokens, opaque, whole))
        if recorded:
            self._store.record(recorded)
        forget_texts(self._reads, first, last)
        return pending

    def _decoded(self, index: int) -> tuple[Message, Weight]:
        """Return a message that is new at its place in the history, and its weight."""
        read = self._reads[index]
        message, weight = read.message, read.weight
        if message is None or weight is None:  # known bytes, but now at another place
            message = self._format.read(self._sent.message(index), "history")
            weight = weigh([message], self._work.count_many, self._format.call_tokens)[0]
            weight = weight._replace(total=read.tokens) if read.loads else weight  # with the definitions that it loads
        return message, weight.nothing() if index < self._unseen else weight

    def _look_at(self, record: Record, message: Message, iteration: int) -> None:
        """Collect the news of a new message, and condense its results while their text is decoded.

        The fold decides whether the condensed form is used.
        """
        self._brought.news.record(record, iteration)
        revision = self._work.revision
        for entry in record.entries:
            if entry.condensable and not (record.pinned or (revision is not None and entry.message < revision.length)):
                self._sources.look(entry, message.items[entry.item].text)

    def _originals(
        self, index: int, message: Message, items: Sequence[tuple[HistoryItem, Item]]
    ) -> list[tuple[HistoryItem, bytes]]:
        """Return a message's items for the history, each with its original: as before the guard defanged it."""
        whole = self._opened.guard.originals.get(index)
        if whole is None:
            raw = self._sent.message(index) if any(item.raw_json or item.spelled for _, item in items) else b""
            return self._with_originals(raw, items)
        alike = dict(zip(message.items, self._format.read(whole, "history", identify=False).items, strict=True))
        return self._with_originals(whole, [(of_history, alike[item]) for of_history, item in items])

    def _with_originals(self, raw: bytes, items: Sequence[tuple[HistoryItem, Item]]) -> list[tuple[HistoryItem, bytes]]:
        originals = self._format.originals(raw, [item for _, item in items])
        return [(of_history, original) for (of_history, _), original in zip(items, originals, strict=True)]

    def _unmasked(self, index: int, place: int) -> bytes:
        """Return a message's identity before masking, if the revision's decisions were made then; else empty."""
        revision = self._work.revision
        return self._opened.guard.unmasked.get(index, b"") if revision is not None and place < revision.length else b""

    def _find_foreign(self, pending: Sequence[Record]) -> None:
        """Mark assistant messages that did not answer a prompt we returned, or whose prompt the agent never got."""
        served, ledger = self._served, self._ledger
        if served is None:
            return
        known, returned = len(ledger), self._memory.returned_at
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
                    served_iterations = served.iterations
                    foreign = group >= served_iterations if served_iterations is not None else index > covered
                    if served_iterations is None and sealed is None:
                        at = bisect_left(returned, index)
                        foreign = returned[at : at + 1] != [index]
                    group += before is not Role.ASSISTANT
                record.foreign = foreign and not record.settled
            before = record.role

    # -- decide ------------------------------------------------------------------------------------------------------

    def _fold(self, evaluation: Evaluation, pending: list[Record]) -> bool | None:
        """Append new records one by one, evaluating before each assistant message. The caller must evaluate at the end.

        Returns:
            Whether the revision's decisions were loaded; None if no revision was sent or this process knew the run.
        """
        memory, ledger = self._memory, self._ledger
        sealed = self._work.revision if not len(ledger) else None
        applied: bool | None = None
        if sealed is not None:
            fits = self._goes_on_from(sealed, pending) and sealed.chain in (
                pending[sealed.length - 1].chain,
                self._chain_unmasked(pending[: sealed.length]),
            )
            if not fits or not sealed.state:
                applied, sealed = False, None
        # An evaluation must not see what comes later, though all pending records were observed before.
        repeated: dict[int, list[Repetition]] = {}
        for again in reversed(self._brought.news.repetitions):
            if again.message < len(ledger):
                break
            repeated.setdefault(again.message, []).append(again)
        own = self._memory.own.tokens or self._count(self._work.room.directives)
        for record in pending:
            waiting = sealed is not None and not applied
            # Points that an earlier call evaluated and returned are skipped: the model answered that prompt, so a limit
            # that was lowered since may change it only together with the model's answer. So are points before a
            # compaction: the fold begins with it.
            decides = not (waiting or record.settled or record.compacts)
            if record.role is Role.ASSISTANT and len(ledger) > ledger.decisions.evaluated and decides:
                evaluation.run()
            if waiting or not self._begins(record):
                ledger.append(record)
            else:
                self._append_group(record, own)
            for again in reversed(repeated.get(len(ledger) - 1, ())):
                for at, item in again.older:
                    ledger.queues.repeat(ledger.records[at].entries[item], again.iteration)
            if waiting and sealed is not None and len(ledger) == sealed.length:
                masked_since = bool(self._opened.guard.unmasked)
                applied = apply_state(ledger, sealed, self if masked_since else None)
                if masked_since and applied:
                    self._weigh_masked()
                memory.own.choose(
                    own_text.with_masks(DIRECTIVES[sealed.directives], self._opened.guard.masks),
                    note_waits=sealed.note_waits,
                )
                memory.sealed_batches = ledger.registry.batches
                if applied:
                    ledger.thinking.note_returned()
                    self._brought.news.take_over(ledger.iteration, pending[sealed.length :], sealed.length)
        return applied

    def _goes_on_from(self, sealed: Revision, pending: Sequence[Record]) -> bool:
        """Whether a history may continue from a revision of its beginning.

        Not if there was a compaction since, nor if the provider drops what earlier rules counted and trimmed.
        """
        if not 0 < sealed.length <= len(pending):
            return False
        if pending[sealed.length - 1].settled:
            return False
        return not (sealed.version < COMPACTED and any(record.unseen for record in pending[: sealed.length]))

    def _chain_unmasked(self, records: Sequence[Record]) -> bytes:
        """Return the chain digest of a history as it was sent, masked or not."""
        recorder, unmasked, sent_at = self._memory.recorder, self._opened.guard.unmasked, self._memory.sent_at
        chain = b""
        for place, record in enumerate(records if unmasked else ()):
            chain = recorder.chain(chain, unmasked.get(sent_at[place], record.identity))
        return chain

    def _is_masked_since(self, entry: Entry) -> bool:
        return self._memory.sent_at[entry.message] in self._opened.guard.unmasked

    def kept(self, entry: Entry, kept: KeptBytes) -> KeptBytes | None:
        """See `Fit`."""
        if not self._is_masked_since(entry):
            return kept
        return refitted(self._sources.base(entry), kept, masks.OPENING.encode(), masks.CLOSING.encode())

    def condensed(self, entry: Entry, how: Condensing) -> Condensing:
        """See `Fit`."""
        if not self._is_masked_since(entry):
            return how
        text = self._sources.base(entry)
        return replace(how, size=len(text), tokens=self._count(text.decode()))

    def _weigh_masked(self) -> None:
        """Count the visible tokens of trimmed items whose messages were masked since."""
        ledger = self._ledger
        for index, record in enumerate(ledger.records):
            if record.dropped or self._memory.sent_at[index] not in self._opened.guard.unmasked:
                continue
            for entry in record.entries:
                if entry.action is not None and entry.kind is not ItemKind.REASONING:
                    ledger.decisions.set_tokens(entry, self._count(self._sources.shown(entry)))

    def _begins(self, record: Record) -> bool:
        """Whether a record, the next one, begins a group."""
        records = self._ledger.records
        return record.role is Role.ASSISTANT and not (records and records[-1].role is Role.ASSISTANT)

    def _append_group(self, record: Record, own: int) -> None:
        """Append a record that begins a group, and sum up the tokens of the prompt that it answers.

        Args:
            record: the record.
            own: tokens of our own text in that prompt.
        """
        ledger, inputs = self._ledger, self._work.inputs
        asked = inputs.overhead + own + ledger.decisions.weight(inputs.opaque_factor)
        output_tokens = 0
        if ledger.groups:
            last = ledger.groups[-1]
            asked += last.asked
            answers = (each for each in ledger.records[last.start :] if each.role is Role.ASSISTANT)
            output_tokens = last.output_tokens + sum(each.full_tokens for each in answers)
        ledger.append(record)
        ledger.messages.answer(asked, output_tokens)

    # -- stash and render --------------------------------------------------------------------------------------------

    def _put_originals(self) -> None:
        """Store originals: of items trimmed just now, and of items that expired and were sent again."""
        ledger, store = self._ledger, self._store
        for stash_id in store.missing():
            entry = ledger.messages.by_id.get(stash_id)
            sent = self._sent(entry.message) if entry is not None else None
            if entry is not None and sent is not None and sent[1] == ledger.records[entry.message].identity:
                item, original = self._sources.original(entry)
                store.again(stash_id, original, item.content_type)
        for index in sorted(ledger.decisions.dirty):
            for entry, item, original in self._sources.originals(ledger.records[index], store.renew):
                store.put(entry.stash_id, original, item.content_type)
                entry.stored = True
            self._look()

    def _render(self) -> None:
        rendered, ledger = self._rendered, self._ledger
        moved = False
        for index in sorted(ledger.decisions.dirty | self._brought.respelled):
            record = ledger.records[index]
            was_dropped = rendered.slices[index] is None
            if record.dropped:
                moved |= not was_dropped
                rendered.known_forms(index, self._format)
                rendered.put(index, None, dropped_before=was_dropped)
                continue
            sent = self._sent(index)
            if sent is None:
                raise RuntimeError("what the agent no longer has is dropped")
            raw = self._sources.render(index, sent[0]) if record.touched else sent[0]
            if index in ledger.decisions.dirty:
                rendered.known_forms(index, self._format)  # the form that is replaced: a slow agent may still send it
                rendered.unidentified.add(index)
            moved |= was_dropped
            rendered.put(index, raw, dropped_before=was_dropped)
        if moved:
            rendered.rebuild()

    # -- our own text ------------------------------------------------------------------------------------------------

    def _write(self, *, lists: bool, then: Revision | None) -> None:
        """Write texts that depend on decisions again; `then`: the revision with whose room the lists were written."""
        memory, own = self._memory, self._memory.own
        new = self._list_trims()
        how = self._lists(then) if lists else None
        own.write(self._ledger, self._work.room.directives, self._count, recall=self._work.inputs.recall, lists=how)
        self._brought.news.show(new, own.entries if lists else (), self._ledger, memory.shown)
        self._brought.news.registry_cut = lists and own_text.is_cut(own.texts.registry)

    def _lists(self, then: Revision | None) -> Lists:
        """Return how the lists are written; with the room of an earlier call if they belong to that call."""
        work, registry = self._work, self._ledger.registry
        room = 0 if self._has_tail() else work.room.note if then is None else then.closing_room
        if self._bound:  # only what another process writes too: it may know other tasks, and hold other originals
            room = 0
        return Lists(
            registry_room=work.room.registry if then is None else then.registry_room,
            closing_room=room,
            closing=own_text.closing(work.shown, room, self._count) if room else ("", ""),
            until=registry.unfit_since or None if self._format.placement.lists is Stands.INSIDE else registry.listed,
            dead=tuple if self._bound else self._store.dead,
        )

    def _note(self) -> None:
        """Write the note, which differs at each call, unless the prompt ends in the middle of a turn."""
        note, work = "", self._work
        if work.inputs.recall and self._has_tail() and not self._is_unfinished():
            labelled = self._memory.listed.labelled
            note = own_text.note(self._ledger, labelled, work.shown, work.room.note, self._count)
        self._memory.own.tail(note, self._count)

    def _has_tail(self) -> bool:
        # A note that is missing at the next call would precede thinking that is bound to it.
        takes_note = self._format.placement.takes_note and not (self._bound or self._memory.own.note_waits)
        return takes_note and self._opened.policy.note_place is NotePlace.TAIL

    def _is_unfinished(self) -> bool:
        """Whether the prompt ends in a message of the model, between results of its calls, or in a final message.

        Nothing may be placed between a call and its result, nor after a message that the model is to continue, nor
        after one that must be the last. A result that names no call is ignored, as services that accept such results
        would otherwise never get a note.
        """
        ledger = self._ledger
        if ledger.records and ledger.records[-1].final:
            return True
        if not ledger.groups:
            return False
        last = ledger.records[-1]
        if last.role is Role.ASSISTANT:
            return True
        return bool(last.answers) and all(last.answers) and ledger.groups[-1].unanswered > 0

    def _list_trims(self) -> Sequence[Trim]:
        """List every trimmed item; those of unchanged records are the same objects as before.

        Returns:
            The new trims.
        """
        memory, listed = self._memory, self._memory.trims_by_record
        new: list[Trim] = []
        for index in self._ledger.decisions.dirty:
            record = self._ledger.records[index]
            trims = trims_of(record)
            new += self._brought.news.trim(listed.get(index, ()), trims, record)
            listed[index] = trims
        trims = [trim for index in sorted(listed) for trim in listed[index]]
        labelled = sum(trim.kind is not ItemKind.REASONING and trim.action in CUTS for trim in trims)
        memory.listed = ListedItems(trims, labelled, pack_state(self._ledger))
        return new

    # -- frame -------------------------------------------------------------------------------------------------------

    def _frame(self) -> FramedPrompt:
        """Build the prompt, and remember our texts so that they are recognised when sent back."""
        own, placement = self._memory.own, self._format.placement
        places = self._places() if placement.lists is Stands.INSIDE else Places(0, 0)
        framed = frame(
            self._body,
            self._memory.system,
            self._rendered.parts,
            texts=self._standing(own.texts, places) if placement.after_user else own.texts,
            places=places,
            format_=self._format,
            is_own_text=own.is_own_text,
            drop_invalid=self._opened.policy.reasoning_drop_invalid,
        )
        self._brought.news.texts_forgotten += own.remember(self._format, framed.own)
        return framed

    def _prefix(self, framed: FramedPrompt) -> Prefix:
        """Return the prompt in the form for comparing the next one."""
        memory, inputs = self._memory, self._work.inputs
        leading = tuple(self._reads[index].identity for index in self._leading())
        return Prefix(
            agents=(self._schemas(), memory.same_system(framed.sent_system), leading),
            texts=replace(memory.own.texts, note=""),
            places=framed.places,
            system_messages=len(memory.system),
            overhead=inputs.overhead,
            tokens=inputs.overhead
            + self._ledger.decisions.weight(inputs.opaque_factor)
            + memory.own.tokens
            - memory.own.note_tokens,
        )

    def _schemas(self) -> tuple[bytes | None, ...]:
        """The body's members that define tools and the shape of the answer."""
        return tuple(self._body.field(name) for name in self._format.tool_fields)

    def _around(self, framed: FramedPrompt) -> Around:
        """Return the part around the history, for measuring its size."""
        memory, body, format_ = self._memory, self._body, self._format
        return around_of(
            format_,
            body,
            framed,
            memory.members,
            overhead=self._work.inputs.overhead,
            system_messages=len(memory.system),
            own_tokens=memory.own.tokens,
        )

    def _standing(self, texts: OwnTexts, places: Places) -> OwnTexts:
        """Return our texts without those whose place is not allowed: between a user's message and the model's.

        Texts at one place form one message, as some services do not accept two in a row; for the same reason none is
        placed next to a system message of the agent's. A place that is not allowed stays so as long as the place does.
        """
        live, records = self._rendered.live, self._ledger.records

        def may_stand(at: int) -> bool:
            after_user = at > 0 and records[live[at - 1]].role is Role.USER
            return after_user and (at == len(live) or records[live[at]].role is Role.ASSISTANT)

        standing = replace(
            texts,
            dropped=texts.dropped if may_stand(places.dropped) else "",
            registry=texts.registry if may_stand(places.registry) else "",
        )
        if standing.joined and places.dropped == places.registry:
            return replace(standing, dropped="", registry=standing.joined)
        return standing

    def _places(self) -> Places:
        ledger = self._ledger
        groups, batch, held = ledger.groups, ledger.registry.batch_group, ledger.own_from
        live = self._rendered.live
        end = len(ledger) - bool(live and ledger.records[live[-1]].final)
        gap = self._rendered.position(groups[held].start if held < len(groups) else end)
        return Places(gap, max(gap, self._rendered.position(groups[batch].start)) if 0 <= batch < len(groups) else gap)
