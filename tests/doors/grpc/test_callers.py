"""Who calls: tokens, certificates, sockets; and that one caller never sees another's run."""

from __future__ import annotations

import logging
import shutil
import ssl
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prompt_sidecar.calls.caller_names import CallerNames
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.subjects import spelled
from prompt_sidecar.calls.tokens import Tokens, TokensError, read_tokens
from prompt_sidecar.doors.http.callers import Callers
from prompt_sidecar.errors import Unauthenticated
from prompt_sidecar.process.starting import StartError
from prompt_sidecar.v1 import run_pb2, service_pb2_grpc
from tests.doors.grpc.serving import PATIENCE, Server, failure, request, runs, serving

ALICE, BOB = "alice-token-0123456789", "bob-token-0123456789"


def _tokens(folder: Path) -> str:
    path = folder / "tokens"
    path.write_text(f"# callers\nalice:{ALICE}\n\nbob: {BOB}\n")
    path.chmod(0o600)
    return str(path)


def test_tokens_are_read(tmp_path: Path) -> None:
    """Comments, empty lines and spaces around a token are no part of it."""
    assert {"alice": ALICE, "bob": BOB} == read_tokens(_tokens(tmp_path))


@pytest.mark.parametrize(
    "content", ["", "no colon at all here", "a:short", f"a:{ALICE}\na:{BOB}", f":{ALICE}", f"a:{ALICE}é", b"\xff:x"]
)
def test_bad_token_files_are_refused(tmp_path: Path, content: str | bytes) -> None:
    """A file that is not usable is refused without a word of what stands in it."""
    path = tmp_path / "tokens"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TokensError) as caught:
        read_tokens(str(path))
    assert ALICE not in str(caught.value)
    assert "no colon" not in str(caught.value)


def test_a_readable_tokens_file_is_remarked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A tokens file that others can read is used, with a warning."""
    path = Path(_tokens(tmp_path))
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        read_tokens(str(path))
    assert "0600" in caplog.text


def test_calls_need_a_known_token(tmp_path: Path) -> None:
    """Without a token, with an unknown one or another scheme a call is UNAUTHENTICATED; health needs none."""
    with serving(ServerOptions(listen="127.0.0.1:0", tokens_file=_tokens(tmp_path))) as served:
        for value in (None, "Bearer wrong-wrong-wrong-wrong", f"Basic {ALICE}", "Bearer", ALICE):
            metadata = () if value is None else (("authorization", value),)
            refused = failure(partial(served.stub.TrimPrompt, request(), metadata=metadata))
            assert ("UNAUTHENTICATED", "UNAUTHENTICATED") == (refused.code, refused.reason)
        stub: Any = health_pb2_grpc.HealthStub(served.channel)
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status
        assert served.stub.TrimPrompt(request(), metadata=(("authorization", f"bearer {ALICE}"),)).fits


def test_a_run_belongs_to_its_caller(tmp_path: Path) -> None:
    """Another caller's run is unknown, whatever its id; a unix peer is a caller of its own."""
    path = tmp_path / "s.sock"
    options = ServerOptions(listen="127.0.0.1:0", socket=str(path), tokens_file=_tokens(tmp_path))
    with serving(options) as served, grpc.insecure_channel(f"unix:{path}") as channel:
        alice, bob = ((("authorization", f"Bearer {token}"),) for token in (ALICE, BOB))
        served.stub.TrimPrompt(request("shared"), metadata=alice)
        asked = run_pb2.GetRunRequest(run_id="shared")
        assert 1 == served.stub.GetRun(asked, metadata=alice).run.calls
        unix = service_pb2_grpc.SidecarServiceStub(channel)
        for call in (lambda: served.stub.GetRun(asked, metadata=bob), lambda: unix.GetRun(asked)):
            assert "RUN_UNKNOWN" == failure(call).reason


