"""Who may look at the pages: hosts, tokens, methods, and how much of the process a client can take."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.tokens import TokensError
from prompt_sidecar.config.settings import SettingsError, load
from prompt_sidecar.doors.admin.listener import CONNECTIONS, Admin, token_of
from prompt_sidecar.doors.admin.options import AdminOptions
from prompt_sidecar.process.starting import StartError
from tests.doors.admin.serving import PATIENCE, served
from tests.promises.engine import Engine

TOKEN = "a token of enough characters"
ENGINE = Engine(limit=1_000, journal_entries=1)


def tokens(folder: Path, token: str = TOKEN) -> str:
    """A file with one token."""
    path = folder / "tokens"
    path.write_text(f"ada:{token}\n")
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:7718", "127.0.0.1:1", "[::1]:7718", "10.1.2.3", "runs.example."]
)
def test_its_own_names_are_answered(host: str) -> None:
    """Localhost, addresses, and configured names, with any port."""
    with served(ENGINE, AdminOptions(listen="127.0.0.1:0", hosts=("Runs.example",))) as site:
        assert 200 == site.get("/runs", Host=host).status


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "localhost@evil.example",
        "a b",
        "",
        "[::1",
        "127.0.0.1.evil.example:80",
    ],
)
def test_other_names_are_refused(host: str) -> None:
    """A name that another site made lead here reads nothing."""
    with served(ENGINE) as site:
        got = site.get("/runs", Host=host)
    assert 421 == got.status
    assert "<table" not in got.text


def test_nothing_may_be_sent() -> None:
    """Pages are read; HEAD has no body."""
    with served(ENGINE) as site:
        assert [405] * 4 == [site.get("/runs", method=method).status for method in ("POST", "PUT", "DELETE", "OPTIONS")]
        head = site.get("/runs", method="HEAD")
        assert (200, "") == (head.status, head.text)


def test_every_answer_has_its_policy() -> None:
    """No script at all, no frame, nothing kept, nothing guessed: on pages, JSON, redirects and refusals."""
    with served(ENGINE) as site:
        answers = [site.get(path) for path in ("/runs", "/runs.json", "/style.css", "/", "/nothing")]
        answers += [site.get("/runs", Host="evil.example"), site.get("/runs", method="POST")]
    for got in answers:
        policy = got.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script" not in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert ("nosniff", "no-store", "same-origin") == (
            got.headers["x-content-type-options"],
            got.headers["cache-control"],
            got.headers["cross-origin-resource-policy"],
        )
        assert "access-control-allow-origin" not in got.headers


def test_a_token_is_asked_for_where_there_are_tokens(tmp_path: Path) -> None:
    """As a password, which browsers ask for, or as a bearer; reading the file again takes others."""
    password = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    with served(ENGINE, AdminOptions(listen="127.0.0.1:0", tokens_file=tokens(tmp_path))) as site:
        refused = site.get("/runs")
        assert (401, True) == (refused.status, refused.headers["www-authenticate"].startswith("Basic "))
        assert 401 == site.get("/style.css").status
        assert 401 == site.get("/runs", Authorization="Bearer another token of some length").status
        assert 200 == site.get("/runs", Authorization=f"Bearer {TOKEN}").status
        assert 200 == site.get("/runs", Authorization=f"Basic {password}").status
        tokens(tmp_path, "another token of some length")
        assert ["admin tokens: ada changed"] == site.shared.reload()
        assert 401 == site.get("/runs", Authorization=f"Bearer {TOKEN}").status


@pytest.mark.parametrize(
    "value", ["", "Basic", "Basic ***", "Basic /w==", "Basic YQ==", "Digest x", "Bearer", "bearer  "]
)
def test_a_header_without_a_token_has_none(value: str) -> None:
    """Whatever stands there instead."""
    assert "" == token_of(value)


def test_beyond_loopback_tokens_are_needed(tmp_path: Path) -> None:
    """The start is refused with a message that says what to set; an unreadable file names its setting."""
    with pytest.raises(SettingsError, match=r"admin\.listen is 0\.0\.0\.0:7718.*set admin\.tokens_file"):
        load({}, flags={"admin.listen": "0.0.0.0:7718"})
    load({}, flags={"admin.listen": "0.0.0.0:7718", "admin.tokens_file": "some"})
    load({}, flags={"admin.listen": "[::1]:7718"})
    with pytest.raises(TokensError, match=r"admin\.tokens_file"):
        Admin(AdminOptions(listen="127.0.0.1:0", tokens_file=str(tmp_path / "none")), DoorServices(ServerOptions()))


def test_an_address_in_use_is_reported() -> None:
    """With the setting's name."""
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(StartError, match=r"admin\.listen 127\.0\.0\.1"),
    ):
        Admin(AdminOptions(listen=f"127.0.0.1:{taken.getsockname()[1]}"), DoorServices(ServerOptions())).bind()


def test_a_query_is_bounded() -> None:
    """Long ones and those of many fields are refused; odd ones are read as nothing."""
    with served(ENGINE) as site:
        assert 400 == site.get("/runs?run=" + "x" * 5_000).status
        assert 400 == site.get("/runs?" + "&".join(f"a{number}=1" for number in range(100))).status
        assert 200 == site.get("/runs?sort=%ff&&=&run").status


def test_silent_connections_keep_nobody_out() -> None:
    """Beyond the bound the oldest that has not asked is closed, and the bound is reported."""
    with served(ENGINE) as site:
        silent = [socket.create_connection(("127.0.0.1", site.port), PATIENCE) for _ in range(CONNECTIONS * 2)]
        try:
            assert 200 == site.get("/runs").status
        finally:
            for each in silent:
                each.close()
        assert "admin.connections" in site.reached


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}]
)
def test_pages_of_other_sites_are_refused(headers: dict[str, str]) -> None:
    """Each refusal is counted; a link from elsewhere may be followed."""
    counted: list[tuple[str, str]] = []
    with served(ENGINE, foreign=lambda listener, header: counted.append((listener, header))) as site:
        assert 403 == site.get("/runs", **headers).status
        assert 421 == site.get("/runs", Host="evil.example").status
        followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
        assert 200 == site.get("/runs", **followed).status
    assert [("admin", "origin"), ("admin", "host")] == counted
