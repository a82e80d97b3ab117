"""What prompts cost by the provider's counts: one prompt by cases, runs next to a plain sum of all facts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.engine.runs.comparing import SMALLEST_PREFIX, Extent, ReportedTokens, Sides, counted, estimated
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.reported_usage import PROMPTS
from prompt_sidecar.facts.comparison import Bill, Comparability, Compared, Comparison
from prompt_sidecar.facts.money import ModelPrice, Money
from prompt_sidecar.facts.tool_calls import RECALL
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.facts.usage_calls import InputCounting, ReportedRefusal, UsageAnswer, UsageCall, UsageOutcome
from prompt_sidecar.guard.ceilings import CeilingPrices, Ceilings, Price
from prompt_sidecar.trim.presets import preset
from tests.engine.runs.making import ANTHROPIC_MESSAGES, FORMATS, LIMIT, OPENAI_CHAT, ROOM, body, grown, history, send
from tests.promises.engine import CALLER, RUN_ID, Engine

PRICE = Price(input=1_000_000.0, output=2_000_000.0, cached=100_000.0, written=1_250_000.0)
"""Of a token: 1 plain, 0.1 cached, 1.25 written."""
PRICED = Rules(CallerRules(preset("cache_first"), {}, Ceilings()), {}, Money(CeilingPrices({"*": PRICE})))
LATER = Sides(Extent(60_000, 50_000), Extent(110_000, 100_000), room=200_000, price=ModelPrice(PRICE))
"""A prompt of a run that was trimmed before: 10,000 tokens are new on both sides."""


def recounted(sides: Sides, tokens: int, cached: int | None = None, written: int | None = None) -> Compared:
    """A prompt by a report that is taken."""
    found = counted(sides, ReportedTokens(tokens, cached, written, sides.price))
    assert found is not None
    return found


# -- one prompt ------------------------------------------------------------------------------------------------------


def test_the_provider_counts_both_sides_by_its_own_tokens() -> None:
    """A quarter more than estimated on one side is a quarter more on the other, and nobody is cold."""
    found = recounted(LATER, 75_000, cached=62_500, written=12_500)
    assert (Bill(62_500, 12_500), Bill(125_000, 12_500)) == (_tokens(found.returned), _tokens(found.untrimmed))
    assert found.returned.cost == pytest.approx(6_250 + 1.25 * 12_500)
    assert found.untrimmed.cost == pytest.approx(12_500 + 1.25 * 12_500)


@pytest.mark.parametrize(
    ("cached", "expected"),
    [
        (0, 0),
        (10_000, 20_000),
        (25_000, 50_000),
        (50_000 - SMALLEST_PREFIX, 100_000 - SMALLEST_PREFIX),
        (49_900, 99_900),
        (50_000, 100_000),
        (55_000, 105_000),
        (60_000, 110_000),
    ],
)
def test_a_cold_cache_is_cold_on_both_sides(cached: int, expected: int) -> None:
    """The same share is missing, less than a cached block token for token; and more is there for both."""
    found = recounted(LATER, 60_000, cached)
    assert Bill(cached, 60_000 - cached) == _tokens(found.returned)
    assert Bill(expected, 110_000 - expected) == _tokens(found.untrimmed)


@pytest.mark.parametrize("cached", [0, 10_000, 49_999])
def test_a_miss_after_a_cut_may_be_the_sidecars_doing(cached: int) -> None:
    """It is on the sidecar's bill alone: untrimmed, the prompt is as warm as estimated."""
    found = recounted(replace(LATER, rewritten=True), 60_000, cached)
    assert Bill(cached, 60_000 - cached) == _tokens(found.returned)
    assert LATER.untrimmed.kept == found.untrimmed.kept


def test_what_was_sent_whole_costs_the_same_on_both_sides() -> None:
    """Whatever the provider counted, a prompt that was not trimmed has saved nothing and lost nothing."""
    same = replace(LATER, untrimmed=LATER.returned)
    for tokens, cached in ((60_000, 0), (60_000, 20_000), (60_000, 50_001), (33_333, 33_332), (100_001, 83_000)):
        found = recounted(same, tokens, cached, written=1)
        assert found.returned == found.untrimmed


def test_a_first_prompt_that_the_provider_knew() -> None:
    """Another run had sent the same beginning, which is cached on both sides."""
    first = Sides(Extent(20_000, 0), Extent(40_000, 0), room=200_000)
    assert Bill(30_000, 10_000) == recounted(first, 20_000, 15_000).untrimmed


