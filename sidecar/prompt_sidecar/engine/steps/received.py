"""What the agent sent, read: each message's identity and weight, at the cost of what is new.

Messages whose bytes and places are those of the last prompt are known already. The others are decoded and counted here,
before anything of the run is changed, so that a call that turns out to be wrong has changed nothing. They are counted
some at a time: what a call has counted when its deadline passes is kept as a draft, from which its retry continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from prompt_sidecar.errors import CallCancelled, DeadlinePassed, TooLarge
from prompt_sidecar.guard.masking import ActionTaken, Masker, Progress
from prompt_sidecar.prompt.ambiguous import load_any
from prompt_sidecar.prompt.body import Split, equal_slice
from prompt_sidecar.prompt.format import DeferredTools, Format
from prompt_sidecar.prompt.items import Message, Role
from prompt_sidecar.prompt.jsontext import WRITTEN_BYTES, canonical
from prompt_sidecar.prompt.likeness import check_message
from prompt_sidecar.tokens.weigh import Weight, weigh

CountMany = Callable[[Sequence[str]], Sequence[int]]

OWN: Final = -1
"""Place of a message that is our own text, sent back."""
SYSTEM: Final = -2
"""Place of a leading system message: it is no part of the history, as agents rewrite it from call to call."""


class SentMessage(NamedTuple):
    """One message as it was sent.

    A tuple: each new message makes two, and a frozen dataclass takes three times as long to make.
    """

    identity: bytes
    tokens: int
    role: Role
    message: Message | None = None
    """Only while it is new: the source of a record."""
    weight: Weight | None = None
    opaque: int = 0
    """Those of its tokens that are encrypted text."""
    loads: tuple[str, ...] = ()
    """See `Message.loads`."""
    compacts: bool = False
    """See `Message.compacts`."""


class Sighting(NamedTuple):
    """A find of a rule in one item of a prompt; never the text."""

    message: int
    """Index among the messages sent; -1: in a member of the body."""
    member: str
    item: int
    """-1: in no item."""
    rule: str
    action: ActionTaken
    times: int


class MessageRow(NamedTuple):
    """The place of one prompt message in the run's history, with sums up to and including it."""

    place: int
    """Its index in the history, OWN or SYSTEM."""
    next: int
    """The history index that is expected next."""
    tokens: int
    """Tokens of the messages so far, without our own and leading system messages."""
    opaque: int
    """Those of them that are encrypted text."""
    whole: int
    """Number of messages so far that were sent untrimmed."""


FIRST: Final = MessageRow(OWN, 0, 0, 0, 0)
"""The row before the first message's."""


@dataclass(frozen=True, slots=True)
class ReceivedPrompt:
    """A prompt as it was sent, and the place of each message in the run's history."""

    split: Split
    """Masked."""
    reads: Sequence[SentMessage]
    rows: Sequence[MessageRow]
    sent: Split
    """As the agent sent it, for comparing the next prompt; `split` itself if nothing is masked."""

    @classmethod
    def of(cls, split: Split, sent: Split, reads: Sequence[SentMessage], rows: Sequence[MessageRow]) -> ReceivedPrompt:
        """Return the prompt up to the message of the last row, as if the others had not been sent."""
        length = len(rows)
        if length < len(reads):
            masked = split is not sent
            split = replace(split, starts=split.starts[:length], ends=split.ends[:length])
            sent = replace(sent, starts=sent.starts[:length], ends=sent.ends[:length]) if masked else split
        return cls(split, reads[:length], rows, sent)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the bodies."""
        return len(self.split.raw) + (len(self.sent.raw) if self.sent is not self.split else 0)


def newest_compaction(reads: Sequence[SentMessage], format_: Format) -> int:
    """Return the newest message with a provider's compaction; -1 if there is none."""
    if format_.compaction is None:
        return -1
    return next((index for index in range(len(reads) - 1, -1, -1) if reads[index].compacts), -1)


def forget_texts(reads: list[SentMessage], first: int, last: int) -> None:
    """Forget the texts of the messages from `first` up to `last`, from which records were made."""
    for index in range(first, last):
        read = reads[index]
        if read.message is not None:
            reads[index] = read._replace(message=None, weight=None)


TOGETHER: Final = 256
"""Messages that are counted together, and recorded and decided on together: some 20 ms of work, after which a call may
end with its work kept."""
TOGETHER_BYTES: Final = 262_144
"""Bytes of them, likewise."""


@dataclass(frozen=True, slots=True)
class GuardedDraft:
    """Guard progress saved with a draft."""

    progress: Progress
    recorded: int
    """Number of messages in the run's history before the prompt's first call."""
    sightings: Sequence[Sighting] | None = None
    """Finds, once the prompt is opened: its texts are forgotten as records are made from them."""


