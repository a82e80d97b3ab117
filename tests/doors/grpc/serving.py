"""A real server in this process, on a real socket, with the real core; and a clock that can hold calls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from prompt_sidecar.calls.caller_names import CallerNames
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.doors.grpc.lifecycle import GrpcDoor
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import CoreLimits, Limits
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.telemetry.observer import Observer
from prompt_sidecar.tokens.count import Counter
from prompt_sidecar.tokens.vocabulary import ENCODINGS, load
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.trim.presets import preset
from prompt_sidecar.v1 import service_pb2, service_pb2_grpc, trim_pb2

PATIENCE = 120.0
"""Seconds after which a test that waits has failed: long, as only a fault makes one wait for it."""
LATE = 2.0
"""Seconds after which a call that is held has missed its deadline: time enough to be at work first, on any machine."""
ROUNDING = 0.1
"""Seconds by which gRPC may lengthen that on its way."""
REQUESTS: dict[str, type[Message]] = {
    method.name: GetMessageClass(method.input_type)
    for method in service_pb2.DESCRIPTOR.services_by_name["SidecarService"].methods
}
"""The request of each method."""
BODY = b'[{"role":"user","content":"hello"}]'


class Gate:
    """A clock that stands still while it is shut: a call that reads it waits, as a long call would."""

    def __init__(self) -> None:
        self._clock: Callable[[], float] = time.time
        self._open = threading.Event()
        self._open.set()
        self._reached = threading.Semaphore(0)

    def __call__(self) -> float:
        """The time, once the gate is open."""
        if not self._open.is_set():
            self._reached.release()
            assert self._open.wait(PATIENCE), "the gate was never opened"
        return self._clock()

    def shut(self) -> None:
        """Hold every call from now on."""
        self._open.clear()

    def replace(self, clock: Callable[[], float]) -> None:
        """Tell the time by another clock."""
        self._clock = clock

    def open(self) -> None:
        """Let them go."""
        self._open.set()

    def wait_reached(self) -> None:
        """Wait until one more call stands before the gate."""
        assert self._reached.acquire(timeout=PATIENCE), "no call has reached the gate"


@cache
def counter() -> Counter:
    """The one counter of the test process; loading its vocabularies takes half a second."""
    return Counter({name: load(name) for name in ENCODINGS})


Core = TypeVar("Core", bound=Runs)
DEFAULT: Final = Rules(CallerRules(preset("cache_first")))


def guarded(rules: Rules | None, guard: GuardOptions | None) -> Rules:
    """Rules, by default those of the default policy, with a guard for all callers; None: the rules' own."""
    rules = rules or DEFAULT
    if guard is None:
        return rules
    own = {caller: replace(each, guard=guard) for caller, each in rules.own.items()}
    return replace(rules, general=replace(rules.general, guard=guard), own=own)


def core_of(  # noqa: PLR0917 - what tests choose of it
    kind: type[Core],
    clock: Callable[[], float] = time.time,
    limits: Limits | None = None,
    rules: Rules | None = None,
    guard: GuardOptions | None = None,
    key: bytes = b"k" * 32,
) -> Core:
    """A core of some kind with the default policy, and the default limits if none are given."""
    return kind(counter(), Keys(key), guarded(rules, guard), Clocks(clock), CoreLimits(limits or Limits()))


def runs(clock: Callable[[], float] = time.time, limits: Limits | None = None, rules: Rules | None = None) -> Runs:
    """See `core_of`."""
    return core_of(Runs, clock, limits, rules)


class Server(Doors):
    """A process with the gRPC door alone, bound."""

    def __init__(
        self, options: ServerOptions, observer: Observer | None = None, names: CallerNames | None = None
    ) -> None:
        shared = DoorServices(options, observer, names=names)
        self.door = GrpcDoor(shared)
        super().__init__(shared, [self.door])
        self.bind()

    @property
    def port(self) -> int:
        """The TCP port."""
        return self.door.port


@dataclass(frozen=True, slots=True)
class Serving:
    """A running server and a client of it."""

    server: Server
    address: str
    channel: grpc.Channel
    stub: service_pb2_grpc.SidecarServiceStub
    gate: Gate
    core: Runs


@contextlib.contextmanager
def serving(
    options: ServerOptions | None = None,
    observer: Observer | None = None,
    limits: Limits | None = None,
    rules: Rules | None = None,
) -> Iterator[Serving]:
    """Serve on a free port, or as `options` say; `observer` is told of the calls."""
    gate = Gate()
    server = Server(options or ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600), observer)
    core = runs(gate, limits, rules)
    server.start(core)
    address = server.addresses[0]
    try:
        with grpc.insecure_channel(address, options=WIDE) as channel:
            yield Serving(server, address, channel, service_pb2_grpc.SidecarServiceStub(channel), gate, core)
    finally:
        gate.open()
        server.stop(0)


WIDE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def request(run_id: str = "run", body: bytes = BODY) -> trim_pb2.TrimPromptRequest:
    """A TrimPromptRequest with a JSON prompt."""
    return trim_pb2.TrimPromptRequest(
        run_id=run_id, json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=body)
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """A refused call as its client sees it."""

    code: str
    message: str
    reason: str
    field: str


def failure(call: Callable[[], object]) -> Failure:
    """Make a call that must fail, and return how it did."""
    try:
        call()
    except grpc.RpcError as error:
        return failure_of(error)
    raise AssertionError("the call did not fail")


def outlasted(gate: Gate, begin: Callable[[], Any]) -> Failure:
    """Hold the call that `begin` makes with the deadline LATE until both sides have seen it pass; return how it ended.

    The server's own deadline counts from the call's arrival, so it passes a little later than the caller's; until then
    the server knows of a cancellation only.
    """
    gate.shut()
    call = begin()
    gate.wait_reached()
    passed = time.monotonic() + LATE + ROUNDING
    ended = failure(call.result)
    threading.Event().wait(passed - time.monotonic())
    gate.open()
    return ended


def failure_of(error: Any) -> Failure:
    """Read the details that an error carries; ErrorInfo and BadRequest may each be missing."""
    status: Any = rpc_status.from_call(error)
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details if status is not None else ():
        detail.Unpack(info)
        detail.Unpack(bad)
    field = bad.field_violations[0].field if bad.field_violations else ""
    assert info.domain in {"", "prompt-sidecar"}
    return Failure(error.code().name, error.details(), info.reason, field)
