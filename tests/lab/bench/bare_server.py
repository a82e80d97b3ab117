"""gRPC's own server, which throws every prompt away: what callers wait for that no sidecar could spare them.

It ends when its standard input does.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

SERVICE = "prompt_sidecar.v1.SidecarService"
THREADS = 16


def main() -> None:
    """Serve until the standard input ends."""
    server = grpc.server(ThreadPoolExecutor(THREADS), options=[("grpc.max_receive_message_length", -1)])
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "TrimPrompt": grpc.unary_unary_rpc_method_handler(lambda _, __: b"")
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"ready: listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)
    sys.stdin.read()
    server.stop(0)


if __name__ == "__main__":
    main()
