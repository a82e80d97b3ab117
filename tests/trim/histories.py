"""Histories of plain messages, and the fold over them as the run does it, for tests of ledger and stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Role
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import Condensing, Entry, Feedback, Record
from prompt_sidecar.trim.inputs import Inputs
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.names import names_used
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.revision import RULES, Revision, apply_state, pack_state
from prompt_sidecar.trim.stages import Evaluation

few = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
"""Examples of tests whose histories are costly to draw."""


def count(text: str) -> int:
    """Tokens for these tests: every fourth byte, at least one, and more for texts with odd letters."""
    return len(text.encode()) // 4 + 1


@dataclass(frozen=True, slots=True)
class plain:  # noqa: N801 - reads as a word in tests
    """A message: items as kind and text; results name the call that they answer by its place in `answers`."""

    role: Role
    items: tuple[tuple[ItemKind, str], ...] = ()
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    pinned: bool = False
    holdable: bool = True
    feedback: Feedback | None = None
    annotated: bool = False
    tied: bool = False


def record_of(message: plain, index: int, before: bytes = b"") -> Record:
    """The record that a run would make of a message."""
    entries = tuple(
        Entry(
            message=index,
            item=number,
            kind=kind,
            size=len(text.encode()),
            full_tokens=1_600 if kind is ItemKind.IMAGE else count(text),
            tokens=1_600 if kind is ItemKind.IMAGE else count(text),
            stash_id=f"{index:05d}{number:05d}",
            tool="tool" if kind is not ItemKind.TEXT else "",
            arguments='{"a": 1}' if kind is not ItemKind.TEXT else "",
            result=0 if message.answers and kind in (ItemKind.RESULT, ItemKind.IMAGE) else -1,
            holdable=message.holdable,
            feedback=message.feedback if kind is ItemKind.TEXT else None,
            annotated=message.annotated,
            opaque=count(text) // 2 if kind is ItemKind.REASONING else 0,
        )
        for number, (kind, text) in enumerate(message.items)
    )
    opaque = sum(entry.opaque for entry in entries)
    tokens = 4 + 8 * len(message.calls + message.answers) + sum(entry.full_tokens for entry in entries)
    return Record(
        role=message.role,
        identity=b"%16d" % hash(message),
        chain=before + b"%d." % index,
        entries=entries,
        full_tokens=tokens,
        tokens=tokens,
        group=-1,
        pinned=message.pinned,
        calls=message.calls,
        answers=message.answers,
        opaque=opaque,
        full_opaque=opaque,
        tied=message.tied,
        media=sum(kind is ItemKind.IMAGE for kind, _ in message.items),
        names=names_used(_message(message), lambda _: False),
    )


def _message(message: plain) -> Message:
    items = tuple(Item(kind, (number,), text) for number, (kind, text) in enumerate(message.items))
    return Message(message.role, items, b"")


@dataclass(slots=True)
class Fold:
    """A ledger with the texts behind it, taken message by message as a run takes them."""

    messages: list[plain]
    limit: int
    policy: Policy = field(default_factory=Policy)
    ledger: Ledger = field(default_factory=Ledger)
    alternating: bool = False
    reasoning: ReasoningRule = ReasoningRule.KEPT
    since_9: bool = True

    def ends(self, entry: Entry, most: int | None = None) -> tuple[bytes, bytes]:  # noqa: ARG002 - all is enough
        """A text's first and last bytes: the whole text twice."""
        text = self.messages[entry.message].items[entry.item][1].encode()
        return text, text

    def condensed(self, entry: Entry) -> Condensing | None:
        """How a result is condensed; `tests.engine.steps.test_condensing` looks at that."""

    def has(self, entry: Entry) -> bool:
        """Whether the prompt holds an item: it holds all of the history."""
        return entry.message < len(self.messages)

    def shown(self, entry: Entry) -> str:
        """What is left of a text; no labels."""
        text = self.messages[entry.message].items[entry.item][1].encode()
        kept = entry.kept
        if entry.action is not None:
            text = text[: kept.head] + text[len(text) - kept.tail :] if kept is not None else b""
        return text.decode(errors="replace")

    def arguments(self, entry: Entry, label: str) -> str | None:
        """What arguments become that keep their short strings."""
        return elide.clipped_arguments(self.messages[entry.message].items[entry.item][1], label, free_text=False)

    def evaluate(self) -> None:
        """One evaluation of the history as it is."""
        inputs = Inputs(
            self.policy,
            self.limit,
            overhead=10,
            reserve=5,
            recall=True,
            alternating=self.alternating,
            reasoning=self.reasoning,
        )
        Evaluation(self.ledger, inputs, self, count, since_9=self.since_9).run()

    def used(self) -> int:
        """Tokens in use, by a sum."""
        return 15 + sum(record.tokens for record in self.ledger.records if not record.dropped)

    def take(self, upto: int | None = None) -> None:
        """Take what is new, evaluating before each assistant message and at the end."""
        for index in range(len(self.ledger), len(self.messages) if upto is None else upto):
            if self.messages[index].role is Role.ASSISTANT and len(self.ledger):
                self.evaluate()
            self.ledger.append(record_of(self.messages[index], index, self.ledger.chain))
        self.evaluate()

    def fresh(self) -> list[Record]:
        """The records of a process that has not seen the run."""
        made: list[Record] = []
        for index, message in enumerate(self.messages):
            made.append(record_of(message, index, made[-1].chain if made else b""))
        return made


