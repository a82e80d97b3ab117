"""What the agent sent, read: each message's identity and weight, at the cost of what is new.

Messages that are byte for byte where they were in the last prompt are known already. The others are decoded and
counted here, before anything of the run is changed, so that a call that turns out to be wrong has changed nothing. They
are counted some at a time: what a call has counted when its deadline passes is a draft, from which its retry goes on.
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
    """Only while it is new: what a record is made from."""
    weight: Weight | None = None
    opaque: int = 0
    """Of its tokens, those of encrypted text."""
    loads: tuple[str, ...] = ()
    """See `Message.loads`."""
    compacts: bool = False
    """See `Message.compacts`."""


class Sighting(NamedTuple):
    """What a rule found in one item of a prompt; never the text."""

    message: int
    """Index among those sent; -1: in a member of the body."""
    member: str
    item: int
    """-1: in no item."""
    rule: str
    action: ActionTaken
    times: int


class MessageRow(NamedTuple):
    """What one message of a prompt is in the run's history, with sums up to and including it.

    A tuple, as `SentMessage`.
    """

    place: int
    """Its index in the history, OWN or SYSTEM."""
    next: int
    """The history index that is expected after it."""
    tokens: int
    """Tokens of the messages so far; our own and leading system messages are not counted."""
    opaque: int
    """Of them, those of encrypted text."""
    whole: int
    """Messages so far that came untrimmed."""


FIRST: Final = MessageRow(OWN, 0, 0, 0, 0)
"""The row before the first message's."""


@dataclass(frozen=True, slots=True)
class ReceivedPrompt:
    """A prompt as it was sent, and what each message of it is in the run's history."""

    split: Split
    """Masked."""
    reads: Sequence[SentMessage]
    rows: Sequence[MessageRow]
    sent: Split
    """As the agent sent it, which the next prompt is compared with; `split` itself where nothing is masked."""

    @classmethod
    def of(cls, split: Split, sent: Split, reads: Sequence[SentMessage], rows: Sequence[MessageRow]) -> ReceivedPrompt:
        """The prompt up to the message that the last row is of, as if the others had not been sent."""
        length = len(rows)
        if length < len(reads):
            masked = split is not sent
            split = replace(split, starts=split.starts[:length], ends=split.ends[:length])
            sent = replace(sent, starts=sent.starts[:length], ends=sent.ends[:length]) if masked else split
        return cls(split, reads[:length], rows, sent)

    @property
    def kept_bytes(self) -> int:
        """What the bodies take."""
        return len(self.split.raw) + (len(self.sent.raw) if self.sent is not self.split else 0)


def newest_compaction(reads: Sequence[SentMessage], format_: Format) -> int:
    """The newest message with a provider's compaction; -1: there is none."""
    if format_.compaction is None:
        return -1
    return next((index for index in range(len(reads) - 1, -1, -1) if reads[index].compacts), -1)


def forget_texts(reads: list[SentMessage], first: int, last: int) -> None:
    """Keep no text of the messages from `first` up to `last`, of which records were made."""
    for index in range(first, last):
        read = reads[index]
        if read.message is not None:
            reads[index] = read._replace(message=None, weight=None)


TOGETHER: Final = 256
"""Messages that are counted together, and recorded and decided on together: some 20 ms of work, after which a call may
end and its work so far is kept."""
TOGETHER_BYTES: Final = 262_144
"""Bytes of them, likewise."""


@dataclass(frozen=True, slots=True)
class GuardedDraft:
    """What the guard has done of a prompt of which a draft is kept."""

    progress: Progress
    recorded: int
    """Messages that the run's history had before the prompt's first call."""
    sightings: Sequence[Sighting] | None = None
    """What was found, once the prompt is opened: its texts are forgotten as records are made of them."""


@dataclass(slots=True)
class Draft:
    """A prompt of which a call has read the beginning, and no more, before it had to end."""

    format: Format
    """The variant that it was read as."""
    split: Split
    reads: list[SentMessage]
    """The messages from the first on, with all that records are made from."""
    guarded: GuardedDraft | None = None
    """What the guard has done before; None: there is none."""

    @property
    def worth_keeping(self) -> bool:
        """Whether it holds more than is read in some hundredths of a second, or findings that were not reported."""
        first, last = self.split.same, len(self.reads)
        if self.guarded is not None and (self.guarded.sightings or self.guarded.progress.worth_keeping):
            return True
        if first >= last:
            return False
        return last - first >= TOGETHER or self.split.ends[last - 1] - self.split.starts[first] >= TOGETHER_BYTES

    @property
    def bytes(self) -> int:
        """What it keeps, about: the body, and the texts decoded from it."""
        return 2 * len(self.split.raw) + (self.guarded.progress.bytes if self.guarded is not None else 0)

    def counted(self, first: int) -> list[SentMessage]:
        """What was read from the message at `first` on, up to the first one that was not counted."""
        last = len(self.reads)
        while last > first and self.reads[last - 1].message is not None and self.reads[last - 1].weight is None:
            last -= 1
        return self.reads[first:last]

    def known(self, split: Split, index: int) -> SentMessage | None:
        """What was read of a message, if it is the same one at the same place."""
        if index < len(self.reads) and equal_slice(split, self.split, index):
            return self.reads[index]
        return None


@dataclass(frozen=True, slots=True)
class Pass:
    """What the call that opens a prompt brings in addition to it."""

    counting: Callable[[str], CountMany]
    """For an encoding what counts each of some texts."""
    check: Callable[[], None]
    """Called now and then; what it raises ends the call."""
    keep: Callable[[Draft], None]
    """Takes what was read when the call has to end."""
    draft: Draft | None
    """What an earlier call has read of the prompt."""
    masker: Masker | None = None
    """The guard; None: nothing is looked for."""


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
    """Decode and count what is new in a prompt; changes nothing. `guarded` is kept with what was read.

    Raises:
        InvalidRequest: a message is not of the format's shape; the error names it.
        TooLarge: what is new has more than `most_items` items.
    """
    field = format_.messages_path
    done = list(before.reads[: split.same]) if before is not None else []
    new: list[Message] = []
    items = size = 0
    draft = by.draft if by.draft is not None and by.draft.format is format_ else None
    loading = _Loading(split, format_, done)

    def settle() -> None:
        """Count what is decoded and not counted."""
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
                if len(raw) > WRITTEN_BYTES:  # it is decoded in one go
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
        """`done`: what was read of the messages before, to which is added what is counted."""
        self._split = split
        self._format = format_
        self._done = done
        self._looked_at = 0
        self._loaded: set[str] = set()
        self._definitions: dict[str, Any] | None = None

    def with_definitions(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages as the model sees them, with what they load."""
        if self._format.deferred is None or not any(message.loads for message in messages):
            return messages
        for read in self._done[self._looked_at :]:
            if read.compacts:
                self._loaded.clear()  # what was loaded before is loaded again by it
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
