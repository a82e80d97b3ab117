"""The server as a process: starting, signals, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from prompt_sidecar.config.settings import SETTINGS
from prompt_sidecar.v1 import service_pb2_grpc, trim_pb2
from tests.cli.running import PATIENCE, environment, program, run
from tests.lab.harness.processes import free_port

READY = r"ready: listening on (\S+)"
ANY_PORT = ("--listen", "127.0.0.1:0")


def _slow_request() -> trim_pb2.TrimPromptRequest:
    """A prompt that takes a good while: megabytes of text that no count is known of."""
    words = " ".join(f"{number:x}" for number in range(400_000))
    body = json.dumps([{"role": "user", "content": words}]).encode()
    prompt = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=body)
    return trim_pb2.TrimPromptRequest(run_id="slow", json=prompt, accept_bytes=1 << 26)


def _in_flight(channel: grpc.Channel) -> Any:
    """Begin a slow call and return it once the server has read it."""
    stub = service_pb2_grpc.SidecarServiceStub(channel)
    quick = trim_pb2.TrimPromptRequest(
        run_id="quick", json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=b'[{"role":"user"}]')
    )
    call = stub.TrimPrompt.future(_slow_request(), timeout=PATIENCE)
    # Sent after the slow call on the same connection, and answered: by then the slow one has arrived.
    try:
        stub.TrimPrompt(quick, timeout=PATIENCE)
    except grpc.RpcError as error:
        failure: Any = error
        assert "INVALID_ARGUMENT" == failure.code().name
    return call


def _most() -> list[str]:
    """Flags that set every number and time to the largest that it accepts."""
    flags = []
    for name, declared in SETTINGS.items():
        found = re.search(r"from [\d,.]+ to ([\d,]+)", declared.kind.accepted)
        if found is not None and not name.startswith("ceilings."):  # costs want prices
            flags += ["--set", f"{name}={found[1].replace(',', '')}"]
    return flags


def test_a_server_starts_with_the_largest_values_that_settings_accept() -> None:
    """What a setting accepts is no larger than what the libraries can be told of."""
    doors = ("server.health_listen", "http.listen", "envoy.listen", "admin.listen")
    opened = [part for door in doors for part in ("--set", f"{door}=127.0.0.1:0")]
    with program(*ANY_PORT, *opened, *_most(), TELEMETRY__METRICS_LISTEN="") as served:
        served.wait_for(READY)
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.end()


def test_signals_that_mean_nothing_do_not_end_a_start(tmp_path: Path) -> None:
    """SIGHUP and the signals of log rotation that come before the settings have been read are let pass."""
    settings = tmp_path / "settings"
    os.mkfifo(settings)
    with program(*ANY_PORT, "--config", str(settings)) as served:
        with settings.open("w") as written:  # opens once the program reads
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
                served.process.send_signal(number)
            written.write('telemetry.metrics_listen = ""\n')
        served.wait_for(READY)
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.end()


def test_signals_that_mean_nothing_end_nothing() -> None:
    """Tools that rotate logs send them to whole groups of processes."""
    with program(*ANY_PORT) as served, grpc.insecure_channel(served.wait_for(READY)[1]) as channel:
        call = _in_flight(channel)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
            served.process.send_signal(number)
        served.process.send_signal(signal.SIGTERM)
        served.wait_for("SIGTERM: stopping")
        call.cancel()
        assert 0 == served.end()


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of address space that hold")
@pytest.mark.parametrize("megabytes", [1_000, 1_100, 1_200, 1_300])
def test_a_server_that_cannot_start_its_threads_ends(megabytes: int) -> None:
    """Whatever else is short: it serves, or it ends and can be started again; it never just stays."""
    limit = (
        "import os, resource, sys; size = int(sys.argv[1]) << 20; "
        "resource.setrlimit(resource.RLIMIT_AS, (size, size)); os.execv(sys.argv[2], sys.argv[2:])"
    )
    serve = [sys.executable, "-m", "prompt_sidecar", "serve", *ANY_PORT]
    limited = [sys.executable, "-c", limit, str(megabytes), *serve]
    with subprocess.Popen(
        limited, env=environment(TELEMETRY__METRICS_LISTEN=""), stderr=subprocess.PIPE, text=True
    ) as process:
        patience = threading.Timer(PATIENCE, process.kill)
        patience.start()
        try:
            assert process.stderr is not None
            if not any(re.search(READY, line) for line in process.stderr):
                assert process.wait(PATIENCE) not in {0, -signal.SIGKILL}
        finally:
            patience.cancel()
            process.kill()


def test_closed_standard_streams_become_nobodys_socket() -> None:
    """A line that a library writes to its standard error would go to that peer, and its end would be an error."""
    port = free_port()
    close = "import os, sys; os.closerange(0, 3); os.execv(sys.argv[1], sys.argv[1:])"
    serve = [sys.executable, "-m", "prompt_sidecar", "serve", "--listen", f"127.0.0.1:{port}"]
    closed = [sys.executable, "-c", close, *serve]
    with (
        subprocess.Popen(closed, env=environment(TELEMETRY__METRICS_LISTEN="")) as process,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        try:
            grpc.channel_ready_future(channel).result(PATIENCE)
            descriptors = Path(f"/proc/{process.pid}/fd")
            if descriptors.is_dir():
                assert not any(str((descriptors / str(number)).readlink()).startswith("socket:") for number in range(3))
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(PATIENCE)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_drains(number: signal.Signals) -> None:
    """At SIGTERM, Ctrl-C or SIGQUIT the call in flight is answered, and the program ends with exit code 0."""
    options = [("grpc.max_receive_message_length", -1)]
    slow = program(*ANY_PORT, "--set", "server.grace=1m")
    with slow as served, grpc.insecure_channel(served.wait_for(READY)[1], options=options) as channel:
        call = _in_flight(channel)
        served.process.send_signal(number)
        served.wait_for(f"{number.name}: stopping")
        assert "slow" not in "".join(served.lines)
        assert 0 < call.result(PATIENCE).tokens.before
        assert 0 == served.end()
        assert "stopped" in served.lines[-1]


def test_a_signal_that_another_thread_gets() -> None:
    """The kernel chooses the thread; Python's handlers wait for the main one, which nothing else may wake."""
    with program(*ANY_PORT) as served:
        served.wait_for(READY)
        tasks = Path(f"/proc/{served.process.pid}/task")
        if not tasks.is_dir():
            pytest.skip("needs Linux's /proc")
        others = [int(task.name) for task in tasks.iterdir() if int(task.name) != served.process.pid]
        for number in (signal.SIGHUP, signal.SIGTERM):  # sent to a thread's id, it is that thread which gets it first
            os.kill(others[0], number)
            served.wait_for(f"{number.name}: ")
        assert 0 == served.end()


