"""What an agent reports of a model call, and what the report taught."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prompt_sidecar.facts.comparison import Comparison, Recount
from prompt_sidecar.facts.money import Spent
from prompt_sidecar.guard.ceilings import NOTHING, CeilingUsage


class InputCounting(StrEnum):
    """Whether `input_tokens` holds the cached ones."""

    AS_PROVIDER = "as_provider"
    """As the format's provider counts."""
    WITH_CACHED = "with_cached"
    WITHOUT_CACHED = "without_cached"


class UsageOutcome(StrEnum):
    """Outcome of a report."""

    RECORDED = "recorded"
    REPEATED = "repeated"
    """The prompt was reported on before; nothing has changed, and the answer is the first one's."""
    FAILED = "failed"
    """The provider failed; the prompt is not compared with never trimming."""
    PROMPT_UNKNOWN = "prompt_unknown"
    """No prompt of the revision is among the last; nothing has changed."""


class Calibrated(StrEnum):
    """Whether a report corrected the factor, and if not, why."""

    USED = "used"
    NO_COUNT = "no_count"
    """It held no real input tokens."""
    MEDIA = "media"
    """The prompt held images: their cost says nothing about the tokenizer."""
    IMPLAUSIBLE = "implausible"
    CACHE_UNTOLD = "cache_untold"
    """Less than expected, from a provider that counts cached tokens apart, without saying how many were cached."""


class CacheUse(StrEnum):
    """What the provider's cache made of the kept prefix."""

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
    """What the provider said, verbatim."""
    limit: int = 0
    """The limit, where the agent knows it: the whole window in tokens as the provider counts; 0: see the message."""


@dataclass(frozen=True, slots=True)
class UsageCall:
    """A report on one model call. Tokens as the provider counts; None: not reported."""

    caller: str
    run_id: str
    model: str = ""
    """The model that answered, if another than the prompt was for."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    """Read from the cache."""
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    counting: InputCounting = InputCounting.AS_PROVIDER
    refusal: ReportedRefusal | None = None
    revision: bytes = b""
    """Of the answer that held the prompt; empty: the run's last prompt."""
    failed: bool = False
    """Whether the provider gave no answer that can be used, for another reason than the prompt's length. No count of
    such a report is looked at, and a later one on the same prompt takes its place."""
    cache_write_hour_tokens: int | None = None
    """Of `cache_write_tokens`, those that are kept for an hour."""
    service_tier: str = ""
    """The tier that the call was served in, where it is not the standard one."""


@dataclass(frozen=True, slots=True)
class UsageAnswer:
    """What a report taught. Tokens are the provider's, or our count times the factor."""

    outcome: UsageOutcome
    estimated_tokens: int = 0
    """The tokens that its answer announced."""
    real_tokens: int = 0
    """What it took, cached tokens included; 0: not reported."""
    error: float = 0.0
    """(estimated - real) / real."""
    factor_before: float = 1.0
    factor_after: float = 1.0
    calibrated: Calibrated = Calibrated.NO_COUNT
    learned_limit: int = 0
    """The limit that the run's refusals named, without the answer's part; 0: none."""
    next_limit: int = 0
    """The limit that the same prompt would have now."""
    cache: CacheUse = CacheUse.NOT_TOLD
    cached_expected: int = 0
    cached_tokens: int = 0
    cache_hit_share: float = 0.0
    """Of the real tokens, the share read from the cache."""
    model: str = ""
    """The one that the prompt was for."""
    limit_named: bool | None = None
    """Whether a refusal named a limit; None: it was no refusal."""
    correction: CeilingUsage = NOTHING
    """What to add to what the run and its caller have used, as the prompt was counted by an estimate before."""
    recount: Recount | None = None
    """What changes of the comparison with never trimming; None: nothing."""
    spent: Spent | None = None
    """What the call cost; None: the provider refused the prompt, or the report was not recorded."""
    comparison: Comparison | None = None
    """Of the run's prompts so far, with what was reported."""


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """A run's sums over its reports. Tokens as the provider counts."""

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
    """Prompts whose provider failed, each time that this was reported. They are no `reports`."""
