"""What a process settles when it is ready, and what of the package and its libraries it has imported by then."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from prompt_sidecar.app import SWITCH_SECONDS, settle_interpreter

PATIENCE = 120.0
UNUSED = (
    "difflib",
    "grpc_channelz",
    "opentelemetry.exporter.otlp",
    "prompt_sidecar.doors.admin.listener",
    "prompt_sidecar.cli",
    "prompt_sidecar.client",
    "prompt_sidecar.doors.envoy.door",
    "prompt_sidecar.doors.envoy.v1",
    "prompt_sidecar.doors.http.lifecycle",
    "prompt_sidecar.mcp",
    "prompt_sidecar.answers.base",
    "prompt_sidecar.answers.table",
    "prompt_sidecar.store.shared",
    "requests",
)
"""Packages and modules that a sidecar with the gRPC door alone has no use for; each costs memory at each agent."""
MOST_OBJECTS = 25_000
"""That a pass may look through: some 15 ms in which no thread runs."""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


def test_passes_are_short_while_objects_are_kept() -> None:
    """A prompt of many messages makes records that stay: no pass looks through more than some thousand of them."""
    settle_interpreter()
    passes: list[int] = []

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            passes.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    gc.callbacks.append(look)
    try:
        kept = [[number] for number in range(300_000)]
    finally:
        gc.callbacks.remove(look)
    assert 300_000 == len(kept)
    assert passes
    assert max(passes) <= MOST_OBJECTS


def test_the_collector_runs_once_a_server_does() -> None:
    """It is switched off while the program imports what a server needs."""
    gc.disable()
    settle_interpreter()
    assert gc.isenabled()


def test_threads_take_turns_sooner() -> None:
    """The interpreter's own five milliseconds add up where a call hands over several times."""
    settle_interpreter()
    assert SWITCH_SECONDS == pytest.approx(sys.getswitchinterval())
    assert SWITCH_SECONDS < 0.005


def _last_line(code: str) -> str:
    """What a fresh process prints last that runs this code; its errors where it prints nothing."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PROMPT_SIDECAR_", "OTEL_"))}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=clean, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return (ended.stdout.splitlines() or [ended.stderr])[-1]


def test_a_sidecar_imports_nothing_for_doors_that_are_closed() -> None:
    """After a first prompt a sidecar with the default doors has imported no other door, exporter, client or command."""
    code = """
import sys
from prompt_sidecar.app import start
from prompt_sidecar.config.settings import load

running = start(load({"PROMPT_SIDECAR_SERVER__LISTEN": "127.0.0.1:0", "PROMPT_SIDECAR_TELEMETRY__METRICS_LISTEN": ""}))
import grpc
from prompt_sidecar.v1 import service_pb2_grpc, trim_pb2

prompt = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=b'[{"role":"user","content":"hello"}]')
with grpc.insecure_channel(running.addresses[0]) as channel:
    stub = service_pb2_grpc.SidecarServiceStub(channel)
    stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id="r", json=prompt), timeout=PATIENCE)
found = [name for name in sys.modules if any(f"{name}.".startswith(f"{unused}.") for unused in UNUSED)]
running.stop(0)
print(sorted(found))
"""
    code = f"PATIENCE, UNUSED = {PATIENCE}, {UNUSED}\n{code}"
    assert "[]" == _last_line(code)


def test_a_sidecar_with_the_http_door_alone_imports_no_grpc() -> None:
    """It costs some 20 MB at each agent."""
    code = """
import sys
from prompt_sidecar.app import start
from prompt_sidecar.config.settings import load

names = {"SERVER__LISTEN": "", "HTTP__LISTEN": "127.0.0.1:0", "TELEMETRY__METRICS_LISTEN": ""}
running = start(load({f"PROMPT_SIDECAR_{name}": value for name, value in names.items()}))
found = [name for name in sys.modules if name == "grpc" or name.startswith(("grpc.", "google.rpc"))]
running.stop(0)
print(sorted(found))
"""
    assert "[]" == _last_line(code)


def test_what_imports_left_in_cycles_is_freed() -> None:
    """A started sidecar has spared the collector no garbage: frozen, it would stay for as long as the process."""
    code = """
import gc, threading, weakref
from prompt_sidecar.app import start
from prompt_sidecar.config.settings import load

class Cycle:
    pass

gc.disable()  # only a whole collection, asked for, finds it
cycle = Cycle()
cycle.itself, gone = cycle, weakref.ref(cycle)
del cycle
start(load({"PROMPT_SIDECAR_SERVER__LISTEN": "127.0.0.1:0", "PROMPT_SIDECAR_TELEMETRY__METRICS_LISTEN": ""})).stop(0)
next(each for each in threading.enumerate() if each.name == "finish-start").join()
print(gone() is None)
"""
    assert "True" == _last_line(code)
