"""What a ledger is made of: records of messages, entries of their items, groups, queues in which items grow old.

Plain data. What may be done to it, and in what order, `prompt_sidecar.trim.ledger` and `prompt_sidecar.trim.stages`
say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.elide import Kept


class Action(StrEnum):
    """What was done to an item. The order is the only one in which an item can change."""

    ELIDED = "elided"
    CLIPPED = "clipped"
    COLLAPSED = "collapsed"
    DROPPED = "dropped"


class Reason(StrEnum):
    """Why an item was trimmed."""

    CAP = "cap"
    FIT = "fit"
    RESIDUE = "residue"
    AGE = "age"
    FEEDBACK = "feedback"
    REPEATED = "repeated"
    REASONING = "reasoning"


ALONE: Final = frozenset({Reason.FEEDBACK, Reason.REASONING})
"""Reasons for which one message is dropped and its iteration stays."""


class Feedback(StrEnum):
    """What a user's text tells the model about its last step, where it is no task of a person."""

    VALIDATION = "validation"
    ERROR = "error"
    REPETITION = "repetition"


class Ageing(StrEnum):
    """The queues of what grows old, each with its own number of newest iterations that stay."""

    ARGUMENTS = "arguments"
    TEXT = "text"
    RESULTS = "results"
    SNAPSHOTS = "snapshots"
    IMAGES = "images"


LIGHT: Final = (Ageing.ARGUMENTS, Ageing.TEXT)
"""What is clipped before anything else: it costs as much as results do, and less is lost with it."""
HEAVY: Final = (Ageing.RESULTS, Ageing.SNAPSHOTS, Ageing.IMAGES)
QUEUE_OF: Final = {
    ItemKind.ARGUMENTS: Ageing.ARGUMENTS,
    ItemKind.TEXT: Ageing.TEXT,
    ItemKind.RESULT: Ageing.RESULTS,
    ItemKind.SNAPSHOT: Ageing.SNAPSHOTS,
    ItemKind.IMAGE: Ageing.IMAGES,
}


FEEDBACK_PLACES: Final = {kind: place for place, kind in enumerate(Feedback)}


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
    fixed: bool = False
    """Whether it is never edited: it only leaves the prompt with its message."""
    action: Action | None = None
    kept: Kept | None = None
    reason: Reason | None = None
    decided: int = 0
    """The iteration in whose prompt the last decision was made."""
    first: int = 0
    """The iteration in whose prompt the first one was."""
    earlier: tuple[tuple[int, int], ...] = ()
    """The decisions before it, if it was trimmed more than once: iteration and the tokens that were left."""
    advertised: bool = True
    """Whether its marker shows the id."""
    stored: bool = False
    """Whether the original was handed to the stash when something was taken from it."""
    recalled: bool = False
    """Whether it is a page that recall returned; its id is then that of the original, which is kept already."""
    feedback: Feedback | None = None
    annotated: bool = False
    """Whether the agent said what it is, which nobody else can tell again."""
    stretch: int = -1
    """For feedback: users' other texts before it; feedback between two of them is one stretch."""
    counts: tuple[int, ...] = ()
    """For the first collapsed feedback of a stretch: how many of each kind it stands for. For the ledger's carrier,
    which is clipped: the iterations dropped."""
    again: int = 0
    """For a result that came again: the iteration in which it did, once it is clipped to a pointer."""
    opaque: int = 0
    """Of `full_tokens`, those of encrypted text; only an item that goes whole has any."""

    def tokens_at(self, iteration: int) -> int:
        """Tokens that it took in that iteration's prompt, by its own trims alone."""
        steps = (*self.earlier, (self.decided, self.tokens))
        return next((left for decided, left in reversed(steps) if 0 < decided <= iteration), self.full_tokens)


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
    opaque: int = 0
    """Of `tokens`, those of encrypted text, which calibration weighs apart."""
    full_opaque: int = 0
    """Of `full_tokens`, likewise."""
    identified: bool = False
    """See `Message.identified`."""
    foreign: bool = False
    """Of the model's messages: whether its prompt was not one that the sidecar returned; see `Evaluation`."""

    @property
    def only_reasoning(self) -> bool:
        """Whether it holds nothing but reasoning."""
        return bool(self.entries) and all(entry.kind is ItemKind.REASONING for entry in self.entries)


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


@dataclass(slots=True)
class Queue:
    """Entries that grow old, oldest first, and how many of them clipping has passed."""

    entries: list[Entry] = field(default_factory=list)
    done: int = 0

    @property
    def head(self) -> Entry | None:
        """The entry that clipping comes to next."""
        return self.entries[self.done] if self.done < len(self.entries) else None
