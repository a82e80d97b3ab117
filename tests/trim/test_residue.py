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
from tests.trim.histories import Fold, decisions, evaluated, few, histories, limits, opened, plain
from tests.trim.test_oldest import ITERATIONS, LIMIT, history

DROPPING = Policy().override({"fit_keep_oldest": 0.0})


def dropped_groups(ledger: Ledger) -> set[int]:
    """Groups of which a message is gone, feedback that its label counts left out."""
    return {record.group for record in ledger.records if record.dropped and record.dropped_for != "feedback"}


def test_the_carrier() -> None:
    """The first iteration that would go stays, clipped; the label of its result counts the others."""
    fold = evaluated(history(), LIMIT, DROPPING)
    ledger, carrier = fold.ledger, fold.ledger.drops.carrier
    assert carrier is not None
    assert (ItemKind.RESULT, Action.CLIPPED) == (carrier.kind, carrier.action)
    assert 0 == ledger.records[carrier.message].group
    gone = dropped_groups(ledger)
    assert len(gone) > 10
    assert 100 < len(gone) == ledger.drops.by_carrier < 1_000
    assert (-100,) == carrier.counts
    assert "" == own_text.dropped(ledger)
    label = elide.placeholder(carrier.kind, carrier.stash_id, carrier.size)
    assert label is not None
    assert f"[content clipped — id={carrier.stash_id}, 1,600 bytes; 100+ other iterations dropped]" == (
        elide.carrier(label, carrier.counts[0])
    )


@pytest.mark.parametrize(("number", "ends"), [(0, " bytes]"), (1, "; 1 other iteration dropped]"),
                                              (1_200, "; 1,200 other iterations dropped]"),
                                              (-1, "; 1+ other iterations dropped]"),
                                              (-1_000, "; 1,000+ other iterations dropped]")])  # fmt: skip
def test_dropped_iterations_are_counted_in_words(number: int, ends: str) -> None:
    """A number, in the singular for one; nothing where nothing is dropped."""
    label = elide.placeholder(ItemKind.RESULT, "", 77) or ""
    assert elide.carrier(label, number).endswith(ends)


@pytest.mark.parametrize("since_9", [False, True])
def test_a_count_seldom_moves_the_prefix(since_9: bool) -> None:
    """What a user said behind the label stays cached at most cuts; before rules 9 each cut counted anew."""
    fold = Fold(with_words(30), LIMIT, DROPPING, since_9=since_9)
    counts, seen = set(), 0
    for upto in range(40, len(fold.messages) + 1, 10):
        fold.take(upto)
        carrier = fold.ledger.drops.carrier
        if carrier is not None and fold.ledger.registry.batches > seen:
            seen = fold.ledger.registry.batches
            counts.add(carrier.counts)
    assert seen > 5
    assert (len(counts) <= 3) == since_9


@pytest.mark.parametrize("since_9", [False, True])
def test_it_goes_after_the_newest_results_were_shortened(since_9: bool) -> None:
    """Some tokens of a result that nearly fits go before it: without it a message of ours would count, in front."""
    messages = history(60, result=400)
    messages[-1] = replace(messages[-1], items=((ItemKind.RESULT, "abcd" * 2_700),))
    fold = Fold(messages, 3_000, DROPPING, since_9=since_9)
    fold.take()
    *_, newest = (entry for record in fold.ledger.records for entry in record.entries)
    assert (fold.ledger.drops.carrier is not None) == since_9
    assert (newest.action is Action.ELIDED) == since_9
    assert newest.tokens > 2_600
    assert fold.used() <= fold.limit


def test_it_goes_in_the_last_resort() -> None:
    """In a window that it is too large for it goes as well, and a message of ours tells that iterations went."""
    fold = evaluated(history(20, result=400), 120, DROPPING)
    assert fold.ledger.drops.carrier is None
    assert len(dropped_groups(fold.ledger)) == fold.ledger.drops.by_placeholder > 0
    assert own_text.DROPPED_UNCOUNTED == own_text.dropped(fold.ledger)


WORDS = "Go on. " * 40


def with_words(*places: int, count: int = ITERATIONS) -> list[plain]:
    """A history with a user's words before these of its messages."""
    messages = history(count)
    for place in reversed(places):
        messages.insert(place, plain(Role.USER, ((ItemKind.TEXT, WORDS),)))
    return messages


def spoken(fold: Fold) -> list[int]:
    """Messages with a user's words that the prompt still has, whole."""
    found = [record for record in fold.ledger.records if record.words and not record.dropped]
    return [record.entries[-1].message for record in found if record.entries[-1].action is None]


def test_a_users_words_stay() -> None:
    """The first iteration is clipped and counts the others; what a user said in it, and in dropped ones, stays."""
    fold = evaluated(with_words(3, 9), LIMIT, DROPPING)
    assert fold.ledger.drops.carrier is not None
    assert 0 == fold.ledger.records[fold.ledger.drops.carrier.message].group
    assert {1, 2, 3} <= dropped_groups(fold.ledger)
    assert [3, 10] == spoken(fold)
    counted(fold)
    assert "" == own_text.dropped(fold.ledger)


