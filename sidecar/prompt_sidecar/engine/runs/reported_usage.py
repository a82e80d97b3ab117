"""What the provider counted: reports on one run's last prompts, and what the sidecar learns from them.

A report is about a prompt that was returned. It says what that prompt cost, which takes the place of an estimate in
what ceilings count and in the comparison with never trimming (`engine/runs/comparing.py`). Three things are learned
from it. The real input tokens correct the factor of caller, model and format (`tokens/calibration.py`). A refusal shows
the limit, for this run alone: one agent cannot lower another's; for an unknown model, it holds for the caller's later
runs too (`engine/runs/taught_windows.py`). Cached tokens are compared with the prefix that the answer said was kept.

A refused prompt must be followed by one that fits, in one step where the refusal named the limit, else in two. The
limit alone does not do that, as our count may be wrong by the very share that got the prompt refused. So a refusal also
sets a *ceiling* in our own raw tokens, from what it proves:

    limit and real size named    real / raw is this prompt's ratio: ceiling = limit / ratio, less `MARGIN`
    limit alone                  unknown ratio: ceiling = limit / `UNKNOWN_FACTOR`, less `MARGIN`; limit / factor, less
                                 `TRUSTED_MARGIN`, once the factor is trusted
    neither                      0.9 of the raw tokens that were refused, then 0.75 of those refused again

The ceiling from a named limit goes once the factor has taken in reports from after the refusal; the other stays, as
nothing else knows the limit. What the provider accepts raises both: a limit that an accepted prompt exceeded is not a
limit.

Providers cache prompts in blocks (OpenAI 128 tokens, others up to 1,024) and only from 1,024 tokens on; entries expire
within minutes, and Anthropic's reach to the last mark that the agent set. So less than predicted is a suspicion, and
only beyond `CACHE_SLACK`. After a refused prompt nothing is predicted, since it was never cached.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from prompt_sidecar.engine.runs.comparing import FAILED, NEITHER, ReportedTokens, Sides, counted, estimated
from prompt_sidecar.engine.runs.taught_windows import TaughtWindows
from prompt_sidecar.facts.comparison import Recount
from prompt_sidecar.facts.money import ModelPrice, Money, Spent, Unpriced
from prompt_sidecar.facts.usage_calls import (
    CacheUse,
    Calibrated,
    InputCounting,
    ReportedRefusal,
    UsageAnswer,
    UsageCall,
    UsageFigures,
    UsageOutcome,
)
from prompt_sidecar.guard.ceilings import NOTHING, CeilingUsage
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.providers.usage import STANDARD_TIERS, whole_input
from prompt_sidecar.tokens.calibration import (
    Calibration,
    Correction,
    CountedPrompt,
    Factors,
    InForce,
    calibrated_tokens,
)
from prompt_sidecar.tokens.refusals import LEAST_TOKENS, RefusalNumbers, read_refusal

PROMPTS: Final = 8
"""Prompts of a run that may still be reported: a report follows its prompt by one model call, and few agents have more
than some calls of one run open at once."""
TAG_BYTES: Final = 16
"""Bytes of a revision that distinguish it from the others: its signature, which comes first."""
MARGIN: Final = 0.03
"""Share that is kept free below a limit derived from a ratio: the next prompt's content differs, with the same framing.
"""
UNKNOWN_FACTOR: Final = 1.4
"""The factor by which our count may be too low where nothing is known of the model's tokenizer; the most measured is
1.33."""
TRUSTED_MARGIN: Final = 0.1
"""Share that is kept free where the factor is trusted and the prompt was refused nevertheless."""
TRUSTED_REPORTS: Final = 3
"""Reports from which a factor is trusted; see `tokens/calibration.py`."""
STEPS: Final = (0.9, 0.75)
"""Shares of a refused prompt's tokens that remain after the first and each later refusal that names no limit."""
CACHE_LEAST: Final = 1_024
"""Tokens below which no provider caches a prompt."""
CACHE_SLACK: Final = (1_024, 0.1)
"""Tokens and share by which cached tokens may fall short of the prediction: a block, and the estimate's error."""


