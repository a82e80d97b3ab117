"""The stages on random histories: what may be touched, in which order, and that nothing is undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidPolicy
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import HEAVY, Action, Reason, Record
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import preset
from prompt_sidecar.trim.stages import MIN_SAVING, WORDS_SHARE
from tests.oracle.strategies import policies
from tests.trim.histories import Fold, count, decisions, evaluated, few, histories, limits, plain
from tests.trim.test_ledger import partners


def any_policy(values: dict[str, Any]) -> Policy:
    """A policy of these values, whose marks are in order."""
    try:
        return Policy().override(values)
    except InvalidPolicy:
        return Policy()


all_policies = st.sampled_from(["cache_first", "fit_only", "cap_only"]).map(preset) | policies().map(any_policy)
RANK = {None: 0, Action.ELIDED: 1, Action.CLIPPED: 2}


def ranks(records: Sequence[Record]) -> list[tuple[bool, list[tuple[int, int, int, int]]]]:
    """How far each item has come: its action, its tokens and what is kept of it, all of which only fall."""
    return [
        (
            record.dropped,
            [
                (
                    RANK[entry.action],
                    -entry.tokens,
                    -entry.kept.head if entry.kept else -(10**9),
                    -entry.kept.tail if entry.kept else -(10**9),
                )
                for entry in record.entries
            ],
        )
        for record in records
    ]


@few
@given(histories(), limits, all_policies)
def test_sums_and_monotony(messages: list[plain], limit: int, policy: Policy) -> None:
    """After every message: totals are sums, items only shrink, evaluating again changes nothing."""
    fold = Fold(messages, limit, policy)
    before: list[tuple[bool, list[tuple[int, int, int, int]]]] = []
    for upto in range(1, len(messages) + 1):
        fold.take(upto)
        ledger = fold.ledger
        assert 15 + ledger.decisions.total == fold.used()
        for record in ledger.records:
            saved = sum(entry.full_tokens - entry.tokens for entry in record.entries)
            carried = ledger.drops.carrier_tokens if ledger.drops.carrier in record.entries else 0
            assert record.full_tokens - saved + carried == record.tokens
        now = ranks(ledger.records)
        for (was_dropped, old), (is_dropped, new) in zip(before, now, strict=False):
            assert is_dropped >= was_dropped
            for one, other in zip(old, new, strict=True):
                assert other[0] >= one[0]
                assert other[1] >= one[1]
                if one[0] == other[0] == 1:
                    assert other[2:] >= one[2:] or (other[2] >= one[2] and other[3] >= one[3])
        before = now
        batches = ledger.registry.batches
        fold.evaluate()
        assert (now, batches) == (ranks(ledger.records), ledger.registry.batches)


@few
@given(histories(), limits, all_policies)
def test_the_fold_remembers_nothing(messages: list[plain], limit: int, policy: Policy) -> None:
    """Taken prompt by prompt or all at once, the decisions are the same."""
    steps = Fold(messages, limit, policy)
    for upto in range(1, len(messages) + 1):
        if upto == len(messages) or messages[upto].role is Role.ASSISTANT:
            steps.take(upto)
    assert decisions(steps.ledger) == decisions(evaluated(messages, limit, policy).ledger)


@few
@given(histories(), limits, all_policies)
def test_protected_text(messages: list[plain], limit: int, policy: Policy) -> None:
    """Opening, users, system, pins, the newest assistant block and what cannot be stored stay.

    Users' longer texts are elided where all together exceed their share, but for the newest.
    """
    ledger = evaluated(messages, limit, policy).ledger
    newest = len(ledger.groups) - 1
    tokens = sum(entry.full_tokens for record in ledger.records if record.words for entry in record.entries)
    for index, (record, message) in enumerate(zip(ledger.records, messages, strict=True)):
        if message.pinned or record.role in (Role.SYSTEM, Role.OTHER):
            assert not record.dropped
        if message.pinned or not message.holdable:
            assert [] == [entry for entry in record.entries if entry.action]
        if record.group < 0 or record.role is Role.USER:
            assert not (record.dropped and record.group < 0)
            trimmed = [entry for entry in record.entries if entry.action and entry.reason is not Reason.CAP]
            if record.group < 0 or index >= ledger.thinking.closed or tokens <= WORDS_SHARE * limit:
                assert [] == trimmed
            assert all(entry.action is Action.ELIDED for entry in trimmed)
        if record.group == newest and record.role is Role.ASSISTANT:
            assert not record.dropped
            assert [] == [entry for entry in record.entries if entry.action]


@few
@given(histories(), limits, all_policies)
def test_pairs_go_together(messages: list[plain], limit: int, policy: Policy) -> None:
    """Where an iteration is dropped, its results are, late ones too; a call that may still be answered is not."""
    records = evaluated(messages, limit, policy).ledger.records
    pairs = partners(messages)
    for call, answer in pairs:
        assert records[call].dropped == records[answer].dropped or records[call].group < 0
    answered = [call for call, _ in pairs]
    for index, message in enumerate(messages):
        if records[index].dropped:
            assert len(message.calls) == answered.count(index)


@few
@given(histories(), limits)
def test_fits_or_only_protected_text_is_left(messages: list[plain], limit: int) -> None:
    """Above the limit, nothing that may be clipped is left that would save anything."""
    for name in ("cache_first", "fit_only"):
        fold = evaluated(messages, limit, preset(name))
        if fold.used() <= limit:
            continue
        for entry in (entry for kind in HEAVY for entry in fold.ledger.queues.by_age[kind].entries):
            record = fold.ledger.records[entry.message]
            if not record.dropped and not record.pinned and entry.holdable and entry.action is not Action.CLIPPED:
                assert entry.tokens < MIN_SAVING + 20


@few
@given(histories(), limits)
def test_below_the_mark_nothing_is_fitted(messages: list[plain], limit: int) -> None:
    """A history that never passes the high-water mark is only capped."""
    fold = Fold(messages, limit)
    if 15 + sum(record.tokens for record in fold.fresh()) <= fold.policy.fit_high * limit:
        fold.take()
        assert {None, Reason.CAP} >= {entry.reason for record in fold.ledger.records for entry in record.entries}
        assert 0 == fold.ledger.registry.batches


@few
@given(histories(), limits)
def test_cap_only(messages: list[plain], limit: int) -> None:
    """Without the fit stage no limit changes anything."""
    ledger = evaluated(messages, limit, preset("cap_only")).ledger
    assert decisions(ledger) == decisions(evaluated(messages, 10**9, preset("cap_only")).ledger)


@few
@given(histories(), limits, all_policies)
def test_every_edit_saves(messages: list[plain], limit: int, policy: Policy) -> None:
    """No item takes more tokens than it did, and what is fitted saves enough to be worth it."""
    for record in evaluated(messages, limit, policy).ledger.records:
        for entry in record.entries:
            assert entry.tokens <= entry.full_tokens
            if entry.reason is Reason.FIT:
                assert entry.full_tokens - entry.tokens >= MIN_SAVING


def call(text: str = "x", id: str = "a") -> plain:
    """An assistant message with one call."""
    return plain(Role.ASSISTANT, ((ItemKind.ARGUMENTS, text),), calls=(id,))


def result(text: str, id: str = "a") -> plain:
    """The answer to a call."""
    return plain(Role.TOOL, ((ItemKind.RESULT, text),), answers=(id,))


USER = plain(Role.USER, ((ItemKind.TEXT, "task"),))


@pytest.mark.parametrize("size", [1_024, 1_025, 5_000])
def test_a_large_result_is_elided_to_the_cap(size: int) -> None:
    """A result over the cap is elided when it is first seen, to at most the cap, its head and tail kept."""
    policy = Policy().override({"cap_text_bytes": 1_024})
    entry = evaluated([USER, call(), result("x" * size)], 10**9, policy).ledger.records[2].entries[0]
    assert (size > 1_024) == (entry.action is Action.ELIDED)
    if entry.kept is not None:
        shown = entry.kept.head + entry.kept.tail
        assert 900 < shown < 1_024
        assert abs(entry.kept.head - entry.kept.tail) <= 1
        assert Reason.CAP == entry.reason


@few
@given(st.lists(st.integers(0, 4_000), min_size=1, max_size=6), st.integers(1_024, 6_000))
def test_cap_shared_by_the_parts_of_a_result(sizes: list[int], cap: int) -> None:
    """Parts of one result share its cap: small ones stay whole, the large ones come down to one level."""
    parts = tuple((ItemKind.RESULT, "x" * size) for size in sizes)
    message = plain(Role.TOOL, parts, answers=("a",))
    entries = (
        evaluated([USER, call(), message], 10**9, Policy().override({"cap_text_bytes": cap})).ledger.records[2].entries
    )
    shown = [4 * (entry.tokens - 1) if entry.action else entry.size for entry in entries]
    whole = [entry.size for entry in entries if not entry.action]
    assert sum(shown) <= max(cap, sum(whole)) + 60 * len(sizes)
    if sum(sizes) <= cap:
        assert [] == [entry for entry in entries if entry.action]
    elif trimmed := [entry.size for entry in entries if entry.action]:
        assert max(whole, default=0) <= min(trimmed)


def test_media_cap() -> None:
    """Images of one result stay up to their own cap; past it they are clipped."""
    images = tuple((ItemKind.IMAGE, "x" * 400) for _ in range(3))
    message = plain(Role.TOOL, images, answers=("a",))
    policy = Policy().override({"cap_media_bytes": 900})
    entries = evaluated([USER, call(), message], 10**9, policy).ledger.records[2].entries
    assert [None, None, Action.CLIPPED] == [entry.action for entry in entries]


def test_arguments_before_results() -> None:
    """Old arguments are clipped before old results, each oldest first."""
    messages = [USER]
    for _ in range(10):
        messages += [call("y" * 2_000), result("x" * 2_000)]
    ledger = evaluated(messages, 10_000).ledger
    clipped = {
        role: [record.group for record in ledger.records if record.role is role and record.entries[0].action]
        for role in (Role.ASSISTANT, Role.TOOL)
    }
    assert len(clipped[Role.ASSISTANT]) > len(clipped[Role.TOOL]) > 0
    for groups in clipped.values():
        assert list(range(len(groups))) == groups


def test_a_batch_ends_at_its_low_mark() -> None:
    """Of a result that holds more than must go head and tail stay, while there is room; the next batch clips it."""
    messages = [USER, call("{}"), result("x" * 28_000)]
    for _ in range(30):
        messages += [call("{}"), result("y" * 2_400)]
    fold = Fold(messages, 10_000)
    low = preset("cache_first").fit_low * fold.limit
    steps = iter(range(1, len(messages) + 1))
    for batches, expected in ((1, Action.ELIDED), (2, Action.CLIPPED)):
        while fold.ledger.registry.batches < batches:
            fold.take(next(steps))
        assert 0.95 * low < fold.used() <= low  # a cut moves to a line's end, and the marker takes its part
        assert expected is fold.ledger.records[2].entries[0].action


@pytest.mark.parametrize("name", ["cache_first", "fit_only"])
def test_a_late_answer_to_a_call_that_stays(name: str) -> None:
    """A call that stood unanswered when dropping passed it is answered later: its answer is not dropped without it."""
    messages = [USER, call("{}", "late")]
    for number in range(20):
        messages += [call("y" * 400, f"c{number}"), result("x" * 400, f"c{number}")]
    messages += [call("y" * 400, "z"), result("x", "late"), result("x" * 400, "z")]
    for number in range(40):
        messages += [call("y" * 400, f"d{number}"), result("x" * 400, f"d{number}")]
    records = evaluated(messages, 1_500, preset(name)).ledger.records
    assert any(record.dropped for record in records)
    assert [] == [pair for pair in partners(messages) if records[pair[0]].dropped != records[pair[1]].dropped]


def test_largest_first() -> None:
    """`fit_only` elides the largest result, not the oldest, and to what is needed."""
    messages = [USER, call(), result("s" * 400), call(), result("l" * 8_000), call(), result("m" * 1_600)]
    ledger = evaluated(messages, 2_300, preset("fit_only")).ledger
    assert [None, Action.ELIDED, None] == [ledger.records[index].entries[0].action for index in (2, 4, 6)]


@pytest.mark.parametrize(("light", "most"), [(0.0, 0.55), (0.1, 0.72)])
def test_a_cut_goes_down_to_the_low_mark(light: float, most: float) -> None:
    """Under `cache_first` the prompt falls to its low-water mark, or near it; then nothing changes for a while."""
    messages = [USER]
    for _ in range(60):
        messages += [call("y" * 40), result("x" * 800)]
    fold = Fold(messages, 6_000, Policy().override({"fit_keep_light": light}))
    points = []
    for upto in range(1, len(messages) + 1, 2):
        before = fold.ledger.registry.batches
        fold.take(upto)
        if fold.ledger.registry.batches > before:
            points.append(upto)
            assert fold.used() <= most * 6_000
    assert 2 <= len(points) <= 8
    assert count("") == 1