@dataclass(slots=True)
class Draft:
    """The part of a prompt that an interrupted call had read."""

    format: Format
    """The format's variant that it was read in."""
    split: Split
    reads: list[SentMessage]
    """The messages from the first on, with everything that records are made from."""
    guarded: GuardedDraft | None = None
    """Guard progress of that call; None if there is no guard."""

    @property
    def worth_keeping(self) -> bool:
        """Whether reading it again would take more than some hundredths of a second, or lose findings."""
        first, last = self.split.same, len(self.reads)
        if self.guarded is not None and (self.guarded.sightings or self.guarded.progress.worth_keeping):
            return True
        if first >= last:
            return False
        return last - first >= TOGETHER or self.split.ends[last - 1] - self.split.starts[first] >= TOGETHER_BYTES

    @property
    def bytes(self) -> int:
        """Bytes that it keeps, approximately: the body, and the texts decoded from it."""
        return 2 * len(self.split.raw) + (self.guarded.progress.bytes if self.guarded is not None else 0)

    def counted(self, first: int) -> list[SentMessage]:
        """Return what was read from the message at `first` on, up to the first one that was not counted."""
        last = len(self.reads)
        while last > first and self.reads[last - 1].message is not None and self.reads[last - 1].weight is None:
            last -= 1
        return self.reads[first:last]

    def known(self, split: Split, index: int) -> SentMessage | None:
        """Return what was read of a message, if it is the same one at the same place."""
        if index < len(self.reads) and equal_slice(split, self.split, index):
            return self.reads[index]
        return None


@dataclass(frozen=True, slots=True)
class Pass:
    """What the call that opens a prompt provides in addition to the prompt."""

    counting: Callable[[str], CountMany]
    """Returns, for an encoding, a function that counts each of several texts."""
    check: Callable[[], None]
    """Called now and then; what it raises ends the call."""
    keep: Callable[[Draft], None]
    """Keeps the partial result when the call has to end."""
    draft: Draft | None
    """What an earlier call has read of the prompt."""
    masker: Masker | None = None
    """The guard; None: nothing is searched for."""


def read(
    split: Split,
    before: ReceivedPrompt | None,
    format_: Format,
    by: Pass,
    *,
    count_many: CountMany,
    guarded: GuardedDraft | None,
    most_items: int,
) -> list[SentMessage]:
    """Decode and count the new parts of a prompt; changes nothing. `guarded` is kept in the draft.

    Raises:
        InvalidRequest: a message is not of the format's shape; the error names it.
        TooLarge: there are more than `most_items` new items.
    """
    field = format_.messages_path
    done = list(before.reads[: split.same]) if before is not None else []
    new: list[Message] = []
    items = size = 0
    draft = by.draft if by.draft is not None and by.draft.format is format_ else None
    loading = _Loading(split, format_, done)

    def settle() -> None:
        """Count the decoded messages that are not counted yet."""
        nonlocal size
        weights = weigh(loading.with_definitions(new), count_many, format_.call_tokens)
        done.extend(
            SentMessage(
                message.identity,
                weight.total,
                message.role,
                message,
                weight,
                weight.opaque,
                message.loads,
                message.compacts,
            )
            for message, weight in zip(new, weights, strict=True)
        )
        new.clear()
        size = 0

    if draft is not None and len(done) < len(draft.reads) and draft.split.raw == split.raw:
        done += draft.counted(len(done))
    try:
        for index in range(len(done), len(split)):
            known = before.reads[index] if before is not None and equal_slice(split, before.split, index) else None
            if known is None and draft is not None:
                known = draft.known(split, index)
            if known is not None and (known.weight is not None or known.message is None):
                if new:
                    settle()
                done.append(known)
                continue
            if known is not None and known.message is not None:
                message = known.message
            else:
                raw = split.text(index) if format_.is_json else split.message(index)
                if len(raw) > WRITTEN_BYTES:  # it is decoded at once
                    by.check()
                where = field if split.is_text else f"{field}[{index}]"
                message = format_.read(raw, where)
                check_message(raw, format_.name, where)
            items += len(message.items)
            new.append(message)
            size += split.ends[index] - split.starts[index]
            _check_items(items, most_items, field)
            if len(new) >= TOGETHER or size >= TOGETHER_BYTES:
                settle()
            by.check()
        settle()
    except (DeadlinePassed, CallCancelled):
        decoded = [SentMessage(message.identity, 0, message.role, message) for message in new]  # and not counted
        by.keep(Draft(format_, split, done + decoded, guarded))
        raise
    return done


class _Loading:
    """Counts the definitions of deferred tools with the first message that loads them."""

    def __init__(self, split: Split, format_: Format, done: Sequence[SentMessage]) -> None:
        """`done`: the messages read so far; counted messages are added to it."""
        self._split = split
        self._format = format_
        self._done = done
        self._looked_at = 0
        self._loaded: set[str] = set()
        self._definitions: dict[str, Any] | None = None

    def with_definitions(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages as the model sees them, with the definitions that they load."""
        if self._format.deferred is None or not any(message.loads for message in messages):
            return messages
        for read in self._done[self._looked_at :]:
            if read.compacts:
                self._loaded.clear()  # definitions loaded before are loaded again by it
            self._loaded.update(read.loads)
        self._looked_at = len(self._done)
        made: list[Message] = []
        for message in messages:
            if message.compacts:
                self._loaded.clear()
            made.append(self._with(message, self._format.deferred) if message.loads else message)
        return made

    def _with(self, message: Message, deferred: DeferredTools) -> Message:
        if self._definitions is None:
            self._definitions = {}
            for name in self._format.tool_fields:
                value = self._split.field(name)
                if value is not None:
                    self._definitions |= deferred.definitions(load_any(value, f"json.body.{name}"))
        new = [name for name in message.loads if name not in self._loaded and name in self._definitions]
        self._loaded.update(new)
        return message._replace(
            other="\n".join((message.other, *(canonical(self._definitions[name]).decode() for name in new)))
        )


def _check_items(items: int, most: int, field: str) -> None:
    if items > most:
        raise TooLarge(
            f"the prompt's new messages have over {most:,} items; limits.run_items allows so many",
            field=field,
            bound="limits.run_items",
        )
