"""What a log line shows in addition to its words: members of their own if lines are JSON."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

SHOWN: Final = "shown"
"""The attribute of a log record with these members."""
RUN_DIGITS: Final = 8
"""Digits of the run id's digest, enough to distinguish runs. The id itself is the agent's data, so not logged."""


def members(**known: str) -> dict[str, dict[str, str]]:
    """Return members of a line as logging's `extra`; empty ones are left out."""
    return {SHOWN: {name: value for name, value in known.items() if value}}


def run_digest(run_id: str) -> str:
    """Return a run's name for log lines; empty for an empty id."""
    return sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:RUN_DIGITS] if run_id else ""
