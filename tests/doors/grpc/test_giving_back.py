"""Housekeeping, once runs are over: what they left in what all runs share goes, before memory is given back."""

from __future__ import annotations

import threading
import time

import grpc
import pytest

from prompt_sidecar.calls import housekeeping
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import CoreLimits
from prompt_sidecar.tokens.count import CACHE_FROM_CHARS, Counter
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.v1 import run_pb2, service_pb2_grpc
from tests.doors.grpc.serving import DEFAULT, PATIENCE, Server, request

TEXT = "a" * CACHE_FROM_CHARS
"""Long enough for its count to be remembered."""


class Swept(Runs):
    """A core that signals each slice of housekeeping."""

    slices = threading.Semaphore(0)

    def sweep(self) -> None:
        """Do a slice, then signal it."""
        super().sweep()
        self.slices.release()

    def wait_for_sweep(self) -> None:
        """Wait for a slice that begins from now on."""
        while self.slices.acquire(blocking=False):
            pass
        for _ in range(2):  # one may have begun before
            assert self.slices.acquire(timeout=PATIENCE), "housekeeping does not go on"


def test_what_ended_runs_left_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of a text is remembered while a run is there, and forgotten some time after the last one has ended."""
    monkeypatch.setattr(housekeeping, "_GIVE_BACK_SECONDS", 0.0)
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    def times() -> int:
        """How often the text was counted, once it has been asked for again."""
        counter.count(TEXT, "o200k_base")
        return counted.count(TEXT)

    counter = Counter({"o200k_base": lambda: count, "cl100k_base": lambda: count})
    core = Swept(counter, Keys(b"k" * 32), DEFAULT, Clocks(time.monotonic), CoreLimits())
    server = Server(ServerOptions(listen="127.0.0.1:0", sweep_interval=0.01))
    server.start(core)
    try:
        with grpc.insecure_channel(server.addresses[0]) as channel:
            stub = service_pb2_grpc.SidecarServiceStub(channel)
            stub.TrimPrompt(request(), timeout=PATIENCE)
            core.wait_for_sweep()
            before = times()
            core.wait_for_sweep()
            assert before == times()
            stub.EndRun(run_pb2.EndRunRequest(run_id="run"), timeout=PATIENCE)
            core.wait_for_sweep()
            core.wait_for_sweep()
            assert before + 1 == times()
    finally:
        server.stop(0)
