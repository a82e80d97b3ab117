"""What prompts cost next to never trimming: held against the plain definition, computed from whole histories."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.facts.comparison import Bill, Comparability, Comparison
from prompt_sidecar.facts.money import Money
from prompt_sidecar.facts.tool_calls import RECALL
from prompt_sidecar.facts.trim_calls import CacheBreak
from prompt_sidecar.guard.ceilings import CeilingPrices, Ceilings, Price
from prompt_sidecar.trim.presets import preset
from tests.engine.runs.making import FORMATS, LIMIT, OPENAI_CHAT, ROOM, body, grown, history, send
from tests.promises.engine import CALLER, RUN_ID, Engine

PRICE = Price(input=1_000_000.0, output=2_000_000.0, cached=100_000.0)


def size(format: str, messages: list[Any]) -> int:
    """Tokens of a prompt untrimmed, by an engine that has not seen it."""
    return Engine(limit=LIMIT).trim(format, body(format, messages)).tokens.before


@pytest.mark.parametrize("format", FORMATS)
@given(steps=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 30)), min_size=1, max_size=8))
def test_an_agent_that_goes_on_or_back(format: str, steps: list[tuple[int, int]]) -> None:
    """Untrimmed, the provider keeps what both histories begin with, whatever the sidecar trims."""
    engine, last, messages = Engine(limit=LIMIT, policy=ROOM), list[Any](), history(format, 1)
    total = Comparison()
    for number, (more, back) in enumerate(steps):
        same = next((at for at, (a, b) in enumerate(zip(last, messages, strict=False)) if a != b), len(last))
        answer = engine.trim(format, body(format, messages))
        expected = size(format, messages[:same]) if last else 0
        assert answer.savings.compared is not None
        assert Bill(expected, answer.tokens.before - expected) == answer.savings.compared.untrimmed
        assert Bill(answer.cache.kept, answer.cache.rewritten) == answer.savings.compared.returned
        total = total.plus(answer.savings.compared)
        assert total == answer.savings.comparison
        last = messages
        opening = len(history(format, 0))
        cut = max(opening, len(messages) - 2 * (back // 8))
        messages = [*messages[:cut], *_renamed(history(format, more)[opening:], number)]
    figures = engine.runs.figures(CALLER, RUN_ID)
    assert total == figures.comparison
    assert figures.tokens_sent_total == total.untrimmed.kept + total.untrimmed.new
    assert figures.tokens_returned_total == total.returned.kept + total.returned.new


def _renamed(messages: list[Any], number: int) -> list[Any]:
    """The same messages with texts and call ids of their own."""
    found: list[Any] = json.loads(json.dumps(messages).replace("call_", f"call_{number}_").replace("Step", f"{number}"))
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_an_agent_that_goes_on_from_trimmed_prompts(format: str) -> None:
    """What it would have sent without the sidecar follows from the history: it is that of an agent that keeps it."""
    whole, adopting = Engine(limit=LIMIT, policy=ROOM), Engine(limit=LIMIT, policy=ROOM)
    adopted = body(format, history(format, 0))
    for number in range(14):
        if number:
            step = history(format, number)[len(history(format, number - 1)) :]
            adopted = _followed(adopted, step)
        expected = whole.trim(format, body(format, history(format, number)))
        answer = adopting.trim(format, adopted)
        adopted = answer.prompt.body or b""
        assert expected.savings.compared is not None
        assert answer.savings.compared is not None
        assert expected.savings.compared.untrimmed == answer.savings.compared.untrimmed
        assert CacheBreak.AGENT is not answer.news.cache_break
    assert answer.tokens.before < expected.tokens.before


def _followed(sent: bytes, step: list[Any]) -> bytes:
    """A request body with further messages."""
    value = json.loads(sent)
    if isinstance(value, list):
        return json.dumps([*value, *step]).encode()
    return json.dumps(value | {"messages": [*value["messages"], *step]}).encode()


@pytest.mark.parametrize("format", FORMATS)
def test_a_changed_system_prompt_keeps_nothing(format: str) -> None:
    """It stands before everything, on both sides."""
    engine, _ = grown(format, 2)
    changed = history(format, 2)
    if format == OPENAI_CHAT:
        changed[0]["content"] = "You are quick."
    answer = engine.trim(format, body(format, changed, system="You are quick."))
    assert answer.savings.compared is not None
    assert 0 == answer.savings.compared.untrimmed.kept


def test_what_the_provider_would_refuse_is_on_neither_side() -> None:
    """Larger than the model's window, not than the limit that the agent asks for."""
    engine = Engine(limit=LIMIT, model="gpt-4")  # 8,192 tokens
    hows = []
    for iterations in (2, 10, 14):
        compared = send(engine, OPENAI_CHAT, iterations).savings.compared
        assert compared is not None
        hows.append(compared.how)
    figures = engine.runs.figures(CALLER, RUN_ID)
    assert [Comparability.COMPARED, Comparability.COMPARED, Comparability.REFUSED] == hows
    assert (2, 1) == (figures.comparison.prompts, figures.comparison.refused)
    assert figures.comparison.untrimmed.new < figures.tokens_sent_total