def test_new_tokens_cost_what_was_charged_for_them() -> None:
    """Written to the cache or not, in the same proportion on both sides; without any word as estimated."""
    half = recounted(LATER, 60_000, 50_000, 5_000)
    plain = recounted(LATER, 60_000, 50_000)
    silent = recounted(LATER, 60_000)
    assert half.untrimmed.cost == pytest.approx(10_000 + 5_000 + 1.25 * 5_000)
    assert plain.untrimmed.cost == pytest.approx(10_000 + 10_000)
    assert silent == estimated(LATER)


@pytest.mark.parametrize(
    "reported",
    [
        ReportedTokens(0),
        ReportedTokens(-5),
        ReportedTokens(60_000, -1),
        ReportedTokens(60_000, 0, -1),
        ReportedTokens(60_000, 60_001),
        ReportedTokens(60_000, 50_000, 20_000),
        ReportedTokens(14_999),
        ReportedTokens(240_001),
        ReportedTokens(1 << 60, 1),
    ],
)
def test_counts_that_cannot_be_true_change_nothing(reported: ReportedTokens) -> None:
    """Negative ones, parts larger than the whole, and what is four times more or less than estimated."""
    assert counted(LATER, reported) is None
    assert counted(replace(LATER, returned=Extent(0, 0)), reported) is None


def test_the_window_is_measured_in_the_providers_tokens() -> None:
    """A prompt that fitted by estimate alone is refused untrimmed, and one that did not is compared."""
    close = replace(LATER, room=110_000)
    assert Comparability.COMPARED is estimated(close).how
    assert (Comparability.REFUSED, (Bill(), Bill())) == (
        recounted(close, 60_001, 0).how,
        recounted(close, 60_001).sides,
    )
    beyond = replace(LATER, room=100_000)
    assert Comparability.REFUSED is estimated(beyond).how
    assert Comparability.COMPARED is recounted(beyond, 54_000, 45_000).how


def test_what_was_accepted_fits_the_window() -> None:
    """The window was assumed too small: the provider took more."""
    same = replace(LATER, untrimmed=LATER.returned, room=10_000)
    assert Comparability.REFUSED is estimated(same).how
    assert Comparability.COMPARED is recounted(same, 60_000).how


def test_where_the_sidecar_observes_the_untrimmed_prompt_is_counted() -> None:
    """The other side is the prompt that would have been returned; a cold cache would have been cold for it too."""
    watched = replace(LATER, observed=True, rewritten=True)
    found = recounted(watched, 220_000, 100_000, 120_000)
    assert (Bill(100_000, 120_000), Bill(50_000, 70_000)) == (_tokens(found.untrimmed), _tokens(found.returned))


def _tokens(bill: Bill) -> Bill:
    return replace(bill, cost=0.0)


# -- runs ------------------------------------------------------------------------------------------------------------


def report(engine: Engine, answer: TrimAnswer | None = None, **fields: Any) -> UsageAnswer:
    """Report on an answer's prompt; None: on the last."""
    revision = answer.prompt.revision if answer is not None else b""
    return engine.runs.report_usage(UsageCall(CALLER, RUN_ID, revision=revision, **fields))


def comparison(engine: Engine) -> Comparison:
    """What the run tells."""
    return engine.runs.figures(CALLER, RUN_ID).comparison


@dataclass(frozen=True, slots=True)
class Report:
    """A report at random: shares of the estimate, so that it may be true."""

    on: int
    """The prompt, counted from the last."""
    size: float
    cached: float | None
    written: float | None
    refused: bool = False

    def fields(self, answer: TrimAnswer) -> dict[str, Any]:
        """What is reported."""
        if self.refused:
            return {"refusal": ReportedRefusal("too long")}
        tokens = round(self.size * answer.tokens.after)
        parts = {"cached_tokens": self.cached, "cache_write_tokens": self.written}
        return {
            "input_tokens": tokens,
            "output_tokens": 7,
            "counting": InputCounting.WITH_CACHED,
            **{name: None if share is None else round(tokens * share) for name, share in parts.items()},
        }


def shares() -> st.SearchStrategy[float | None]:
    """A part of a prompt, too large ones included; None: not reported."""
    return st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0, 1.5]), st.floats(0.0, 1.0))


REPORTS = st.builds(Report, st.integers(0, PROMPTS + 2), st.floats(0.1, 6.0), shares(), shares(), st.booleans())
STEPS = st.lists(st.one_of(st.integers(0, 4), REPORTS), min_size=1, max_size=24)
"""A number: so many iterations later the next prompt is sent; 0: the same one again."""


