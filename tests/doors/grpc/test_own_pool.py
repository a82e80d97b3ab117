"""An installed gRPC that lacks a name which the server uses: it serves in gRPC's own pool, with one warning."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prompt_sidecar.v1 import run_pb2, service_pb2_grpc
from tests.cli.running import Program, environment
from tests.doors.grpc.serving import PATIENCE, failure, request

HIDING: Final = """
import sys
import grpc, grpc._server, grpc._cython.cygrpc

class Hidden:
    def __init__(self, real, name):
        self.real, self.name = real, name

    def __getattr__(self, asked):
        if asked == self.name and sys._getframe(1).f_globals["__name__"].startswith("prompt_sidecar"):
            raise AttributeError(f"module has no attribute {asked!r}")
        return getattr(self.real, asked)

owner, _, name = sys.argv.pop(1).partition(":")
if owner == "server":
    grpc._server = Hidden(grpc._server, name)
elif owner == "cython":
    grpc._cython.cygrpc = Hidden(grpc._cython.cygrpc, name)
else:
    state = grpc._server._RPCState
    def without(self, asked, get=state.__getattribute__):
        if asked == name and sys._getframe(1).f_globals["__name__"].startswith("prompt_sidecar"):
            raise AttributeError(f"a call has no attribute {name!r}")
        return get(self, asked)
    state.__getattribute__ = without
from prompt_sidecar.__main__ import main
sys.exit(main())
"""
"""Runs the program with one private name of gRPC's hidden from it; gRPC itself has it all the same."""
NAMES: Final = (
    "server:_unary_response_in_pool",
    "server:_stream_response_in_pool",
    "server:_select_thread_pool_for_behavior",
    "server:_Context",
    "server:_receive_message",
    "server:_is_rpc_state_active",
    "server:_RECEIVE_MESSAGE_TOKEN",
    "server:_RPCState",
    "cython:ReceiveMessageOperation",
    "state:condition",
    "state:due",
)
TOKEN: Final = "a-token-0123456789"
KNOWN: Final = (("authorization", f"Bearer {TOKEN}"),)
WARNED: Final = "calls run in gRPC's own pool of threads"


@contextmanager
def hidden(name: str, *arguments: str, **settings: str) -> Iterator[tuple[Program, grpc.Channel]]:
    """The program without a name, and a channel to it."""
    command = [sys.executable, "-c", HIDING, name, "serve", "--listen", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, env=environment(**settings), stderr=subprocess.PIPE, text=True) as process:
        served = Program(process)
        try:
            address = served.wait_for(r"ready: listening on (127\.0\.0\.1:\d+)")[1]
            served.keep_reading()
            with grpc.insecure_channel(address) as channel:
                yield served, channel
        finally:
            process.kill()


@pytest.mark.parametrize("name", NAMES)
def test_a_hidden_name_costs_no_start(name: str) -> None:
    """Calls are answered, and one line says what is missing."""
    with hidden(name) as (served, channel):
        stub = service_pb2_grpc.SidecarServiceStub(channel)
        assert [True] * 40 == [stub.TrimPrompt(request(f"run-{at}"), timeout=PATIENCE).fits for at in range(40)]
        served.process.terminate()
        assert 0 == served.end()
    warned = [line for line in served.lines if WARNED in line]
    assert [name.partition(":")[2]] == [name.partition(":")[2] for line in warned if name.partition(":")[2] in line]
    assert 1 == len(warned)


def test_callers_are_authenticated_in_grpcs_own_pool(tmp_path: Path) -> None:
    """Of every method, streams included; health asks for nothing, and what is not served is said to be none."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"one:{TOKEN}\n")
    tokens.chmod(0o600)
    with hidden(NAMES[0], SERVER__TOKENS_FILE=str(tokens)) as (_, channel):
        stub = service_pb2_grpc.SidecarServiceStub(channel)
        assert "UNAUTHENTICATED" == failure(lambda: stub.TrimPrompt(request(), timeout=PATIENCE)).code
        unknown = (("authorization", "Bearer another-token-0123"),)
        refused = failure(lambda: stub.TrimPrompt(request(), timeout=PATIENCE, metadata=unknown))
        assert ("UNAUTHENTICATED", "UNAUTHENTICATED") == (refused.code, refused.reason)
        assert stub.TrimPrompt(request(), timeout=PATIENCE, metadata=KNOWN).fits
        assert 1 == stub.GetRun(run_pb2.GetRunRequest(run_id="run"), timeout=PATIENCE, metadata=KNOWN).run.calls
        invalid = failure(lambda: stub.TrimPrompt(request(body=b"{"), timeout=PATIENCE, metadata=KNOWN))
        assert ("INVALID_ARGUMENT", "INVALID_JSON") == (invalid.code, invalid.reason)
        nothing: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/prompt_sidecar.v1.SidecarService/Nothing"
        )
        assert "UNIMPLEMENTED" == failure(lambda: nothing(b"", timeout=PATIENCE, metadata=KNOWN)).code
        health: Any = health_pb2_grpc.HealthStub(channel)
        assert health_pb2.HealthCheckResponse.SERVING == health.Check(health_pb2.HealthCheckRequest()).status
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert health_pb2.HealthCheckResponse.SERVING == next(watch).status
        watch.cancel()