@dataclass(frozen=True, slots=True)
class SentTokens:
    """A prompt that was returned. Tokens are raw (uncalibrated)."""

    model: str
    format: str
    tokens: int
    kept: int
    """Tokens of the prefix that it shares with the previous prompt."""
    factor: float = 1.0
    """The calibration factor that the figures of its answer were multiplied with."""
    opaque: int = 0
    """Tokens of encrypted text in it, as they were counted."""
    opaque_factor: float = 1.0
    """The factor that tokens of encrypted text were multiplied with. `tokens` and `kept` hold them already in
    proportion to `factor`."""
    limit: int = 0
    """The limit by windows and reserve, without what this run has learned; the provider's tokens."""
    reserve: int = 0
    """Tokens of the window that were kept for the answer."""
    unknown: bool = False
    """Whether neither the settings nor the catalogue know the model's window."""
    media: bool = False
    """Whether it holds images or encoded documents, whose tokens are estimated in another way."""
    exact: bool = False
    """Whether it was counted with the model's own vocabulary."""
    charge: CeilingUsage = NOTHING
    """Its use for ceilings until it is reported."""
    sides: Sides | None = None
    """Its sides in the comparison with never trimming; None if it is not compared."""
    revision: bytes = b""


@dataclass(slots=True)
class _ReportedPrompt:
    """A returned prompt and the report on it."""

    returned: SentTokens
    kept: int
    charge: CeilingUsage
    answer: UsageAnswer | None = None
    failed: bool = False
    """Whether its provider failed. It is then not compared until it is sent again or its counts are reported."""


