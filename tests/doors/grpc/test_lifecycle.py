"""Binding, health, draining: what a server does at its start and its end."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.config.settings import SettingsError, load
from prompt_sidecar.process.starting import StartError
from prompt_sidecar.v1 import service_pb2_grpc
from tests.doors.grpc.serving import PATIENCE, Server, Serving, failure, request, serving

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def _health(served: Serving) -> Any:
    return health_pb2_grpc.HealthStub(served.channel)


@pytest.mark.parametrize("service", ["", "prompt_sidecar.v1.SidecarService"])
def test_health_says_serving(service: str) -> None:
    """A started server is SERVING, as a whole and by its service's name."""
    with serving() as served:
        answer = _health(served).Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)
        assert SERVING == answer.status


def _services(served: Serving) -> set[str]:
    reflect: Any = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    listed = next(iter(reflect.ServerReflectionInfo(iter([asked]), timeout=PATIENCE)))
    return {service.name for service in listed.list_services_response.service}


def test_reflection_lists_the_services() -> None:
    """Reflection lists what is served, and that is not channelz: it shows every peer's sockets to any caller."""
    with serving() as served:
        assert {"prompt_sidecar.v1.SidecarService", "grpc.health.v1.Health"} <= _services(served)
        assert "grpc.channelz.v1.Channelz" not in _services(served)
        stub: Any = channelz_pb2_grpc.ChannelzStub(served.channel)
        refused = failure(lambda: stub.GetServers(channelz_pb2.GetServersRequest(), timeout=PATIENCE))
        assert "UNIMPLEMENTED" == refused.code


def test_channelz_is_served_where_it_was_asked_for() -> None:
    """With server.channelz it is listed, and knows the server."""
    with serving(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600, channelz=True)) as served:
        assert "grpc.channelz.v1.Channelz" in _services(served)
        stub: Any = channelz_pb2_grpc.ChannelzStub(served.channel)
        assert stub.GetServers(channelz_pb2.GetServersRequest(), timeout=PATIENCE).server


def test_channelz_wants_the_token_that_calls_want(tmp_path: Path) -> None:
    """Where callers are known, nobody else is shown anything; beyond loopback all must be known."""
    tokens = tmp_path / "tokens"
    tokens.write_text("alice:alice-token-0123456789\n")
    tokens.chmod(0o600)
    options = ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600, channelz=True, tokens_file=str(tokens))
    with serving(options) as served:
        stub: Any = channelz_pb2_grpc.ChannelzStub(served.channel)
        refused = failure(lambda: stub.GetServers(channelz_pb2.GetServersRequest(), timeout=PATIENCE))
        assert "UNAUTHENTICATED" == refused.code
    with pytest.raises(SettingsError, match="nobody is authenticated"):
        load({}, flags={"server.listen": "0.0.0.0:0", "server.channelz": "true"})


def test_a_socket_that_another_server_took_is_left_alone(tmp_path: Path) -> None:
    """Whoever put another socket in our place keeps it when we stop; nothing else of ours is left in the folder."""
    path = tmp_path / "s.sock"
    options = ServerOptions(listen="", socket=str(path))
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(serving(options))
        path.unlink()
        taker = second.enter_context(serving(options))
        first.close()
        assert path.is_socket()
        with grpc.insecure_channel(f"unix:{path}") as channel:
            assert service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt(request("new"), timeout=PATIENCE).fits
        assert taker.stub.TrimPrompt(request(), timeout=PATIENCE).fits
    assert [] == list(tmp_path.iterdir())


def test_a_second_server_on_the_port_is_refused() -> None:
    """The port is not shared silently; the message names the address."""
    with serving() as served, pytest.raises(StartError, match=served.address):
        Server(ServerOptions(listen=served.address))


def test_a_socket_is_for_its_owner(tmp_path: Path) -> None:
    """The unix socket has mode 0600, serves, and is gone after the stop."""
    path = tmp_path / "s.sock"
    with serving(ServerOptions(listen="", socket=str(path))) as served:
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
        assert (f"unix:{path}",) == served.server.addresses
        assert served.stub.TrimPrompt(request(), timeout=PATIENCE).fits
    assert not path.exists()


@pytest.mark.parametrize("name", ["a%41b", "100%", "q?x", "h#x", "sp ace", "é"])
def test_a_socket_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """The socket is in the folder that is set, though gRPC takes paths for parts of URIs, and serves there."""
    folder = tmp_path / name
    folder.mkdir()
    with serving(ServerOptions(listen="", socket=str(folder / name))) as served:
        assert (folder / name).is_socket()
        assert served.stub.TrimPrompt(request(), timeout=PATIENCE).fits
    assert [folder] == list(tmp_path.iterdir())
    assert [] == list(folder.iterdir())


