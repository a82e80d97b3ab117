"""One run's memory: its history with the decisions, and what was sent and returned last.

All of it is a cache of a fold over the messages: what forgets it is made the same again by the next prompt. `turn.py`
takes a prompt through it. Not thread-safe: a run is used under its lock.
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

PIECE: Final = 4_096
"""Messages that are freed at once: a few milliseconds."""


@dataclass(frozen=True, slots=True)
class AnsweredHistory:
    """The history as the last prompt that was returned left it."""

    records: int = 0
    """Records that there were, as far as they still are. There are more after a call that had to end before it was
    done: what it decided stays, as if its prompt had ended there."""
    batches: int = 0
    listings: int = 0
    reasoning_from: int = 0
    recall: bool = True
    """Whether the prompt's model could recall."""
    length: int = -1
    """Records of that prompt's history; a call that had to end may have forgotten some since. -1: there was none."""


@dataclass(slots=True)
class Brought:
    """What calls have brought since the last prompt that was returned."""

    news: GatheredNews
    respelled: set[int] = field(default_factory=set)
    """Records that came in other bytes than before, though they decode to a form that is known."""


@dataclass(frozen=True, slots=True)
class ListedItems:
    """What the answers list of the items that are trimmed."""

    trims: Sequence[Trim] = ()
    labelled: int = 0
    """Of them, those that the note counts: reasoning leaves no label."""
    packed: bytes = b""
    """The decisions, as a revision carries them."""