@pytest.mark.parametrize("format", FORMATS)
@given(steps=STEPS)
def test_any_order_of_prompts_and_reports(format: str, steps: list[int | Report]) -> None:
    """The sums are those of all prompts, each by its first report that was about it, else by its estimate."""
    engine = Engine(limit=LIMIT, policy=ROOM, rules=PRICED)
    answers = [send(engine, format, 0)]
    facts = [answers[0].savings.compared]
    place = {answers[0].prompt.revision: 0}
    reported = set[int]()
    iterations = 0
    for step in steps:
        if isinstance(step, int):
            iterations += step
            answer = send(engine, format, iterations)
            answers.append(answer)
            if answer.savings.sent_again:
                assert not step
            else:
                facts.append(answer.savings.compared)
            place[answer.prompt.revision] = (
                len(facts) - 1
            )  # a report is about the prompt that was returned last with it
            continue
        answer = answers[max(0, len(answers) - 1 - step.on)]
        usage = report(engine, answer, **step.fields(answer))
        at = place[answer.prompt.revision]
        if usage.outcome is UsageOutcome.RECORDED:
            assert at not in reported
            if usage.recount is not None:
                assert facts[at] == usage.recount.estimated
                facts[at] = usage.recount.reported
                reported.add(at)
    _agrees(facts, reported, comparison(engine))


def _agrees(facts: list[Compared | None], reported: set[int], found: Comparison) -> None:
    """The plain twin: everything added up from the beginning."""
    sums = {"prompts": 0, "refused": 0, "recalls": 0, "reported": 0}
    bills = [[0, 0, 0.0], [0, 0, 0.0]]
    for at, one in enumerate(facts):
        assert one is not None
        if one.how is Comparability.REFUSED:
            sums["refused"] += 1
            continue
        sums["prompts"] += 1
        sums["recalls"] += one.how is Comparability.RECALL
        sums["reported"] += at in reported
        for total, bill in zip(bills, (one.returned, one.untrimmed), strict=True):
            total[0] += bill.kept
            total[1] += bill.new
            total[2] += bill.cost
    assert sums == {name: getattr(found, name) for name in sums}
    for total, bill in zip(bills, (found.returned, found.untrimmed), strict=True):
        assert total[:2] == [bill.kept, bill.new]
        assert total[2] == pytest.approx(bill.cost, abs=1e-6)


def test_what_the_provider_charged_is_what_the_run_has_cost() -> None:
    """With a report on every prompt the side of the sidecar is the sum of the reports, less the answers."""
    engine, charged = Engine(limit=LIMIT, policy=ROOM, rules=PRICED), [0, 0, 0.0]
    for iterations in range(14):
        answer = send(engine, OPENAI_CHAT, iterations)
        tokens, cached = answer.tokens.after + 37, answer.cache.kept // 128 * 128
        usage = report(engine, answer, input_tokens=tokens, cached_tokens=cached, cache_write_tokens=tokens - cached)
        assert comparison(engine) == usage.comparison
        charged = [charged[0] + cached, charged[1] + tokens - cached, charged[2] + 0.1 * cached]
        charged[2] += 1.25 * (tokens - cached)
    found = comparison(engine)
    assert (14, charged[0], charged[1]) == (found.reported, found.returned.kept, found.returned.new)
    assert charged[2] == pytest.approx(found.returned.cost)
    assert charged[2] == pytest.approx(engine.runs.figures(CALLER, RUN_ID).cost or 0.0)


@pytest.mark.parametrize("late", range(3))
def test_two_prompts_in_flight(late: int) -> None:
    """Each report is about its own prompt, whichever comes first; a second one on the same changes nothing."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    answers = [send(engine, OPENAI_CHAT, iterations) for iterations in (1, 2, 3)]
    answers = answers[late:] + answers[:late]
    for answer in answers:
        report(engine, answer, input_tokens=2 * answer.tokens.after, cached_tokens=0)
    found = comparison(engine)
    again = report(engine, answers[0], input_tokens=answers[0].tokens.after, cached_tokens=0)
    assert (UsageOutcome.REPEATED, None) == (again.outcome, again.recount)
    assert found == comparison(engine) == again.comparison
    assert Bill(0, sum(2 * answer.tokens.after for answer in answers)) == found.returned


def test_a_retry_is_reported_as_one_prompt() -> None:
    """A prompt that was sent again before there was a report on it counts once: the provider did not answer before."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    first = send(engine, OPENAI_CHAT, 2)
    again = send(engine, OPENAI_CHAT, 2)
    assert first.prompt.revision == again.prompt.revision
    assert (False, True) == (first.savings.sent_again, again.savings.sent_again)
    assert 1 == comparison(engine).prompts
    report(engine, again, input_tokens=3_000, cached_tokens=1_000)
    report(engine, first, input_tokens=5_000, cached_tokens=1_000)
    found = comparison(engine)
    assert (1, 1) == (found.prompts, found.reported)
    assert Bill(1_000, 2_000) == found.returned
    assert not send(engine, OPENAI_CHAT, 2).savings.sent_again
    assert 2 == comparison(engine).prompts


