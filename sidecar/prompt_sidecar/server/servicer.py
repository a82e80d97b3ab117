"""prompt_sidecar.v1.SidecarService: bytes in, a use case of the core, bytes out.

Requests arrive unparsed: they are parsed in the thread that serves the call, not in gRPC's one polling thread, and
bytes that are no request get an INVALID_ARGUMENT like any other bad input. The interceptor turns errors into statuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.runs.service import Runs
from prompt_sidecar.server.assumed_windows import AssumedWindows
from prompt_sidecar.server.callers import CALLER
from prompt_sidecar.server.conversion.fields import check_message, checked_run_id
from prompt_sidecar.server.conversion.pieces import TrimAnswers
from prompt_sidecar.server.conversion.recall import retrieve_call, retrieve_response, search_call, search_response
from prompt_sidecar.server.conversion.runs import run_figures
from prompt_sidecar.server.conversion.tasks import create_tasks_call, task_items, update_task_call
from prompt_sidecar.server.conversion.tools import tool_call, tool_response, tools_asked, tools_response
from prompt_sidecar.server.conversion.trim import trim_call
from prompt_sidecar.server.conversion.usage import usage_call, usage_response
from prompt_sidecar.server.interceptor import check
from prompt_sidecar.server.memory import MemoryGate
from prompt_sidecar.telemetry.observer import Observer
from prompt_sidecar.v1 import retrieve_pb2, run_pb2, search_pb2, service_pb2, task_pb2, tool_pb2, usage_pb2

SERVICE = service_pb2.DESCRIPTOR.services_by_name["SidecarService"].full_name

METHODS: Sequence[str] = tuple(
    method.name for method in service_pb2.DESCRIPTOR.services_by_name["SidecarService"].methods
)
"""The methods that are served."""

Request = TypeVar("Request", bound=Message)


def _nothing() -> None:
    pass


class Servicer:
    """Serves the runs. No answer to a prompt has more than `most_bytes`; `wake` is called after each."""

    def __init__(
        self,
        runs: Runs,
        most_bytes: int,
        wake: Callable[[], None] = _nothing,
        observer: Observer | None = None,
        memory: MemoryGate | None = None,
    ) -> None:
        """`memory` admits prompts; by default it knows only the container's limit."""
        self._memory = memory or MemoryGate()
        self._runs = runs
        self._observer = observer or Observer()
        self._most_bytes = most_bytes
        self._wake = wake
        self._answers = TrimAnswers(reached=self._observer.reached)
        self._assumed = AssumedWindows()

    @property
    def kept_bytes(self) -> int:
        """Bytes of the answers' pieces that are kept for later answers, estimated."""
        return self._answers.kept_bytes

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        """Return the handler of each method, by name."""
        methods: Mapping[str, Callable[[bytes, grpc.ServicerContext], bytes]] = {
            "TrimPrompt": self.trim_prompt,
            "RetrieveContent": self.retrieve_content,
            "SearchHistory": self.search_history,
            "CreateTasks": self.create_tasks,
            "UpdateTask": self.update_task,
            "ListTasks": self.list_tasks,
            "ListTools": self.list_tools,
            "CallTool": self.call_tool,
            "ReportUsage": self.report_usage,
            "GetRun": self.get_run,
            "EndRun": self.end_run,
        }
        return {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}

    def trim_prompt(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """TrimPrompt."""
        began = time_ns()
        call = None
        try:
            with self._memory.admit(raw):
                call = trim_call(raw, CALLER.get(), self._most_bytes)
                answer = self._runs.trim(call, lambda: check(context))
                written = self._answers.write(call.caller, call.run_id, answer)
        except DecodeError:
            self._observer.refused(call)
            raise InvalidRequest("the bytes are not a TrimPromptRequest, or a typed message is not a Message") from None
        except BaseException:
            self._observer.refused(call)
            raise
        if answer.tokens.window_assumed:
            self._assumed.report(answer.model, answer.tokens.limit)
        self._observer.trimmed(call, answer, began)
        self._wake()
        return written

    def retrieve_content(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """RetrieveContent."""
        began = time_ns()
        call = retrieve_call(_parsed(retrieve_pb2.RetrieveContentRequest, raw), CALLER.get())
        answer = self._runs.retrieve(call, lambda: check(context), self._memory.reserve)
        self._observer.retrieved(call, answer, began)
        return retrieve_response(answer).SerializeToString()

    def search_history(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """SearchHistory."""
        began = time_ns()
        call = search_call(_parsed(search_pb2.SearchHistoryRequest, raw), CALLER.get())
        found = self._runs.search(call, lambda: check(context))
        self._observer.searched(call.run_id, found, began)
        return search_response(found).SerializeToString()

    def create_tasks(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """CreateTasks."""
        call = create_tasks_call(_parsed(task_pb2.CreateTasksRequest, raw), CALLER.get())
        tasks = task_items(self._runs.create_tasks(call, lambda: check(context)))
        return task_pb2.CreateTasksResponse(tasks=tasks).SerializeToString()

    def update_task(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """UpdateTask."""
        call = update_task_call(_parsed(task_pb2.UpdateTaskRequest, raw), CALLER.get())
        tasks = task_items(self._runs.update_task(call, lambda: check(context)))
        return task_pb2.UpdateTaskResponse(tasks=tasks).SerializeToString()

    def list_tasks(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """ListTasks."""
        run_id = checked_run_id(_parsed(task_pb2.ListTasksRequest, raw).run_id)
        tasks = task_items(self._runs.list_tasks(CALLER.get(), run_id, lambda: check(context)))
        return task_pb2.ListTasksResponse(tasks=tasks).SerializeToString()

    def list_tools(self, raw: bytes, _: grpc.ServicerContext) -> bytes:
        """ListTools."""
        form, names = tools_asked(_parsed(tool_pb2.ListToolsRequest, raw))
        return tools_response(self._runs.list_tools(form, names)).SerializeToString()

    def call_tool(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """CallTool."""
        began = time_ns()
        call = tool_call(_parsed(tool_pb2.CallToolRequest, raw), CALLER.get())
        answer = self._runs.call_tool(call, lambda: check(context), self._memory.reserve)
        self._observer.tool_called(call, answer, began)
        return tool_response(answer).SerializeToString()

    def report_usage(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """ReportUsage."""
        call = usage_call(_parsed(usage_pb2.ReportUsageRequest, raw), CALLER.get())
        answer = self._runs.report_usage(call, lambda: check(context))
        self._observer.reported(call, answer)
        return usage_response(answer).SerializeToString()

    def get_run(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """GetRun."""
        run_id = checked_run_id(_parsed(run_pb2.GetRunRequest, raw).run_id)
        figures = self._runs.figures(CALLER.get(), run_id, lambda: check(context))
        return run_pb2.GetRunResponse(run=run_figures(figures)).SerializeToString()

    def end_run(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """EndRun."""
        run_id = checked_run_id(_parsed(run_pb2.EndRunRequest, raw).run_id)
        figures = self._runs.end(CALLER.get(), run_id, lambda: check(context))
        self._answers.forget(CALLER.get(), run_id)
        last = None if figures is None else run_figures(figures)
        return run_pb2.EndRunResponse(ended=figures is not None, run=last).SerializeToString()


def _parsed(kind: type[Request], raw: bytes) -> Request:
    check_message(raw)
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise InvalidRequest(f"the bytes are not a {kind.DESCRIPTOR.name}") from None
