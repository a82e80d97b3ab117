"""sidecar.v1.SidecarService: bytes in, a use case of the core, bytes out.

Requests arrive unparsed: they are parsed in the thread that serves the call, not in gRPC's one polling thread, and
bytes that are no request get an INVALID_ARGUMENT like any other bad input. Errors are left to the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from sidecar.errors import InvalidRequest
from sidecar.run.service import Runs
from sidecar.server.answers import TrimAnswers, retrieve_response, run_figures
from sidecar.server.callers import CALLER
from sidecar.server.conversion import checked_run_id, retrieve_call, trim_call
from sidecar.server.guard import check
from sidecar.v1 import retrieve_pb2, run_pb2, service_pb2

SERVICE = service_pb2.DESCRIPTOR.services_by_name["SidecarService"].full_name

Request = TypeVar("Request", bound=Message)


class Servicer:
    """Serves the runs. No answer passes `most_bytes`."""

    def __init__(self, runs: Runs, most_bytes: int) -> None:
        self._runs = runs
        self._most_bytes = most_bytes
        self._answers = TrimAnswers()

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        """Return the handler of each method, by name."""
        methods: Mapping[str, Callable[[bytes, grpc.ServicerContext], bytes]] = {
            "TrimPrompt": self.trim_prompt,
            "RetrieveContent": self.retrieve_content,
            "GetRun": self.get_run,
            "EndRun": self.end_run,
        }
        return {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}

    def trim_prompt(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """TrimPrompt."""
        try:
            call = trim_call(raw, CALLER.get(), self._most_bytes)
            answer = self._runs.trim(call, lambda: check(context))
        except DecodeError:
            raise InvalidRequest("the bytes are not a TrimPromptRequest, or a typed message is not a Message") from None
        return self._answers.write(call.caller, call.run_id, answer)

    def retrieve_content(self, raw: bytes, _: grpc.ServicerContext) -> bytes:
        """RetrieveContent."""
        call = retrieve_call(_parsed(retrieve_pb2.RetrieveContentRequest, raw), CALLER.get())
        return retrieve_response(self._runs.retrieve(call)).SerializeToString()

    def get_run(self, raw: bytes, _: grpc.ServicerContext) -> bytes:
        """GetRun."""
        run_id = checked_run_id(_parsed(run_pb2.GetRunRequest, raw).run_id)
        figures = self._runs.figures(CALLER.get(), run_id)
        return run_pb2.GetRunResponse(run=run_figures(figures)).SerializeToString()

    def end_run(self, raw: bytes, _: grpc.ServicerContext) -> bytes:
        """EndRun."""
        run_id = checked_run_id(_parsed(run_pb2.EndRunRequest, raw).run_id)
        figures = self._runs.end(CALLER.get(), run_id)
        self._answers.forget(CALLER.get(), run_id)
        last = None if figures is None else run_figures(figures)
        return run_pb2.EndRunResponse(ended=figures is not None, run=last).SerializeToString()


def _parsed(kind: type[Request], raw: bytes) -> Request:
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise InvalidRequest(f"the bytes are not a {kind.DESCRIPTOR.name}") from None
