"""What the guard found, and what an agent asks of it, as plain data. See guard.proto for what the names mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class FindingAction(StrEnum):
    """What was done about a finding."""

    OBSERVED = "observed"
    MASKED = "masked"
    DEFANGED = "defanged"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in one item; never the text."""

    rule: str
    action: FindingAction
    message_index: int
    """In the run's untrimmed history; -1: outside it."""
    item_index: int
    """-1: in no item."""
    count: int


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """The arguments of a tool call as the model wrote them: JSON."""

    tool: str
    arguments: bytes


@dataclass(frozen=True, slots=True)
class RestoreCall:
    """Tool calls whose masks are to be replaced by values."""

    caller: str
    run_id: str
    calls: Sequence[ToolArguments]


@dataclass(frozen=True, slots=True)
class RestoredArguments:
    """One call's arguments with values in place of masks, and how many masks were and were not replaced."""

    arguments: bytes
    restored: int = 0
    not_allowed: int = 0
    unknown: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Of those that were replaced, how many of each kind."""
