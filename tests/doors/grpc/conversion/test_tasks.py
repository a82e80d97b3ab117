"""Tasks: bad fields are rejected by name, and a task's number, text and status arrive both ways."""

from __future__ import annotations

from typing import Any

import pytest

from prompt_sidecar.doors.grpc.conversion.responses import messages
from prompt_sidecar.doors.grpc.conversion.tasks import create_tasks_call, update_task_call
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskItem, TaskStatus, UpdateTaskCall
from prompt_sidecar.v1 import task_pb2

TASKS = (TaskItem(1, "najít chybu"), TaskItem(2, "ověřit", TaskStatus.COMPLETED))
TASK_MESSAGES = [
    task_pb2.TaskItem(id=1, text="najít chybu", status=task_pb2.TASK_STATUS_PENDING),
    task_pb2.TaskItem(id=2, text="ověřit", status=task_pb2.TASK_STATUS_COMPLETED),
]


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("run_id", {"run_id": "a\nb"}),
        ("mode", {"mode": 9}),
        ("request_id", {"request_id": "é" * 65}),
    ],
)
def test_a_bad_field_of_new_tasks_is_named(field: str, sent: dict[str, Any]) -> None:
    """Run, mode and request id are checked here; the tasks themselves by the core."""
    asked = task_pb2.CreateTasksRequest(**({"run_id": "r", "items": ["one"]} | sent))
    with pytest.raises(InvalidRequest) as caught:
        create_tasks_call(asked, "local")
    assert field == caught.value.field


@pytest.mark.parametrize(
    ("mode", "append"),
    [
        (task_pb2.CREATE_TASKS_MODE_UNSPECIFIED, False),
        (task_pb2.CREATE_TASKS_MODE_REPLACE, False),
        (task_pb2.CREATE_TASKS_MODE_APPEND, True),
    ],
)
def test_new_tasks_arrive(mode: Any, append: bool) -> None:
    """Texts arrive as they are, in order; a mode that is not said replaces."""
    asked = task_pb2.CreateTasksRequest(run_id="r", items=[" dva ", "", "👍"], mode=mode, request_id="x" * 128)
    expected = CreateTasksCall("local", "r", (" dva ", "", "👍"), append, "x" * 128)
    assert expected == create_tasks_call(asked, "local")


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("run_id", {"run_id": ""}),
        ("id", {"id": 0}),
        ("id", {"id": -1}),
        ("status", {"status": 0}),
        ("status", {"status": 4}),
        ("request_id", {"request_id": "x" * 129}),
    ],
)
def test_a_bad_field_of_an_update_is_named(field: str, sent: dict[str, Any]) -> None:
    """An update needs a task and a status that exists."""
    fields: dict[str, Any] = {"run_id": "r", "id": 1, "status": 1} | sent
    asked = task_pb2.UpdateTaskRequest(**fields)
    with pytest.raises(InvalidRequest) as caught:
        update_task_call(asked, "local")
    assert field == caught.value.field


@pytest.mark.parametrize("status", TaskStatus)
def test_every_status_arrives(status: TaskStatus) -> None:
    """Each status of the wire becomes the core's of the same name."""
    number = task_pb2.TaskStatus.Value(f"TASK_STATUS_{status.name}")
    asked = task_pb2.UpdateTaskRequest(run_id="r", id=2**31 - 1, status=number, request_id="x")
    assert UpdateTaskCall("local", "r", 2**31 - 1, status, "x") == update_task_call(asked, "local")


def test_tasks_become_their_messages() -> None:
    """Number, text and status of each, in order."""
    assert TASK_MESSAGES == list(messages(task_pb2.TaskItem, TASKS))


def test_the_statuses_are_the_protos() -> None:
    """The core and the protos know the same statuses, but for the protos' UNSPECIFIED."""
    names = {f"TASK_STATUS_{status.name}" for status in TaskStatus}
    assert {"TASK_STATUS_UNSPECIFIED", *names} == set(task_pb2.TaskStatus.keys())
