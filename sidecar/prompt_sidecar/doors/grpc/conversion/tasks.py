"""CreateTasks and UpdateTask: their requests."""

from __future__ import annotations

from prompt_sidecar.calls.checks import check_number, checked_request_id, checked_run_id
from prompt_sidecar.doors.grpc.conversion.enums import enum_name
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskStatus, UpdateTaskCall
from prompt_sidecar.v1 import task_pb2


def create_tasks_call(request: task_pb2.CreateTasksRequest, caller: str) -> CreateTasksCall:
    """Return the call that a CreateTasksRequest of `caller` asks for. The core checks the number and length of tasks.

    Raises:
        InvalidRequest: a field's value is wrong in any state of the sidecar.
    """
    mode = enum_name(task_pb2.CreateTasksMode, request.mode or 1, "CREATE_TASKS_MODE_", "mode")
    return CreateTasksCall(
        caller=caller,
        run_id=checked_run_id(request.run_id),
        items=tuple(request.items),
        append=mode == "append",
        request_id=checked_request_id(request.request_id),
    )


def update_task_call(request: task_pb2.UpdateTaskRequest, caller: str) -> UpdateTaskCall:
    """Return the call that an UpdateTaskRequest of `caller` asks for.

    Raises:
        InvalidRequest: a field's value is wrong in any state of the sidecar.
    """
    run_id = checked_run_id(request.run_id)
    check_number("id", request.id, 1)
    return UpdateTaskCall(
        caller=caller,
        run_id=run_id,
        id=request.id,
        status=TaskStatus(enum_name(task_pb2.TaskStatus, request.status, "TASK_STATUS_", "status")),
        request_id=checked_request_id(request.request_id),
    )
