"""TLS files that the HTTP door cannot use are told, and nobody is asked for anything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from prompt_sidecar.doors.http.lifecycle import HttpDoor, Tls
from prompt_sidecar.doors.http.options import HttpOptions
from prompt_sidecar.process.starting import StartError
from tests.doors.grpc.test_callers import certificates

__all__ = ["certificates"]


def test_a_key_with_a_password(certificates: Path, tmp_path: Path) -> None:
    """It is refused: OpenSSL would ask for the password on the terminal, and the start would wait for it."""
    key = tmp_path / "locked.key"
    command = ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", str(certificates / "server.key")]
    subprocess.run([*command, "-out", str(key)], check=True, capture_output=True)
    tls = Tls(str(certificates / "server.pem"), str(key))
    with pytest.raises(StartError, match=r"cannot be used for HTTP: the key has a password"):
        HttpDoor(HttpOptions(listen="127.0.0.1:0"), b"k" * 32, tls)