@pytest.mark.parametrize("format", FORMATS)
def test_recall_is_on_the_bill(format: str) -> None:
    """A call that only brings what the sidecar's tool answered would not have been made without it."""
    engine, answer = grown(format)
    stash_id = next(trim.stash_id for trim in answer.trimmed.trims if trim.stash_id)
    messages = [*history(format, 12), *_recall(format, stash_id)]
    before = engine.runs.figures(CALLER, RUN_ID).comparison
    compared = engine.trim(format, body(format, messages)).savings.compared
    after = engine.runs.figures(CALLER, RUN_ID).comparison
    assert compared is not None
    assert (Comparability.RECALL, Bill()) == (compared.how, compared.untrimmed)
    assert (before.recalls + 1, before.untrimmed) == (after.recalls, after.untrimmed)
    assert before.returned.kept < after.returned.kept


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_recalled_is_never_on_the_other_side(format: str) -> None:
    """Later prompts hold it too: untrimmed they are those of an agent that has not recalled, also after a return."""
    engine, answer = grown(format)
    plain, _ = grown(format)
    stash_id = next(trim.stash_id for trim in answer.trimmed.trims if trim.stash_id)
    recalled = _recall(format, stash_id)
    opening = len(history(format, 12))
    assert engine.trim(format, body(format, [*history(format, 12), *recalled])).savings.compared is not None
    for iterations in (13, 14, 13, 15):
        messages = history(format, iterations)
        with_recall = [*messages[:opening], *recalled, *messages[opening:]]
        found = engine.trim(format, body(format, with_recall)).savings.compared
        expected = send(plain, format, iterations).savings.compared
        assert found is not None
        assert expected is not None
        assert expected.untrimmed == found.untrimmed
    found, expected = send(engine, format, 16).savings.compared, send(plain, format, 16).savings.compared
    assert found is not None  # the agent has gone back to before the recall
    assert expected is not None
    assert sum(_sizes(expected.untrimmed)) == sum(_sizes(found.untrimmed))
    assert size(format, history(format, 12)) == found.untrimmed.kept


def _sizes(bill: Bill) -> tuple[int, int]:
    return bill.kept, bill.new


def _recall(format: str, stash_id: str) -> list[Any]:
    """The model's call of the sidecar's tool, and its answer."""
    arguments, text = {"id": stash_id}, "what was recalled " * 40
    if format == OPENAI_CHAT:
        call = {"id": "own", "type": "function", "function": {"name": RECALL, "arguments": json.dumps(arguments)}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "own", "content": text},
        ]
    use = {"type": "tool_use", "id": "own", "name": RECALL, "input": arguments}
    return [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "own", "content": text}]},
    ]


def test_both_sides_are_priced_alike() -> None:
    """By the configured prices; trimming by batches costs less here than sending everything."""
    rules = Rules(CallerRules(preset("cache_first"), {}, Ceilings()), {}, Money(CeilingPrices({"*": PRICE})))
    engine, _ = grown(OPENAI_CHAT, 30, rules=rules)
    comparison = engine.runs.figures(CALLER, RUN_ID).comparison
    for bill in (comparison.returned, comparison.untrimmed):
        assert bill.cost == pytest.approx(0.1 * bill.kept + bill.new)
    assert comparison.returned.cost < comparison.untrimmed.cost


@pytest.mark.parametrize("option", ["dry_run", "side_call"])
def test_what_changes_nothing_is_not_compared(option: str) -> None:
    """Dry runs and side calls are no prompts that are sent."""
    engine, _ = grown(OPENAI_CHAT, 3)
    before = engine.runs.figures(CALLER, RUN_ID).comparison
    answer = send(engine, OPENAI_CHAT, 4, **{option: True})
    assert (None, None) == (answer.savings.compared, answer.savings.comparison)
    assert before == engine.runs.figures(CALLER, RUN_ID).comparison
