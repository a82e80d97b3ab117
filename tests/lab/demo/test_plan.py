"""The agent's record of its tasks follows the model's calls and nothing else."""

from __future__ import annotations

from prompt_sidecar.engine.tools.tasks import TaskList, lines, open_lines
from tests.lab.demo.investigation import CREATE_TASKS, Call, begin, done
from tests.lab.demo.plan import Plan, Task, after, open_blocks, unfinished

CALLS = (
    Call(CREATE_TASKS, {"tasks": ["old"]}),
    Call(CREATE_TASKS, {"tasks": ["read", 'say "so"']}),
    begin(2),
    Call("grep", {"pattern": "x", "path": "."}),
    Call(CREATE_TASKS, {"tasks": ["more"], "mode": "append"}),
    done(1),
)


def made() -> Plan:
    """The tasks after all calls, one at each iteration."""
    plan: Plan = ()
    for iteration, call in enumerate(CALLS, 1):
        plan = after(plan, call, iteration)
    return plan


def test_tasks_are_replaced_appended_and_moved() -> None:
    """Tasks are replaced, appended and moved, and each knows when."""
    read, say, more = Task(1, "read", "completed", 0, 6), Task(2, 'say "so"', "in_progress", 3), Task(3, "more")
    assert (read, say, more) == made()
    assert [say, more] == unfinished(made())
    assert () == tuple(open_blocks(made()[:1]))


def test_as_the_sidecar_writes_them() -> None:
    """The same tasks kept by the sidecar are written in the same words."""
    kept = TaskList()
    kept.create(["read", 'say "so"', "more"])
    for task in made():
        kept.update(task.number, type(kept.items[0].status)(task.status))
    assert lines(kept.items) == "\n".join(task.line for task in made())
    shown = {open_lines(kept.items, room, len) for room in range(200)}
    assert {"", "2 open tasks.", *open_blocks(made())} == shown
