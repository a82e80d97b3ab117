"""A call as gRPC's Python server submits it to an executor. All use of gRPC's private interfaces is in this file.

gRPC submits every call to the executor of its method, `concurrent.futures.Executor`, as a function for a thread, which
reads the message, runs the handler, and sends the answer. The function's arguments are private to gRPC, and so is how a
message is requested; but only with these can a message be awaited without a thread. `unknown_grpc` checks whether the
installed version still has what is used here; with another version calls run in gRPC's own pool
(`prompt_sidecar.doors.grpc.own_pool`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Any, Final

from prompt_sidecar.calls.turns import Owner

ENDS: ContextVar[float] = ContextVar("ends", default=inf)
"""Time at which the current call's deadline passes, by `monotonic`; gRPC computes the time left by the wall clock."""

_PARAMETERS: Final = ("rpc_event", "state", "behavior", "argument_thunk", "request_deserializer")
"""The first parameters of the functions that gRPC submits."""


def unknown_grpc() -> str:
    """Return the names that this file needs and the installed gRPC lacks, or an empty string."""
    try:
        server, cython = _internals()
        for name in ("_unary_response_in_pool", "_stream_response_in_pool"):
            if tuple(inspect.signature(getattr(server, name)).parameters)[: len(_PARAMETERS)] != _PARAMETERS:
                return name
        for owner, name in (
            (server, "_select_thread_pool_for_behavior"),
            (server, "_Context"),
            (server, "_receive_message"),
            (server, "_is_rpc_state_active"),
            (server, "_RECEIVE_MESSAGE_TOKEN"),
            (cython, "ReceiveMessageOperation"),
        ):
            getattr(owner, name)
        state = server._RPCState()  # noqa: SLF001 - see the module
        for name in ("condition", "context", "due", "request"):
            getattr(state, name)
    except (ImportError, AttributeError) as error:
        return str(error)
    return ""


def _internals() -> tuple[Any, Any]:
    # Imported here, so that a version without them is reported and does not fail at import.
    from grpc import _server
    from grpc._cython import cygrpc  # type: ignore[attr-defined]  # stubs leave it out

    return _server, cygrpc


class HandedCall:
    """One call. `behaviour` is the handler's function, with the attributes that the interceptor gave it."""

    __slots__ = ("_deserialize", "_event", "_read", "_respond", "_run", "_serialize", "_state", "behaviour")

    def __init__(self, run: Callable[..., Any], handed: tuple[Any, ...]) -> None:
        """Take the arguments of `Executor.submit`."""
        self._run = run
        """Runs a function in the call's own context."""
        (
            self._respond,
            self._event,
            self._state,
            self.behaviour,
            self._read,
            self._deserialize,
            self._serialize,
        ) = handed

    def context(self) -> Any:
        """Return a ServicerContext of the call."""
        return _internals()[0]._Context(self._event, self._state, None)  # noqa: SLF001 - see the module

    def enter(self, admit: Callable[[Any], Owner], context: Any) -> Owner:
        """Record the call's deadline and return the result of `admit`, which runs in the call's own context."""
        owner: Owner = self._run(_enter, admit, context)
        return owner

    def ask(self, received: Callable[[], None]) -> None:
        """Request the message; `received` is called on gRPC's event loop when it has arrived, or can no longer arrive.

        Like `grpc._server._unary_request`, without waiting.
        """
        server, cython = _internals()
        state, wire = self._state, self._event.call
        taken = server._receive_message(state, wire, self._deserialize)  # noqa: SLF001

        def finished(event: Any) -> Any:
            result = taken(event)
            received()
            return result

        with state.condition:
            if server._is_rpc_state_active(state):  # noqa: SLF001
                wire.start_server_batch((cython.ReceiveMessageOperation(0),), finished)
                state.due.add(server._RECEIVE_MESSAGE_TOKEN)  # noqa: SLF001
                return
        received()

    def size(self) -> int:
        """Bytes of the message that has arrived; 0 if there is none."""
        message = self._state.request
        return len(message) if isinstance(message, bytes) else 0

    def serve(self) -> None:
        """Serve the call in the current thread, with the message that was requested, or with its stream."""
        read = self._read if self.behaviour.streams else self._message
        arguments = self._event, self._state, self.behaviour, read, self._deserialize, self._serialize
        self._run(self._respond, *arguments)

    def refuse(self, error: Exception) -> None:
        """End the call with an error, in the current thread; the rest of its message is not read."""
        refuse = self.behaviour.refused(error)
        self._run(self._respond, self._event, self._state, refuse, _nothing, self._deserialize, self._serialize)

    def cut_off(self) -> None:
        """End the call without a status."""
        self._event.call.cancel()

    def _message(self) -> Any:
        """Return the message that has arrived. Without one, gRPC's own function sets the status."""
        with self._state.condition:
            found, self._state.request = self._state.request, None
        return self._read() if found is None else found


def _enter(admit: Callable[[Any], Owner], context: Any) -> Owner:
    ENDS.set(monotonic() + context.time_remaining())
    return admit(context)


def _nothing() -> bytes:
    return b""
