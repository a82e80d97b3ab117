"""The oldest results stay while those after them are clipped, as far as the newest leave room and the prices pay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import Entry, Reason, Record
from prompt_sidecar.trim.oldest import REMAINDER, newest_light
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import preset
from tests.trim.histories import Fold, decisions, evaluated, few, histories, limits, plain

LIMIT = 16_000
ITERATIONS = 140


def history(iterations: int = ITERATIONS, result: int = 1_600) -> list[plain]:
    """A task, then a call and its result of so many bytes for each iteration."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "Find the bug."),))]
    for number in range(iterations):
        call = (f"c{number}",)
        made += [
            plain(Role.ASSISTANT, ((ItemKind.ARGUMENTS, f'{{"path": "{"p" * 120}"}}'),), calls=call),
            plain(Role.TOOL, ((ItemKind.RESULT, f"{number:04d}" * (result // 4)),), answers=call),
        ]
    return made


def results(fold: Fold) -> list[Entry]:
    """The entries of results, by group."""
    return [entry for record in fold.ledger.records for entry in record.entries if entry.kind is ItemKind.RESULT]


def test_a_cut_changes_nothing_before_what_follows_the_oldest() -> None:
    """After the first one, which takes arguments everywhere, every cut begins behind the results that stay."""
    fold = Fold(history(), LIMIT)
    seen: list[int] = []
    before = decisions(fold.ledger)
    for upto in range(1, len(fold.messages) + 1):
        batches = fold.ledger.registry.batches
        fold.take(upto)
        now = decisions(fold.ledger)
        if fold.ledger.registry.batches > batches:
            seen.append(next((at for at, was in enumerate(before) if was != now[at]), len(before)))
        before = now
    held = fold.ledger.queues.held
    assert 2 < held < ITERATIONS / 2
    assert len(seen) > 3
    assert all(first >= fold.ledger.groups[held].start for first in seen[1:])
    assert [None] * held == [entry.action for entry in results(fold)[:held]]
    assert all(entry.action or fold.ledger.records[entry.message].dropped for entry in results(fold)[held : held + 9])


def test_they_take_the_share_that_the_policy_says() -> None:
    """Their results take at most the share times the discount, and nearly that."""
    fold = evaluated(history(), LIMIT, Policy())
    taken = sum(entry.tokens for entry in results(fold)[: fold.ledger.queues.held])
    assert 0.8 * Policy().oldest_share * LIMIT < taken <= Policy().oldest_share * LIMIT
    assert 0.1 * 0.92 == pytest.approx(Policy().oldest_share)


def test_the_share_includes_framing() -> None:
    """The beginning that stays takes up to its share of the limit as the prompt has it, framing included."""
    fold, earlier = (Fold(history(result=800), LIMIT, since_9=since_9) for since_9 in (True, False))
    for each in (fold, earlier):
        each.take()
    room = Policy().oldest_share * LIMIT
    held = fold.ledger.queues.held
    assert room > sum(_heavy_message(record) for record in fold.ledger.records if 0 <= record.group < held)
    assert room < sum(_heavy_message(record) for record in fold.ledger.records if 0 <= record.group < held + 1)
    assert 0 < held < earlier.ledger.queues.held


def _heavy_message(record: Record) -> int:
    """Tokens of an untrimmed message without its arguments and text."""
    light = {ItemKind.ARGUMENTS, ItemKind.TEXT}
    return record.full_tokens - sum(entry.full_tokens for entry in record.entries if entry.kind in light)


def test_prices_decide() -> None:
    """The less a cached token is favoured the less of the beginning stays; without a discount none does."""
    held = [
        evaluated(
            history(), LIMIT, Policy().override({"price_cached": cached, "fit_keep_oldest": 0.2})
        ).ledger.queues.held
        for cached in (0.1, 0.5, 1.0, 1.25, 2.0)
    ]
    assert held == sorted(held, reverse=True)
    assert held[0] > held[1] > held[2] > 0 == held[3] == held[4]


@pytest.mark.parametrize(
    "policy",
    [preset("lean"), preset("fit_only"), Policy().override({"age_hard_cap_iterations": 12}),
     Policy().override({"fit_keep_oldest": 0.0})],
)  # fmt: skip
def test_where_none_stay(policy: Policy) -> None:
    """Other presets, a hard cap and a share of 0 keep none."""
    assert evaluated(history(), LIMIT, policy).ledger.queues.held <= 0


def test_the_newest_come_first() -> None:
    """Where the newest iterations take what the low mark leaves, nothing is kept for the oldest."""
    fold = evaluated(history(12, result=6_000), LIMIT)
    assert fold.ledger.registry.batches
    assert 0 == fold.ledger.queues.held


def test_the_last_resort_takes_them_too() -> None:
    """Under a limit that has come down they are clipped before the newest results are."""
    fold = evaluated(history(), LIMIT)
    assert fold.ledger.queues.held > 0
    fold.limit = 4_000
    fold.evaluate()
    assert fold.used() <= fold.limit
    assert 0 == fold.ledger.queues.held
    *_, newest = results(fold)
    assert newest.action is None


TALK = "I read the next module and see what it does with its names, then I go on to the one after it."


def talking(iterations: int = ITERATIONS) -> list[plain]:
    """The same with some forty tokens of the model beside each call."""
    return [
        replace(message, items=((ItemKind.TEXT, TALK * 2), *message.items)) if message.calls else message
        for message in history(iterations)
    ]


def light_left(fold: Fold) -> list[int]:
    """Groups whose arguments and text are whole."""
    records = fold.ledger.records
    light = [record for record in records if record.calls and not record.dropped]
    return [record.group for record in light if all(entry.action is None for entry in record.entries)]


def test_the_newest_arguments_and_text_stay() -> None:
    """Up to their share of the limit, without a gap, while their results are clipped."""
    some, none, more = (
        evaluated(talking(), LIMIT, Policy().override({"fit_keep_light": share, "age_arguments": "empty"}))
        for share in (0.08, 0.0, 0.16)
    )
    counts = []
    for fold in (none, some, more):
        left = light_left(fold)
        assert list(range(left[0], ITERATIONS)) == left
        counts.append(len(left))
    assert counts == sorted(set(counts))
    clipped = [entry for entry in results(more) if entry.action]
    assert max(entry.message for entry in clipped) > more.ledger.groups[light_left(more)[0]].start


@pytest.mark.parametrize("room", [0, 100, 5_000, 10**9])
def test_newest_light(room: int) -> None:
    """By a plain sum from the end: messages whose arguments and text, and what else stays of them, have room."""
    fold = Fold(talking(20), 10**9)
    fold.take()
    expected, left = len(fold.ledger), room
    for record in reversed(fold.ledger.records):
        if record.calls:
            left -= REMAINDER + sum(entry.tokens for entry in record.entries)
            if left < 0:
                break
            expected = record.entries[0].message
    assert expected == newest_light(fold.ledger, room)


def test_they_are_given_up_before_newer_results() -> None:
    """And before the oldest results, where the prompt stays above the middle of its marks."""
    policy = Policy().override({"fit_keep_light": 1.0, "age_arguments": "empty"})
    fold = evaluated(talking(), LIMIT, policy)
    assert len(light_left(fold)) < ITERATIONS / 2
    assert fold.used() <= 0.99 * LIMIT
    assert fold.ledger.queues.held > 0


@few
@given(histories(), limits)
def test_what_is_held_is_whole(messages: list[plain], limit: int) -> None:
    """Held results are whole, but for the cap's elision; the groups are the first ones and stay."""
    fold = evaluated(messages, limit)
    held = range(max(fold.ledger.queues.held, 0))
    for group in held:
        for index in fold.ledger.messages.members(group):
            record = fold.ledger.records[index]
            assert not record.dropped or record.dropped_for is Reason.FEEDBACK
            assert all(entry.reason in (None, Reason.CAP) for entry in record.entries if entry.kind is ItemKind.RESULT)
