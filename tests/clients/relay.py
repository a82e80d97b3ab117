"""A gRPC server that hands each call on to a sidecar, and notes which run its metadata names."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from prompt_sidecar.client.options import RUN_METADATA

_WIDE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass
class Relay(grpc.GenericRpcHandler):
    """Calls as they came: the method, and the run."""

    channel: grpc.Channel
    address: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Take every method."""
        method = handler_call_details.method
        metadata = dict(handler_call_details.invocation_metadata)
        self.calls.append((method.rpartition("/")[2], str(metadata.get(RUN_METADATA, ""))))
        send: Any = self.channel.unary_unary(method)

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                handed_on: bytes = send(request)
            except grpc.RpcError as error:
                refused: Any = error
                context.abort(refused.code(), refused.details())
            return handed_on

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def relayed(target: str) -> Iterator[Relay]:
    """Listen on a free port."""
    with grpc.insecure_channel(target, options=_WIDE) as channel, ThreadPoolExecutor(4) as pool:
        relay = Relay(channel)
        server = grpc.server(pool, [relay], options=_WIDE)
        relay.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield relay
        finally:
            server.stop(None).wait()
