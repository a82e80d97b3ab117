"""Reports on prompts: what they correct, what a refusal teaches, and what the cache made of the kept prefix.

`Provider` stands for a provider whose tokenizer differs from ours and which refuses what is too long for it. The tests
from "a whole run" on send recorded shapes through the engine to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.engine.runs.reported_usage import PROMPTS, LearnedUsage, SentTokens, same_model
from prompt_sidecar.engine.steps.answer import calibrated_figures
from prompt_sidecar.errors import RunUnknown
from prompt_sidecar.facts.trim_calls import TokenFigures, TrimAnswer
from prompt_sidecar.facts.usage_calls import (
    CacheUse,
    Calibrated,
    InputCounting,
    ReportedRefusal,
    UsageAnswer,
    UsageCall,
    UsageOutcome,
)
from prompt_sidecar.tokens.calibration import Calibration, InForce
from tests.engine.runs.making import ANTHROPIC_MESSAGES, FORMATS, OPENAI_CHAT, body, history
from tests.promises.engine import CALLER, RUN_ID, Engine

CALL = UsageCall("caller", "run")
SENT = SentTokens("model", OPENAI_CHAT, tokens=100_000, kept=90_000, limit=150_000)


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: how its count follows from ours, what it takes at the most, and what it says of more."""

    factor: float
    limit: int
    framing: int = 150
    says: str = "prompt is too long: {real} tokens > {limit} maximum"

    def count(self, raw: int) -> int:
        """Its tokens of a prompt of ours."""
        return round(raw * self.factor) + self.framing

    def answer(self, raw: int) -> UsageCall:
        """What an agent reports after it sent a prompt."""
        real = self.count(raw)
        if real > self.limit:
            return replace(CALL, refusal=ReportedRefusal(self.says.format(real=real, limit=self.limit)))
        return replace(CALL, input_tokens=real)


SAYS = {
    "limit and size": "prompt is too long: {real} tokens > {limit} maximum",
    "limit alone": "The input token count exceeds the maximum number of tokens allowed ({limit}).",
    "nothing": "Input is too long for requested model.",
}


def usage_of(*prompts: SentTokens) -> LearnedUsage:
    """A run that was given these prompts."""
    usage = LearnedUsage()
    for prompt in prompts:
        usage.prompt_returned(prompt)
    return usage


def report(usage: LearnedUsage, calibration: Calibration | None = None, **fields: Any) -> UsageAnswer:
    """Report on the last prompt."""
    return usage.report(replace(CALL, **fields), Calibration() if calibration is None else calibration)


def test_a_report_tells_the_error_and_corrects() -> None:
    """The estimate is held against the real tokens; three reports that agree correct it."""
    usage, calibration = LearnedUsage(), Calibration()
    for turn in range(4):
        factor = calibration.factor("caller", "model", OPENAI_CHAT)
        usage.prompt_returned(replace(SENT, factor=factor, revision=bytes([turn]) * 20))
        answer = report(usage, calibration, input_tokens=125_000)
    assert (UsageOutcome.RECORDED, Calibrated.USED, 125_000) == (answer.outcome, answer.calibrated, answer.real_tokens)
    assert 125_000 == pytest.approx(answer.estimated_tokens, rel=0.01)
    assert 0.0 == pytest.approx(answer.error, abs=0.01)
    assert 4 == usage.figures().reports


def test_a_prompt_is_reported_once() -> None:
    """The second report on a prompt changes nothing and gets the first one's answer."""
    usage, calibration = usage_of(SENT), Calibration()
    first = report(usage, calibration, input_tokens=120_000)
    again = report(usage, calibration, input_tokens=500_000)
    assert replace(first, outcome=UsageOutcome.REPEATED) == again
    assert (1, 120_000) == (usage.figures().reports, usage.figures().input_tokens)
    assert 1 == calibration.reports("caller", "model", OPENAI_CHAT)


