"""Which feedback may be collapsed, against a look at all of it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import Action, Entry, Feedback, Record
from prompt_sidecar.trim.ledger.feedback import Waiting
from tests.trim.histories import plain, record_of

_SHORT = 3
"""Entries of so few tokens are shorter than their label."""


class SlowWaiting:
    """The slow twin: looks at everything each time."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def append(self, entry: Entry) -> None:
        """See `Waiting`."""
        self.entries.append(entry)

    def take_old(self, newest: int, records: list[Record]) -> list[list[Entry]]:
        """See `Waiting`; what is alone in its stretch is reported each time."""
        here = [
            entry
            for entry in self.entries
            if entry.action is None and not records[entry.message].dropped and not records[entry.message].pinned
        ]
        last = {entry.feedback: entry for entry in here}
        stretches: dict[int, list[Entry]] = {}
        for entry in here:
            old = records[entry.message].group < newest
            if old and entry.holdable and last[entry.feedback] is not entry:
                stretches.setdefault(entry.stretch, []).append(entry)
        return list(stretches.values())


_steps = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(Feedback), st.integers(1, 9), st.integers(0, 15), st.booleans()),
    max_size=40,
)


_WAS_ALONE = [(4, Feedback.VALIDATION, 1, 0, True), (3, Feedback.VALIDATION, 1, 0, False), (0, Feedback.VALIDATION, 1,
0, True),
              (2, Feedback.VALIDATION, 1, 1, True), (0, Feedback.VALIDATION, 1, 0, True)]  # fmt: skip
"""What was alone becomes the newest of its kind, as the one after it goes."""


@given(_steps, st.integers(0, 3))
@example(_WAS_ALONE, 0)
def test_against_a_look_at_all(drawn: list[tuple[int, Feedback, int, int, bool]], keep: int) -> None:
    """The same is collapsed at each batch point, whatever was dropped or pinned in between."""
    records: list[Record] = []
    fast, slow = Waiting(), SlowWaiting()
    stretch = group = 0
    for kind, feedback, tokens, other, holdable in drawn:
        if kind == 0:
            group += 1
        elif kind == 1:
            stretch += 1
        elif kind == 2 and records:  # something else befalls a message
            record = records[other % len(records)]
            record.pinned, record.dropped = record.pinned or other > 7, record.dropped or other <= 7
        else:
            record = record_of(plain(Role.USER, ((ItemKind.TEXT, "x"),), holdable=holdable), len(records))
            record.group = group
            records.append(record)
            entry = record.entries[0]
            entry.feedback, entry.stretch, entry.tokens = feedback, stretch, tokens
            fast.append(entry)
            slow.append(entry)
        if kind in {0, 3}:
            batch(fast, slow, group - keep, records)


def batch(fast: Waiting, slow: SlowWaiting, newest: int, records: list[Record]) -> None:
    """Collapse at a batch point what either says, which must be the same."""
    stays = [stretch for stretch in slow.take_old(newest, records) if alone(stretch)]
    expected = [stretch for stretch in slow.take_old(newest, records) if not alone(stretch)]
    found = fast.take_old(newest, records)
    for stretch in [stretch for stretch in found if alone(stretch)]:
        assert stretch in stays
        fast.leave(stretch[0])
    assert expected == [stretch for stretch in found if not alone(stretch)]
    for entry in [entry for stretch in expected for entry in stretch]:
        entry.action = Action.COLLAPSED


def alone(stretch: list[Entry]) -> bool:
    """Whether a stretch stays because its label would be longer."""
    return len(stretch) == 1 and stretch[0].tokens <= _SHORT