class LearnedUsage:
    """What was learned from the reports on one run. Not thread-safe: a run is used under its lock."""

    def __init__(self) -> None:
        self._prompts: OrderedDict[bytes, _ReportedPrompt] = OrderedDict()
        self._limit: int | None = None
        self._ceiling: int | None = None
        self._ceiling_guessed = False
        """Whether the ceiling comes from a refusal that named no limit."""
        self._unnamed = 0
        """Refusals in a row that named no limit."""
        self._since_refusal = 0
        """Reports since the last refusal that corrected the factor."""
        self._refused_last = False
        self._cache_seen = False
        self._last: tuple[str, CountedPrompt] | None = None
        """The last reported prompt, with its model."""
        self._sums = UsageFigures()

    @property
    def learned_limit(self) -> int:
        """The limit that refusals named for prompts of this run, in the provider's tokens; 0 if none did."""
        return self._limit or 0

    def figures(self) -> UsageFigures:
        """The run's sums of reported usage."""
        return replace(self._sums, learned_limit=self.learned_limit)

    def in_force(self, limit: int, factor: float) -> InForce:
        """Return the limit of the next prompt, from the limit by windows and reserve, and the factor."""
        if self._limit is not None:
            limit = min(limit, self._limit)
        raw = int(limit / factor)
        if self._ceiling is not None and raw > self._ceiling:
            raw = self._ceiling
            limit = min(limit, calibrated_tokens(raw, factor))
        return InForce(limit, raw)

    def carry(self, limit: int) -> None:
        """Take over a limit that another process learned for the run; 0 if it learned none."""
        if limit and self._limit is None:
            self._limit = max(limit, LEAST_TOKENS)

    def restore(self, figures: UsageFigures) -> None:
        """Take over the sums and the learned limit of another process."""
        if not self._sums.reports:
            self._sums = replace(figures, learned_limit=0)
        self.carry(figures.learned_limit)

    def prompt_returned(self, returned: SentTokens) -> None:
        """Remember a prompt that changed the run, so neither a dry run's nor a side call's."""
        tag = returned.revision[:TAG_BYTES]
        last = self._last_prompt
        if last is not None and last.returned.sides is returned.sides:  # the same prompt again: compared once
            last.returned = replace(last.returned, sides=None)
        self._prompts.pop(tag, None)
        kept = 0 if self._refused_last else returned.kept
        self._prompts[tag] = _ReportedPrompt(replace(returned, revision=b""), kept, returned.charge)  # the tag names it
        self._refused_last = False
        if len(self._prompts) > PROMPTS:
            self._prompts.popitem(last=False)

    def returned(self, revision: bytes) -> bool:
        """Whether a revision was returned with one of the last prompts of this process."""
        return revision[:TAG_BYTES] in self._prompts

    def returned_last(self, revision: bytes) -> bool:
        """Whether a revision was returned with the last prompt of this process."""
        return bool(revision) and revision[:TAG_BYTES] == next(reversed(self._prompts), None)

    @property
    def _last_prompt(self) -> _ReportedPrompt | None:
        return next(reversed(self._prompts.values()), None)

    @property
    def unanswered(self) -> SentTokens | None:
        """Return the last prompt, if it was not reported and is compared with never trimming."""
        last = self._last_prompt
        return last.returned if last is not None and last.answer is None and last.returned.sides is not None else None

    @property
    def last_failed(self) -> bool:
        """Whether the last prompt's provider failed, according to the reports so far."""
        return self._last_prompt is not None and self._last_prompt.failed

    @property
    def unreported(self) -> bool:
        """Whether the last prompt was not reported."""
        return self._last_prompt is not None and self._last_prompt.answer is None

    def charge_last(self, use: CeilingUsage) -> None:
        """Add to the use of the last prompt."""
        if self._last_prompt is not None:
            self._last_prompt.charge = self._last_prompt.charge.plus(use)

    def report(
        self,
        call: UsageCall,
        calibration: Calibration,
        money: Money | None = None,
        taught: TaughtWindows | None = None,
    ) -> UsageAnswer:
        """Process a report. A second report on the same prompt changes nothing.

        Args:
            call: the report.
            calibration: the factors that it corrects.
            money: prices, for what the model call cost.
            taught: limits of unknown models, learned from refusals, for the caller's later runs.
        """
        money = money or Money()
        prompt = self._find(call.revision)
        if prompt is None:
            lost = Spent(call.model, money.currency, unpriced=Unpriced.PROMPT_UNKNOWN)
            spent = lost if call.refusal is None and not call.failed else None
            return UsageAnswer(UsageOutcome.PROMPT_UNKNOWN, learned_limit=self.learned_limit, spent=spent)
        if prompt.answer is not None:
            return replace(prompt.answer, outcome=UsageOutcome.REPEATED)
        if call.failed:
            return self._failed(prompt)
        sent = prompt.returned
        refusal = _refusal_of(call.refusal) if call.refusal is not None else None
        real = _real_tokens(call, sent) if refusal is None else refusal.real_tokens or 0
        calibrated, correction = self._correct(call, sent, prompt.kept, real, calibration)
        if refusal is not None:
            self._refused_last = prompt is self._last_prompt
            self._learn(refusal, sent, calibration.reports(call.caller, sent.model, sent.format), correction)
        elif real:
            self._accepted(sent, real, used=calibrated is Calibrated.USED)
        if taught is not None and sent.unknown:
            _teach(taught, call, sent, refusal, real)
        expected = int(prompt.kept * sent.factor) if prompt.kept * sent.factor >= CACHE_LEAST else 0
        cache = self._cache_use(call, expected) if refusal is None else CacheUse.NOT_TOLD
        cached = (call.cached_tokens or 0) if refusal is None else 0
        self._count(call, real, cached, cache)
        answer = UsageAnswer(
            outcome=UsageOutcome.RECORDED,
            estimated_tokens=calibrated_tokens(sent.tokens, sent.factor),
            real_tokens=real,
            error=correction.error if real else 0.0,
            factor_before=correction.factor_before,
            factor_after=correction.factor_after,
            calibrated=calibrated,
            learned_limit=self.learned_limit,
            next_limit=self.in_force(sent.limit, calibration.factor(call.caller, sent.model, sent.format)).limit,
            cache=cache,
            cached_expected=expected,
            cached_tokens=cached,
            cache_hit_share=min(1.0, cached / real) if real else 0.0,
            model=sent.model,
            limit_named=refusal.input_limit(sent.reserve) is not None if refusal is not None else None,
            correction=_real_use(call, sent, real, prompt.charge, money).minus(prompt.charge),
            recount=(recount := _recount(call, sent, real, money, failed=prompt.failed)),
            spent=_spent(call, sent, real, recount, money),
        )
        # A report counts once, so the comparison's sides are not needed again.
        prompt.answer, prompt.returned = replace(answer, recount=None), replace(sent, sides=None)
        return answer

    def _failed(self, prompt: _ReportedPrompt) -> UsageAnswer:
        """Take a prompt out of the comparison, as its provider has not answered it.

        It still counts for ceilings, as providers charge for some failed calls, such as those whose agent disconnected.
        The agent may send it again, with or without asking the sidecar first: see `last_failed`, and later reports.
        """
        sides = prompt.returned.sides
        repeated, prompt.failed = prompt.failed, True
        self._sums = replace(self._sums, failures=self._sums.failures + (not repeated))
        return UsageAnswer(
            outcome=UsageOutcome.REPEATED if repeated else UsageOutcome.FAILED,
            estimated_tokens=calibrated_tokens(prompt.returned.tokens, prompt.returned.factor),
            learned_limit=self.learned_limit,
            model=prompt.returned.model,
            recount=None if repeated or sides is None else Recount(estimated(sides), FAILED),
        )

    def _find(self, revision: bytes) -> _ReportedPrompt | None:
        return self._prompts.get(revision[:TAG_BYTES]) if revision else self._last_prompt

    def _correct(
        self, call: UsageCall, sent: SentTokens, kept: int, real: int, calibration: Calibration
    ) -> tuple[Calibrated, Correction]:
        """Correct the factor of the model that answered, if the report is evidence about its tokenizer."""
        model = sent.model if same_model(call.model, sent.model) else call.model
        why = _not_telling(call, sent, kept, real)
        if why is None:
            counted = counted_of(sent, real)
            before = self._last if self._last is not None and self._last[0] == model else None
            self._last = (model, counted)
            correction = calibration.report(
                call.caller,
                model,
                sent.format,
                counted,
                before=before and before[1],
                estimated_with=Factors(sent.factor, sent.opaque_factor),
            )
            return (Calibrated.USED if correction.used else Calibrated.IMPLAUSIBLE), correction
        factor = calibration.factor(call.caller, model, sent.format)
        error = sent.tokens * sent.factor / real - 1 if real else 0.0
        return why, Correction(factor, factor, error, used=False, reports=0)

    def _learn(self, refusal: RefusalNumbers, sent: SentTokens, reports: int, correction: Correction) -> None:
        """Learn the limit and the ceiling that a refusal proves; see the module's docstring."""
        self._since_refusal = 0
        limit = refusal.input_limit(sent.reserve)
        if limit is None:
            ceiling = sent.tokens * STEPS[min(self._unnamed, len(STEPS) - 1)]
            self._unnamed += 1
            self._ceiling_guessed = True
        else:
            limit = max(limit, LEAST_TOKENS)
            self._limit = min(self._limit or limit, limit)
            if refusal.real_tokens is not None:
                ceiling = limit * sent.tokens / refusal.real_tokens * (1 - MARGIN)
            elif sent.exact or reports >= TRUSTED_REPORTS:
                ceiling = limit / correction.factor_after * (1 - TRUSTED_MARGIN)
            else:
                ceiling = limit / max(UNKNOWN_FACTOR, correction.factor_after) * (1 - MARGIN)
            ceiling = min(ceiling, sent.tokens * STEPS[0])  # less must be sent than was refused, whatever it meant
            self._unnamed = 0
            self._ceiling_guessed = False
        lowest = max(LEAST_TOKENS, int(ceiling))
        self._ceiling = min(self._ceiling or lowest, lowest)

    def _accepted(self, sent: SentTokens, real: int, *, used: bool) -> None:
        """Learn from an accepted prompt that the limit is not below its size."""
        self._unnamed = 0
        self._since_refusal += used
        if self._limit is not None:
            self._limit = max(self._limit, real)
        if self._ceiling is not None:
            self._ceiling = max(self._ceiling, sent.tokens)
            if self._since_refusal >= TRUSTED_REPORTS and not self._ceiling_guessed:
                self._ceiling = None

    def _cache_use(self, call: UsageCall, expected: int) -> CacheUse:
        seen = self._cache_seen
        self._cache_seen = seen or bool(call.cached_tokens) or bool(call.cache_write_tokens)
        if call.cached_tokens is None:
            return CacheUse.NOT_TOLD
        if not expected:
            return CacheUse.NOTHING_EXPECTED
        slack, share = CACHE_SLACK
        if call.cached_tokens >= expected * (1 - share) - slack:
            return CacheUse.AS_EXPECTED if call.cached_tokens else CacheUse.NOTHING_EXPECTED
        return CacheUse.BREAK_SUSPECTED if seen or call.cached_tokens else CacheUse.NEVER_USED

    def _count(self, call: UsageCall, real: int, cached: int, cache: CacheUse) -> None:
        sums, refused = self._sums, call.refusal is not None
        self._sums = replace(
            sums,
            reports=sums.reports + 1,
            refusals=sums.refusals + refused,
            input_tokens=sums.input_tokens + (0 if refused else real),
            cached_tokens=sums.cached_tokens + cached,
            cache_write_tokens=sums.cache_write_tokens + (0 if refused else call.cache_write_tokens or 0),
            output_tokens=sums.output_tokens + (0 if refused else call.output_tokens or 0),
            cache_breaks=sums.cache_breaks + (cache is CacheUse.BREAK_SUSPECTED),
        )