def test_a_report_finds_its_prompt() -> None:
    """A revision names one of the last prompts; one that is older, or none at all, is unknown."""
    sent = [replace(SENT, tokens=1_000 + turn, revision=bytes([turn]) * 20) for turn in range(PROMPTS + 1)]
    usage = usage_of(*sent)
    answer = report(usage, input_tokens=1_500, revision=sent[3].revision)
    assert (UsageOutcome.RECORDED, 1_003) == (answer.outcome, answer.estimated_tokens)
    assert 1_000 + PROMPTS == report(usage, input_tokens=1_500).estimated_tokens
    assert UsageOutcome.PROMPT_UNKNOWN is report(usage, input_tokens=1_500, revision=sent[0].revision).outcome
    assert UsageOutcome.PROMPT_UNKNOWN is report(LearnedUsage(), input_tokens=1_500).outcome


@pytest.mark.parametrize(
    ("format", "fields", "expected"),
    [
        (OPENAI_CHAT, {"input_tokens": 100, "cached_tokens": 60}, 100),
        (ANTHROPIC_MESSAGES, {"input_tokens": 100, "cached_tokens": 60, "cache_write_tokens": 5}, 165),
        (OPENAI_CHAT, {"input_tokens": 100, "cached_tokens": 60, "counting": InputCounting.WITHOUT_CACHED}, 160),
        (ANTHROPIC_MESSAGES, {"input_tokens": 100, "cached_tokens": 60, "counting": InputCounting.WITH_CACHED}, 100),
        (OPENAI_CHAT, {"input_tokens": 3, "cached_tokens": 90, "cache_write_tokens": 7}, 100),
        (OPENAI_CHAT, {"cached_tokens": 60}, 0),
        (OPENAI_CHAT, {"output_tokens": 60}, 0),
    ],
)
def test_cached_tokens_are_counted_as_the_provider_does(format: str, fields: dict[str, Any], expected: int) -> None:
    """Anthropic counts cached tokens apart, others within; the agent may say, and arithmetic has the last word."""
    usage = usage_of(replace(SENT, format=format, tokens=100, kept=0))
    assert expected == report(usage, **fields).real_tokens


@pytest.mark.parametrize(
    ("sent", "fields", "expected"),
    [
        (SENT, {"output_tokens": 5}, Calibrated.NO_COUNT),
        (replace(SENT, media=True), {"input_tokens": 130_000}, Calibrated.MEDIA),
        (SENT, {"input_tokens": 12}, Calibrated.IMPLAUSIBLE),
        (replace(SENT, format=ANTHROPIC_MESSAGES), {"input_tokens": 60_000}, Calibrated.CACHE_UNTOLD),
        (replace(SENT, format=ANTHROPIC_MESSAGES), {"input_tokens": 60_000, "cached_tokens": 0}, Calibrated.USED),
        (replace(SENT, format=ANTHROPIC_MESSAGES), {"input_tokens": 120_000}, Calibrated.USED),
        (SENT, {"input_tokens": 60_000}, Calibrated.USED),
    ],
)
def test_what_tells_nothing_corrects_nothing(sent: SentTokens, fields: dict[str, Any], expected: Calibrated) -> None:
    """Images, absurd counts and uncached tokens alone leave the factor; the answer says why."""
    usage, calibration = usage_of(sent), Calibration()
    assert expected is report(usage, calibration, **fields).calibrated
    assert (expected is Calibrated.USED) == (1 == calibration.reports("caller", "model", sent.format))


@pytest.mark.parametrize(
    ("reported", "sent", "expected"),
    [
        ("", "gpt-4o", True),
        ("gpt-4o-2024-08-06", "openai/gpt-4o", True),
        ("Claude-Sonnet-4-5", "anthropic/claude-sonnet-4-5-20250929", True),
        ("llama-3", "", True),
        ("gpt-4o", "claude-sonnet-4-5", False),
    ],
)
def test_which_model_answered(reported: str, sent: str, expected: bool) -> None:
    """An alias answered by its dated name is the same model; a fallback is another."""
    assert expected == same_model(reported, sent)


