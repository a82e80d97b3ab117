"""A short run for tests of recall: what its tools answered is known, so that it can be looked for."""

from __future__ import annotations

import json
from typing import Any

from prompt_sidecar.v1 import search_pb2, task_pb2, tool_pb2, trim_pb2
from tests.doors.grpc.serving import PATIENCE, Serving, request

FACT = "the reactor code is quartz-7731"
"""A line of the result of iteration 3."""
CZECH = "příliš žluťoučký kůň 🐎 úpěl ďábelské ódy"
"""A line of the result of iteration 2."""


def result(number: int) -> str:
    """What the tool answered in an iteration: forty lines, of which one may be worth looking for."""
    lines = [f"module_{number} line {line}: unused import os" for line in range(40)]
    lines[20] = {2: CZECH, 3: FACT}.get(number, lines[20])
    return "\n".join(lines)


def body(iterations: int = 4) -> bytes:
    """The run's prompt: a task, then a call of read_file with its result for each iteration."""
    messages: list[Any] = [
        {"role": "system", "content": "Never mention zanzibar."},
        {"role": "user", "content": "Find the culprit."},
    ]
    for number in range(1, iterations + 1):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"module_{number}.py"})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result(number)})
    return json.dumps(messages, ensure_ascii=False).encode()


def begin(served: Serving, run_id: str, **more: Any) -> trim_pb2.TrimPromptResponse:
    """Send the run's prompt."""
    return served.stub.TrimPrompt(request(run_id, body()), timeout=PATIENCE, **more)


def search(served: Serving, run_id: str, query: str, **fields: Any) -> search_pb2.SearchHistoryResponse:
    """Search the run."""
    asked = search_pb2.SearchHistoryRequest(run_id=run_id, query=query, **fields)
    return served.stub.SearchHistory(asked, timeout=PATIENCE)


def call(served: Serving, run_id: str, name: str, arguments: object, request_id: str = "") -> tool_pb2.CallToolResponse:
    """Call a tool as a model does; `arguments` is written as JSON unless it is text already."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    asked = tool_pb2.CallToolRequest(run_id=run_id, name=name, arguments_json=text, request_id=request_id)
    return served.stub.CallTool(asked, timeout=PATIENCE)


def create(served: Serving, run_id: str, *items: str, **fields: Any) -> list[tuple[int, str, int]]:
    """Create tasks; what tasks there are then."""
    asked = task_pb2.CreateTasksRequest(run_id=run_id, items=items, **fields)
    return rows(served.stub.CreateTasks(asked, timeout=PATIENCE).tasks)


def rows(tasks: Any) -> list[tuple[int, str, int]]:
    """Number, text and status of each task."""
    return [(task.id, task.text, task.status) for task in tasks]