def _teach(taught: TaughtWindows, call: UsageCall, sent: SentTokens, refusal: RefusalNumbers | None, real: int) -> None:
    """Remember, for the caller's later runs, what a report shows about the window of an unknown model."""
    if refusal is None:
        taught.accepted(call.caller, sent.model, real)
    elif refusal.limit is not None:
        taught.refused(call.caller, sent.model, refusal.limit, input_only=refusal.input_only)


def counted_of(sent: SentTokens, real: int) -> CountedPrompt:
    """Return a returned prompt's counts, without any factor."""
    return CountedPrompt(sent.tokens - round(sent.opaque * sent.opaque_factor / sent.factor), sent.opaque, real)


def same_model(reported: str, sent: str) -> bool:
    """Whether the model that answered, by the provider's name, is the model that the prompt was for.

    Providers answer with the dated name of an alias, and gateways put their own in front: the factor belongs to the
    name in prompts. An answer is from another model if neither name is a prefix of the other.
    """
    reported, sent = reported.lower().rpartition("/")[2], sent.lower().rpartition("/")[2]
    return not reported or reported.startswith(sent) or sent.startswith(reported)


def _not_telling(call: UsageCall, sent: SentTokens, kept: int, real: int) -> Calibrated | None:
    """Return why a report is no evidence about the tokenizer, or None if it is."""
    if not real:
        return Calibrated.NO_COUNT
    if sent.media:
        return Calibrated.MEDIA
    whole = calibrated_tokens(sent.tokens, sent.factor)
    return Calibrated.CACHE_UNTOLD if call.refusal is None and _cache_untold(call, sent, kept, real, whole) else None


