"""News: what an answer tells that none before it did, against what is made from all answers by hand."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from prompt_sidecar.engine.steps.news import MOST_SIZES
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.trim_calls import CacheBreak, Trim, TrimAnswer, TrimCall
from tests.doors.grpc.serving import runs


def _message(number: int, words: int) -> list[dict[str, Any]]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
    return [
        {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"word{number} " * words},
    ]


def _history(seed: int, iterations: int) -> list[list[dict[str, Any]]]:
    """The prompts of a run, one an iteration."""
    random_ = random.Random(seed)
    sent: list[dict[str, Any]] = [{"role": "user", "content": "Do it."}]
    prompts = []
    for number in range(iterations):
        sent = sent + _message(number, random_.choice((5, 100, 400)))
        prompts.append(sent)
    return prompts


def _call(sent: object, **fields: Any) -> TrimCall:
    fields = {"context_window": 4_000, "output_reserve": 0, **fields}
    return TrimCall("local", "run", "openai_chat", json.dumps(sent).encode(), **fields)


def _check() -> None:
    """Nobody gives up."""


def _by_place(trims: Any) -> dict[tuple[int, int], Trim]:
    return {(trim.message_index, trim.item_index): trim for trim in trims}


@pytest.mark.parametrize("preset", ["cache_first", "lean", "fit_only", "cap_only"])
@pytest.mark.parametrize("seed", range(3))
def test_new_trims_are_the_difference_of_answers(preset: str, seed: int) -> None:
    """Each answer's new trims lead from the last answer's list to its own, in items and in tokens."""
    core = runs()
    before: dict[tuple[int, int], Trim] = {}
    for sent in _history(seed, 25):
        answer = core.trim(_call(sent, preset=preset), _check)
        now, new = _by_place(answer.trimmed.trims), _by_place(answer.news.trims)
        changed = {place for place, trim in now.items() if before.get(place) != trim}
        assert changed >= new.keys() >= now.keys() - before.keys()
        saved = sum(trim.tokens_saved for trim in now.values()) - sum(trim.tokens_saved for trim in before.values())
        assert saved == sum(trim.tokens_saved for trim in new.values())
        before = now


def test_the_same_prompt_again_is_no_news() -> None:
    """A retry tells what was told."""
    core = runs()
    *_, sent = _history(1, 20)
    first, again = (core.trim(_call(sent), _check) for _ in range(2))
    assert first.news.trims
    assert first.news.advertised > 0
    assert ((), 0, None) == (again.news.trims, again.news.advertised, again.news.cache_break)
    assert first.news.tools["read"].results == 20
    assert ({}, ()) == (again.news.tools, again.news.result_sizes)


def test_a_revision_brings_no_news() -> None:
    """A process that takes a run over does not tell again what the first one told; what it adds is told."""
    one, other = runs(), runs()
    *_, last, longer = _history(2, 24)
    answer = one.trim(_call(last), _check)
    taken = other.trim(_call(last, revision=answer.prompt.revision), _check)
    assert answer.news.trims
    assert answer.trimmed.trims == taken.trimmed.trims
    assert () == taken.news.trims
    assert 0 == taken.news.advertised
    assert ({}, ()) == (taken.news.tools, taken.news.result_sizes)
    both = [core.trim(_call(longer), _check).news for core in (one, other)]
    assert both[0].trims == both[1].trims
    assert both[0].tools == both[1].tools
    assert 1 == both[0].tools["read"].results


def test_a_revision_brings_only_later_news() -> None:
    """A process that takes a run over with a later prompt reports the results since, and their repetitions."""
    one, other = runs(), runs()
    *_, last, longer = _history(2, 24)
    answer = one.trim(_call(last), _check)
    longer = [*longer, *longer[-2:]]
    here, taken = one.trim(_call(longer), _check), other.trim(_call(longer, revision=answer.prompt.revision), _check)
    assert 2 == taken.news.tools["read"].results
    assert 1 == taken.news.tools["read"].repeats
    assert here.news.tools == taken.news.tools
    assert here.news.result_sizes == taken.news.result_sizes


def test_what_tools_brought_is_reported_once_though_a_run_forgets() -> None:
    """A run that had to give its memory up makes it again from the next prompt, and counts nothing twice."""
    brought = []
    for forgets in (False, True):
        core = runs()
        forgot = 0
        sums: Counter[str] = Counter()
        for number, sent in enumerate(_history(4, 25)):
            if number:
                run = core.table.known("local", "run")
                assert run is not None
                if forgets and number % 5 == 0:
                    run.memory = run.memory.fresh()
                    forgot += 1
            for tool, news in core.trim(_call(sent), _check).news.tools.items():
                sums.update({f"{tool} results": news.results, f"{tool} brought": news.brought})
        brought.append(sums)
    assert 4 == forgot
    assert brought[0] == brought[1]
    assert 25 == brought[0]["read results"]


def test_sizes_of_results_are_bounded() -> None:
    """A prompt that begins with a long history reports so many sizes, and exact sums."""
    count = MOST_SIZES + 10
    sent: list[Any] = [{"role": "user", "content": "Do it."}]
    for number in range(count):
        sent += _message(number, 1)
    answer = runs().trim(_call(sent, context_window=1_000_000), _check)
    assert MOST_SIZES == len(answer.news.result_sizes)
    assert count == answer.news.tools["read"].results


def _answers(core: Any, *prompts: object) -> list[TrimAnswer]:
    return [core.trim(_call(sent), _check) for sent in prompts]


def test_breaks_by_cause() -> None:
    """The first prompt breaks nothing; a longer one neither; the agent's changes and our batches are told apart."""
    prompts = _history(3, 30)
    answers = _answers(runs(), *prompts)
    causes = [answer.news.cache_break for answer in answers]
    batches = [answer.cache.batch_point for answer in answers]
    assert [CacheBreak.BATCH_POINT if batch else None for batch in batches[1:]] == causes[1:]
    assert None is causes[0]
    assert any(batches)

    small = prompts[2]
    changed = [{"role": "user", "content": "Do something else."}, *small[1:]]
    system = [{"role": "system", "content": "Be brief."}, *small]
    assert [None, CacheBreak.AGENT, CacheBreak.AGENT] == [
        answer.news.cache_break for answer in _answers(runs(), small, changed, system)
    ]


