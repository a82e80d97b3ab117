"""One run's memory: its history with the decisions, and the last sent and returned prompt.

All of it is a cache of a fold over the messages: if it is forgotten, the next prompt builds the same memory again.
`turn.py` takes a prompt through it. Not thread-safe: a run is used under its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from prompt_sidecar.engine.steps.news import GatheredNews
from prompt_sidecar.engine.steps.own_state import OwnState
from prompt_sidecar.engine.steps.prefix import Prefix
from prompt_sidecar.engine.steps.received import ReceivedPrompt, SentMessage
from prompt_sidecar.engine.steps.recording import Recorder
from prompt_sidecar.engine.steps.rendering import RenderedHistory
from prompt_sidecar.engine.steps.size_tracker import SizeTracker
from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.facts.recall_calls import InPrompt
from prompt_sidecar.facts.trim_calls import Trim
from prompt_sidecar.prompt.ambiguous import load_any
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.prompt.jsontext import canonical, digest
from prompt_sidecar.providers.messages import unmarked
from prompt_sidecar.trim import own_text
from prompt_sidecar.trim.entries import Entry
from prompt_sidecar.trim.ids import mint
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.own_text import Room
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.revision import RULES

PIECE: Final = 4_096
"""Messages that are freed at once: a few milliseconds."""


@dataclass(frozen=True, slots=True)
class AnsweredHistory:
    """The history as of the last returned prompt."""

    records: int = 0
    """Number of records then, without those forgotten since. An interrupted call has added more: its decisions stay, as
    if its prompt had ended there."""
    batches: int = 0
    listings: int = 0
    reasoning_from: int = 0
    recall: bool = True
    """Whether the prompt's model could recall."""
    length: int = -1
    """Records of that prompt's history; an interrupted call may have forgotten some since. -1: there was no prompt."""


@dataclass(slots=True)
class Brought:
    """What calls have added since the last returned prompt."""

    news: GatheredNews
    respelled: set[int] = field(default_factory=set)
    """Records that were sent in other bytes than before, though they decode to a known form."""


@dataclass(frozen=True, slots=True)
class ListedItems:
    """What answers list of the trimmed items."""

    trims: Sequence[Trim] = ()
    labelled: int = 0
    """How many of them the note counts: reasoning leaves no label."""
    packed: bytes = b""
    """The decisions, as a revision carries them."""


