"""The TLS files of the HTTP door: those that cannot be used are told, and new ones are taken at a reload."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.tls import TlsFiles
from prompt_sidecar.process.starting import StartError
from tests.client.provider import Says
from tests.doors.grpc.test_callers import certificates
from tests.doors.http.serving import proxied

__all__ = ["certificates"]


def test_a_key_with_a_password(certificates: Path, tmp_path: Path) -> None:
    """It is refused: OpenSSL would ask for the password on the terminal, and the start would wait for it."""
    key = tmp_path / "locked.key"
    command = ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", str(certificates / "server.key")]
    subprocess.run([*command, "-out", str(key)], check=True, capture_output=True)
    options = ServerOptions(tls_certificate=str(certificates / "server.pem"), tls_key=str(key))
    with pytest.raises(StartError, match=r"server\.tls_key .*: the key has a password"):
        TlsFiles(options)


def test_new_files_hold_for_new_connections(certificates: Path, tmp_path: Path) -> None:
    """After a reload the door shows its new certificate; files that cannot be used change nothing."""
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"

    def put(name: str) -> str:
        shutil.copy(certificates / f"{name}.pem", chain)
        shutil.copy(certificates / f"{name}.key", key)
        return (certificates / f"{name}.pem").read_text()

    first = put("server")
    options = ServerOptions(listen="", tls_certificate=str(chain), tls_key=str(key), sweep_interval=3_600)
    with proxied(lambda _: Says("Hello."), server=options) as here:
        address, shared = ("localhost", here.door.port), here.door._shared  # noqa: SLF001
        assert first.split() == ssl.get_server_certificate(address).split()
        chain.write_text("no certificate")
        assert [] == shared.reload()
        assert first.split() == ssl.get_server_certificate(address).split()
        second = put("client")
        assert "TLS: new certificate, key, for new connections" in shared.reload()[0]
        assert second.split() == ssl.get_server_certificate(address).split()
