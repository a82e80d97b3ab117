"""An agent's report on a model call, and what was learned from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prompt_sidecar.facts.comparison import Comparison, Recount
from prompt_sidecar.facts.money import Spent
from prompt_sidecar.guard.ceilings import NOTHING, CeilingUsage


class InputCounting(StrEnum):
    """Whether `input_tokens` includes the cached ones."""

    AS_PROVIDER = "as_provider"
    """As the format's provider counts."""
    WITH_CACHED = "with_cached"
    WITHOUT_CACHED = "without_cached"


class UsageOutcome(StrEnum):
    """Outcome of a report."""

    RECORDED = "recorded"
    REPEATED = "repeated"
    """The prompt was reported before; nothing has changed, and the first answer is returned again."""
    FAILED = "failed"
    """The provider failed; the prompt is not compared with never trimming."""
    PROMPT_UNKNOWN = "prompt_unknown"
    """The revision is unknown or too old; nothing has changed."""


class Calibrated(StrEnum):
    """Whether a report corrected the factor, and if not, why."""

    USED = "used"
    NO_COUNT = "no_count"
    """It had no real input tokens."""
    MEDIA = "media"
    """The prompt had images: their cost is no evidence about the tokenizer."""
    IMPLAUSIBLE = "implausible"
    CACHE_UNTOLD = "cache_untold"
    """Fewer tokens than expected, from a provider that counts cached tokens separately, without a count of these."""


class CacheUse(StrEnum):
    """How the provider's cache treated the kept prefix."""

    NOT_TOLD = "not_told"
    NOTHING_EXPECTED = "nothing_expected"
    AS_EXPECTED = "as_expected"
    BREAK_SUSPECTED = "break_suspected"
    NEVER_USED = "never_used"
    """Nothing was cached in this run so far: caching may be off."""


@dataclass(frozen=True, slots=True)
class ReportedRefusal:
    """The agent's report that the provider refused the prompt as too long."""

    message: str = ""
    """The provider's message, verbatim."""
    limit: int = 0
    """The limit, if the agent knows it: the whole window in the provider's tokens; 0: see the message."""


@dataclass(frozen=True, slots=True)
class UsageCall:
    """A report on one model call. In the provider's tokens; None: not reported."""

    caller: str
    run_id: str
    model: str = ""
    """The model that answered, if it is not the model of the prompt."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    """Read from the cache."""
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    counting: InputCounting = InputCounting.AS_PROVIDER
    refusal: ReportedRefusal | None = None
    revision: bytes = b""
    """The revision of the answer with the prompt; empty: the run's last prompt."""
    failed: bool = False
    """Whether the provider gave no usable answer, for another reason than the prompt's length. The counts of such a
    report are ignored, and a later report on the same prompt replaces it."""
    cache_write_hour_tokens: int | None = None
    """The part of `cache_write_tokens` that is kept for an hour."""
    service_tier: str = ""
    """The tier that the call was served in, if not the standard one."""


@dataclass(frozen=True, slots=True)
class UsageAnswer:
    """The result of a report. Tokens are the provider's, or our count times the factor."""

    outcome: UsageOutcome
    estimated_tokens: int = 0
    """The tokens that its answer announced."""
    real_tokens: int = 0
    """The prompt's real tokens, cached ones included; 0 if not reported."""
    error: float = 0.0
    """(estimated - real) / real."""
    factor_before: float = 1.0
    factor_after: float = 1.0
    calibrated: Calibrated = Calibrated.NO_COUNT
    learned_limit: int = 0
    """The limit that the run's refusals named, without the answer's part; 0 if none."""
    next_limit: int = 0
    """The limit that the same prompt would have now."""
    cache: CacheUse = CacheUse.NOT_TOLD
    cached_expected: int = 0
    cached_tokens: int = 0
    cache_hit_share: float = 0.0
    """The share of the real tokens that was read from the cache."""
    model: str = ""
    """The prompt's model."""
    limit_named: bool | None = None
    """Whether a refusal named a limit; None if it was not a refusal."""
    correction: CeilingUsage = NOTHING
    """What to add to the use of the run and its caller, as the prompt was counted by an estimate before."""
    recount: Recount | None = None
    """How the comparison with never trimming changes; None if it does not."""
    spent: Spent | None = None
    """The cost of the call; None if the provider refused the prompt, or the report was not recorded."""
    comparison: Comparison | None = None
    """The comparison of the run's prompts so far, with what was reported."""


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """A run's sums over its reports. In the provider's tokens."""

    reports: int = 0
    refusals: int = 0
    input_tokens: int = 0
    """Cached ones included."""
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cache_breaks: int = 0
    learned_limit: int = 0
    failures: int = 0
    """Prompts whose provider failed, each time that this was reported. They are not counted in `reports`."""