def evaluated(messages: Sequence[plain], limit: int, policy: Policy | None = None) -> Fold:
    """A fold of a whole history."""
    fold = Fold(list(messages), limit, policy or Policy())
    fold.take()
    return fold


def opened(fold: Fold, records: Sequence[Record] | None = None) -> Ledger:
    """The ledger of a process that was sent the history, or these records of it, and the revision of a fold."""
    ledger = Ledger()
    for record in fold.fresh() if records is None else records:
        ledger.append(record)
    assert apply_state(ledger, revision(pack_state(fold.ledger)))
    return ledger


def revision(state: bytes, version: int = RULES) -> Revision:
    """A revision with this state of the decisions."""
    return Revision(b"", 0, b"", [], state, version=version)


Decided = tuple[bool, int, list[object]]
"""Whether a message is dropped, its tokens, and what was decided about its items."""


def decisions(ledger: Ledger) -> list[Decided]:
    """What was decided about every item and message."""
    return [
        (
            record.dropped,
            record.tokens,
            [(e.action, e.kept, e.tokens, e.reason, e.decided) for e in record.entries if e.action],
        )
        for record in ledger.records
    ]


_text = st.builds(
    lambda piece, times: (piece * times)[: max(times, 1)],
    st.sampled_from(["line of log\n", "a", "日本語 ", "é\n", "path/to/file.py:12: error\n"]),
    st.sampled_from([1, 5, 60, 300, 900, 2_000, 6_000]),
)
_ids = st.sampled_from(["a", "b", "c", "", "d"])


@st.composite
def turns(draw: st.DrawFn) -> list[plain]:
    """An assistant message with its results, some of them late, missing or twice."""
    calls = tuple(draw(st.lists(_ids, max_size=3)))
    items = [(ItemKind.TEXT, draw(_text))] if draw(st.booleans()) else []
    items += [(ItemKind.ARGUMENTS, draw(_text)) for _ in calls]
    pinned = draw(st.integers(0, 15)) == 0
    made = [plain(Role.ASSISTANT, tuple(items), calls=calls, pinned=pinned)]
    for call in calls:
        if draw(st.integers(0, 9)) == 0:
            continue
        content: tuple[tuple[ItemKind, str], ...] = ((ItemKind.RESULT, draw(_text)),)
        if draw(st.integers(0, 9)) == 0:
            content += ((ItemKind.IMAGE, draw(_text)),)
        holdable = draw(st.integers(0, 15)) > 0
        made.append(plain(Role.TOOL, content, answers=(call,), holdable=holdable, pinned=draw(st.integers(0, 15)) == 0))
    extra = draw(st.integers(0, 11))
    if extra == 0:
        made.append(plain(Role.USER, ((ItemKind.TEXT, draw(_text)),)))
    elif extra == 1:
        made.append(plain(Role.SYSTEM, ((ItemKind.TEXT, "be careful"),)))
    elif extra == 2:
        made.append(plain(Role.TOOL, ((ItemKind.RESULT, draw(_text)),), answers=(draw(_ids),)))
    elif extra == 3 and len(made) > 2:
        made.append(made.pop(1))
    return made


@st.composite
def histories(draw: st.DrawFn, most: int = 14) -> list[plain]:
    """An opening and some turns."""
    opening = [plain(Role.USER, ((ItemKind.TEXT, draw(_text)),))]
    if draw(st.integers(0, 4)) == 0:
        opening.append(plain(Role.TOOL, ((ItemKind.RESULT, draw(_text)),), answers=("a",)))
    return opening + [message for turn in draw(st.lists(turns(), max_size=most)) for message in turn]


limits = st.sampled_from([60, 300, 900, 2_000, 5_000, 100_000])
"""Limits in tokens, from ones that nothing fits to ones that all fits."""


@st.composite
def mixed_turns(draw: st.DrawFn) -> list[plain]:
    """A turn as above, perhaps with reasoning before it, and with what agents add: feedback, pages, instructions."""
    made = draw(turns())
    if draw(st.booleans()):
        first = made[0]
        made[0] = replace(first, items=((ItemKind.REASONING, draw(_text)), *first.items))
    text = ((ItemKind.TEXT, draw(_text)),)
    match draw(st.sampled_from(["nothing", "nothing", "feedback", "page", "words", "instruction"])):
        case "feedback":
            kinds = draw(st.lists(st.sampled_from(Feedback), min_size=1, max_size=3))
            made += [plain(Role.USER, text, feedback=kind, annotated=draw(st.booleans())) for kind in kinds]
        case "page":
            made.append(plain(Role.USER, ((ItemKind.SNAPSHOT, draw(_text)),), annotated=draw(st.booleans())))
        case "words":
            made.append(plain(Role.USER, text))
        case "instruction":
            made.append(plain(Role.SYSTEM, text, tied=draw(st.booleans())))
    return made


@st.composite
def mixed_histories(draw: st.DrawFn, most: int = 14) -> list[plain]:
    """An opening and some turns with all kinds of items and messages."""
    opening = plain(Role.USER, ((ItemKind.TEXT, draw(_text)),))
    return [opening, *(message for turn in draw(st.lists(mixed_turns(), max_size=most)) for message in turn)]