def test_totals_add_up() -> None:
    """Runs that began are those that are there and those that went, by cause."""
    now = [0.0]
    core = runs(lambda: now[0], Limits(runs=5, time_to_live=10))
    for number in range(9):
        core.trim(TrimCall("local", f"run {number}", "openai_chat", b'[{"role":"user","content":"a"}]'), _check)
    core.trim(TrimCall("local", "dry", "openai_chat", b'[{"role":"user","content":"a"}]', dry_run=True), _check)
    assert core.end("local", "run 8") is not None
    now[0] = 100.0
    core.sweep()
    core.trim(TrimCall("local", "last", "openai_chat", b'[{"role":"user","content":"a"}]'), _check)
    totals = core.totals()
    assert {"run_started": 10, "run_too_many": 4, "run_ended": 1, "run_idle": 4} == dict(totals.events)
    assert 1 == totals.runs == len(core)
    assert 4 == totals.bounds["limits.runs"]


def test_branching_for_ever_keeps_no_ids() -> None:
    """Ids that an abandoned branch was shown go with it: what a run keeps of them follows its history's length."""
    core = runs()
    for seed in range(4):
        *_, sent = _history(seed, 30)
        sent = [{"role": "user", "content": f"Do it, try {seed}."}, *sent[1:]]
        assert core.trim(_call(sent), _check).news.advertised > 0
        run = core.table.known("local", "run")
        assert run is not None
        assert run.memory.shown
        assert run.memory.shown <= set(run.memory.ledger.messages.by_id)


def test_trims_of_an_abandoned_branch_are_not_reported() -> None:
    """A message that takes the place of one that was trimmed is not said to be."""
    core = runs()
    *_, sent = _history(5, 30)
    trimmed = {trim.message_index for trim in core.trim(_call(sent), _check).trimmed.trims}
    at = max(trimmed)
    # Indices of trims leave out the leading system messages, of which this history has as many.
    lead = sum(message["role"] == "system" for message in sent)
    other = [*sent[: at + lead], {"role": "user", "content": "Try another way."}]
    answer = core.trim(_call(other), _check)
    assert at not in {trim.message_index for trim in answer.trimmed.trims}
    assert answer.trimmed.trims
