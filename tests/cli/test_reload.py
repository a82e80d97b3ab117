"""SIGHUP: tokens and TLS files are read again; a bad file changes nothing."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest

from prompt_sidecar.v1 import service_pb2_grpc, trim_pb2
from tests.cli.running import PATIENCE, Program, program
from tests.cli.test_process import ANY_PORT, READY

ALICE, BOB, CAROL = (f"{name}-token-0123456789" for name in ("alice", "bob", "carol"))


def _code(channel: grpc.Channel, token: str = "") -> str:
    prompt = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=b'[{"role":"user","content":"hello"}]')
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    stub: Any = service_pb2_grpc.SidecarServiceStub(channel)
    try:
        stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id="r", json=prompt), timeout=PATIENCE, metadata=metadata)
    except grpc.RpcError as error:
        failure: Any = error
        return str(failure.code().name)
    return "OK"


def _hang_up(served: Program, pattern: str) -> None:
    served.process.send_signal(signal.SIGHUP)
    served.wait_for(pattern)


def test_tokens_are_read_again(tmp_path: Path) -> None:
    """New tokens hold from the next call on, old ones no more; the log has the names and no token."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice:{ALICE}\nbob:{BOB}\n")
    tokens.chmod(0o600)
    with (
        program(*ANY_PORT, SERVER__TOKENS_FILE=str(tokens)) as served,
        grpc.insecure_channel(served.wait_for(READY)[1]) as channel,
    ):
        assert ("OK", "UNAUTHENTICATED") == (_code(channel, ALICE), _code(channel, CAROL))
        tokens.write_text(f"bob:{BOB}x\ncarol:{CAROL}\n")
        _hang_up(served, "SIGHUP: tokens: carol added; alice removed; bob changed")
        assert ("UNAUTHENTICATED", "OK") == (_code(channel, ALICE), _code(channel, CAROL))
        tokens.write_text("carol:short\n")
        _hang_up(served, "ERROR .*shorter than 16 characters; what was read before stays in use")
        assert "OK" == _code(channel, CAROL)
        tokens.unlink()
        _hang_up(served, "ERROR .*No such file")
        assert "OK" == _code(channel, CAROL)
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.end()
        assert not any(token in line for token in (ALICE, BOB, CAROL) for line in served.lines)


def test_without_files_nothing_happens(tmp_path: Path) -> None:
    """A server without tokens and TLS says so and goes on; then it stops as always, and its socket goes."""
    path = tmp_path / "s.sock"
    with program("--listen", "", "--socket", str(path)) as served:
        served.wait_for(READY)
        _hang_up(served, "SIGHUP: neither tokens nor TLS files")
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.end()
        assert not path.exists()


def _certificate(folder: Path, name: str) -> None:
    """A certificate for localhost that is its own authority, and its key."""
    command = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    more = ("-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost")
    files = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"))
    subprocess.run([*command, *more, *files], check=True, capture_output=True, timeout=PATIENCE)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with certificates `old` and `new`, and with `server`, which is the old one."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program to make certificates")
    for name in ("old", "new"):
        _certificate(tmp_path, name)
    _use(tmp_path, "old")
    return tmp_path


def _use(folder: Path, name: str) -> None:
    for ending in ("key", "pem"):
        shutil.copy(folder / f"{name}.{ending}", folder / f"server.{ending}")


def _trusts(folder: Path, name: str, address: str, client: str = "") -> str:
    """What a new connection gets that trusts one certificate, and shows another."""
    root = (folder / f"{name}.pem").read_bytes()
    pair = [(folder / f"{client}.{ending}").read_bytes() for ending in ("key", "pem")] if client else [None, None]
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(root, *pair), options) as channel:
        return _code(channel)


def test_certificates_and_authorities_are_read_again(certificates: Path) -> None:
    """New connections get the new certificate; with a key of another one the old pair stays in use."""
    files = {ending: str(certificates / f"server.{ending}") for ending in ("key", "pem")}
    authority = certificates / "clients.pem"
    shutil.copy(certificates / "old.pem", authority)
    settings = {"TLS_CERTIFICATE": files["pem"], "TLS_KEY": files["key"], "CLIENT_CA": str(authority)}
    with program(*ANY_PORT, **{f"SERVER__{name}": value for name, value in settings.items()}) as served:
        address = f"localhost:{served.wait_for(READY)[1].rpartition(':')[2]}"
        assert "OK" == _trusts(certificates, "old", address, "old")
        assert "UNAVAILABLE" == _trusts(certificates, "old", address, "new")
        _use(certificates, "new")
        shutil.copy(certificates / "new.key", certificates / "kept")
        shutil.copy(certificates / "old.key", files["key"])
        _hang_up(served, "ERROR .*server.tls_key .*stays in use")
        assert "OK" == _trusts(certificates, "old", address, "old")
        shutil.copy(certificates / "kept", files["key"])
        shutil.copy(certificates / "new.pem", authority)
        _hang_up(served, "SIGHUP: TLS: new certificate, key, client authorities")
        assert "OK" == _trusts(certificates, "new", address, "new")
        assert "UNAVAILABLE" == _trusts(certificates, "new", address, "old")
        authority.write_text("no certificate")
        _hang_up(served, "ERROR .*server.client_ca")
        assert "OK" == _trusts(certificates, "new", address, "new")