def _cache_untold(call: UsageCall, sent: SentTokens, kept: int, real: int, whole: int) -> bool:
    """Whether the report may lack cached tokens; `kept` and `whole`: the expected counts."""
    return call.cached_tokens is None and _counted_apart(call, sent) and kept >= CACHE_LEAST and real < whole


def _real_tokens(call: UsageCall, sent: SentTokens) -> int:
    """Return the whole prompt's tokens; 0 if they were not reported."""
    if call.input_tokens is None:
        return 0
    cached, written = call.cached_tokens, call.cache_write_tokens
    return whole_input(call.input_tokens, cached, written, cached_apart=_counted_apart(call, sent))


def _counted_apart(call: UsageCall, sent: SentTokens) -> bool:
    if call.counting is InputCounting.AS_PROVIDER:
        return sent.format in APIS and APIS[sent.format].usage.cached_apart
    return call.counting is InputCounting.WITHOUT_CACHED


def _refusal_of(reported: ReportedRefusal) -> RefusalNumbers:
    """Return the numbers of a refusal: those in its message, but the limit that the agent reports comes first."""
    read = read_refusal(reported.message)
    if not reported.limit:
        return read
    return replace(read, limit=reported.limit, input_only=read.input_only and reported.limit == read.limit)


def _real_use(call: UsageCall, sent: SentTokens, real: int, charge: CeilingUsage, money: Money) -> CeilingUsage:
    """Return a prompt's use by the report on it; `real`: its input tokens."""
    if call.refusal is not None:  # providers do not charge for it
        return replace(charge, input_tokens=0, cost=0.0)
    if not real:
        return charge
    price = _price(call, sent, money)
    if price is None:
        return replace(charge, input_tokens=real)
    return replace(charge, input_tokens=real, cost=_cost(call, real, price))