@pytest.mark.parametrize("alternating", [False, True])
def test_an_iteration_stays_with_a_users_words(alternating: bool) -> None:
    """Where its message answers calls too, or must stand between two of the model, its iteration is only clipped."""
    messages = with_words(9)
    if not alternating:
        words, result = messages.pop(9), messages.pop(8)
        messages.insert(8, replace(result, role=Role.USER, items=(*result.items, *words.items)))
    fold = Fold(messages, LIMIT, DROPPING, alternating=alternating)
    fold.take()
    assert {1, 2, 4, 5} <= dropped_groups(fold.ledger)
    assert 3 not in dropped_groups(fold.ledger)
    results = [entry for entry in fold.ledger.records[8].entries if entry.kind is ItemKind.RESULT]
    assert [Action.CLIPPED] == [entry.action for entry in results]
    assert [8 if not alternating else 9] == spoken(fold)


def test_words_past_a_quarter_of_the_limit() -> None:
    """The longest of them are elided, as far as needed; the newest and short ones stay."""
    messages = with_words(3, 9, 30, 60)
    long = plain(Role.USER, ((ItemKind.TEXT, "line of a log that somebody pasted\n" * 500),))
    messages[3], messages[-2] = long, plain(Role.USER, ((ItemKind.TEXT, "the newest words\n" * 300),))
    fold = evaluated(messages, LIMIT, DROPPING)
    texts = [record.entries[0] for record in fold.ledger.records if record.words]
    assert [Action.ELIDED, None, None, None, None] == [entry.action for entry in texts]
    assert fold.ledger.decisions.words == sum(entry.tokens for entry in texts) <= LIMIT / 4
    kept = texts[0].kept
    assert kept is not None
    assert min(kept.head, kept.tail) > 0


def test_words_go_as_the_last_resort() -> None:
    """Where the prompt would be refused, the oldest words go, with their iterations; the newest stay."""
    fold = evaluated(with_words(*range(3, 60, 2), count=30), 900, DROPPING)
    assert fold.used() <= 900
    gone = [record for record in fold.ledger.records if record.words and record.dropped]
    stay = [record for record in fold.ledger.records if record.words and not record.dropped]
    assert gone
    assert stay
    assert max(record.group for record in gone) < min(record.group for record in stay)
    assert len(dropped_groups(fold.ledger)) == fold.ledger.drops.by_placeholder
    again = evaluated(with_words(*range(3, 60, 2), count=30), 900, DROPPING)
    assert decisions(again.ledger) == decisions(fold.ledger)


def test_words_stay_while_the_prompt_fits() -> None:
    """A limit that they pass only with results takes none of them."""
    fold = evaluated(with_words(3, 9, 15, 21), 1_200, DROPPING)
    assert [3, 10, 17, 24] == spoken(fold)


def test_rewind_and_words() -> None:
    """What is counted of users' words is what stands there, after going back and on too."""
    fold = evaluated(with_words(*range(3, 60, 2), count=30), 900, DROPPING)
    for back in (70, 33, 9, 2):
        fold.ledger.rewind(back)
        assert_words(fold)
        fold.evaluate()
        assert_words(fold)
    fold.take()
    assert_words(fold)


def assert_words(fold: Fold) -> None:
    """The ledger's running figures of users' words are what a sum over its messages gives."""
    ledger = fold.ledger
    records = [record for record in ledger.records if record.words]
    live = [record for record in records if not record.dropped]
    assert ledger.decisions.words == sum(entry.tokens for record in live for entry in record.entries)
    assert ledger.decisions.spoken_between(0, len(ledger)) == sum(record.tokens for record in live)
    assert ledger.queues.newest_words == max((record.entries[0].message for record in records), default=-1)


def counted(fold: Fold) -> None:
    """The carrier says how many groups are gone, and its message takes that label's tokens."""
    ledger, carrier = fold.ledger, fold.ledger.drops.carrier
    assert len(dropped_groups(ledger)) == ledger.drops.by_carrier + ledger.drops.by_placeholder
    assert bool(own_text.dropped(ledger)) == bool(ledger.drops.by_placeholder)
    if carrier is None:
        return
    record = ledger.records[carrier.message]
    assert not record.dropped
    assert carrier.action is Action.CLIPPED
    if not record.pinned:
        at_least = -carrier.counts[0] if carrier.counts else 0
        assert at_least <= ledger.drops.by_carrier < max(1, 10 * at_least)
    assert 15 + ledger.decisions.total == fold.used()


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
    other = Fold(list(fold.messages), LIMIT, DROPPING, opened(fold))
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
    lambda fold: _place(fold.ledger.drops.carrier),
    lambda fold: fold.ledger.drops.carrier.counts,
    lambda fold: (
        fold.ledger.queues.held,
        fold.ledger.drops.by_carrier,
        fold.ledger.drops.by_placeholder,
        fold.ledger.registry.listed,
        fold.ledger.decisions.total,
    ),
)
"""What decides how it goes on, besides the decisions."""


def test_instructions_are_not_clipped() -> None:
    """A system message of the iteration whose label counts the others stays as it is, however long."""
    messages = history()
    messages.insert(3, plain(Role.SYSTEM, ((ItemKind.TEXT, "Take care of the cat. " * 200),)))
    fold = evaluated(messages, LIMIT, DROPPING)
    assert fold.ledger.drops.carrier is not None
    assert 0 == fold.ledger.records[fold.ledger.drops.carrier.message].group == fold.ledger.records[3].group
    assert [None] == [entry.action for entry in fold.ledger.records[3].entries]
