"""Where a provider's answer has its token counts.

Answers are untrusted: an implausible count is treated as unreported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from prompt_sidecar.providers.untyped import believed, member

HOUR_WRITE: Final = 2.0
"""Price of a token that is written to the cache to be kept for an hour, in plain input tokens: the same for all models
of Anthropic (platform.claude.com, "Pricing", 2026-11), the only provider that reports such tokens separately."""
STANDARD_TIERS: Final = frozenset({"", "standard", "default", "auto", "on_demand"})
"""Service tiers with list prices, as providers name them in answers; the catalogue has no prices for others."""

Path: TypeAlias = tuple[str, ...]
"""Names of members, the outermost first."""
_MOST_MODEL_CHARACTERS: Final = 256
_MOST_TIER_CHARACTERS: Final = 32


@dataclass(frozen=True, slots=True)
class ProviderUsage:
    """What an answer reports: tokens in the provider's counts, or that it refused the prompt. None if unreported."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    model: str = ""
    """The model that answered; empty if not named."""
    refusal: str = ""
    """The provider's message about a prompt that is too long; empty if it did not refuse it for that."""
    cache_write_hour_tokens: int | None = None
    """The part of `cache_write_tokens` that is kept for an hour."""
    service_tier: str = ""
    """The tier that the call was served in, if not the standard one."""

    @property
    def reported(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.refusal) or self.input_tokens is not None

    def whole_input(self, *, cached_apart: bool) -> int | None:
        """Return the prompt's tokens, cached ones included; None: unreported. `cached_apart`: see `UsageMembers`."""
        if self.input_tokens is None:
            return None
        return whole_input(self.input_tokens, self.cached_tokens, self.cache_write_tokens, cached_apart=cached_apart)


def whole_input(counted: int, cached: int | None, written: int | None, *, cached_apart: bool) -> int:
    """Return a prompt's tokens, those read from a cache and written to it included.

    Args:
        counted: the input tokens that the provider reports.
        cached: those read from the cache; None: unreported.
        written: those written to it; None: unreported.
        cached_apart: whether the provider's input leaves them out. Where they are more than the input, it does in any
            case: no part is larger than its whole.
    """
    apart = (cached or 0) + (written or 0)
    return counted + apart if cached_apart or apart > counted else counted


@dataclass(frozen=True, slots=True)
class UsageMembers:
    """The members of an answer, or of one event of a stream, with its usage."""

    input: Path
    cached: Path
    outputs: tuple[Path, ...]
    """Counts that add up to the output."""
    cache_write: Path = ()
    """Empty if the provider does not report it."""
    cache_write_hour: Path = ()
    """The part of the cache write that is kept for an hour; empty if the provider does not report it."""
    tiers: tuple[Path, ...] = ()
    """The places of the service tier, or the speed, of the call in the usage."""
    tier_beside: str = ""
    """The member next to `usage` that names the service tier; empty if there is none."""
    usage: str = "usage"
    """The member with all of the above."""
    model: str = "model"
    """The member that names the model, next to `usage`."""
    within: str = ""
    """The member with the whole answer in some events of a stream; empty if there is none."""
    cached_apart: bool = False
    """Whether cached tokens are counted separately from the input's, and not included in them."""

    def read(self, answer: Mapping[str, Any]) -> ProviderUsage:
        """Return what one answer, or one event, reports."""
        whole = answer.get(self.within, answer) if self.within else answer
        if not isinstance(whole, dict):
            return ProviderUsage()
        counts = self.counts(whole.get(self.usage))
        model = whole.get(self.model)
        named = model[:_MOST_MODEL_CHARACTERS] if isinstance(model, str) else ""
        return ProviderUsage(
            *counts,
            cache_write_hour_tokens=self._hour(whole.get(self.usage)),
            service_tier=self._tier(whole),
            model=named,
        )

    def _hour(self, usage: Any) -> int | None:
        return believed(member(usage, *self.cache_write_hour)) if self.cache_write_hour else None

    def _tier(self, whole: Mapping[str, Any]) -> str:
        """Return the tier if it is not the standard one, else empty."""
        found = [member(whole.get(self.usage), *path) for path in self.tiers]
        found += [whole.get(self.tier_beside)] if self.tier_beside else []
        names = (name[:_MOST_TIER_CHARACTERS].lower() for name in found if isinstance(name, str))
        return next((name for name in names if name not in STANDARD_TIERS), "")

    def counts(
        self, usage: Any, get: Callable[..., Any] = member
    ) -> tuple[int | None, int | None, int | None, int | None]:
        """Return input, cached, cache-write and output tokens of a usage.

        Args:
            usage: the value of the member `usage`.
            get: returns the value at a path of members; an SDK's objects have attributes in place of members.
        """
        found = (believed(get(usage, *path)) for path in self.outputs)
        outputs = [each for each in found if each is not None]
        return (
            believed(get(usage, *self.input)),
            believed(get(usage, *self.cached)),
            believed(get(usage, *self.cache_write)) if self.cache_write else None,
            sum(outputs) if outputs else None,
        )
