"""Certificates for tests of TLS, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.real.needing import lack


@dataclass(frozen=True, slots=True)
class Files:
    """An authority, a server's certificate for 127.0.0.1, and a client's."""

    folder: Path

    def path(self, name: str) -> str:
        """Return a file."""
        return str(self.folder / name)


def certificates(folder: Path) -> Files:
    """Have openssl make them in a folder. Skips the test where there is none."""
    if shutil.which("openssl") is None:
        lack("needs the openssl program to make certificates")
    made = Files(folder)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)

    openssl(
        "req", "-x509", *curve, "-keyout", made.path("ca.key"), "-out", made.path("ca.pem"), "-subj", "/CN=authority"
    )
    (made.folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        key, request = made.path(f"{name}.key"), made.path(f"{name}.csr")
        openssl("req", *curve, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signed = ("-CA", made.path("ca.pem"), "-CAkey", made.path("ca.key"), "-CAcreateserial", "-days", "2")
        openssl(
            "x509", "-req", "-in", request, *signed, "-extfile", made.path("names"), "-out", made.path(f"{name}.pem")
        )
    return made