def test_a_fallback_corrects_its_own_factor() -> None:
    """Where another model answered, its factor is corrected and not that of the model that was asked for."""
    usage, calibration = usage_of(replace(SENT, model="gpt-4o")), Calibration()
    report(usage, calibration, model="mistral-large", input_tokens=130_000)
    assert [0, 1] == [calibration.reports("caller", model, OPENAI_CHAT) for model in ("gpt-4o", "mistral-large")]


# -- the cache -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "fields", "expected"),
    [
        (90_000, {}, CacheUse.NOT_TOLD),
        (1_000, {"cached_tokens": 0}, CacheUse.NOTHING_EXPECTED),
        (90_000, {"cached_tokens": 89_984}, CacheUse.AS_EXPECTED),
        (90_000, {"cached_tokens": 81_000}, CacheUse.AS_EXPECTED),
        (90_000, {"cached_tokens": 95_000}, CacheUse.AS_EXPECTED),
        (90_000, {"cached_tokens": 20_000}, CacheUse.BREAK_SUSPECTED),
        (90_000, {"cached_tokens": 0}, CacheUse.NEVER_USED),
        (1_100, {"cached_tokens": 0}, CacheUse.NOTHING_EXPECTED),
    ],
)
def test_the_cache_against_the_kept_prefix(kept: int, fields: dict[str, Any], expected: CacheUse) -> None:
    """Less than was kept, by more than a block and the estimate's error, is a suspicion."""
    usage = usage_of(replace(SENT, kept=kept))
    answer = report(usage, input_tokens=100_000, **fields)
    assert expected is answer.cache
    assert usage.figures().cache_breaks == (expected is CacheUse.BREAK_SUSPECTED)
    assert fields.get("cached_tokens", 0) / 100_000 == answer.cache_hit_share


def test_a_cache_that_worked_and_is_empty_is_broken() -> None:
    """Once anything was cached in the run, nothing read is no longer a cache that is off."""
    usage = usage_of(SENT)
    report(usage, input_tokens=100_000, cached_tokens=0, cache_write_tokens=90_000)
    usage.prompt_returned(replace(SENT, revision=b"2" * 20))
    assert CacheUse.BREAK_SUSPECTED is report(usage, input_tokens=100_000, cached_tokens=0).cache


def test_a_refused_prompt_was_never_cached() -> None:
    """After a refusal nothing is expected of the cache, whatever prefix the next prompt kept."""
    usage = usage_of(SENT)
    report(usage, refusal=ReportedRefusal())
    usage.prompt_returned(replace(SENT, revision=b"2" * 20))
    assert CacheUse.NOTHING_EXPECTED is report(usage, input_tokens=100_000, cached_tokens=0).cache


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.6, 0.8, 1.0, 1.2, 1.4])
@pytest.mark.parametrize(("says", "steps"), [("limit and size", 1), ("limit alone", 1), ("nothing", 2)])
@pytest.mark.parametrize("known", [0, 6])
@pytest.mark.parametrize("over", [1.02, 1.4])
def test_a_refused_prompt_is_followed_by_one_that_fits(
    factor: float, says: str, steps: int, known: int, over: float
) -> None:
    """In one step where the limit is named, else in two, even if every prompt is as long as the limit allows."""
    provider = Provider(factor, 128_000, says=SAYS[says])
    usage, calibration = LearnedUsage(), Calibration()
    for turn in range(known):
        usage.prompt_returned(replace(SENT, tokens=20_000, revision=b"known %d" % turn))
        usage.report(provider.answer(20_000), calibration)
    window = 400_000
    sent = int(over * provider.limit / factor)
    refused = 0
    while provider.count(sent) > provider.limit:
        usage.prompt_returned(replace(SENT, tokens=sent, limit=window, revision=b"%d" % refused))
        usage.report(provider.answer(sent), calibration)
        refused += 1
        assert refused <= steps
        sent = min(sent, usage.in_force(window, calibration.factor("caller", "model", OPENAI_CHAT)).raw)
    assert refused == usage.figures().refusals
    assert sent > 0.4 * provider.limit / factor