def test_all_runs_of_a_caller_end_and_no_other_s(tmp_path: Path) -> None:
    """EndRuns ends the runs of the token that it comes with, also those whose names another caller has, too."""
    with serving(ServerOptions(listen="127.0.0.1:0", tokens_file=_tokens(tmp_path))) as served:
        alice, bob = ((("authorization", f"Bearer {token}"),) for token in (ALICE, BOB))
        for run_id in ("a", "b"):
            for metadata in (alice, bob):
                served.stub.TrimPrompt(request(run_id), metadata=metadata)
        assert 2 == served.stub.EndRuns(run_pb2.EndRunsRequest(), metadata=alice).ended
        for run_id in ("a", "b"):
            asked = run_pb2.GetRunRequest(run_id=run_id)
            assert "RUN_UNKNOWN" == failure(partial(served.stub.GetRun, asked, metadata=alice)).reason
            assert 1 == served.stub.GetRun(asked, metadata=bob).run.calls
        assert 0 == served.stub.EndRuns(run_pb2.EndRunsRequest(), metadata=alice).ended


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=PATIENCE)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a server's certificate for localhost and a client's for agent-7."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program to make certificates")
    folder = tmp_path_factory.mktemp("tls")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca, ca_key = str(folder / "ca.pem"), str(folder / "ca.key")
    _openssl("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", "/CN=test authority")
    for name, subject, names in (("server", "/CN=localhost", "DNS:localhost"), ("client", "/O=x/CN=agent-7", "DNS:a")):
        key, wish, out = (str(folder / f"{name}.{ending}") for ending in ("key", "csr", "pem"))
        _openssl("req", *curve, "-keyout", key, "-out", wish, "-subj", subject)
        extension = folder / f"{name}.ext"
        extension.write_text(f"subjectAltName={names}\n")
        _openssl(
            *("x509", "-req", "-in", wish, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial"),
            *("-out", out, "-days", "2", "-extfile", str(extension)),
        )
    return folder


def test_mutual_tls(certificates: Path) -> None:
    """With a client authority, a certificate from it is needed, and its subject is the caller."""
    options = ServerOptions(
        listen="127.0.0.1:0",
        tls_certificate=str(certificates / "server.pem"),
        tls_key=str(certificates / "server.key"),
        client_ca=str(certificates / "ca.pem"),
    )
    server = Server(options)
    core = runs()
    server.start(core)
    authority, key, chain = ((certificates / name).read_bytes() for name in ("ca.pem", "client.key", "client.pem"))
    try:
        target = f"localhost:{server.port}"
        with grpc.secure_channel(target, grpc.ssl_channel_credentials(authority, key, chain)) as channel:
            assert service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt(request("mine"), timeout=PATIENCE).fits
        # RFC 2253 spells a subject from its last part to its first.
        assert 1 == core.figures("mtls:CN=agent-7,O=x", "mine").calls
        with grpc.secure_channel(target, grpc.ssl_channel_credentials(authority)) as channel:
            stub = service_pb2_grpc.SidecarServiceStub(channel)
            assert "UNAVAILABLE" == failure(lambda: stub.TrimPrompt(request(), timeout=PATIENCE)).code
    finally:
        server.stop(0)


def test_doors_spell_a_subject_alike(certificates: Path, tmp_path: Path) -> None:
    """As text from gRPC, in parts from Python's ssl, which the HTTP door uses; with what has to be escaped in it."""
    key, wish, out = (str(tmp_path / f"odd.{ending}") for ending in ("key", "csr", "pem"))
    subject = "/DC=org/O=Ex, \\+Inc;/OU=a+UID=u 1/GN=J\u00f6rg/CN=#1 <x>\\\\"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl("req", *curve, "-keyout", key, "-out", wish, "-utf8", "-multivalue-rdn", "-subj", subject)
    authority = ("-CA", str(certificates / "ca.pem"), "-CAkey", str(certificates / "ca.key"), "-CAcreateserial")
    _openssl("x509", "-req", "-in", wish, *authority, "-out", out, "-days", "2")
    text = subprocess.run(
        ["openssl", "x509", "-in", out, "-noout", "-subject", "-nameopt", "RFC2253"], check=True, capture_output=True
    ).stdout.decode()
    options = ServerOptions(
        listen="127.0.0.1:0",
        tls_certificate=str(certificates / "server.pem"),
        tls_key=str(certificates / "server.key"),
        client_ca=str(certificates / "ca.pem"),
    )
    # What getpeercert returns, without a connection: the function that Python's own tests read certificates with.
    spelling = spelled(ssl._ssl._test_decode_cert(out)["subject"])  # type: ignore[attr-defined]  # noqa: SLF001
    server, core = Server(options, names=CallerNames({f"mtls:{spelling}": "agent"})), runs()
    server.start(core)
    root, chain = (certificates / "ca.pem").read_bytes(), Path(out).read_bytes()
    credentials = grpc.ssl_channel_credentials(root, Path(key).read_bytes(), chain)
    try:
        with grpc.secure_channel(f"localhost:{server.port}", credentials) as channel:
            service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt(request("mine"), timeout=PATIENCE)
        assert 1 == core.figures("agent", "mine").calls
    finally:
        server.stop(0)
    assert spelling == text.strip().removeprefix("subject=")


@pytest.mark.parametrize(
    ("names", "caller"),
    [
        ("URI:spiffe://mesh/ns/a/sa/b,DNS:a.example", "mtls:URI:spiffe://mesh/ns/a/sa/b,DNS:a.example"),
        ("DNS:a.example,DNS:b.example", "mtls:DNS:a.example,DNS:b.example"),
        ("URI:urn:a\\,DNS:b", "mtls:URI:urn:a\\,DNS:b"),
        ("IP:127.0.0.1", None),
    ],
)
def test_certificates_without_a_subject(names: str, caller: str | None, certificates: Path, tmp_path: Path) -> None:
    """Meshes make them: each is a caller of its own by its other names, at all doors alike, or nobody."""
    key, wish, out = (str(tmp_path / f"mesh.{ending}") for ending in ("key", "csr", "pem"))
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl("req", *curve, "-keyout", key, "-out", wish, "-subj", "/")
    extension = tmp_path / "mesh.ext"
    parts = [each.replace("\\", ",").split(":", 1) for each in names.replace("\\,", "\\").split(",")]
    rows = "".join(f"{kind}.{number} = {value}\n" for number, (kind, value) in enumerate(parts))
    extension.write_text(f"subjectAltName=critical,@names\n[names]\n{rows}")
    authority = ("-CA", str(certificates / "ca.pem"), "-CAkey", str(certificates / "ca.key"), "-CAcreateserial")
    _openssl("x509", "-req", "-in", wish, *authority, "-out", out, "-days", "2", "-extfile", str(extension))
    server = Server(
        ServerOptions(
            listen="127.0.0.1:0",
            tls_certificate=str(certificates / "server.pem"),
            tls_key=str(certificates / "server.key"),
            client_ca=str(certificates / "ca.pem"),
        )
    )
    core = runs()
    server.start(core)
    decoded = ssl._ssl._test_decode_cert(out)  # type: ignore[attr-defined]  # noqa: SLF001
    root, chain = (certificates / "ca.pem").read_bytes(), Path(out).read_bytes()
    credentials = grpc.ssl_channel_credentials(root, Path(key).read_bytes(), chain)
    http = Callers(Tokens({}), CallerNames({}), bytes(32), by_credential=False)
    try:
        with grpc.secure_channel(f"localhost:{server.port}", credentials) as channel:
            call = partial(service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt, request("mine"), timeout=PATIENCE)
            if caller is None:
                assert "UNAUTHENTICATED" == failure(call).reason
                with pytest.raises(Unauthenticated):
                    http.of({}, decoded)
            else:
                assert call().fits
                assert 1 == core.figures(caller, "mine").calls
                assert caller == http.of({}, decoded)
    finally:
        server.stop(0)


def test_tls_files_that_are_missing_or_wrong(tmp_path: Path, certificates: Path) -> None:
    """A missing file is named by its setting; files that are no PEM are told."""
    key = str(certificates / "server.key")
    with pytest.raises(StartError, match=r"server\.tls_certificate"):
        Server(ServerOptions(listen="127.0.0.1:0", tls_certificate=str(tmp_path / "none"), tls_key=key))
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    with pytest.raises(StartError, match="PEM"):
        Server(ServerOptions(listen="127.0.0.1:0", tls_certificate=str(junk), tls_key=str(junk)))
