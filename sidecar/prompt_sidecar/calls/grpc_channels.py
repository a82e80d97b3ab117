"""Connection options and TLS credentials of the doors that use gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import grpc

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.tls import TlsFiles

_FOR_EVER: Final = 2**31 - 1
"""Milliseconds from which on gRPC treats a time as unlimited: the maximum of a C int, 24 days."""


def channel_arguments(
    options: ServerOptions, most_bytes: int, more_seconds: Mapping[str, float] = MappingProxyType({})
) -> list[tuple[str, int]]:
    """Return the channel arguments of a server.

    Args:
        options: the options of all doors.
        most_bytes: largest message.
        more_seconds: further arguments, times in seconds; gRPC gets them in milliseconds.
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
