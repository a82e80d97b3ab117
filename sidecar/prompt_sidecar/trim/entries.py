"""The data of a ledger: records of messages, entries of their items, and groups.

`prompt_sidecar.trim.ledger` and `prompt_sidecar.trim.stages` define how it changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prompt_sidecar.prompt.injected import Injected
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.condense.calls import SourceCall
from prompt_sidecar.trim.condense.condensing import Level, Saving
from prompt_sidecar.trim.elide import KeptBytes


class Action(StrEnum):
    """What was done to an item. An item only changes in this order."""

    CONDENSED = "condensed"
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
    CONDENSE = "condense"
    SUPERSEDED = "superseded"


CUTS: Final = frozenset(Action) - {Action.CONDENSED}
"""Actions that hide something. A condensed result notes everything that it leaves out, or leaves out only what nobody
misses: it is listed in no registry and no note, and counts in no figure of what was lost."""
AT_FIRST_SIGHT: Final = frozenset({Reason.CONDENSE, Reason.CAP})
"""Reasons for which an item is trimmed before the model has seen it, so that no cache is rewritten."""
ALONE: Final = frozenset({Reason.FEEDBACK, Reason.REASONING})
"""Reasons for which a single message is dropped and the rest of its iteration stays."""


class Feedback(StrEnum):
    """Kind of feedback that the agent gives the model in a user message about its last step."""

    VALIDATION = "validation"
    ERROR = "error"
    REPETITION = "repetition"


class Ageing(StrEnum):
    """The queues of items that age, each with its own number of newest iterations to keep."""

    ARGUMENTS = "arguments"
    TEXT = "text"
    RESULTS = "results"
    SNAPSHOTS = "snapshots"
    IMAGES = "images"


LIGHT: Final = (Ageing.ARGUMENTS, Ageing.TEXT)
"""Clipped before anything else: they take as many tokens as results, and clipping them loses less."""
HEAVY: Final = (Ageing.RESULTS, Ageing.SNAPSHOTS, Ageing.IMAGES)
LARGE: Final = 1_000
"""Tokens of a result above which it is clipped before smaller ones, however old those are: some hundred lines. For each
token, what the model refers to later is in short results more often; and a label takes much of what those free."""
SMALL: Final = 125
"""Tokens of a result up to which a cut leaves it whole as long as its iteration is in the prompt: its label takes a
fifth of that, and of each token of such results the next action uses most (docs/when-to-cut.md)."""
QUEUE_OF: Final = {
    ItemKind.ARGUMENTS: Ageing.ARGUMENTS,
    ItemKind.TEXT: Ageing.TEXT,
    ItemKind.RESULT: Ageing.RESULTS,
    ItemKind.SNAPSHOT: Ageing.SNAPSHOTS,
    ItemKind.IMAGE: Ageing.IMAGES,
}


FEEDBACK_PLACES: Final = {kind: place for place, kind in enumerate(Feedback)}


@dataclass(frozen=True, slots=True)
class Condensing:
    """How a result was condensed when it was first seen, and the size that was left: later trims start from it.

    Together with the original, its call, its id and whether that is shown it determines the bytes.
    """

    version: int
    """See `prompt_sidecar.trim.condense.condensing`."""
    level: Level
    page: bool
    """Whether it was treated as a page that a tool fetched."""
    size: int
    """Bytes of the condensed text, its label included."""
    tokens: int
    savings: tuple[Saving, ...] = ()
    """What each reduction removed; empty where another process condensed it."""


@dataclass(frozen=True, slots=True)
class ListedNames:
    """Names that a clipped result's label lists; see `prompt_sidecar.trim.names`."""

    places: tuple[tuple[int, int], ...]
    """For each its message, none later than the result's, and its place among the names of that message."""
    names: tuple[str, ...]
    tokens: int
    """Tokens that they add to the label."""


