"""What one evaluation of the fold reads in addition to the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.own_text import DROPPED_TOKENS
from prompt_sidecar.trim.policy import AgeStage, FitStage, Policy

PROTECTED_ROOM: Final = 1.3
"""The least that a ceiling can be, as a multiple of the text that is never trimmed."""
COUNT_TOKENS: Final = 10
"""Room for the count in the carrier's label; a number of seven digits takes no more."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of one evaluation. Sizes are in tokens."""

    policy: Policy
    limit: int
    overhead: int
    """System prompt and tool schemas."""
    reserve: int
    """Room kept for our own text."""
    recall: bool
    """Whether markers show ids."""
    reasoning: ReasoningRule = ReasoningRule.KEPT
    """When reasoning may be absent."""
    reasoning_messages: bool = False
    """Whether reasoning is a message of its own."""
    own_in_history: bool = False
    """Whether registry and placeholder are inside the history; otherwise they precede it or are absent."""
    behind_registry: int = 0
    """The part of `overhead` that the provider reads again when a registry before the history changes."""
    own_after_user: bool = False
    """Whether registry and placeholder must be placed between a user's message and one of the model's."""
    alternating: bool = False
    """Whether messages of the user and of the model must alternate."""
    opaque_factor: float = 1.0
    """Factor for tokens of encrypted text: their calibration factor over that of all other tokens."""
    ceiling: int = 0
    """Tokens of a prompt above which it is trimmed though the limit is higher; 0: there is no such ceiling."""


def aim(ledger: Ledger, inputs: Inputs) -> int:
    """Return the tokens that marks and shares refer to: the limit, or the ceiling below it.

    A ceiling leaves room next to what is never trimmed: without that room each call would be a cut, and none would free
    much.
    """
    if not 0 < inputs.ceiling < inputs.limit:
        return inputs.limit
    return min(inputs.limit, max(inputs.ceiling, int(PROTECTED_ROOM * protected(ledger, inputs))))


def protected(ledger: Ledger, inputs: Inputs) -> int:
    """Return the tokens of the text that is never trimmed, our own included."""
    groups, decisions = ledger.groups, ledger.decisions
    opening = decisions.tokens_between(0, groups[0].start if groups else len(ledger))
    newest = decisions.tokens_between(groups[-1].start, groups[-1].start + 1) if groups else 0
    return inputs.overhead + inputs.reserve + opening + newest + decisions.words + decisions.pinned


def too_little_left(ledger: Ledger, inputs: Inputs) -> int | None:
    """Return the tokens that protected text leaves, if they are fewer than a cut between the marks should free.

    Then each cut frees little, and the next one follows soon. Returns None if they are enough, if the run has had no
    cut, or if the policy does not cut between marks.
    """
    policy, marks_of = inputs.policy, aim(ledger, inputs)
    if policy.fit_stage is FitStage.OFF or policy.age_stage is AgeStage.ALWAYS or not ledger.registry.batches:
        return None
    left = max(0, marks_of - protected(ledger, inputs))
    return left if left < (policy.fit_high - policy.fit_low) * marks_of else None


def used(ledger: Ledger, inputs: Inputs) -> int:
    """Return the tokens of the prompt as decided so far."""
    own = inputs.reserve
    if ledger.drops.by_placeholder and inputs.recall:  # it is written even with no reserve for own text
        own = max(own, DROPPED_TOKENS)
    if ledger.drops.carrier is not None:  # the label's count is written last and must not exceed a mark then
        own += max(0, COUNT_TOKENS - ledger.drops.carrier_tokens)
    return inputs.overhead + own + ledger.decisions.weight(inputs.opaque_factor)