@dataclass(slots=True)
class Memory:
    """See the file's docstring."""

    recorder: Recorder
    format: Format | None = None
    """The format of the prompts that it is of; None: none has come yet."""
    ledger: Ledger = field(default_factory=Ledger)
    received: ReceivedPrompt | None = None
    rendered: RenderedHistory = field(default_factory=RenderedHistory.empty)
    sent_at: list[int] = field(default_factory=list)
    """For each record its index in the last prompt; -1 if it was absent."""
    system: list[bytes] = field(default_factory=list)
    """The leading system messages of the last prompt, without ours."""
    own: OwnState = field(default_factory=OwnState)
    prefix: Prefix = field(default_factory=Prefix)
    members: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Members of the body that take tokens, as last seen, with their tokens."""
    room_for: tuple[tuple[str, int, Policy, bool], Room] | None = None
    """The room for our own text, with what it follows from."""
    system_read: tuple[bytes, bytes] | None = None
    """The body's system member as it was last sent, and a digest that is the same for all values that say the same."""
    listed: ListedItems = field(default_factory=ListedItems)
    trims_by_record: dict[int, list[Trim]] = field(default_factory=dict)
    """For each record that is or was trimmed, its part of the listed trims."""
    size: SizeTracker = field(default_factory=SizeTracker)
    shown: set[str] = field(default_factory=set)
    """Ids that markers and registry have shown."""
    whole: set[str] = field(default_factory=set)
    """Ids of the items that stand whole in the prompt that was returned last, as far as the history is known."""
    pages: dict[str, Entry] = field(default_factory=dict)
    """By their tags: the pages that recall returned and that prompts had."""
    answered: AnsweredHistory = field(default_factory=AnsweredHistory)
    brought: Brought | None = None
    """None, but after a call that had to end before it was done."""
    sealed_batches: int = -1
    """Batch points of the revision that was applied."""
    returned_at: list[int] = field(default_factory=list)
    """Lengths of the untrimmed histories whose prompts were returned, on the branch at hand; ascending. One that came
    several times is here twice, which tells that nothing came between: so it grows with the history alone."""

    def fresh(self) -> Memory:
        """An empty memory of the same run, which the next prompt fills again."""
        known = self.recorder
        recorder = Recorder(
            known.of_run, known.hold_bytes, known.other_keys, ids=known.ids, supersedes=known.supersedes
        )
        return Memory(recorder, self.format)

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
        """An empty memory of the same run, which takes over the decisions that a revision has of the whole history.

        It recognises our own texts, and knows which ids were shown. The prompt that this process returned last is no
        longer the one before the next: another process has returned others since.
        """
        again = self.fresh()
        again.own.take_over(self.own)
        again.members, again.shown = dict(self.members), set(self.shown)
        return again

    def kept_ids(self) -> list[tuple[int, int, str]]:
        """Message, item and id of what is trimmed and got its id before its message was masked."""
        records = self.ledger.records
        return [
            (place, item, stash_id)
            for (place, item, identity), stash_id in self.recorder.ids.items()
            if place < len(records) and records[place].identity == identity and records[place].touched
        ]

    def copy(self) -> Memory:
        """A copy, which can be changed without changing this one."""
        frozen = {id(each): each for each in (self.format, self.received)}
        return deepcopy(self, frozen)

    def returned(self, recall: bool) -> None:
        """Note that a prompt is returned, before what its call has changed in the ledger is forgotten."""
        ledger = self.ledger
        for index in chain(ledger.decisions.dirty, range(self.answered.records, len(ledger))):
            record = ledger.records[index]
            for entry in record.entries:
                if entry.recalled:  # a copy of what has the id
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
        """The item's id by the run's key, of one by another of the sidecar's keys; of no known item the id itself."""
        if stash_id in self.ledger.messages.by_id:
            return stash_id
        for key in self.recorder.other_keys:
            for record in self.ledger.records:
                for entry in record.entries:
                    if mint(key, entry.message, entry.item, record.identity) == stash_id:
                        return entry.stash_id
        return stash_id

    def in_prompt(self, stash_id: str, tags: Collection[str], prompts: int) -> InPrompt:
        """What the prompt that was returned last holds of an original, and of pages of it with these tags.

        `prompts`: how many prompts of the run there were.
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
        """The iteration whose part of the history an item is in; 0: it is not whole in the prompt returned last."""
        place = entry.message
        record = self.ledger.records[place]
        whole = entry.action is None and not (record.dropped or record.unseen) and self.sent_at[place] >= 0
        return max(self._group(entry), 0) + 1 if whole else 0

    def _group(self, entry: Entry) -> int:
        return self.ledger.records[entry.message].group

    def rewind(self, length: int, sent: Collection[int]) -> None:
        """Forget the records from `length` on: the agent has rewritten its history from there.

        `sent`: the records that the prompt at hand has.
        """
        self.ledger.rewind(length, sent)
        self.answered = replace(self.answered, records=min(self.answered.records, length))
        self.shown.intersection_update(self.ledger.messages.by_id)  # an agent that branches for ever must not grow it
        self.whole.intersection_update(self.ledger.messages.by_id)
        self.pages = {tag: entry for tag, entry in self.pages.items() if entry.message < length}
        self.recorder.repeated.rewind(length)
        self.rendered.cut(length)
        self.trims_by_record = {index: trims for index, trims in self.trims_by_record.items() if index < length}
        del self.sent_at[length:]
        self.returned_at = [returned for returned in self.returned_at if returned <= length]

    def begin_again(self, since: int, kept: int) -> None:
        """Forget the history and what was decided about it, as the next messages are all of it.

        Args:
            since: the iteration of the run's last answer: what was decided up to there is no news.
            kept: records with which the next messages begin.
        """
        self.returned_at = [returned for returned in self.returned_at if returned <= kept]
        self.ledger, self.rendered, self.sent_at = Ledger(), RenderedHistory.empty(), []
        self.recorder = self.fresh().recorder
        self.size, self.listed, self.trims_by_record = SizeTracker(), ListedItems(), {}
        self.whole, self.pages = set(), {}
        self.answered = replace(self.answered, records=0)
        self.brought = Brought(GatheredNews(since))

    def member_tokens(self, name: str, value: bytes, weigh_member: Callable[[bytes], int]) -> int:
        """Tokens of a member of the body, counted only when it has changed."""
        known = self.members.get(name)
        if known is None or known[0] != value:
            known = self.members[name] = (value, weigh_member(value))
        return known[1]

    def room(self, encoding: str, limit: int, policy: Policy, count: Callable[[str], int], masks: bool) -> Room:
        """The room for our own text, worked out only when what it follows from has changed."""
        asked = (encoding, limit, policy, masks)
        if self.room_for is None or self.room_for[0] != asked:
            made = own_text.room(
                limit, policy.own_text_max_tokens, policy.note_max_tokens, policy.registry_share, count, masks
            )
            self.room_for = (asked, made)
        return self.room_for[1]

    def same_system(self, value: bytes | None) -> bytes | None:
        """A digest of the body's system member, the same for all values that say the same; read when it has changed.

        A text becomes an array of blocks where our text is added, and comes back as such from an agent that goes on
        from the returned prompt: for the provider nothing has changed. Marks of where to cache are no part of it.
        """
        if value is None:
            return None
        if self.system_read is None or self.system_read[0] != value:
            try:
                decoded = unmarked(load_any(value, "json.body"))
                same = canonical([{"type": "text", "text": decoded}] if type(decoded) is str else decoded)
            except (InvalidJson, RecursionError):  # too deep to be written: its bytes have to do
                same = value
            self.system_read = (value, digest(same))
        return self.system_read[1]

    def leading_tokens(self, reads: Sequence[SentMessage]) -> int:
        """Tokens of the leading system messages that are not ours."""
        tokens = 0
        for read in reads:
            if read.role is not Role.SYSTEM:
                break
            tokens += 0 if self.own.is_own(read.identity) else read.tokens
        return tokens
