"""The outermost interceptor: authenticates every call of every service, and turns errors into statuses.

The caller is identified when the call arrives, before its message is read; `doors/grpc/reception.py` decides whether it
can be admitted. Everything that a handler raises, down to MemoryError and the panics of native code (which are
BaseExceptions, and would otherwise leave the call open for ever), becomes a status here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, NoReturn

import grpc

from prompt_sidecar.calls.memory import is_out_of_memory, out_of_memory
from prompt_sidecar.calls.pool import ARRIVAL
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.turns import Owner
from prompt_sidecar.doors.grpc.callers import CALLER, caller_of
from prompt_sidecar.doors.grpc.handed import ENDS
from prompt_sidecar.doors.grpc.health import WATCH
from prompt_sidecar.doors.grpc.own_pool import in_own_pool
from prompt_sidecar.doors.grpc.reception import Reception
from prompt_sidecar.doors.grpc.status import abort
from prompt_sidecar.errors import CallCancelled, DeadlinePassed, NotServed, SidecarError, Stopping
from prompt_sidecar.process.logs import call_through
from prompt_sidecar.telemetry.observer import BegunCall

HEALTH = "/grpc.health.v1.Health/"
OWN = "/prompt_sidecar.v1."

_Handler = Any
"""grpc.RpcMethodHandler; its type stubs lack the attributes that are read here."""


def check(context: grpc.ServicerContext) -> None:
    """Check that the caller still waits for the answer.

    Raises:
        DeadlinePassed: the call's deadline has passed.
        CallCancelled: the caller has cancelled the call or disconnected.
    """
    if monotonic() >= ENDS.get():
        raise DeadlinePassed("the call's deadline has passed; what was done so far is kept and not done again")
    if not context.is_active():
        raise CallCancelled("the caller has cancelled the call; what was done so far is kept and not done again")


def seconds_left() -> float:
    """Return the seconds until the current call's deadline; a year or more if it has none."""
    return ENDS.get() - monotonic()


@dataclass(frozen=True, slots=True)
class Receptions:
    """Receptions by kind of call: `own` for our service, `health` and `watch` for health checks, `admin` for others."""

    own: Reception
    health: Reception
    watch: Reception
    admin: Reception

    def of(self, method: str) -> Reception:
        """Return the reception that takes a method's calls."""
        if method.startswith(OWN):
            return self.own
        if method == WATCH:
            return self.watch
        return self.health if method.startswith(HEALTH) else self.admin


