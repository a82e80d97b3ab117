"""While the default vocabulary is loaded, the server answers: health that it is not ready, calls once they can be."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import CoreLimits
from prompt_sidecar.tokens import Counter, VocabularyError
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.v1 import service_pb2_grpc
from tests.doors.grpc.serving import DEFAULT, PATIENCE, WIDE, Server, counter, request


def core(counting: Counter) -> Runs:
    """A core that counts so."""
    return Runs(counting, Keys(b"k" * 32), DEFAULT, Clocks(time.time), CoreLimits())


def test_health_is_ready_once_the_vocabulary_is_usable() -> None:
    """Until then health says NOT_SERVING at once, and an early prompt waits for the vocabulary and is answered."""
    loading, go_on = Event(), Event()

    def load() -> Callable[[str], int]:
        loading.set()
        assert go_on.wait(PATIENCE)
        return lambda text: counter().count(text, "o200k_base")

    lazy = Counter({"o200k_base": load})
    server = Server(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600))
    with ThreadPoolExecutor(1) as pool, grpc.insecure_channel(server.addresses[0], options=WIDE) as channel:
        try:
            starting = pool.submit(server.start, core(lazy), load=lambda: lazy.load("o200k_base"))
            assert loading.wait(PATIENCE)
            health: Any = health_pb2_grpc.HealthStub(channel)
            check = health_pb2.HealthCheckRequest()
            assert health_pb2.HealthCheckResponse.NOT_SERVING == health.Check(check, timeout=PATIENCE).status
            early = service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt.future(request(), timeout=PATIENCE)
            assert not starting.done()
            go_on.set()
            starting.result(PATIENCE)
            assert early.result().fits
            assert health_pb2.HealthCheckResponse.SERVING == health.Check(check, timeout=PATIENCE).status
        finally:
            go_on.set()
            server.stop(0)


def test_a_damaged_vocabulary_fails_the_start() -> None:
    """What cannot count never says that it is ready; the error is the start's."""

    def load() -> Callable[[str], int]:
        raise VocabularyError("vocabulary o200k_base: there is nothing to read")

    lazy = Counter({"o200k_base": load})
    server = Server(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600))
    try:
        with pytest.raises(VocabularyError, match="nothing to read"):
            server.start(core(lazy), load=lambda: lazy.load("o200k_base"))
    finally:
        server.stop(0)


def test_the_vocabulary_is_loaded_by_a_thread_that_counts_later() -> None:
    """What a tokenizer keeps for the thread that counts first is of use to calls later."""
    names: list[str] = []
    server = Server(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600))
    with grpc.insecure_channel(server.addresses[0], options=WIDE) as channel:
        try:
            server.start(core(counter()), load=lambda: names.append(current_thread().name))
            service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt(request(), timeout=PATIENCE)
        finally:
            server.stop(0)
    assert ["call"] == [name.rpartition("_")[0] for name in names]
