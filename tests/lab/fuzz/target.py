"""What is fuzzed: the servicer's own handlers, with the statuses that the server would give."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from google.protobuf.message import Message
from google.rpc import code_pb2

from prompt_sidecar.calls.use_cases import UseCases
from prompt_sidecar.doors.grpc.callers import CALLER
from prompt_sidecar.doors.grpc.servicer import Servicer
from prompt_sidecar.doors.grpc.status import status_of
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.v1 import trim_pb2
from tests.doors.grpc.serving import REQUESTS, core_of
from tests.lab.fuzz.requests import JSON_FORMATS, RUN, odd_request, of_prompt, prompt, spelled
from tests.promises.engine import KEY, Clock

MOST_BYTES = 16 * 1024 * 1024
FORBIDDEN = frozenset({"INTERNAL", "UNKNOWN"})
Call = Callable[[str, bytes], tuple[str, bytes]]
"""Makes a call: the method's name and the request in, the status and the answer out."""


class _Context:
    """A call that has no deadline and whose caller waits: all that handlers ask of it."""

    @staticmethod
    def time_remaining() -> None:
        return None

    @staticmethod
    def is_active() -> bool:
        return True


def in_process() -> Call:
    """A server of its own, without a socket."""
    runs = core_of(Runs, Clock(), key=KEY)
    handlers: dict[str, Any] = dict(Servicer(UseCases(runs), MOST_BYTES).handlers())
    CALLER.set("fuzz")

    def call(name: str, raw: bytes) -> tuple[str, bytes]:
        try:
            answer: bytes = handlers[name].unary_unary(raw, _Context())
        except BaseException as error:  # as the guard does
            if isinstance(error, KeyboardInterrupt):
                raise
            return code_pb2.Code.Name(status_of(error).code), b""
        return "OK", answer

    return call


@dataclass(slots=True)
class Findings:
    """What was tried, and what went wrong."""

    calls: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def note(self, case: str, name: str, status: str, raw: bytes) -> None:
        """Count a call; a forbidden status is a fault."""
        self.calls += 1
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status in FORBIDDEN:
            self.faults.append(f"{case}: {name} gave {status} for {len(raw)} bytes")

    def add(self, calls: int, statuses: Mapping[str, int]) -> None:
        """Count the calls of an agent."""
        self.calls += calls
        for status, count in statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + count


def chance_case(call: Call, seed: int, number: int, found: Findings) -> None:
    """Some calls to one new server, by chance: a run with a history, and then anything at all."""
    chance = Random(f"{seed}:{number}")
    case = f"--seed {seed} --case {number}"
    known: list[Any] = []

    def send(name: str, raw: bytes) -> bytes:
        status, answer = call(name, raw)
        found.note(case, name, status, raw)
        if name == "TrimPrompt" and status == "OK":
            known.extend(_learned(answer, found, case))
        return answer

    if chance.random() < 0.6:
        format = chance.choice(JSON_FORMATS)
        request = of_prompt(format, spelled(prompt(format, chance.randrange(6))), Random(1))
        request.context_window = 1_500
        send("TrimPrompt", request.SerializeToString())
    for _ in range(chance.randrange(1, 6)):
        name = "TrimPrompt" if chance.random() < 0.6 else chance.choice(tuple(REQUESTS))
        raw = odd_request(name, chance, known)
        answer = send(name, raw)
        if name == "TrimPrompt" and answer:
            send(name, raw)
            again = _returned(raw, answer)
            if again:
                send(name, again)


def sweep_case(call: Call, case: str, request: trim_pb2.TrimPromptRequest, found: Findings) -> None:
    """One odd value at one place, sent twice, the second time in a tight window."""
    for window in (100_000, 700):
        request.context_window = window
        sent = request.SerializeToString()
        status, answer = call("TrimPrompt", sent)
        found.note(case, "TrimPrompt", status, sent)
        if status == "OK":
            _learned(answer, found, case)


def _learned(answer: bytes, found: Findings, case: str) -> list[Any]:
    """Ids and revision of an answer; a returned body that is no JSON is a fault."""
    response = trim_pb2.TrimPromptResponse.FromString(answer)
    if response.WhichOneof("prompt") == "json_body":
        try:
            json.loads(response.json_body)
        except ValueError:
            found.faults.append(f"{case}: the returned body is no JSON")
    return [response.revision, *(trim.stash_id for trim in response.trims[:5])]


def _returned(raw: bytes, answer: bytes) -> bytes:
    """The request with the body that was returned, as an agent that goes on from it sends it; empty: there is none."""
    response = trim_pb2.TrimPromptResponse.FromString(answer)
    request: Message = trim_pb2.TrimPromptRequest.FromString(raw)
    assert isinstance(request, trim_pb2.TrimPromptRequest)
    if not response.json_body or request.base_revision:
        return b""
    request.json.body = response.json_body
    request.run_id = RUN
    return request.SerializeToString()


def raised(error: Exception) -> str:
    """An exception that nobody expected, and where it came from."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {where.filename.rsplit('/', 1)[-1]}:{where.lineno}"


def quiet() -> None:
    """Have the servicer's log say nothing: faults are told by the fuzzer."""
    logging.getLogger("prompt_sidecar").setLevel(logging.CRITICAL)
