"""How each agent has set its gRPC, as a server sees it: deadline, retries, message sizes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import grpc

from prompt_sidecar.client.breaker import MISSES
from prompt_sidecar.v1 import tool_pb2, trim_pb2
from tests.clients.languages import Language
from tests.clients.test_agents import DAYS, LONG, output_of, without

SIZE = 64 << 20
"""What the document says a client must be able to send and to receive."""
LARGE = 5 << 20
"""Bytes of an answer that a client with gRPC's own bound of 4 MiB does not receive."""
ROUNDING = 1.0
"""Seconds by which gRPC may lengthen a deadline on its way."""
ATTEMPTS = 3
"""As the document's service config says."""
NAME = "recall_elided_content"
DEFINITION = b'{"type": "function", "function": {"name": "recall_elided_content", "parameters": {"type": "object"}}}'


@dataclass(slots=True)
class Draining:
    """A server that defines its tools, in a large answer, and is otherwise unavailable; it keeps what it was asked."""

    calls: Counter[str] = field(default_factory=Counter)
    deadlines: list[float | None] = field(default_factory=list)
    """Seconds that each call had left."""
    prompts: list[trim_pb2.TrimPromptRequest] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def _note(self, method: str, context: grpc.ServicerContext) -> None:
        with self.lock:
            self.calls[method] += 1
            self.deadlines.append(context.time_remaining())

    def list_tools(self, _: tool_pb2.ListToolsRequest, context: grpc.ServicerContext) -> tool_pb2.ListToolsResponse:
        """The tools, with a description that fills the answer."""
        self._note("ListTools", context)
        tool = tool_pb2.ToolDefinition(
            name=NAME, description="x" * LARGE, parameters_json='{"type": "object"}', definition_json=DEFINITION
        )
        return tool_pb2.ListToolsResponse(tools=[tool], tools_json=b"[" + DEFINITION + b"]")

    def trim_prompt(self, request: trim_pb2.TrimPromptRequest, context: grpc.ServicerContext) -> NoReturn:
        """Nothing but the status of a server that stops."""
        self._note("TrimPrompt", context)
        with self.lock:
            self.prompts.append(request)
        context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")

    def handlers(self) -> grpc.GenericRpcHandler:
        """Its methods; all others are unimplemented."""
        define, trim = tool_pb2.ListToolsRequest, trim_pb2.TrimPromptRequest
        answered = tool_pb2.ListToolsResponse.SerializeToString
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "ListTools": grpc.unary_unary_rpc_method_handler(self.list_tools, define.FromString, answered),
            "TrimPrompt": grpc.unary_unary_rpc_method_handler(self.trim_prompt, trim.FromString),
        }
        return grpc.method_handlers_generic_handler("prompt_sidecar.v1.SidecarService", methods)


@contextmanager
def serving(handlers: grpc.GenericRpcHandler) -> Iterator[str]:
    """Serve on a free port; yield the address."""
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=[handlers], options=[("grpc.max_receive_message_length", SIZE)])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield address
        finally:
            server.stop(None).wait()


def test_deadline_retries_and_sizes(language: Language, folder: Path, log: str) -> None:
    """Each call has a deadline, UNAVAILABLE is tried thrice, and answers over 4 MiB arrive and are declared welcome.

    The client in Python makes no more calls after two of them, but for one a pause.
    """
    servicer = Draining()
    with serving(servicer.handlers()) as address:
        assert without(0) == output_of(language, folder, address, log, LONG)[1]
    calls = servicer.calls["TrimPrompt"] / ATTEMPTS
    assert calls in (range(MISSES, DAYS) if language.leaves_out else [DAYS + 1])
    assert 1 == servicer.calls["ListTools"]
    assert [] == [left for left in servicer.deadlines if left is None or not 0 < left < float(LONG) + ROUNDING]
    assert {SIZE} == {prompt.accept_bytes for prompt in servicer.prompts}
    # The tools have arrived, or the agent would have said that its model can recall nothing.
    assert {False} == {prompt.recall_unavailable for prompt in servicer.prompts}
