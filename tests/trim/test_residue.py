"""Iterations that are dropped are counted by the label of one that stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim import elide, own_text
from prompt_sidecar.trim.entries import Action, Entry
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.revision import apply_state, pack_state
from tests.trim.histories import Fold, decisions, evaluated, few, histories, limits, plain
from tests.trim.test_oldest import LIMIT, history

DROPPING = Policy().override({"fit_keep_oldest": 0.0})


def dropped_groups(ledger: Ledger) -> set[int]:
    """Groups of which a message is gone, feedback that its label counts left out."""
    return {record.group for record in ledger.records if record.dropped and record.dropped_for != "feedback"}


def test_the_carrier() -> None:
    """The first iteration that would go stays, clipped; the label of its result counts the others."""
    fold = evaluated(history(), LIMIT, DROPPING)
    ledger, carrier = fold.ledger, fold.ledger.carrier
    assert carrier is not None
    assert (ItemKind.RESULT, Action.CLIPPED) == (carrier.kind, carrier.action)
    assert 0 == ledger.records[carrier.message].group
    gone = dropped_groups(ledger)
    assert len(gone) > 10
    assert (len(gone),) == carrier.counts == (ledger.counted_by_carrier,)
    assert "" == own_text.dropped(ledger)
    label = elide.placeholder(carrier.kind, carrier.stash_id, carrier.size)
    assert label is not None
    assert f"[content clipped — id={carrier.stash_id}, 1,600 bytes; {len(gone)} other iterations dropped]" == (
        elide.carrier(label, len(gone))
    )


@pytest.mark.parametrize(("number", "ends"), [(0, " bytes]"), (1, "; 1 other iteration dropped]"),
                                              (1_200, "; 1,200 other iterations dropped]")])  # fmt: skip
def test_labels(number: int, ends: str) -> None:
    """A number, in the singular for one; nothing where nothing is dropped."""
    label = elide.placeholder(ItemKind.RESULT, "", 77) or ""
    assert elide.carrier(label, number).endswith(ends)


def test_it_goes_in_the_last_resort() -> None:
    """In a window that it is too large for it goes as well, and a message of ours tells that iterations went."""
    fold = evaluated(history(20, result=400), 120, DROPPING)
    assert fold.ledger.carrier is None
    assert len(dropped_groups(fold.ledger)) == fold.ledger.counted_by_placeholder > 0
    assert own_text.DROPPED_UNCOUNTED == own_text.dropped(fold.ledger)


def test_a_users_words_do_not_stay_for_it() -> None:
    """An iteration with a user's text is dropped, the next without one counts those after it; ours tells the first."""
    messages = history()
    messages.insert(3, plain(Role.USER, ((ItemKind.TEXT, "Go on. " * 40),)))
    fold = evaluated(messages, LIMIT, DROPPING)
    assert fold.ledger.carrier is not None
    assert 1 == fold.ledger.records[fold.ledger.carrier.message].group
    assert 0 in dropped_groups(fold.ledger)
    assert (fold.ledger.counted_by_carrier,) == fold.ledger.carrier.counts
    assert len(dropped_groups(fold.ledger)) == fold.ledger.counted_by_carrier + 1
    assert own_text.dropped(fold.ledger).startswith("[1 earlier iteration dropped: ")


def counted(fold: Fold) -> None:
    """The carrier says how many groups are gone, and its message takes that label's tokens."""
    ledger, carrier = fold.ledger, fold.ledger.carrier
    assert len(dropped_groups(ledger)) == ledger.counted_by_carrier + ledger.counted_by_placeholder
    assert bool(own_text.dropped(ledger)) == bool(ledger.counted_by_placeholder)
    if carrier is None:
        return
    record = ledger.records[carrier.message]
    assert not record.dropped
    assert carrier.action is Action.CLIPPED
    if not record.pinned:
        assert ((ledger.counted_by_carrier,) if ledger.counted_by_carrier else ()) == carrier.counts
    assert 15 + ledger.total == fold.used()


@few
@given(histories(), limits, st.data())
def test_any_history_and_rewind(messages: list[plain], limit: int, data: st.DataObject) -> None:
    """The count is right after every evaluation, and after going back and on."""
    fold = evaluated(messages, limit, data.draw(st.sampled_from([Policy(), DROPPING])))
    counted(fold)
    back = data.draw(st.integers(1, len(messages)))
    fold.ledger.rewind(back)
    fold.evaluate()
    counted(fold)
    fold.take()
    counted(fold)


def test_a_revision_carries_it() -> None:
    """A process that takes the decisions over goes on as this one does."""
    fold = evaluated(history(), LIMIT, DROPPING)
    other = Fold(list(fold.messages), LIMIT, DROPPING)
    for record in other.fresh():
        other.ledger.append(record)
    assert apply_state(other.ledger, pack_state(fold.ledger))
    other.evaluate()
    assert decisions(fold.ledger) == decisions(other.ledger)
    assert [each(fold) for each in FACTS] == [each(other) for each in FACTS]
    for each in (fold, other):
        each.messages += [replace(message, calls=tuple(f"{call}x" for call in message.calls),
                                  answers=tuple(f"{call}x" for call in message.answers))
                          for message in history(40)[1:]]  # fmt: skip
        each.take()
    assert decisions(fold.ledger) == decisions(other.ledger)
    assert [each(fold) for each in FACTS] == [each(other) for each in FACTS]


def _place(entry: Entry | None) -> tuple[int, int] | None:
    return (entry.message, entry.item) if entry is not None else None


FACTS = (
    lambda fold: _place(fold.ledger.carrier),
    lambda fold: fold.ledger.carrier.counts,
    lambda fold: (
        fold.ledger.held,
        fold.ledger.counted_by_carrier,
        fold.ledger.counted_by_placeholder,
        fold.ledger.listed,
        fold.ledger.total,
    ),
)
"""What decides how it goes on, besides the decisions."""