def test_the_answers_part_is_taken_off() -> None:
    """What is learned is the prompt's limit: the window that was named, less the answer's part."""
    usage = usage_of(replace(SENT, reserve=8_000))
    answer = report(usage, refusal=ReportedRefusal("prompt is too long: 141000 tokens > 128000 maximum"))
    assert (120_000, 120_000) == (answer.learned_limit, usage.learned_limit)
    assert usage.in_force(150_000, 1.0).raw < 120_000 * 100 / 141


def test_the_agents_own_limit_goes_first() -> None:
    """An agent that knows the limit says it; the message's size is used all the same."""
    usage = usage_of(SENT)
    report(usage, refusal=ReportedRefusal("prompt is too long: 120000 tokens > 118000 maximum", 90_000))
    assert 90_000 == usage.learned_limit
    assert int(90_000 / 1.2 * 0.97) == pytest.approx(usage.in_force(150_000, 1.0).raw, abs=1)


def test_the_least_limit_holds() -> None:
    """Of several limits the least is in force, and none is below the least that is believed."""
    usage, learned = LearnedUsage(), []
    for turn, limit in enumerate((90_000, 60_000, 80_000, 300)):
        usage.prompt_returned(replace(SENT, revision=b"%d" % turn, reserve=200))
        learned.append(report(usage, refusal=ReportedRefusal(limit=limit)).learned_limit)
    assert [89_800, 59_800, 59_800, 256] == learned
    assert InForce(256, 256) == usage.in_force(150_000, 1.0)


def test_what_is_accepted_is_no_limit() -> None:
    """A limit that a later prompt passes, and the provider takes, was wrong: it rises to that prompt."""
    usage = usage_of(SENT)
    report(usage, refusal=ReportedRefusal(limit=50_000))
    usage.prompt_returned(replace(SENT, revision=b"2"))
    report(usage, input_tokens=99_000)
    assert 99_000 == usage.learned_limit


def test_the_ceiling_goes_once_the_factor_is_known() -> None:
    """A named limit and a factor that took in the run's own reports need no further caution."""
    provider, usage, calibration = Provider(1.3, 90_000), usage_of(SENT), Calibration()
    usage.report(provider.answer(100_000), calibration)
    for turn in range(4):
        usage.prompt_returned(replace(SENT, tokens=60_000, revision=b"%d" % turn))
        usage.report(provider.answer(60_000), calibration)
    factor = calibration.factor("caller", "model", OPENAI_CHAT)
    assert InForce(90_000, int(90_000 / factor)) == usage.in_force(150_000, factor)
    assert 1.3 == pytest.approx(factor, rel=0.03)


def test_another_runs_limit_is_its_own() -> None:
    """A refusal teaches the run that met it, and no other."""
    refused, other = usage_of(SENT), usage_of(SENT)
    report(refused, refusal=ReportedRefusal(limit=50_000))
    assert InForce(150_000, 150_000) == other.in_force(150_000, 1.0)


@given(
    factor=st.floats(0.5, 2.0),
    limit=st.integers(300, 1_000_000),
    after=st.integers(0, 1_000_000),
    refused=st.none() | st.integers(300, 1_000_000),
)
def test_calibrated_figures_agree_with_the_raw_ones(factor: float, limit: int, after: int, refused: int | None) -> None:
    """What fits in raw tokens fits in the calibrated ones, whatever factor and ceiling are in force."""
    usage = usage_of(replace(SENT, tokens=1_000_000, factor=factor))
    if refused is not None:
        report(usage, refusal=ReportedRefusal(limit=refused))
    in_force = usage.in_force(limit, factor)
    raw = TokenFigures(after, after, in_force.raw, "o200k_base", exact=False, factor=1.0, own_text=0)
    figures = calibrated_figures(raw, in_force, factor)
    assert in_force.limit <= limit
    if after <= in_force.raw:
        assert figures.after <= figures.limit
    if refused is None:
        assert (after <= in_force.raw) == (figures.after <= figures.limit)


