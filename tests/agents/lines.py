"""What each step's tool prints, for agents' shells and for the tools of loops alike."""

from __future__ import annotations

from typing import Final

LINES: Final = 120
"""Of each step's output: some 4 kB, 2,000 tokens."""
RAN: Final = "ran.txt"
"""In the agent's folder: the number of each step that ran."""


def line(step: int, number: int) -> str:
    """Return one line of a step's output."""
    return f"step {step} line {number} value {step * 7919 + number * 104729}"
