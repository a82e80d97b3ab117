"""Requests a server's health, and reports precisely why there is no answer.

gRPC reports UNAVAILABLE for a closed port, a missing socket and a port with TLS, or waits for them to become available.
A probe should say which it is. So the address is first connected to without gRPC, and if gRPC then gets no answer, a
TLS handshake is tried.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prompt_sidecar.values import split_address

SERVICE = "prompt_sidecar.v1.SidecarService"
_UNIX = "unix:"
_WHY = {
    errno.ECONNREFUSED: "connection refused: nothing listens there",
    errno.EACCES: "permission denied: the socket is its owner's alone, so probe as the user that serves",
    errno.ENOENT: "there is no such socket; has the server started?",
    errno.ENOTDIR: "there is no such socket; its folder is none",
    errno.ENAMETOOLONG: "that path is too long for a socket",
}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A probe's result: the text to print, and whether the server serves."""

    words: str
    answered: bool = False
    serves: bool = False


def probe(address: str, timeout: float) -> ProbeResult:
    """Probe the server at `host:port` or `unix:/path`; `timeout` in seconds for each step.

    Raises:
        ValueError: the address is neither.
    """
    if (why := _unreachable(address, timeout)) is not None:
        return ProbeResult(f"no answer from a sidecar: {why}")
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=timeout)
        except grpc.RpcError as error:
            call: Any = error  # a stub's error is a Call as well, which the types do not declare
            return ProbeResult(f"no answer from a sidecar ({call.code().name}): {_why(call, address, timeout)}")
    serves = answer.status == health_pb2.HealthCheckResponse.SERVING
    return ProbeResult(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status), answered=True, serves=serves)


def _unreachable(address: str, timeout: float) -> str | None:
    """Return why nothing can be connected to there; None if something can."""
    try:
        _connected(address, timeout).close()
    except TimeoutError:
        return f"it did not take a connection within {timeout:g} s"
    except socket.gaierror as error:
        return f"the host's name is not known ({error.strerror})"
    except OSError as error:
        if error.errno in _WHY:
            return _WHY[error.errno]
        return os.strerror(error.errno) if error.errno else str(error)
    return None


def _why(call: Any, address: str, timeout: float) -> str:
    """Return what is wrong with a server that accepts connections but does not answer."""
    if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return (
            f"something listens there, but gave no answer within {timeout:g} s: it is starting, busy, or no gRPC server"
        )
    if call.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "it is a gRPC server without the health service"
    if call.code() is grpc.StatusCode.NOT_FOUND:
        return "it is a gRPC server, but no sidecar"
    if call.code() is grpc.StatusCode.UNAVAILABLE and _speaks_tls(address, timeout):
        return "it speaks TLS there, and the probe does not; give the server a unix socket too and probe that"
    return "something listens there, but it is no gRPC server"


def _speaks_tls(address: str, timeout: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent: does it use TLS at all?
    context.set_alpn_protocols(["h2"])
    try:
        with _connected(address, timeout) as raw, context.wrap_socket(raw) as wrapped:
            return wrapped.version() is not None
    except ssl.SSLError as error:
        return error.reason not in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}  # a TLS alert also shows TLS
    except OSError:
        return False


def _connected(address: str, timeout: float) -> socket.socket:
    """Return a connection."""
    if address.startswith(_UNIX):
        made = socket.socket(socket.AF_UNIX)
        with contextlib.ExitStack() as failing:
            failing.callback(made.close)
            made.settimeout(timeout)
            made.connect(address.removeprefix(_UNIX).removeprefix("//"))
            failing.pop_all()
        return made
    return socket.create_connection(split_address(address), timeout)
