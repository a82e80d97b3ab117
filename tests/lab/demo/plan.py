"""The agent's own record of its tasks, kept from nothing but the calls that its model made.

What the sidecar shows of the tasks is compared with it: in each tool's answer, in the note of each prompt, in GetRun.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.lab.demo.investigation import CREATE_TASKS, UPDATE_TASK, Call

COMPLETED = "completed"
IN_PROGRESS = "in_progress"
_HEADER = "{number} open task{plural}"


@dataclass(frozen=True, slots=True)
class Task:
    """A task, and at which iterations it was begun and ticked off; 0: not yet."""

    number: int
    text: str
    status: str = "pending"
    begun: int = 0
    ended: int = 0

    @property
    def line(self) -> str:
        """As the sidecar shows it."""
        return f"{self.number} [{self.status}] {json.dumps(self.text)}"


Plan = tuple[Task, ...]


def after(plan: Plan, call: Call, iteration: int) -> Plan:
    """The tasks after a call of a task tool, which was made at that iteration; of any other tool: the same."""
    if call.name == CREATE_TASKS:
        kept = plan if call.arguments.get("mode") == "append" else ()
        return kept + tuple(Task(number, text) for number, text in enumerate(call.arguments["tasks"], len(kept) + 1))
    if call.name == UPDATE_TASK:
        return tuple(_moved(task, call.arguments["status"], iteration, call.arguments["id"]) for task in plan)
    return plan


def unfinished(plan: Plan) -> list[Task]:
    """Those not completed."""
    return [task for task in plan if task.status != COMPLETED]


def open_blocks(plan: Plan) -> Iterator[str]:
    """What the note may say of the open tasks: those at hand first, and as many of them as there is room for."""
    waiting: Sequence[Task] = sorted(unfinished(plan), key=lambda task: (task.status != IN_PROGRESS, task.number))
    header = _HEADER.format(number=len(waiting), plural="" if len(waiting) == 1 else "s")
    for shown in range(1, len(waiting) + 1):
        rest = len(waiting) - shown
        more = [f"and {rest} more"] if rest else []
        yield "\n".join([f"{header}:", *(task.line for task in waiting[:shown]), *more])


def _moved(task: Task, status: str, iteration: int, number: int) -> Task:
    if task.number != number:
        return task
    if status == COMPLETED:
        return replace(task, status=status, ended=iteration)
    return replace(task, status=status, begun=iteration)
