"""The servers of the bench: the real one, a no-op on the same server, and gRPC's own, which throws every prompt away.

`python -m tests.lab.bench.servers floor` is the no-op: bytes in, an answer that was recorded before out. It is made by
the same class with the same options, interceptors and thread pools as the real one; its service's name has the package
of the real one, so that the guard admits and counts its calls in the same way. `bare` tells what callers wait for that
no sidecar could spare them. Both end when their standard input does.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.doors.grpc.lifecycle import GrpcDoor
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import CoreLimits
from prompt_sidecar.tokens.count import Counter
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.trim.presets import preset
from tests.lab.harness import counting
from tests.lab.harness.servers import LOCAL, SERVICE, Server, environment, sidecar

FLOOR: Final = "prompt_sidecar.v1.BenchFloor"
KEEP: Final = f"/{FLOOR}/Keep"
"""Keep these bytes as one more answer."""
GIVE: Final = f"/{FLOOR}/Give"
"""Take a body, give the oldest answer that was kept and not given yet."""
KEY: Final = "the bench's key, the same in each process"
"""One key, so that the server and the core in this process mint the same ids and give the same answers."""
THREADS: Final = 16

Methods = dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]


def real(*arguments: str, listen: str = LOCAL, **more: str) -> Server:
    """Start the real program, with the bench's settings and `more`."""
    usual = {"KEY": KEY, "TOKENS__COUNTER": counting.chosen, "TELEMETRY__METRICS_LISTEN": ""}  # several run at once
    return sidecar(usual | more, *arguments, listen=listen)


def beside(name: str) -> Server:
    """Start `floor` or `bare`."""
    return Server("-m", "tests.lab.bench.servers", name, variables=environment({}))


class FloorDoor(GrpcDoor):
    """The gRPC door with one service more, which gives recorded answers in turn."""

    def start(self) -> None:
        """Serve the floor too."""
        kept: deque[bytes] = deque()

        def keep(raw: bytes, _: grpc.ServicerContext) -> bytes:
            kept.append(raw)
            return b""

        methods: Methods = {
            "Keep": grpc.unary_unary_rpc_method_handler(keep),
            "Give": grpc.unary_unary_rpc_method_handler(lambda _, __: kept.popleft()),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FLOOR, methods),))
        self._server.add_registered_method_handlers(FLOOR, methods)
        super().start()


def _floor() -> tuple[str, Callable[[int], object]]:
    shared = DoorServices(ServerOptions(listen="127.0.0.1:0"))
    server = Doors(shared, [FloorDoor(shared)])
    server.bind()
    server.start(
        Runs(Counter({}), Keys(b"floor"), Rules(CallerRules(preset("cache_first"))), Clocks(time.time), CoreLimits())
    )
    return server.addresses[0], server.stop


def _bare() -> tuple[str, Callable[[int], object]]:
    server = grpc.server(ThreadPoolExecutor(THREADS), options=[("grpc.max_receive_message_length", -1)])
    methods: Methods = {"TrimPrompt": grpc.unary_unary_rpc_method_handler(lambda _, __: b"")}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.strip("/"), methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return f"127.0.0.1:{port}", server.stop


if __name__ == "__main__":
    address, stop = {"floor": _floor, "bare": _bare}[sys.argv[1]]()
    print(f"ready: listening on {address}", file=sys.stderr, flush=True)
    sys.stdin.read()
    stop(0)