@dataclass(slots=True)
class Memory:
    """See the module's docstring."""

    recorder: Recorder
    format: Format | None = None
    """The format of its prompts; None if there was no prompt yet."""
    ledger: Ledger = field(default_factory=Ledger)
    received: ReceivedPrompt | None = None
    rendered: RenderedHistory = field(default_factory=RenderedHistory.empty)
    sent_at: list[int] = field(default_factory=list)
    """For each record its index in the last prompt; -1 if it is not in it."""
    system: list[bytes] = field(default_factory=list)
    """The leading system messages of the last prompt, without ours."""
    own: OwnState = field(default_factory=OwnState)
    prefix: Prefix = field(default_factory=Prefix)
    members: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Members of the body that take tokens, as last sent, with their tokens."""
    room_for: tuple[tuple[str, int, Policy, bool], Room] | None = None
    """The room for our own text, with the values that it was computed from."""
    system_read: tuple[bytes, bytes] | None = None
    """The body's system member as it was last sent, and a digest that is the same for all equivalent values."""
    listed: ListedItems = field(default_factory=ListedItems)
    trims_by_record: dict[int, list[Trim]] = field(default_factory=dict)
    """For each record that is or was trimmed, its part of the listed trims."""
    size: SizeTracker = field(default_factory=SizeTracker)
    shown: set[str] = field(default_factory=set)
    """Ids that markers and registry have shown."""
    whole: set[str] = field(default_factory=set)
    """Ids of the items that are whole in the last returned prompt, as far as the history is known."""
    pages: dict[str, Entry] = field(default_factory=dict)
    """Pages that recall returned and that prompts had, by their tags."""
    answered: AnsweredHistory = field(default_factory=AnsweredHistory)
    brought: Brought | None = None
    """None, except after an interrupted call."""
    sealed_batches: int = -1
    """Batch points of the applied revision."""
    returned_at: list[int] = field(default_factory=list)
    """Lengths of the untrimmed histories whose prompts were returned, on the present branch; ascending. A length that
    was returned several times is listed twice, which shows that there was nothing in between: so the list grows only
    with the history."""
    began_under: int = RULES
    """Version of the rules that the run began under."""

    def fresh(self) -> Memory:
        """Return an empty memory of the same run, which the next prompt fills again."""
        known = self.recorder
        recorder = Recorder(
            known.of_run, known.hold_bytes, known.other_keys, ids=known.ids, supersedes=known.supersedes
        )
        return Memory(recorder, self.format, began_under=self.began_under)

    @property
    def long(self) -> bool:
        """Whether it is of more than a piece."""
        return len(self.ledger) > PIECE

    def pieces(self) -> list[object]:
        """All that grows with the history, in pieces of which none takes long to free.

        While something is freed no other thread runs: 0.12 s for the whole of a history of 100,000 messages. So the
        memory goes first, and then these, one by one from the end.
        """
        received, records = self.received, self.ledger.records
        pieces: list[object] = [records[at : at + PIECE] for at in range(0, len(records), PIECE)]
        if received is not None:
            pieces += [received.reads[at : at + PIECE] for at in range(0, len(received.reads), PIECE)]
            pieces += [received.rows[at : at + PIECE] for at in range(0, len(received.rows), PIECE)]
        return [*pieces, received, self.rendered, self.size, self.recorder, self.ledger]

    def without_decisions(self) -> Memory:
        """Return an empty memory of the same run, for loading a revision's decisions on the whole history.

        It recognises our own texts, and knows which ids were shown. This process's last prompt is no longer the
        previous one: another process has returned prompts since.
        """
        again = self.fresh()
        again.own.take_over(self.own)
        again.members, again.shown = dict(self.members), set(self.shown)
        return again

    def kept_ids(self) -> list[tuple[int, int, str]]:
        """Return message, item and id of trimmed items whose id was made before their message was masked."""
        records = self.ledger.records
        return [
            (place, item, stash_id)
            for (place, item, identity), stash_id in self.recorder.ids.items()
            if place < len(records) and records[place].identity == identity and records[place].touched
        ]

    def copy(self) -> Memory:
        """Return a copy, which can be changed without changing this memory."""
        frozen = {id(each): each for each in (self.format, self.received)}
        return deepcopy(self, frozen)

    def returned(self, recall: bool) -> None:
        """Record that a prompt is returned, before the ledger forgets what its call has changed."""
        ledger = self.ledger
        for index in chain(ledger.decisions.dirty, range(self.answered.records, len(ledger))):
            record = ledger.records[index]
            for entry in record.entries:
                if entry.recalled:  # the id belongs to a copy of it
                    self.pages[entry.tag] = entry
                    continue
                if entry.action is None and not (record.dropped or record.unseen):
                    self.whole.add(entry.stash_id)
                else:
                    self.whole.discard(entry.stash_id)
        length = len(ledger)
        registry = ledger.registry
        looked_from = ledger.thinking.looked_from
        self.answered = AnsweredHistory(length, registry.batches, registry.listings, looked_from, recall, length)
        self.brought = None
        ledger.decisions.rendered()
        ledger.thinking.note_returned()
        if self.returned_at[-2:] != [len(ledger)] * 2:
            self.returned_at.append(len(ledger))

    def id_now(self, stash_id: str) -> str:
        """Return the id by the run's key for one by another of the sidecar's keys; an unknown id stays unchanged."""
        if stash_id in self.ledger.messages.by_id:
            return stash_id
        for key in self.recorder.other_keys:
            for record in self.ledger.records:
                for entry in record.entries:
                    if mint(key, entry.message, entry.item, record.identity) == stash_id:
                        return entry.stash_id
        return stash_id

    def in_prompt(self, stash_id: str, tags: Collection[str], prompts: int) -> InPrompt:
        """Return what the last returned prompt holds of an original, and of its pages with these tags.

        `prompts`: number of prompts of the run so far.
        """
        original = self.ledger.messages.by_id.get(stash_id) if stash_id in self.whole else None
        known = [(tag, page) for tag in tags if (page := self.pages.get(tag)) is not None]
        return InPrompt(
            prompts,
            self.ledger.iteration,
            self._stands_at(original) if original is not None else 0,
            {tag: at for tag, page in known if (at := self._stands_at(page))},
            frozenset(tag for tag, page in known if page.action is not None and page.first == self._group(page) + 2),
        )

    def _stands_at(self, entry: Entry) -> int:
        """Return the iteration that an item belongs to; 0 if it is not whole in the last returned prompt."""
        place = entry.message
        record = self.ledger.records[place]
        whole = entry.action is None and not (record.dropped or record.unseen) and self.sent_at[place] >= 0
        return max(self._group(entry), 0) + 1 if whole else 0

    def _group(self, entry: Entry) -> int:
        return self.ledger.records[entry.message].group

    def rewind(self, length: int, sent: Collection[int]) -> None:
        """Forget the records from `length` on: the agent has rewritten its history from there.

        `sent`: the records that the current prompt has.
        """
        self.ledger.rewind(length, sent)
        self.answered = replace(self.answered, records=min(self.answered.records, length))
        self.shown.intersection_update(self.ledger.messages.by_id)  # an agent that keeps branching must not grow it
        self.whole.intersection_update(self.ledger.messages.by_id)
        self.pages = {tag: entry for tag, entry in self.pages.items() if entry.message < length}
        self.recorder.repeated.rewind(length)
        self.rendered.cut(length)
        self.trims_by_record = {index: trims for index, trims in self.trims_by_record.items() if index < length}
        del self.sent_at[length:]
        self.returned_at = [returned for returned in self.returned_at if returned <= length]

    def begin_again(self, since: int, kept: int) -> None:
        """Forget the history and its decisions, as the next messages are the whole history.

        Args:
            since: the iteration of the run's last answer: decisions up to there are not reported again.
            kept: number of records with which the next messages begin.
        """
        self.returned_at = [returned for returned in self.returned_at if returned <= kept]
        self.ledger, self.rendered, self.sent_at = Ledger(), RenderedHistory.empty(), []
        self.recorder = self.fresh().recorder
        self.size, self.listed, self.trims_by_record = SizeTracker(), ListedItems(), {}
        self.whole, self.pages = set(), {}
        self.answered = replace(self.answered, records=0)
        self.brought = Brought(GatheredNews(since))

    def member_tokens(self, name: str, value: bytes, weigh_member: Callable[[bytes], int]) -> int:
        """Return the tokens of a member of the body, counted only when it has changed."""
        known = self.members.get(name)
        if known is None or known[0] != value:
            known = self.members[name] = (value, weigh_member(value))
        return known[1]

    def room(self, encoding: str, limit: int, policy: Policy, count: Callable[[str], int], masks: bool) -> Room:
        """Return the room for our own text, computed only when its inputs have changed."""
        asked = (encoding, limit, policy, masks)
        if self.room_for is None or self.room_for[0] != asked:
            made = own_text.room(
                limit, policy.own_text_max_tokens, policy.note_max_tokens, policy.registry_share, count, masks
            )
            self.room_for = (asked, made)
        return self.room_for[1]

    def same_system(self, value: bytes | None) -> bytes | None:
        """Return a digest of the body's system member, the same for all equivalent values; computed after a change.

        A text becomes an array of blocks when our text is added, and an agent that continues from the returned prompt
        sends it that way: for the provider nothing has changed. Cache marks are not part of the digest.
        """
        if value is None:
            return None
        if self.system_read is None or self.system_read[0] != value:
            try:
                decoded = unmarked(load_any(value, "json.body"))
                same = canonical([{"type": "text", "text": decoded}] if type(decoded) is str else decoded)
            except (InvalidJson, RecursionError):  # too deeply nested to be encoded: its bytes are used
                same = value
            self.system_read = (value, digest(same))
        return self.system_read[1]

    def leading_tokens(self, reads: Sequence[SentMessage]) -> int:
        """Return the tokens of the leading system messages that are not ours."""
        tokens = 0
        for read in reads:
            if read.role is not Role.SYSTEM:
                break
            tokens += 0 if self.own.is_own(read.identity) else read.tokens
        return tokens
