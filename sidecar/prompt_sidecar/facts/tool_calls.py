"""The tools that the model is given, its calls of them, and the answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from prompt_sidecar.facts.recall_calls import RetrieveAnswer
from prompt_sidecar.facts.task_calls import Tasks
from prompt_sidecar.recall.found import SearchResult

RECALL: Final = "recall_elided_content"
SEARCH: Final = "search_conversation_history"
CREATE_TASKS: Final = "create_tasks"
UPDATE_TASK: Final = "update_task"
TOOL_NAMES: Final = (RECALL, SEARCH, CREATE_TASKS, UPDATE_TASK)


class ToolOutcome(StrEnum):
    """Outcome of a tool call. See CallToolResponse."""

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
    """As the model wrote them: JSON text of an object, or of a string that contains one; empty if there are none."""
    request_id: str = ""
    call_id: str = ""
    """The provider's id of the call, for spans; empty if unknown."""
    seconds: float = inf
    """Seconds that the caller still waits; infinite if there is no deadline."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What to answer the model; at most one of `recalled`, `found` and `tasks` is set."""

    outcome: ToolOutcome
    content: str
    content_tokens: int = 0
    recalled: RetrieveAnswer | None = None
    found: SearchResult | None = None
    tasks: Tasks | None = None
    bound: str = ""
    """The sidecar's limit that the arguments exceeded; empty if none."""

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
    """The whole definition in the requested format, as JSON."""
