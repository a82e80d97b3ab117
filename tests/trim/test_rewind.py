"""Rewinding: the history is shorter, its decisions stay, and every index is what a fresh one would be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.entries import Action, Ageing
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.policy import AgeStage, Policy
from tests.trim.histories import Decided, Fold, decisions, few, histories, limits, plain, record_of
from tests.trim.test_ledger import candidates, partners, popped


def rewound(data: st.DataObject) -> tuple[Fold, Ledger, int, list[Decided]]:
    """A fold that was rewound, a ledger of its messages with nothing decided, and what was decided before."""
    messages = data.draw(histories())
    fold = Fold(messages, data.draw(limits))
    fold.take()
    before = decisions(fold.ledger)
    length = data.draw(st.integers(0, len(messages)))
    fold.ledger.rewind(length)
    del messages[length:]
    fold.messages = messages
    plainly = Ledger()
    for index, message in enumerate(messages):
        plainly.append(record_of(message, index, plainly.chain))
    return fold, plainly, length, before


@few
@given(st.data())
def test_indices_are_those_of_a_fresh_ledger(data: st.DataObject) -> None:
    """Groups, pairs, ids, images and the lists that clipping walks hold what is left, and only that."""
    fold, fresh, length, _ = rewound(data)
    ledger = fold.ledger
    assert length == len(ledger)
    assert fresh.groups == ledger.groups
    for ageing in Ageing:
        places = [
            [(entry.message, entry.item) for entry in one.queues.by_age[ageing].entries] for one in (fresh, ledger)
        ]
        assert places[0] == places[1]
    assert set(fresh.messages.by_id) == set(ledger.messages.by_id)
    assert (fresh.messages.media, fresh.messages.not_holdable, fresh.chain) == (
        ledger.messages.media,
        ledger.messages.not_holdable,
        ledger.chain,
    )
    assert sum(record.tokens for record in ledger.records if not record.dropped) == ledger.decisions.total
    assert all(index < length for index in ledger.decisions.dirty)


@few
@given(st.data())
def test_a_rewind_moves_the_frontiers_back(data: st.DataObject) -> None:
    """What clipping and dropping have passed lies within what is left."""
    fold, _, length, _ = rewound(data)
    ledger = fold.ledger
    assert all(0 <= queue.done <= len(queue.entries) for queue in ledger.queues.by_age.values())
    assert 0 <= ledger.drops.done <= len(ledger.groups)
    assert 0 <= ledger.decisions.evaluated <= length
    assert 0 <= ledger.registry.batch_end <= length
    assert -1 <= ledger.registry.batch_group < max(len(ledger.groups), 1)
    assert not any(record.dropped for group in range(ledger.drops.done, len(ledger.groups)) for record in (
        ledger.records[index] for index in ledger.messages.members(group)
    ))  # fmt: skip


@few
@given(st.data())
def test_the_newest_iteration_stays(data: st.DataObject) -> None:
    """Whatever was done to it when it was not the newest, and though no iteration is to be kept, it is not dropped."""
    messages = data.draw(histories())
    policy = Policy(age_keep_iterations=0, age_stage=data.draw(st.sampled_from([AgeStage.PRESSURE, AgeStage.ALWAYS])))
    fold = Fold(messages, data.draw(limits), policy)
    fold.take()
    fold.ledger.rewind(data.draw(st.integers(0, len(messages))))
    fold.evaluate()
    ledger = fold.ledger
    assert not ledger.groups or not any(
        ledger.records[index].dropped for index in ledger.messages.members(len(ledger.groups) - 1)
    )


SHORT_FOR_A_MARKER = 128
"""Bytes: a marker takes about 70, and eliding leaves at most half."""


@few
@given(st.data())
def test_the_heap(data: st.DataObject) -> None:
    """The heap gives each result that may be elided, largest first; only one too short for a marker may be missing."""
    fold, _, _, _ = rewound(data)
    expected = candidates(fold.ledger)
    found = popped(fold.ledger)
    assert found == [place for place in expected if place in found]
    for _, message, item in set(expected) - set(found):
        entry = fold.ledger.records[message].entries[item]
        assert entry.size < SHORT_FOR_A_MARKER or not entry.holdable


@few
@given(st.data())
def test_decisions_stay(data: st.DataObject) -> None:
    """An item that was trimmed stays trimmed; only what was dropped may come back, where messages can follow it."""
    fold, _, length, before = rewound(data)
    for was, now, record in zip(before[:length], decisions(fold.ledger), fold.ledger.records, strict=True):
        assert was[1:] == now[1:]
        assert was[0] or not record.dropped
        if was[0] and not record.dropped:
            assert record.touched


@few
@given(st.data())
def test_pairs_stay_together(data: st.DataObject) -> None:
    """After a rewind no answer is left without its call, and no call without an answer that it had."""
    fold, _, _, _ = rewound(data)
    records = fold.ledger.records
    for call, answer in partners(fold.messages):
        assert records[call].dropped == records[answer].dropped or records[call].group < 0
    answered = [call for call, _ in partners(fold.messages)]
    for index, message in enumerate(fold.messages):
        if records[index].dropped:
            assert len(message.calls) == answered.count(index)


@few
@given(st.data(), histories(most=6))
def test_going_on_after_a_rewind(data: st.DataObject, more: list[plain]) -> None:
    """Another branch is taken as any history is: sums hold, nothing comes back, evaluating again changes nothing."""
    fold, _, length, _ = rewound(data)
    before = decisions(fold.ledger)
    fold.messages += more[1:]
    fold.take()
    assert 15 + fold.ledger.decisions.total == fold.used()
    carrier, carried = (
        fold.ledger.drops.carrier,
        fold.ledger.drops.carrier_tokens,
    )  # its label counts what this branch has dropped
    for index, (was, now) in enumerate(zip(before, decisions(fold.ledger)[:length], strict=True)):
        assert now[0] or not was[0]
        assert now[1] - (carried if carrier is not None and index == carrier.message else 0) <= was[1]
    settled = decisions(fold.ledger)
    fold.evaluate()
    assert settled == decisions(fold.ledger)
    for call, answer in partners(fold.messages):
        records = fold.ledger.records
        assert records[call].dropped == records[answer].dropped or records[call].group < 0


@few
@given(histories(), limits)
def test_rewind_to_where_it_is(messages: list[plain], limit: int) -> None:
    """Rewinding to the end changes nothing."""
    fold = Fold(messages, limit)
    fold.take()
    before = decisions(fold.ledger)
    fold.ledger.rewind(len(messages))
    fold.ledger.rewind(len(messages) + 5)
    assert before == decisions(fold.ledger)
    assert all(
        entry.action is None or entry.kind is not ItemKind.OPAQUE for r in fold.ledger.records for entry in r.entries
    )
    assert Action.DROPPED not in {entry.action for record in fold.ledger.records for entry in record.entries}