def test_a_second_signal_stops_at_once() -> None:
    """A second signal does not wait for the calls in flight; the exit code is 0 all the same."""
    slow = program(*ANY_PORT, "--set", "server.grace=1h")
    with slow as served, grpc.insecure_channel(served.wait_for(READY)[1]) as channel:
        _in_flight(channel)
        served.process.send_signal(signal.SIGTERM)
        served.wait_for("SIGTERM: stopping")
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.end()


def test_a_second_server_on_the_port() -> None:
    """A taken port is told with its address and exit code 2."""
    with program(*ANY_PORT) as first:
        address = first.wait_for(READY)[1]
        with program("--listen", address) as second:
            assert 2 == second.end()
            assert any(address in line and "in use" in line for line in second.lines)


def test_a_socket_outlives_a_killed_server(tmp_path: Path) -> None:
    """After SIGKILL the socket's file is still there, and the next server takes its place; it is for its owner only."""
    path = tmp_path / "s.sock"
    for _ in range(2):
        with program("--listen", "", "--socket", str(path)) as served:
            served.wait_for(READY)
            assert 0o600 == stat.S_IMODE(path.stat().st_mode)
            assert 0 == run("probe", "--address", f"unix:{path}").returncode
            served.process.kill()
            served.end()
        assert path.exists()


def test_the_probe_knows_a_server_from_its_settings(tmp_path: Path) -> None:
    """With the same settings, probe finds the server; when it is gone, the exit code is 1."""
    settings = {"SERVER__LISTEN": "", "SERVER__SOCKET": str(tmp_path / "s.sock")}
    with program(**settings) as served:
        served.wait_for(READY)
        up = run("probe", **settings)
        assert (0, "SERVING") == (up.returncode, up.stdout.split()[-1])
    down = run("probe", "--timeout", "0.2", **settings)
    assert (1, "") == (down.returncode, down.stdout)
    assert "no answer" in down.stderr


def test_a_probe_of_another_program() -> None:
    """Something that listens and is no gRPC server is no healthy sidecar."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert 1 == run("probe", "--address", address, "--timeout", "0.3").returncode


def test_json_logs() -> None:
    """With log.format=json every line is one JSON object."""
    with program(*ANY_PORT, LOG__FORMAT="json") as served:
        served.wait_for("ready")
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.end()
    assert {"time", "level", "logger", "message"} == {name for line in served.lines for name in json.loads(line)}


def test_bad_settings_stop_the_start() -> None:
    """A start with faulty settings ends with exit code 2 and the variables' names, and without the key."""
    ended = run("serve", SERVER__WORKERS="none", SERVER__LISTN="x", KEY="hunter2")
    assert 2 == ended.returncode
    for word in ("PROMPT_SIDECAR_SERVER__WORKERS", "did you mean PROMPT_SIDECAR_SERVER__LISTEN?", "PROMPT_SIDECAR_KEY"):
        assert word in ended.stderr
    assert "hunter2" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_listening_to_the_world_needs_authentication(tmp_path: Path) -> None:
    """Beyond loopback without tokens or certificates the start is refused; a bad tokens file is told."""
    assert "nobody is authenticated" in run("serve", "--listen", "0.0.0.0:0").stderr
    missing = run("serve", "--listen", "0.0.0.0:0", SERVER__TOKENS_FILE=str(tmp_path / "none"))
    assert (2, True) == (missing.returncode, "No such file" in missing.stderr)
