"""prompt_sidecar.v1.SidecarService: bytes in, a use case of the core, bytes out.

Requests arrive unparsed: they are parsed in the thread that serves the call, not in gRPC's one polling thread, and
malformed bytes get an INVALID_ARGUMENT like any other bad input. The interceptor turns errors into statuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from prompt_sidecar.calls.checks import check_message, checked_run_id
from prompt_sidecar.calls.use_cases import Check, UseCases
from prompt_sidecar.doors.grpc.callers import CALLER
from prompt_sidecar.doors.grpc.conversion.guard import restore_call
from prompt_sidecar.doors.grpc.conversion.pieces import TrimAnswers
from prompt_sidecar.doors.grpc.conversion.recall import retrieve_call, search_call
from prompt_sidecar.doors.grpc.conversion.responses import message, messages
from prompt_sidecar.doors.grpc.conversion.tasks import create_tasks_call, update_task_call
from prompt_sidecar.doors.grpc.conversion.tools import tool_call, tools_asked, tools_response
from prompt_sidecar.doors.grpc.conversion.trim import trim_call
from prompt_sidecar.doors.grpc.conversion.usage import usage_call
from prompt_sidecar.doors.grpc.interceptor import check, seconds_left
from prompt_sidecar.engine.tools.definitions import definitions
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.untrimmed import Handled, Through
from prompt_sidecar.v1 import guard_pb2, retrieve_pb2, run_pb2, search_pb2, service_pb2, task_pb2, tool_pb2, usage_pb2

SERVICE = service_pb2.DESCRIPTOR.services_by_name["SidecarService"].full_name

METHODS: Sequence[str] = tuple(
    method.name for method in service_pb2.DESCRIPTOR.services_by_name["SidecarService"].methods
)
"""The methods that are served."""

Request = TypeVar("Request", bound=Message)


class Servicer:
    """Serves the use cases. No answer to a prompt has more than `most_bytes`."""

    def __init__(self, use_cases: UseCases, most_bytes: int) -> None:
        self._use_cases = use_cases
        self._most_bytes = most_bytes
        self._answers = TrimAnswers(reached=use_cases.observer.reached)

    @property
    def kept_bytes(self) -> int:
        """Estimated bytes of encoded pieces that are kept for later answers."""
        return self._answers.kept_bytes

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        """Return the handler of each method, by name."""
        methods: Mapping[str, Callable[[bytes, grpc.ServicerContext], Message]] = {
            "RetrieveContent": self.retrieve_content,
            "SearchHistory": self.search_history,
            "CreateTasks": self.create_tasks,
            "UpdateTask": self.update_task,
            "ListTasks": self.list_tasks,
            "ListTools": self.list_tools,
            "CallTool": self.call_tool,
            "ReportUsage": self.report_usage,
            "RestoreSecrets": self.restore_secrets,
            "GetRun": self.get_run,
            "EndRun": self.end_run,
            "EndRuns": self.end_runs,
        }
        found = {name: _serialized(method) for name, method in methods.items()} | {"TrimPrompt": self.trim_prompt}
        return {name: grpc.unary_unary_rpc_method_handler(method) for name, method in found.items()}

    def trim_prompt(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """TrimPrompt."""
        caller = CALLER.get()

        def read(pace: Check) -> TrimCall:
            try:
                return trim_call(raw, caller, self._most_bytes, pace)
            except DecodeError:
                raise InvalidRequest(
                    "the bytes are not a TrimPromptRequest, or a typed message is not a Message"
                ) from None

        def write(call: TrimCall, answer: TrimAnswer) -> tuple[bytes, Handled | None]:
            return self._answers.write(caller, call.run_id, answer), _handled(call, answer, len(raw))

        written, handled = self._use_cases.trim(raw, read, lambda: check(context), write)
        if handled is not None:
            self._use_cases.handled(handled)
        return written

    def retrieve_content(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """RetrieveContent."""
        call = retrieve_call(_parsed(retrieve_pb2.RetrieveContentRequest, raw), CALLER.get())
        return message(retrieve_pb2.RetrieveContentResponse, self._use_cases.retrieve(call, lambda: check(context)))

    def search_history(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """SearchHistory."""
        call = replace(search_call(_parsed(search_pb2.SearchHistoryRequest, raw), CALLER.get()), seconds=seconds_left())
        return message(search_pb2.SearchHistoryResponse, self._use_cases.search(call, lambda: check(context)))

    def create_tasks(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """CreateTasks."""
        call = create_tasks_call(_parsed(task_pb2.CreateTasksRequest, raw), CALLER.get())
        tasks = self._use_cases.create_tasks(call, lambda: check(context))
        return task_pb2.CreateTasksResponse(tasks=messages(task_pb2.TaskItem, tasks.items), not_shared=tasks.not_shared)

    def update_task(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """UpdateTask."""
        call = update_task_call(_parsed(task_pb2.UpdateTaskRequest, raw), CALLER.get())
        tasks = self._use_cases.update_task(call, lambda: check(context))
        return task_pb2.UpdateTaskResponse(tasks=messages(task_pb2.TaskItem, tasks.items), not_shared=tasks.not_shared)

    def list_tasks(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """ListTasks."""
        run_id = checked_run_id(_parsed(task_pb2.ListTasksRequest, raw).run_id)
        tasks = self._use_cases.list_tasks(CALLER.get(), run_id, lambda: check(context))
        return task_pb2.ListTasksResponse(tasks=messages(task_pb2.TaskItem, tasks.items), not_shared=tasks.not_shared)

    def list_tools(self, raw: bytes, _: grpc.ServicerContext) -> Message:
        """ListTools."""
        return tools_response(definitions(*tools_asked(_parsed(tool_pb2.ListToolsRequest, raw))))

    def call_tool(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """CallTool."""
        call = replace(tool_call(_parsed(tool_pb2.CallToolRequest, raw), CALLER.get()), seconds=seconds_left())
        return message(tool_pb2.CallToolResponse, self._use_cases.call_tool(call, lambda: check(context)))

    def report_usage(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """ReportUsage."""
        call = usage_call(_parsed(usage_pb2.ReportUsageRequest, raw), CALLER.get())
        return message(usage_pb2.ReportUsageResponse, self._use_cases.report_usage(call, lambda: check(context)))

    def restore_secrets(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """RestoreSecrets."""
        call = restore_call(_parsed(guard_pb2.RestoreSecretsRequest, raw), CALLER.get())
        answer = self._use_cases.restore(call, lambda: check(context))
        unknown = dict.fromkeys(mask for each in answer.calls for mask in each.unknown_masks)
        return guard_pb2.RestoreSecretsResponse(
            calls=messages(guard_pb2.RestoredArguments, answer.calls),
            unknown_masks=list(unknown),
            store_unavailable=answer.store_unavailable,
        )

    def get_run(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """GetRun."""
        run_id = checked_run_id(_parsed(run_pb2.GetRunRequest, raw).run_id)
        figures = self._use_cases.figures(CALLER.get(), run_id, lambda: check(context))
        return run_pb2.GetRunResponse(run=message(run_pb2.RunFigures, figures))

    def end_run(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """EndRun."""
        run_id = checked_run_id(_parsed(run_pb2.EndRunRequest, raw).run_id)
        figures = self._use_cases.end(CALLER.get(), run_id, lambda: check(context))
        self._answers.forget(CALLER.get(), run_id)
        last = None if figures is None else message(run_pb2.RunFigures, figures)
        return run_pb2.EndRunResponse(ended=figures is not None, run=last)

    def end_runs(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        """EndRuns."""
        _parsed(run_pb2.EndRunsRequest, raw)
        ended = self._use_cases.end_all(CALLER.get(), lambda: check(context))
        self._answers.forget_all(CALLER.get())
        return run_pb2.EndRunsResponse(ended=ended)


def _handled(call: TrimCall, answer: TrimAnswer, size: int) -> Handled | None:
    """Return what was done about a prompt of so many bytes; None for a dry run."""
    if call.dry_run or call.side_call:
        return None
    recall = RecallOffer.UNAVAILABLE if call.recall_unavailable else RecallOffer.OFFERED
    return Handled(Through.GRPC, answer.untrimmed, size, recall, call.caller, call.run_id)


def _parsed(kind: type[Request], raw: bytes) -> Request:
    check_message(raw)
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise InvalidRequest(f"the bytes are not a {kind.DESCRIPTOR.name}") from None


def _serialized(
    method: Callable[[bytes, grpc.ServicerContext], Message],
) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    return lambda raw, context: method(raw, context).SerializeToString()
