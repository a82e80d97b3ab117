"""Where a provider's answer holds the tokens that it counted.

Answers are untrusted: what is not a plausible count is unreported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from prompt_sidecar.providers.untyped import believed, member

Path: TypeAlias = tuple[str, ...]
"""Names of members, the outermost first."""
_MOST_MODEL_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class ProviderUsage:
    """What an answer reports: tokens as the provider counts them, or that it refused the prompt. None: unreported."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    model: str = ""
    """The model that answered; empty: unnamed."""
    refusal: str = ""
    """The provider's words about a prompt that is too long; empty: it did not refuse it for that."""

    @property
    def reported(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.refusal) or self.input_tokens is not None


@dataclass(frozen=True, slots=True)
class UsageMembers:
    """The members of an answer, or of one event of a stream, that hold its usage."""

    input: Path
    cached: Path
    outputs: tuple[Path, ...]
    """Counts that add up to the output."""
    cache_write: Path = ()
    """Empty: the provider does not report it."""
    usage: str = "usage"
    """The member that holds all of the above."""
    model: str = "model"
    """The member that names the model; it stands beside `usage`."""
    within: str = ""
    """The member that holds the whole answer in some events of a stream; empty: none does."""
    cached_apart: bool = False
    """Whether cached tokens are counted beside the input's, and not as a part of them."""

    def read(self, answer: Mapping[str, Any]) -> ProviderUsage:
        """Return what one answer, or one event, reports."""
        whole = answer.get(self.within, answer) if self.within else answer
        if not isinstance(whole, dict):
            return ProviderUsage()
        counts = self.counts(whole.get(self.usage))
        model = whole.get(self.model)
        named = model[:_MOST_MODEL_CHARACTERS] if isinstance(model, str) else ""
        return ProviderUsage(*counts, model=named)

    def counts(
        self, usage: Any, get: Callable[..., Any] = member
    ) -> tuple[int | None, int | None, int | None, int | None]:
        """Return input, cached, cache-write and output tokens of a usage.

        Args:
            usage: what the member `usage` holds.
            get: returns what stands at a path of members; an SDK's objects have attributes in place of members.
        """
        found = (believed(get(usage, *path)) for path in self.outputs)
        outputs = [each for each in found if each is not None]
        return (
            believed(get(usage, *self.input)),
            believed(get(usage, *self.cached)),
            believed(get(usage, *self.cache_write)) if self.cache_write else None,
            sum(outputs) if outputs else None,
        )