def test_a_dead_servers_socket_is_replaced(tmp_path: Path) -> None:
    """A socket file that nobody listens on does not keep a server from starting."""
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(ServerOptions(listen="", socket=str(path))) as served:
        assert served.stub.TrimPrompt(request(), timeout=PATIENCE).fits


def test_a_live_servers_socket_is_left_alone(tmp_path: Path) -> None:
    """A second server on the socket is refused, and the first goes on."""
    path = tmp_path / "s.sock"
    options = ServerOptions(listen="", socket=str(path))
    with serving(options) as served:
        with pytest.raises(StartError, match="listening there already"):
            Server(options)
        assert served.stub.TrimPrompt(request(), timeout=PATIENCE).fits


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    """Other files are never replaced."""
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(StartError, match="not a socket"):
        Server(ServerOptions(listen="", socket=str(path)))
    assert "data" == path.read_text()


def test_a_socket_in_no_folder_is_refused(tmp_path: Path) -> None:
    """A socket whose folder is missing is told with its path."""
    with pytest.raises(StartError, match="there is no folder"):
        Server(ServerOptions(listen="", socket=str(tmp_path / "none" / "s.sock")))


def test_the_umask_is_restored(tmp_path: Path) -> None:
    """Binding a socket leaves the process's umask as it was."""
    before = os.umask(0o022)
    try:
        with serving(ServerOptions(listen="", socket=str(tmp_path / "s.sock"))):
            assert 0o022 == os.umask(0o022)
    finally:
        os.umask(before)


def test_housekeeping_runs_and_survives_a_failure() -> None:
    """The core is swept again and again without any call, also after a sweep has failed."""
    with serving(ServerOptions(listen="127.0.0.1:0", sweep_interval=0.01)) as served:
        failed = threading.Event()

        def broken() -> float:
            failed.set()
            raise OSError

        served.gate.replace(broken)
        assert failed.wait(PATIENCE)
        served.gate.replace(time.time)
        served.gate.shut()
        served.gate.wait_reached()


def test_a_stop_ends_the_threads_of_its_own() -> None:
    """After the stop neither housekeeping nor indexing goes on."""
    before = set(threading.enumerate())
    with serving() as served:
        assert served.stub.TrimPrompt(request(), timeout=PATIENCE).fits
        started = {thread.name: thread for thread in set(threading.enumerate()) - before}
        assert {"sweep", "index"} <= set(started)
    for name in ("sweep", "index"):
        started[name].join(PATIENCE)
        assert not started[name].is_alive()


def test_a_drain_lets_calls_finish() -> None:
    """At a stop, a health watch hears NOT_SERVING at once and new calls are refused; the call in flight finishes."""
    with serving() as served:
        watch = iter(_health(served).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE))
        assert SERVING == next(watch).status
        served.gate.shut()
        in_flight = served.stub.TrimPrompt.future(request(), timeout=PATIENCE)
        served.gate.wait_reached()
        outcome: list[bool] = []
        stopping = threading.Thread(target=lambda: outcome.append(served.server.stop(PATIENCE)))
        stopping.start()
        assert NOT_SERVING == next(watch).status
        refused = failure(lambda: served.stub.TrimPrompt(request("late"), timeout=PATIENCE))
        assert ("UNAVAILABLE", "STOPPING") == (refused.code, refused.reason)
        served.gate.open()
        assert in_flight.result(PATIENCE).fits
        # The watch is still open: it must not hold the stop for the whole grace.
        stopping.join(PATIENCE / 2)
        assert [True] == outcome


def test_a_drain_loses_nothing_of_a_large_answer() -> None:
    """An answer of many megabytes that is made while the server stops arrives whole, though its client reads late."""
    body = json.dumps([{"role": "user", "content": "large " * 2_000_000}]).encode()
    asked = request("large", body)
    asked.accept_bytes = 1 << 26
    with serving() as served:
        served.gate.shut()
        in_flight = served.stub.TrimPrompt.future(asked, timeout=PATIENCE)
        served.gate.wait_reached()
        stopping = threading.Thread(target=served.server.stop, args=(PATIENCE,))
        stopping.start()
        served.gate.open()
        assert len(body) <= len(in_flight.result(PATIENCE).json_body)
        stopping.join(PATIENCE)


def test_the_grace_is_a_bound() -> None:
    """A call that does not finish within the grace is cancelled, and the stop says so."""
    with serving() as served:
        served.gate.shut()
        in_flight = served.stub.TrimPrompt.future(request(), timeout=PATIENCE)
        served.gate.wait_reached()
        assert not served.server.stop(0.1)
        assert failure(in_flight.result).code in {"CANCELLED", "UNAVAILABLE"}