def test_a_late_report_is_about_nothing() -> None:
    """The run remembers its last prompts only; older ones stay as they were estimated."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    answers = [send(engine, OPENAI_CHAT, iterations) for iterations in range(PROMPTS + 2)]
    before = comparison(engine)
    assert UsageOutcome.PROMPT_UNKNOWN is report(engine, answers[0], input_tokens=9).outcome
    assert before == comparison(engine)


@pytest.mark.parametrize(
    "fields",
    [
        {"input_tokens": -50_000},
        {"input_tokens": 3_000, "cached_tokens": -1},
        {"input_tokens": 99_999_999, "cached_tokens": 3},
        {"input_tokens": 0, "cached_tokens": 0},
        {"output_tokens": 40},
        {"cached_tokens": 900},
    ],
)
def test_reports_that_say_nothing_change_nothing(fields: dict[str, Any]) -> None:
    """Of the prompt's cost; the run goes on with its estimate."""
    engine, _ = grown(OPENAI_CHAT, 4)
    before = comparison(engine)
    assert report(engine, **fields).recount is None
    assert before == comparison(engine)


def test_uncached_tokens_alone_are_no_prompt() -> None:
    """Of a provider that counts cached ones apart, what is told without them may be a part; the whole is not."""
    engine, answer = grown(ANTHROPIC_MESSAGES, 5)
    before = comparison(engine)
    assert answer.cache.kept > 1_024
    assert report(engine, input_tokens=answer.cache.rewritten).recount is None
    assert before == comparison(engine)
    engine, answer = grown(ANTHROPIC_MESSAGES, 5)
    report(engine, input_tokens=answer.tokens.after)
    assert before.returned.new + answer.cache.kept == comparison(engine).returned.new


def test_a_refused_prompt_is_on_neither_side() -> None:
    """It costs nothing, and the untrimmed one is no smaller."""
    engine, _ = grown(OPENAI_CHAT, 5)
    before = comparison(engine)
    answer = send(engine, OPENAI_CHAT, 6)
    report(engine, answer, refusal=ReportedRefusal("prompt is too long: 9000 tokens > 6000 maximum"))
    assert replace(before, refused=before.refused + 1) == comparison(engine)


def test_recall_by_the_report_is_on_the_sidecars_side() -> None:
    """Hidden turns of the HTTP door are such prompts: what they really cost is on its bill alone."""
    engine, answer = grown(ANTHROPIC_MESSAGES)
    stash_id = next(trim.stash_id for trim in answer.trimmed.trims if trim.stash_id)
    use = {"type": "tool_use", "id": "own", "name": RECALL, "input": {"id": stash_id}}
    result = {"type": "tool_result", "tool_use_id": "own", "content": "what was recalled"}
    messages = [*history(ANTHROPIC_MESSAGES, 12), {"role": "assistant", "content": [use]}]
    messages.append({"role": "user", "content": [result]})
    before = comparison(engine)
    hidden = engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages))
    report(engine, hidden, input_tokens=11, cached_tokens=hidden.tokens.after, cache_write_tokens=200)
    after = comparison(engine)
    assert (before.recalls + 1, before.untrimmed) == (after.recalls, after.untrimmed)
    assert before.returned.plus(Bill(hidden.tokens.after, 211)) == after.returned


def test_observed_runs_count_what_was_sent() -> None:
    """The agent's own prompts are what the provider counts there: they are the untrimmed side."""
    engine = Engine(limit=LIMIT, policy=ROOM, rules=replace(PRICED, observe=True))
    sums = [0, 0]
    for iterations in range(14):
        answer = send(engine, OPENAI_CHAT, iterations)
        tokens, cached = answer.tokens.before + 5, answer.tokens.before // 3
        report(engine, input_tokens=tokens, cached_tokens=cached)
        sums = [sums[0] + cached, sums[1] + tokens - cached]
    found = comparison(engine)
    assert (14, sums) == (found.reported, [found.untrimmed.kept, found.untrimmed.new])
    assert found.returned.kept + found.returned.new < sum(sums)


def test_another_model_answers_on_both_sides() -> None:
    """Its prices and its tokens are those of the untrimmed prompt too."""
    dear = replace(PRICE, input=5_000_000.0)
    engine = Engine(
        limit=LIMIT, model="gpt-4o", rules=replace(PRICED, money=Money(CeilingPrices({"*": PRICE, "large": dear})))
    )
    answer = send(engine, OPENAI_CHAT, 2)
    report(engine, answer, input_tokens=answer.tokens.after, cached_tokens=0, model="large")
    found = comparison(engine)
    assert 5.0 * answer.tokens.after == pytest.approx(found.returned.cost)
    assert 5.0 * found.untrimmed.new == pytest.approx(found.untrimmed.cost)
