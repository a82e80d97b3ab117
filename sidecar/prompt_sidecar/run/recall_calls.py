"""What is asked of a run's memory beside trimming, and what it answers: search, tasks and the model's tools.

Frozen facts, free of wire types, as `calls.py`.
"""

# ruff: noqa: PLC0414 - the facts that a run's figures hold are found here too, with the calls that make them

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from prompt_sidecar.recall.found import Found, SearchQuery
from prompt_sidecar.run.calls import HistoryFigures as HistoryFigures
from prompt_sidecar.run.calls import RetrieveAnswer
from prompt_sidecar.run.calls import TaskItem as TaskItem
from prompt_sidecar.run.calls import TaskStatus as TaskStatus


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A search of a run's history."""

    caller: str
    run_id: str
    query: SearchQuery


@dataclass(frozen=True, slots=True)
class CreateTasksCall:
    """Tasks to create."""

    caller: str
    run_id: str
    items: Sequence[str]
    append: bool = False
    """False: they take the place of those that are there."""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class UpdateTaskCall:
    """A task that stands elsewhere now."""

    caller: str
    run_id: str
    id: int
    status: TaskStatus
    request_id: str = ""


class ToolOutcome(StrEnum):
    """What a tool call came to. See CallToolResponse."""

    OK = "ok"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    RUN_UNKNOWN = "run_unknown"
    REPEATED = "repeated"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made of one of our tools."""

    caller: str
    run_id: str
    name: str
    arguments: str
    """As the model wrote them: JSON text of an object, or of a string that holds one; empty: none."""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What to answer the model; at most one of `recalled`, `found` and `tasks` is set."""

    outcome: ToolOutcome
    content: str
    content_tokens: int = 0
    recalled: RetrieveAnswer | None = None
    found: Found | None = None
    tasks: Sequence[TaskItem] | None = None
    bound: str = ""
    """The bound of the sidecar that the arguments passed; empty if none."""

    @property
    def is_error(self) -> bool:
        """Whether to mark the result as an error, where the format can."""
        return self.outcome not in (ToolOutcome.OK, ToolOutcome.REPEATED)


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """One tool that a model can be given."""

    name: str
    description: str
    parameters: str
    """A JSON Schema, as JSON text."""
    definition: bytes
    """The whole definition in the format asked for, as JSON."""


@dataclass(frozen=True, slots=True)
class RecallLimits:
    """The bounds of recall by the model: each with its default and the reason for it."""

    page_tokens: int = 4_000
    """Tokens of one page of a retrieval: a few per cent of a common window."""
    repeats: int = 3
    """Times that a model is shown the same range of the same content; a fourth time it is told that it has it. A loop
    of retrieve, trim, retrieve once ran for 24 minutes."""