@given(st.lists(st.tuples(st.sampled_from(["ok", *SAYS]), st.integers(300, 300_000)), max_size=30))
def test_any_sequence_leaves_a_limit_that_can_be_used(steps: list[tuple[str, int]]) -> None:
    """Whatever is reported, the next limit is positive and not above the window's."""
    usage, calibration = LearnedUsage(), Calibration()
    for turn, (kind, real) in enumerate(steps):
        usage.prompt_returned(replace(SENT, tokens=real // 2 + 1, revision=b"%d" % turn))
        if kind == "ok":
            report(usage, calibration, input_tokens=real)
        else:
            report(usage, calibration, refusal=ReportedRefusal(SAYS[kind].format(real=real, limit=real * 3 // 4)))
        in_force = usage.in_force(200_000, calibration.factor("caller", "model", OPENAI_CHAT))
        assert 128 <= in_force.raw <= 400_000
        assert 128 <= in_force.limit <= 200_000


# -- a whole run -----------------------------------------------------------------------------------------------------


def _raw(answer: TrimAnswer) -> int:
    return round(answer.tokens.after / answer.tokens.factor)


def _reported(engine: Engine, provider: Provider, answer: TrimAnswer) -> UsageAnswer:
    call = replace(provider.answer(_raw(answer)), caller=CALLER, run_id=RUN_ID, revision=answer.prompt.revision)
    return engine.runs.report_usage(call)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("factor", [0.6, 1.4])
def test_a_run_corrects_itself(format: str, factor: float) -> None:
    """Where the tokenizer differs by 40 per cent the told tokens become the provider's, and prompts fit."""
    engine, provider = Engine(limit=9_000), Provider(factor, 9_000, framing=20)
    errors = []
    for number in range(40):
        answer = engine.trim(format, body(format, history(format, number)), model="unheard-of")
        reported = _reported(engine, provider, answer)
        errors.append(abs(answer.tokens.after / provider.count(_raw(answer)) - 1))
        assert answer.fits
        if number > 5:
            assert UsageOutcome.RECORDED is reported.outcome
            assert provider.count(_raw(answer)) <= provider.limit
    assert max(errors[6:]) < 0.03


@pytest.mark.parametrize("preset", ["cache_first", "fit_only"])
@pytest.mark.parametrize(("says", "steps"), [("limit and size", 1), ("limit alone", 1), ("nothing", 2)])
@pytest.mark.parametrize("factor", [0.8, 1.0, 1.4])
def test_the_next_prompt_fits(preset: str, says: str, steps: int, factor: float) -> None:
    """The agent thinks the window is three times what it is; the same history is sent again after each refusal."""
    engine, provider = Engine(limit=18_000, preset=preset), Provider(factor, 6_000, framing=20, says=SAYS[says])
    if says == "nothing":
        provider = replace(provider, limit=int(13_000 * factor * 0.71))
    prompt = body(OPENAI_CHAT, history(OPENAI_CHAT, 18))
    refusals: list[int] = []
    for _ in range(4):
        answer = engine.trim(OPENAI_CHAT, prompt, model="unheard-of")
        if provider.count(_raw(answer)) <= provider.limit:
            break
        refusals.append(_reported(engine, provider, answer).next_limit)
    assert 1 <= len(refusals) <= steps


def test_a_report_on_a_run_that_is_not_known() -> None:
    """A process that has not seen the run says so."""
    with pytest.raises(RunUnknown):
        Engine(limit=9_000).runs.report_usage(replace(CALL, input_tokens=5))


def test_dry_runs_and_side_calls_are_not_reported_on() -> None:
    """A prompt that changed nothing is none that a report can be about."""
    engine = Engine(limit=9_000)
    prompt = body(OPENAI_CHAT, history(OPENAI_CHAT, 2))
    first = engine.trim(OPENAI_CHAT, prompt)
    engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, history(OPENAI_CHAT, 9)), dry_run=True)
    engine.trim(OPENAI_CHAT, prompt, side_call=True)
    answer = engine.runs.report_usage(replace(CALL, caller=CALLER, run_id=RUN_ID, input_tokens=5_000))
    assert first.tokens.after == answer.estimated_tokens