def _cost(call: UsageCall, real: int, price: ModelPrice) -> float:
    """Return the cost of a call by the report on it; `real`: its input tokens."""
    cached, written = call.cached_tokens or 0, call.cache_write_tokens or 0
    hour = min(written, call.cache_write_hour_tokens or 0)
    return price.at(real).of(
        plain=max(0, real - cached - written),
        cached=cached,
        written=written - hour,
        written_hour=hour,
        output=call.output_tokens or 0,
    )


def _spent(call: UsageCall, sent: SentTokens, real: int, recount: Recount | None, money: Money) -> Spent | None:
    """Return a call's cost for people: the provider's counts at the price of the model that answered, or None.

    Where another model answered than was requested, as after a gateway's fallback, only its price is used.
    """
    if call.refusal is not None:
        return None  # providers do not charge for it
    name = call.model or sent.model
    price = money.of(name)
    if price is None and (same_model(call.model, sent.model) or money.own.of(sent.model) is not None):
        name, price = sent.model, money.of(sent.model)
    whole = calibrated_tokens(sent.tokens, sent.factor)
    if not real or _cache_untold(call, sent, int(sent.kept * sent.factor), real, whole):
        return Spent(name, money.currency, unpriced=Unpriced.NO_COUNT)
    if price is None:
        return Spent(name, money.currency, unpriced=Unpriced.MODEL)
    if call.service_tier not in STANDARD_TIERS and money.own.of(name) is None:
        return Spent(name, money.currency, unpriced=Unpriced.SERVICE_TIER)
    compared = recount.reported if recount is not None and recount.counted else None
    if compared is None or sent.sides is None or sent.sides.observed:
        return Spent(name, money.currency, _cost(call, real, price))
    returned, untrimmed = compared.sides
    return Spent(name, money.currency, _cost(call, real, price), None, returned.cost, untrimmed.cost)


def _recount(call: UsageCall, sent: SentTokens, real: int, money: Money, *, failed: bool) -> Recount | None:
    """Return how a report changes the comparison with never trimming, or None if it does not.

    Args:
        call: the report.
        sent: the prompt.
        real: its input tokens.
        money: prices.
        failed: whether its provider had failed before.
    """
    if sent.sides is None:
        return None
    estimate = estimated(sent.sides)
    before = FAILED if failed else estimate
    if call.refusal is not None:
        return Recount(before, NEITHER)
    uncounted = Recount(before, estimate, counted=False) if failed else None
    expected = sent.sides.sent
    if not real or _cache_untold(call, sent, expected.kept, real, expected.tokens):
        return uncounted
    cached = call.cached_tokens
    if cached is None and _counted_apart(call, sent):
        cached = 0  # every token was counted as new, so nothing was cached
    hour = call.cache_write_hour_tokens or 0
    reported = ReportedTokens(real, cached, call.cache_write_tokens, _price(call, sent, money), hour)
    after = counted(sent.sides, reported)
    return Recount(before, after) if after is not None else uncounted


def _price(call: UsageCall, sent: SentTokens, money: Money) -> ModelPrice | None:
    """Return the prices of the model that answered, else of the requested one: a ceiling should count every call."""
    return money.of(call.model or sent.model) or money.of(sent.model)
