"""What prompts cost and what is left in them, by hand; and the floor, beside all ways to keep old groups."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.tokens.weigh import PRIMING
from tests.lab.peers.accounting import allowed, figures, floor, shape_of
from tests.lab.peers.contenders import Outcome, control, never, ours
from tests.lab.peers.material import Material, result_texts, shared
from tests.oracle.baselines import Control, Entry, Sized, cost
from tests.oracle.runs import Run
from tests.oracle.shapes import ANTHROPIC_MESSAGES, OPENAI_CHAT

runs = st.tuples(
    st.integers(0, 30),
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    st.integers(20, 200),
)
"""Tokens of the head and of each group, and the budget."""


def _prompt(head: int, groups: Sequence[int], kept: Sequence[int]) -> list[Entry]:
    return [(b"head", head), *((b"%d" % place, groups[place]) for place in kept)]


def _old_groups(must: int) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(range(must), size) for size in range(must + 1))


@given(runs)
def test_it_is_the_least_over_all_cuts(run: tuple[int, list[int], int]) -> None:
    """Every sequence of allowed cuts is tried, and the ruler is that of the bench."""
    head, groups, budget = run
    sums = [0, *accumulate(groups)]
    counts = range(len(groups) + 1)
    ways = product(*(allowed(head, sums, count, budget) for count in counts))
    tried = [
        cost([_prompt(head, groups, range(cut, count)) for cut, count in zip(cuts, counts, strict=True)])
        for cuts in ways
    ]
    assert floor(head, groups, counts, budget) == pytest.approx(min(tried))


@given(runs)
def test_keeping_older_groups_never_pays(run: tuple[int, list[int], int]) -> None:
    """Nor does any way to keep some of the older groups and not others: cuts are enough."""
    head, groups, budget = run
    sums = [0, *accumulate(groups)]
    least: dict[tuple[int, ...], float] = {}
    for count in range(len(groups) + 1):
        must = allowed(head, sums, count, budget)[-1]
        fresh: dict[tuple[int, ...], float] = {}
        for old in _old_groups(must):
            kept = (*old, *range(must, count))
            if sum(groups[place] for place in kept) + head > budget and old:
                continue
            prompt = _prompt(head, groups, kept)
            before = least or {(): 0.0}
            fresh[kept] = min(
                spent + _last(_prompt(head, groups, previous) if least else [], prompt)
                for previous, spent in before.items()
            )
        least = fresh
    assert floor(head, groups, range(len(groups) + 1), budget) <= min(least.values()) + 1e-6


def _last(previous: list[Entry], prompt: list[Entry]) -> float:
    return cost([previous, prompt]) - cost([previous])


@given(runs)
def test_the_control_is_never_below_it(run: tuple[int, list[int], int]) -> None:
    """The control is one of the strategies that the floor is the least of."""
    head, groups, budget = run
    prompts = [
        [Sized((b"head", head), opens=False)]
        + [Sized((b"%d" % place, groups[place]), opens=True) for place in range(count)]
        for count in range(len(groups) + 1)
    ]
    control = Control(budget)
    spent = cost([control.prompt(prompt) for prompt in prompts])
    assert floor(*shape_of(prompts), budget) <= spent + 1e-6


def test_by_hand() -> None:
    """A head of 10, groups of 10, a budget of 60: full at the sixth group, and half of it holds two."""
    grows = [12.5, 1 + 12.5, 2 + 12.5, 3 + 12.5, 4 + 12.5, 5 + 12.5]
    cut = 1 + 25.0  # the head is kept, two groups are written, and the prompt has 30 tokens
    forced = sum(grows) + cut
    # Who knows the end cuts at the fifth group in place of the sixth, and is at 30 tokens when that comes.
    early = sum(grows[:5]) + cut + 3 + 12.5
    assert early < forced
    assert early == pytest.approx(floor(10, [10] * 6, range(7), 60))


def test_a_group_over_the_budget_stays() -> None:
    """The newest group is never dropped, whatever it takes."""
    assert 1.25 * 10 + 0.1 * 10 + 1.25 * 500 == pytest.approx(floor(10, [500], range(2), 60))


def test_no_prompt_costs_nothing() -> None:
    """A run without prompts has the floor 0."""
    assert floor(10, [], [], 60) == 0


def _call(call_id: str, text: str) -> list[dict[str, Any]]:
    function = {"name": "read", "arguments": "{}"}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": text},
    ]


TASK = {"role": "user", "content": "Fix it."}
RUN = Run("tiny", OPENAI_CHAT, [TASK, *_call("a", "x" * 100), *_call("b", "y" * 300)])
"""Three prompts: 1, 3 and 5 messages."""


@pytest.fixture
def material() -> Material:
    """The run above."""
    return Material(RUN)


def _outcome(material: Material, *prompts: list[dict[str, Any]]) -> Outcome:
    return Outcome([material.turn([], messages) for messages in prompts], seconds=[0.1, 0.3, 0.2])


def test_never_trimming(material: Material) -> None:
    """All is kept and shown; the cost is what each prompt adds, and the rest at a tenth."""
    found = figures(never(material, 10_000), material, 10_000)
    tokens = [material.tokens(material.sent(length)) - PRIMING for length in (1, 3, 5)]
    assert [1, 3, 5] == material.lengths
    added = 1.25 * tokens[2] + 0.1 * (tokens[0] + tokens[1])
    assert added == pytest.approx(found.cost)
    assert (sum(tokens) + 3 * PRIMING, 1.0, 0, 0, 0, 1.0, True) == (
        found.sent,
        found.kept,
        found.over,
        found.pairing,
        found.refused,
        found.verbatim,
        found.task,
    )


def test_dropping_the_first_group(material: Material) -> None:
    """The last prompt keeps the task only, and shows 300 of 400 characters; the first shows none that were sent."""
    messages = list(RUN.messages)
    found = figures(_outcome(material, messages[:1], messages[:3], [TASK, *messages[3:]]), material, 10_000)
    task, first, second = (material.tokens(material.sent(length)) - PRIMING for length in (1, 3, 5))
    assert (task + task) / (task + first) == pytest.approx(found.kept)
    assert (1.0 + 0.75) / 2 == pytest.approx(found.verbatim)
    assert 1.25 * (first + second - first) + 0.1 * (task + task) == pytest.approx(found.cost)
    assert (0.2, True, 0) == (found.p50, found.task, found.refused)


def test_an_elided_result_shows_its_head_and_tail(material: Material) -> None:
    """What stands between is not shown, and its marker is no part of it."""
    messages = list(RUN.messages)
    elided = messages[-1] | {"content": "y" * 50 + "[250 bytes elided]" + "y" * 25}
    found = figures(_outcome(material, messages[:1], messages[:3], [*messages[:-1], elided]), material, 10_000)
    assert (1.0 + 175 / 400) / 2 == pytest.approx(found.verbatim)


def test_a_retold_result_is_shown(material: Material) -> None:
    """A result that stands whole in another message counts, as some strategies write summaries of results."""
    summary = {"role": "assistant", "content": f"[results: read: {'y' * 300}]"}
    found = figures(_outcome(material, [TASK], [TASK], [TASK, summary]), material, 10_000)
    # All of y, and so all of x's share is missing.
    assert 300 / 400 / 2 == pytest.approx(found.verbatim)


def test_defects_and_a_lost_task(material: Material) -> None:
    """A result without its call is a pairing defect of that prompt alone; the task is gone from it."""
    messages = list(RUN.messages)
    found = figures(_outcome(material, messages[:1], messages[:3], messages[4:]), material, 10_000)
    assert (1, 1, False, False) == (found.pairing, found.refused, found.task, found.sound)


def test_a_defect_that_was_sent_is_nobodys_fault() -> None:
    """A call that nobody answered is in the history, and is not charged."""
    unanswered = _call("a", "")[:1]
    material = Material(Run("odd", OPENAI_CHAT, [TASK, *unanswered, TASK, *_call("b", "y")]))
    assert 0 == figures(never(material, 10_000), material, 10_000).refused


def test_over_the_budget(material: Material) -> None:
    """A prompt whose opening and newest turn alone are over cannot be helped; others can."""
    last = material.tokens(material.sent(5))
    found = figures(never(material, last - 1), material, last - 1)
    assert (1, 0, False) == (found.over, found.unavoidable, found.sound)
    helpless = figures(never(material, 8), material, 8)
    assert (3, 3, True) == (helpless.over, helpless.unavoidable, helpless.sound)


def test_anthropic_messages() -> None:
    """Results in blocks, and a system prompt outside the messages, are counted as well."""
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x" * 100}]}
    messages = [TASK, call, {"role": "user", "content": [result]}]
    material = Material(Run("blocks", ANTHROPIC_MESSAGES, messages, "Be careful."))
    assert [("a", "x" * 100)] == result_texts(ANTHROPIC_MESSAGES, messages[2])
    found = figures(never(material, 10_000), material, 10_000)
    assert (1.0, 1.0, True) == (found.verbatim, found.kept, found.task)
    assert material.sent(1)[1:] == material.turn([], [TASK])
    assert len(material.messages(material.sent(3))) == 3


def test_the_strategies_of_this_process() -> None:
    """Ours and the control fit, add no defect and keep the task; what ours took out comes back, the control's not."""
    messages = [TASK]
    for number in range(12):
        messages += _call(f"c{number}", f"line {number} of a file\n" * 120)
    material = Material(Run("grown", OPENAI_CHAT, messages))
    budget = material.final // 2
    own, other = (figures(strategy(material, budget), material, budget) for strategy in (ours, control))
    assert (0, 0, True, 1.0) == (own.over, own.refused, own.task, own.recallable)
    assert (0, 0, True, 0.0) == (other.over, other.refused, other.task, other.recallable)


@pytest.mark.parametrize(
    ("sent", "shown", "expected"),
    [
        ("", "", 0),
        ("abc", "abc", 3),
        ("abcdef", "ab..ef", 4),
        ("abcdef", "xbcdex", 0),
        ("aaaa", "aa", 2),
        ("abc", "[cleared]", 0),
    ],
)
def test_no_shared_character_counts_twice(sent: str, shown: str, expected: int) -> None:
    """Head and tail are compared, and no character is counted twice."""
    assert expected == shared(sent, shown)


def test_equal_messages_are_one_piece(material: Material) -> None:
    """A message that comes back as it was sent is the same piece, in whatever order its JSON was decoded."""
    again = json.loads(json.dumps(RUN.messages[2]))
    assert material.sent(3) == material.turn([], [*RUN.messages[:2], again])
