"""The outermost interceptor: admits, authenticates and guards every call of every service.

Admission happens when the call arrives, before its message is read: past the bound it is refused at once. The caller is
found before the handler runs. Whatever a handler raises, down to MemoryError and the panics of native code (which are
BaseExceptions, and would otherwise leave the call open for ever), becomes a status here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from sidecar.errors import CallCancelled, DeadlinePassed, Stopping, TooLarge
from sidecar.server.callers import CALLER, Callers
from sidecar.server.pool import InFlight, Pool
from sidecar.server.status import abort

HEALTH = "/grpc.health.v1.Health/"
OWN = "/sidecar.v1."

_Handler = Any
"""grpc.RpcMethodHandler; its stubs leave out the attributes that are read here."""


def check(context: grpc.ServicerContext) -> None:
    """Go on only if somebody still waits for the answer.

    Raises:
        DeadlinePassed: the call's deadline has passed.
        CallCancelled: the caller has gone.
    """
    if context.time_remaining() == 0:
        raise DeadlinePassed("the call's deadline has passed; what was done so far is kept and not done again")
    if not context.is_active():
        raise CallCancelled("the caller has cancelled the call; what was done so far is kept and not done again")


class Guard(grpc.ServerInterceptor):
    """See the module. `own` runs the sidecar's calls, `health` health checks and refusals, `admin` all else."""

    def __init__(self, callers: Callers, in_flight: InFlight, *, own: Pool, health: Pool, admin: Pool) -> None:
        self._callers = callers
        self._in_flight = in_flight
        self._pools = {OWN: own, HEALTH: health}
        self._admin = admin
        self._guarded: dict[str, tuple[_Handler, Pool]] = {}
        self._closed = False
        # Registered as taking a stream, so that a refused request's message is not waited for.
        self._refuse: _Handler = grpc.stream_unary_rpc_method_handler(_in_pool(_refused, health))
        self._turn_away: _Handler = grpc.stream_unary_rpc_method_handler(_in_pool(_turned_away, health))

    def close(self) -> None:
        """From now on turn away every call but health checks; those admitted before go on."""
        self._closed = True

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], _Handler], handler_call_details: grpc.HandlerCallDetails
    ) -> _Handler:
        """Return the guarded handler of the called method, or the refusing one. Runs on gRPC's polling thread."""
        method = str(handler_call_details.method)
        known = self._guarded.get(method)
        if known is None:
            handler = continuation(handler_call_details)
            if handler is None:
                return None
            pool = next((pool for prefix, pool in self._pools.items() if method.startswith(prefix)), self._admin)
            known = self._guarded[method] = self._guard(handler, pool, method), pool
        handler, pool = known
        if self._closed and not method.startswith(HEALTH):
            return self._turn_away
        return self._refuse if pool.full else handler

    def _guard(self, handler: _Handler, pool: Pool, method: str) -> _Handler:
        health, own = method.startswith(HEALTH), method.startswith(OWN)
        behaviour = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

        def enter(context: grpc.ServicerContext) -> None:
            if own:
                self._in_flight.follow(context)
            if not health:
                CALLER.set(self._callers.of(context))
            check(context)

        def answer(request: object, context: grpc.ServicerContext, *more: object) -> object:
            try:
                enter(context)
                return behaviour(request, context, *more)
            except BaseException as error:
                _end(context, error)
                raise

        def stream(request: object, context: grpc.ServicerContext) -> Iterator[object]:
            try:
                enter(context)
                yield from behaviour(request, context)
            except GeneratorExit:
                raise
            except BaseException as error:
                _end(context, error)
                raise

        non_blocking = getattr(behaviour, "experimental_non_blocking", False)
        guarded = _in_pool(stream if handler.response_streaming and not non_blocking else answer, pool)
        guarded.experimental_non_blocking = non_blocking
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        return make(guarded, handler.request_deserializer, handler.response_serializer)


def _refused(_: object, context: grpc.ServicerContext) -> None:
    abort(context, TooLarge("as many calls run or wait as server.max_calls allows; retry a little later"))


def _turned_away(_: object, context: grpc.ServicerContext) -> None:
    abort(context, Stopping("this sidecar is stopping; call another, or this one when it is back"))


def _end(context: Any, error: BaseException) -> None:
    """End the call with the error's status, unless the handler has ended it by itself: gRPC raises a bare Exception."""
    ended = type(error) is Exception and not error.args and context.code() is not None
    if not ended:
        abort(context, error)


def _in_pool(behaviour: Any, pool: Pool) -> Any:
    """Have gRPC run `behaviour` in `pool` in place of the server's own; the attribute is the one that it looks for."""

    def run(*args: object) -> object:
        return behaviour(*args)

    run.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return run