@dataclass(slots=True)
class Entry:
    """One item of the history and what was decided about it."""

    message: int
    item: int
    kind: ItemKind
    size: int
    """Bytes of the text whose tokens are counted; independent of how the agent escapes it."""
    full_tokens: int
    tokens: int
    """Current tokens."""
    stash_id: str
    tool: str = ""
    arguments: str = ""
    """The beginning of its call's arguments, for the registry."""
    result: int = -1
    holdable: bool = True
    """Whether the stash can store the original; otherwise the item is not trimmed."""
    fixed: bool = False
    """Whether it is never edited, and only dropped with its message."""
    action: Action | None = None
    kept: KeptBytes | None = None
    reason: Reason | None = None
    decided: int = 0
    """The iteration at whose prompt the last decision was made."""
    first: int = 0
    """The iteration at whose prompt a part of it was first hidden; 0 if nothing is."""
    earlier: tuple[tuple[int, int], ...] = ()
    """Earlier decisions, if it was trimmed more than once: iteration and remaining tokens."""
    advertised: bool = True
    """Whether its marker shows the id."""
    stored: bool = False
    """Whether the original was stored when the item was first trimmed."""
    recalled: bool = False
    """Whether it is a page that recall returned; its id is then that of the original, which is stored already."""
    tag: str = ""
    """For such a page: distinguishes it from other pages of the same original."""
    feedback: Feedback | None = None
    annotated: bool = False
    """Whether the agent annotated it, which cannot be derived from the history."""
    stretch: int = -1
    """For feedback: the number of other user texts before it; feedback with the same number is one stretch."""
    counts: tuple[int, ...] = ()
    """For the first collapsed feedback of a stretch: how many of each kind its label counts. For the ledger's carrier,
    which is clipped: the number of dropped iterations, or as a negative number the least that were."""
    again: int = 0
    """For a result that is clipped to a pointer: the iteration that returned it again."""
    leaves: bool = False
    """For clipped arguments: whether the short strings in them were kept."""
    opaque: int = 0
    """The part of `full_tokens` that is encrypted text; only items that are removed whole have any."""
    condensable: bool = False
    """Whether it is a result that may be condensed: a text of some length that nobody quotes by its places."""
    call: SourceCall | None = None
    """For such a result, its call; None if that is unknown."""
    condensed: Condensing | None = None
    """How it was condensed; kept where the result was elided or clipped later."""
    injected: Injected | None = None
    """The kind of injected text, where a framework and not a user or developer put it into the history in mid-run."""
    listed: ListedNames | None = None
    """For a clipped result whose message is not dropped: names that its label lists, if it does."""

    @property
    def label(self) -> str | None:
        """The label that replaces it where nothing of it is kept, without the number of dropped iterations.

        None: empty arguments.
        """
        label = elide.placeholder(self.kind, self.stash_id if self.advertised else "", self.size)
        return elide.naming(label, self.listed.names) if label and self.listed is not None else label

    @property
    def base_size(self) -> int:
        """Bytes of the text that an elision starts from."""
        return self.size if self.condensed is None else self.condensed.size

    @property
    def base_tokens(self) -> int:
        """Tokens of that text."""
        return self.full_tokens if self.condensed is None else self.condensed.tokens

    def tokens_at(self, iteration: int) -> int:
        """Its tokens in that iteration's prompt, after its own trims but not its message's drop."""
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
    """Current tokens; 0 once dropped."""
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
    """Number of changes to its rendering, so that a reader can detect a stale one."""
    opaque: int = 0
    """The part of `tokens` that is encrypted text, which is calibrated separately."""
    full_opaque: int = 0
    """The part of `full_tokens` that is encrypted text."""
    identified: bool = False
    """See `Message.identified`."""
    names: tuple[str, ...] = ()
    """Names that the model used in it; see `prompt_sidecar.trim.names`."""
    words: bool = False
    """Whether it holds a user's own text after the opening, neither a page snapshot nor feedback; set by the ledger."""
    kept: bool = False
    """Whether its group is never dropped: it has a result of a tool whose results are never trimmed, or a change that
    stays in force; see `Message.in_force`."""
    tied: bool = False
    """See `Message.tied`."""
    final: bool = False
    """See `Message.final`."""
    compacts: bool = False
    """Whether it holds a provider's newest compaction; see `prompt_sidecar.prompt.format.Compaction`."""
    settled: bool = False
    """Whether it precedes that compaction and therefore stays unchanged."""
    unseen: bool = False
    """Whether it precedes that compaction and the provider drops it: it takes no tokens, and none of its text is shown.
    """
    foreign: bool = False
    """For an assistant message: whether the sidecar did not return the prompt that produced it; see `Evaluation`."""

    @property
    def stays(self) -> bool:
        """Whether it stays where its iteration is dropped: instructions of the agent, and messages of unknown roles."""
        return self.role is Role.OTHER or (self.role is Role.SYSTEM and not self.tied)

    @property
    def only_condensed(self) -> bool:
        """Whether results in it were condensed, and nothing else was done to it."""
        actions = {entry.action for entry in self.entries}
        return not self.dropped and Action.CONDENSED in actions and not actions & CUTS

    @property
    def only_reasoning(self) -> bool:
        """Whether it holds nothing but reasoning."""
        return bool(self.entries) and all(entry.kind is ItemKind.REASONING for entry in self.entries)

    @property
    def removed(self) -> bool:
        """Whether it held nothing but reasoning and was removed with it: no label replaces it, so it has no text."""
        return self.only_reasoning and all(
            entry.action is Action.CLIPPED and not entry.tokens for entry in self.entries
        )


@dataclass(slots=True)
class BlockGroup:
    """An assistant block and what follows it."""

    start: int
    reach: int
    """The newest group that answers one of its calls, or itself; all up to there are dropped together."""
    back: int
    """The oldest group that has a call which this one answers, or itself."""
    unanswered: int = 0
    """Unanswered calls; such a group is not dropped, as a late answer would be an orphan."""
    pinned: bool = False
    asked: int = 0
    """Raw tokens of the prompts that this and all earlier groups answered, as trimmed at the time."""
    output_tokens: int = 0
    """Tokens of the model's messages in all earlier groups, raw and untrimmed."""
