"""How doors that speak gRPC treat connections, and the TLS that they have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import grpc

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.tls import TlsFiles

_FOR_EVER: Final = 2**31 - 1
"""Milliseconds from which gRPC takes a time for none: what a C int holds, 24 days."""


def channel_arguments(
    options: ServerOptions, most_bytes: int, more_seconds: Mapping[str, float] = MappingProxyType({})
) -> list[tuple[str, int]]:
    """Return the arguments of a server.

    Args:
        options: of all doors.
        most_bytes: of one message.
        more_seconds: further arguments that are times, which gRPC takes in milliseconds.
    """
    seconds = {
        "grpc.keepalive_time_ms": options.keepalive,
        "grpc.keepalive_timeout_ms": options.keepalive_timeout,
        "grpc.http2.ping_timeout_ms": options.keepalive_timeout,
        "grpc.server_handshake_timeout_ms": options.handshake_timeout,
        "grpc.http2.settings_timeout": options.handshake_timeout,
        **more_seconds,
    }
    return [
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.max_send_message_length", most_bytes),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", options.max_connections),
        *((name, min(int(each * 1_000), _FOR_EVER)) for name, each in seconds.items()),
    ]


def credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    """Return TLS credentials that follow a reload: gRPC asks for them at each handshake."""

    def configuration() -> grpc.ServerCertificateConfiguration:
        pem = tls.pem
        return grpc.ssl_server_certificate_configuration([(pem.key, pem.chain)], pem.authorities)

    return grpc.dynamic_ssl_server_credentials(
        configuration(), configuration, require_client_authentication=tls.pem.authorities is not None
    )