class Interceptor(grpc.ServerInterceptor):
    """Authenticates calls and turns errors into statuses. See the module."""

    def __init__(self, shared: DoorServices, receptions: Receptions, *, own_pool: bool) -> None:
        """`own_pool`: calls run in gRPC's own pool, and no reception takes them."""
        self._shared = shared
        self._observer = shared.observer
        self._receptions = receptions
        self._own_pool = own_pool
        self._methods: dict[str, _Handler] = {}
        self._closed = False
        self._not_served = self._refusal()

    def close(self) -> None:
        """Refuse all further calls except health checks; those admitted before continue."""
        self._closed = True

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], _Handler], handler_call_details: grpc.HandlerCallDetails
    ) -> _Handler:
        """Return the wrapped handler of the called method. Runs on gRPC's polling thread."""
        method = str(handler_call_details.method)
        known = self._methods.get(method)
        if known is None:
            handler = continuation(handler_call_details)
            if handler is None:  # not kept, as callers can invent method names
                return self._not_served
            known = self._methods[method] = self._method(handler, method)
        return known

    def _method(self, handler: _Handler, method: str) -> _Handler:
        health, own = method.startswith(HEALTH), method.startswith(OWN)
        behaviour = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        name, reception = method.removeprefix("/"), self._receptions.of(method)

        def admit(context: grpc.ServicerContext) -> Owner:
            peer = context.peer()
            if health:
                return Owner(peer, peer)
            self._check_open()
            caller = caller_of(context, self._shared.tokens, self._shared.names)
            CALLER.set(caller)
            return self._shared.names.owner(caller, peer)

        def answer(request: object, context: grpc.ServicerContext, *more: object) -> object:
            with call_through("grpc"):
                return answered(request, context, *more)

        def answered(request: object, context: grpc.ServicerContext, *more: object) -> object:
            called = self._begun(name, context, traced=own)
            try:
                check(context)
                response = behaviour(request, context, *more)
            except BaseException as error:
                self._failed(called, context, error)
                raise
            ARRIVAL.answered = len(response) if isinstance(response, bytes) else 0
            self._observer.ended(called, _code(context))
            return response

        def stream(request: object, context: grpc.ServicerContext) -> Iterator[object]:
            called = self._begun(name, context, traced=False)
            try:
                check(context)
                yield from behaviour(request, context)
            except GeneratorExit:
                self._observer.ended(called, "CANCELLED")
                raise
            except BaseException as error:
                self._failed(called, context, error)
                raise
            self._observer.ended(called, _code(context))

        non_blocking = getattr(behaviour, "experimental_non_blocking", False)
        wrapped = self._taken_by(
            reception,
            stream if handler.response_streaming and not non_blocking else answer,
            admit,
            self._refusing_with(name, traced=own),
            streams=handler.request_streaming,
            lasts=handler.response_streaming,
        )
        wrapped.experimental_non_blocking = non_blocking
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        return make(wrapped, handler.request_deserializer, handler.response_serializer)

    def _check_open(self) -> None:
        """Raise Stopping if further calls are refused."""
        if self._closed:
            raise Stopping("this sidecar is stopping; call another, or this one when it is back")

    def _refusal(self) -> _Handler:
        """Return a handler that refuses the calls of methods that are not served."""

        def admit(_: grpc.ServicerContext) -> NoReturn:
            self._check_open()
            raise NotServed("Method not found!")

        # Registered as taking a stream, so that gRPC does not wait for a refused request's message.
        return grpc.stream_unary_rpc_method_handler(
            self._taken_by(self._receptions.admin, _never, admit, self._refusing_with("", traced=True), streams=True)
        )

    def _taken_by(
        self,
        reception: Reception,
        behaviour: Callable[..., Any],
        admit: Callable[[grpc.ServicerContext], Owner],
        refused: Callable[[BaseException], Callable[..., None]],
        *,
        streams: bool,
        lasts: bool = False,
    ) -> Any:
        """Have gRPC submit `behaviour` to a reception instead of the server's executor, by an attribute of `behaviour`.

        The other arguments become attributes that the reception reads. If no reception can take calls, gRPC's own pool
        runs `behaviour`.
        """
        if self._own_pool:
            return in_own_pool(behaviour, admit, refused, self._shared.in_flight)

        def run(*args: object) -> object:
            return behaviour(*args)

        found: Any = run
        found.experimental_thread_pool = reception
        found.admit, found.refused, found.streams, found.lasts = admit, refused, streams, lasts
        return found

    def _refusing_with(self, name: str, *, traced: bool) -> Callable[[BaseException], Callable[..., None]]:
        """Return a function that makes the behaviour which ends a call of a method with an error."""

        def refuse(error: BaseException, _: object, context: grpc.ServicerContext, *__: object) -> NoReturn:
            with call_through("grpc"):
                self._failed(self._begun(name, context, traced=traced), context, error)
            raise error

        return lambda error: partial(refuse, error)

    def _begun(self, name: str, context: grpc.ServicerContext, *, traced: bool) -> BegunCall:
        return self._observer.begun(name, ARRIVAL.at, lambda: context.invocation_metadata() or (), traced=traced)

    def _failed(self, called: BegunCall, context: Any, error: BaseException) -> None:
        """End the call with the error's status, unless its handler has ended it: gRPC then raised a bare Exception."""
        if is_out_of_memory(error):
            error = out_of_memory()
        ended = type(error) is Exception and not error.args and context.code() is not None
        code = context.code().name if ended else error.status if isinstance(error, SidecarError) else "INTERNAL"
        if not isinstance(error, (CallCancelled, GeneratorExit)):
            self._shared.refusals.log(called.method, error, code, context.peer())
        try:
            if not ended:
                abort(context, error)
        finally:
            self._observer.ended(called, code, error)


def _code(context: Any) -> str:
    """Return the status of a call whose handler has returned; the caller may have disconnected by then."""
    if context.is_active():
        code = context.code()
        return "OK" if code is None else str(code.name)
    return "DEADLINE_EXCEEDED" if monotonic() >= ENDS.get() else "CANCELLED"


def _never(*_: object) -> NoReturn:
    raise AssertionError("a call that is not admitted is not served")
