"""Runs calls in gRPC's own pool of threads, if the installed gRPC lacks what `doors/grpc/handed.py` needs.

gRPC then reads each message in the thread that serves the call, so a caller that sends headers and no message holds a
thread until its deadline or its connection's end. Callers are authenticated, and calls counted, refused and drained as
usual; what is missing are the turns of connections, the limits on slow messages and on answers that clients do not
read, and the delay of refusals. `server.max_calls` is then enforced by gRPC, which does not report when it is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic, perf_counter
from typing import Any, Final

import grpc

from prompt_sidecar.calls.pool import ARRIVAL, InFlight
from prompt_sidecar.calls.turns import Owner
from prompt_sidecar.doors.grpc.handed import ENDS

WARNING: Final = (
    "grpcio %s is not known to this server, as it lacks %s: calls run in gRPC's own pool of threads, where one "
    "connection can hold up others; install a version that the extra `server` names"
)


def in_own_pool(
    behaviour: Callable[..., Any],
    admit: Callable[[grpc.ServicerContext], Owner],
    refused: Callable[[BaseException], Callable[..., None]],
    in_flight: InFlight,
) -> Callable[..., Any]:
    """Return the function that gRPC runs in its own thread: it authenticates the caller, then calls `behaviour`."""

    def run(request: Any, context: Any, *more: object) -> Any:
        ARRIVAL.at, ARRIVAL.answered = perf_counter(), 0
        left = context.time_remaining()
        ENDS.set(monotonic() + (inf if left is None else left))
        in_flight.add()
        if not context.add_callback(in_flight.remove):
            in_flight.remove()
        try:
            admit(context)
        except Exception as error:  # noqa: BLE001 - whatever it is, the call ends with it
            return refused(error)(request, context)
        return behaviour(request, context, *more)

    return run
