"""What one evaluation of the fold reads besides the history."""

from __future__ import annotations

from dataclasses import dataclass

from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.trim.policy import Policy


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
    alternating: bool = False
    """Whether messages of the user and of the model must alternate."""
    opaque_factor: float = 1.0
    """Factor for tokens of encrypted text: their calibration factor over that of all other tokens."""
