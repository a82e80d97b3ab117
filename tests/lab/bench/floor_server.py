"""The no-op on the same server: bytes in, an answer that was recorded before out.

A process of its own, made by the same class with the same options, interceptors and thread pools as the real one. The
service's name has the package of the real one, so that the guard admits and counts its calls in the same way. It ends
when its standard input does.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable

import grpc

from prompt_sidecar.doors.grpc.lifecycle import Server
from prompt_sidecar.doors.grpc.options import ServerOptions
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.tokens.count import Counter
from prompt_sidecar.trim.presets import preset

SERVICE = "prompt_sidecar.v1.BenchFloor"
KEEP = f"/{SERVICE}/Keep"
"""Keep these bytes as one more answer."""
GIVE = f"/{SERVICE}/Give"
"""Take a body, give the oldest answer that was kept and not given yet."""


class Answers:
    """Recorded answers, given out in turn."""

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque()

    def keep(self, raw: bytes, _: grpc.ServicerContext) -> bytes:
        """Keep one."""
        self._kept.append(raw)
        return b""

    def give(self, _: bytes, __: grpc.ServicerContext) -> bytes:
        """Give one."""
        return self._kept.popleft()


class FloorServer(Server):
    """The server with one service more."""

    def start(
        self, runs: Runs, warm: Callable[[], None] = lambda: None, *, load: Callable[[], None] = lambda: None
    ) -> None:
        """Serve the floor too."""
        answers = Answers()
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Keep": grpc.unary_unary_rpc_method_handler(answers.keep),
            "Give": grpc.unary_unary_rpc_method_handler(answers.give),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        self._server.add_registered_method_handlers(SERVICE, methods)
        super().start(runs, warm, load=load)


def main() -> None:
    """Serve until the standard input ends."""
    server = FloorServer(ServerOptions(listen="127.0.0.1:0"))
    server.start(
        Runs(counter=Counter({}), policy=preset("cache_first"), limits=Limits(), key=b"floor", clock=time.time)
    )
    print(f"ready: listening on {server.addresses[0]}", file=sys.stderr, flush=True)
    sys.stdin.read()
    server.stop(0)


if __name__ == "__main__":
    main()
