"""The parts of a ledger: saved and loaded, and rewound, each knows what it would know had it been made again."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import preset
from prompt_sidecar.trim.revision import apply_state
from tests.trim.histories import (
    Fold,
    count,
    decisions,
    evaluated,
    few,
    limits,
    mixed_histories,
    mixed_turns,
    opened,
    plain,
    record_of,
    revision,
)
from tests.trim.states import state_5, state_of
from tests.trim.test_ledger import popped
from tests.trim.test_oldest import LIMIT, history
from tests.trim.test_residue import DROPPING

policies = st.sampled_from([Policy(), preset("lean"), preset("fit_only"), DROPPING])
rules = st.sampled_from(ReasoningRule)


def made(messages: list[plain]) -> Ledger:
    """A ledger of these messages with nothing decided."""
    ledger = Ledger()
    for index, message in enumerate(messages):
        ledger.append(record_of(message, index, ledger.chain))
    return ledger


def fold_of(data: st.DataObject) -> Fold:
    """A fold over a drawn history, with drawn inputs, whose agent has pinned a message at some time."""
    messages = data.draw(mixed_histories())
    fold = Fold(messages, data.draw(limits), data.draw(policies), reasoning=data.draw(rules))
    fold.take(data.draw(st.integers(1, len(messages))))
    if data.draw(st.booleans()):
        fold.ledger.pin(data.draw(st.integers(0, len(fold.ledger) - 1)))
    fold.take()
    return fold


@few
@given(st.data())
def test_saved_and_loaded(data: st.DataObject) -> None:
    """A process that takes the state over knows what this one does."""
    fold = fold_of(data)
    assert state_of(fold.ledger) == state_of(opened(fold))


@few
@given(mixed_histories(), st.data())
def test_rewound_before_anything_is_decided(messages: list[plain], data: st.DataObject) -> None:
    """A ledger that is rewound is one of the shorter history."""
    ledger = made(messages)
    length = data.draw(st.integers(0, len(messages)))
    ledger.rewind(length)
    shorter = made(messages[:length])
    assert state_of(shorter) | {"saved": None} == state_of(ledger) | {"saved": None}
    assert popped(shorter) == popped(ledger)


@few
@given(st.data())
def test_rewound_after_decisions(data: st.DataObject) -> None:
    """A ledger that is rewound knows what one of the shorter history does that takes the same decisions."""
    fold = fold_of(data)
    length = data.draw(st.integers(0, len(fold.messages) - 1))
    sent = data.draw(st.none() | st.sets(st.integers(0, len(fold.messages))))
    fold.ledger.rewind(length, sent)
    del fold.messages[length:]
    other = opened(fold)
    assert state_of(fold.ledger) | {"sums": None} == state_of(other) | {"sums": None}
    assert fold.ledger.decisions.total == other.decisions.total
    assert popped(fold.ledger) == popped(other)


@few
@given(st.data())
def test_any_process_goes_on_alike(data: st.DataObject) -> None:
    """Two replicas that get the same prompts decide alike, though one has only ever the revision of the last one."""
    messages = data.draw(mixed_histories(most=4))
    inputs = data.draw(limits), data.draw(policies)
    rule = data.draw(st.sampled_from([ReasoningRule.KEPT, ReasoningRule.CLOSED_TURNS]))
    stays, moves = (Fold(list(messages), *inputs, reasoning=rule) for _ in range(2))
    for each in (stays, moves):
        each.take()
    for _ in range(data.draw(st.integers(1, 4))):
        moves.ledger = opened(stays)
        length = data.draw(st.just(len(stays.messages)) | st.integers(1, len(stays.messages)))
        new = data.draw(mixed_turns())
        pins = data.draw(st.sets(st.integers(0, length - 1), max_size=1))
        for each in (stays, moves):
            each.ledger.rewind(length)
            each.messages = [*each.messages[:length], *new]
            for index in pins:
                each.ledger.pin(index)
            each.take()
        assert decisions(stays.ledger) == decisions(moves.ledger)
        assert state_of(stays.ledger) == state_of(moves.ledger)


@few
@given(st.data())
def test_a_state_of_version_5(data: st.DataObject) -> None:
    """What the rules before these have decided is known, and stays as it is."""
    fold = fold_of(data)
    now, before = (replace(fold, ledger=made(fold.messages)) for _ in range(2))
    now.ledger.load(fold.ledger.save())
    assert apply_state(before.ledger, revision(state_5(fold.ledger), 5))
    for each in (now, before):
        each.evaluate()
    assert decisions(now.ledger) == decisions(before.ledger)
    assert state_of(now.ledger) == state_of(before.ledger)


def test_a_state_of_early_version_5() -> None:
    """System messages that it left of dropped iterations are dropped; thinking bound to its prompts is not kept."""
    one = evaluated(history(), LIMIT, DROPPING)
    dropped = next(index for index, record in enumerate(one.ledger.records) if record.dropped)
    place = one.ledger.messages.members(one.ledger.records[dropped].group)[-1]
    one.messages[place] = replace(one.messages[place], role=Role.SYSTEM, tied=True, answers=())
    left = one.ledger.save()
    spans = [span for each in left.decisions.dropped for span in _without(each, place)]
    left = msgspec.structs.replace(left, decisions=msgspec.structs.replace(left.decisions, dropped=spans))
    without = made(one.messages)
    without.load(left)
    now, before = opened(one), made(one.messages)
    assert apply_state(before, revision(state_5(without, tied=False), 5))
    assert (True, False, True) == tuple(each.records[place].dropped for each in (now, without, before))
    assert (False, True) == (now.thinking.moved, before.thinking.moved)
    before.drops.write_count(count)  # the carrier's label, which that version let the next evaluation count
    assert now.decisions.total == before.decisions.total


def _without(span: tuple[int, int, int, int], place: int) -> list[tuple[int, int, int, int]]:
    """A span of dropped messages without one of them."""
    first, end, *how = span
    spans = [(first, min(end, place)), (max(first, place + 1), end)] if first <= place < end else [(first, end)]
    return [(start, stop, how[0], how[1]) for start, stop in spans if start < stop]
