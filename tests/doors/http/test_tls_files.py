"""TLS files that the HTTP door cannot use are told, and nobody is asked for anything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.tls import TlsFiles
from prompt_sidecar.process.starting import StartError
from tests.doors.grpc.test_callers import certificates

__all__ = ["certificates"]


def test_a_key_with_a_password(certificates: Path, tmp_path: Path) -> None:
    """It is refused: OpenSSL would ask for the password on the terminal, and the start would wait for it."""
    key = tmp_path / "locked.key"
    command = ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", str(certificates / "server.key")]
    subprocess.run([*command, "-out", str(key)], check=True, capture_output=True)
    options = ServerOptions(tls_certificate=str(certificates / "server.pem"), tls_key=str(key))
    with pytest.raises(StartError, match=r"server\.tls_key .*: the key has a password"):
        TlsFiles(options)
