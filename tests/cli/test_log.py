"""What the program logs of others' doing: refused calls and gRPC's own lines, in its form and within its bounds."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import grpc

from prompt_sidecar.process.logs import WAITING_LINES
from prompt_sidecar.v1 import service_pb2_grpc, trim_pb2
from tests.cli.running import PATIENCE, Program, program, run
from tests.cli.test_process import ANY_PORT, READY
from tests.doors.grpc.test_callers import certificates
from tests.lab.harness.processes import free_port

__all__ = ["certificates"]
SECRET = "the launch code is 0000"
LINES = 5


def _refused(address: str, count: int) -> None:
    """So many prompts that are refused, each with a text in it."""
    body = json.dumps([{"role": "user", "content": [{"type": SECRET, SECRET: 7}], "tool_calls": SECRET}]).encode()
    prompt = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=body)
    with grpc.insecure_channel(address) as channel:
        stub: Any = service_pb2_grpc.SidecarServiceStub(channel)
        for number in range(count):
            try:
                stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id=f"{SECRET}-{number}", json=prompt), timeout=PATIENCE)
            except grpc.RpcError as error:
                found: Any = error
                assert "INVALID_ARGUMENT" == found.code().name
            else:
                raise AssertionError("it was not refused")


def _stopped(served: Program) -> list[str]:
    served.process.send_signal(signal.SIGTERM)
    assert 0 == served.end()
    return served.lines


def test_a_refused_request_has_its_line() -> None:
    """With method, status, reason, field and caller's address, and no text of it."""
    with program(*ANY_PORT) as served:
        _refused(served.wait_for(READY)[1], 1)
        line = served.wait_for("refused")[0] and served.lines[-1]
        for word in (
            "WARNING",
            "prompt_sidecar.v1.SidecarService/TrimPrompt",
            "INVALID_ARGUMENT",
            "field json.body",
            "ipv4",
        ):
            assert word in line
        assert SECRET not in "".join(_stopped(served))


def test_refused_requests_cannot_fill_the_log() -> None:
    """Past log.refusals lines a minute the others are counted in one line."""
    with program(*ANY_PORT, LOG__REFUSALS=str(LINES)) as served:
        _refused(served.wait_for(READY)[1], 20 * LINES)
        served.wait_for("more calls were refused and not logged: log.refusals was reached")
        lines = _stopped(served)
    assert LINES <= sum("TrimPrompt refused" in line for line in lines) <= 2 * LINES


def test_a_log_that_nobody_reads_holds_up_no_call() -> None:
    """An agent that starts the sidecar and never reads its stderr has its calls answered, and can stop it."""
    with program(*ANY_PORT, LOG__REFUSALS="1000000", TELEMETRY__METRICS_LISTEN="127.0.0.1:0") as served:
        metrics = served.wait_for(r"http://[\d.:]+/metrics")[0]
        address = served.wait_for(READY)[1]
        assert served.process.stderr is not None
        fcntl.fcntl(served.process.stderr, fcntl.F_SETPIPE_SZ, 4_096)
        _refused(address, WAITING_LINES + 200)
        with urllib.request.urlopen(metrics, timeout=PATIENCE) as page:
            hits = re.search(rb'prompt_sidecar_bound_hits_total{bound="log.waiting_lines"} (\d+)', page.read())
        assert hits is not None
        assert 100 < int(hits[1]) < 200
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.process.wait(PATIENCE)


def test_requests_that_cannot_be_read_cannot_fill_the_log() -> None:
    """Nor those that nobody was asked for a token of: the HTTP library writes a line for each."""
    port = free_port()
    with program(*ANY_PORT, "--http", f"127.0.0.1:{port}", LOG__REFUSALS=str(LINES)) as served:
        served.wait_for(READY)
        for _ in range(20 * LINES):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as connected:
                connected.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100_000 + b"\r\n\r\n")
                connected.settimeout(PATIENCE)
                with contextlib.suppress(ConnectionError):
                    assert b" 400 " in connected.recv(100)
        lines = _stopped(served)
    assert 1 <= sum("aiohttp.server: " in line for line in lines) <= 2 * LINES


def test_grpcs_own_lines_are_in_our_form(certificates: Path) -> None:
    """A handshake that fails is told by gRPC's core; as JSON where JSON was asked for, and bounded."""
    settings = {"SERVER__TLS_CERTIFICATE": "server.pem", "SERVER__TLS_KEY": "server.key"}
    files = {name: str(certificates / file) for name, file in settings.items()}
    with program(*ANY_PORT, LOG__FORMAT="json", LOG__REFUSALS=str(LINES), **files) as served:
        host, _, port = served.wait_for(READY)[1].rstrip('",}').rpartition(":")
        for _ in range(10 * LINES):
            with socket.create_connection((host, int(port)), PATIENCE) as plain:
                plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                plain.recv(1)
        served.wait_for("Handshake failed")
        lines = [json.loads(line) for line in _stopped(served)]
    cores = [line for line in lines if line["logger"] == "grpc.core"]
    assert 1 <= len(cores) <= 2 * LINES
    assert all({"time", "level", "logger", "message"} == set(line) for line in lines)


def test_a_missing_key_is_a_warning() -> None:
    """Ids that end with the process are worth a warning."""
    with program(*ANY_PORT) as served:
        assert "WARNING" in served.wait_for(".*key is not set.*")[0]


def test_a_wrong_name_suggests_the_right_one() -> None:
    """A misspelt name, one of another table, and one without its table or value."""
    for given, meant in (
        ("server.max_cals=3", "server.max_calls"),
        ("server.time_to_live=3", "limits.time_to_live"),
        ("max_calls=3", "server.max_calls"),
        ("workers", "server.workers"),
    ):
        assert f"did you mean {meant}?" in run("check-config", "--set", given).stderr


def test_a_settings_file_with_a_key_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    """It names the file and the setting; the file's owner alone may read it."""
    file = tmp_path / "sidecar.toml"
    file.write_text("key = 'a key that is long enough for anybody'\n")
    for mode, warns in ((0o640, 1), (0o600, 0)):
        file.chmod(mode)
        with program(*ANY_PORT, "--config", str(file)) as served:
            served.wait_for("ready: listening on")
            warnings = [line for line in served.lines if f"{file} (key) can be read by others" in line]
            assert warns == len(warnings) == sum("WARNING" in line for line in warnings)
