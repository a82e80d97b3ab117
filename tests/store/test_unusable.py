"""A store that cannot be used is reported with its kind: by check-config, at the start, and by commands' outcomes."""

from __future__ import annotations

import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from prompt_sidecar.facts.archived import StoreReply
from prompt_sidecar.store import layout
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Failure, Server
from tests.cli.running import PATIENCE, program, run
from tests.lab.harness.processes import free_port
from tests.real.needing import lack
from tests.store.certificates import Files
from tests.store.sharing import running_valkey
from tests.store.test_bounded import Fake, serving
from tests.waiting import until

KEY: Final = "a key that all replicas have"
SHORT: Final = 0.3
"""Seconds for a command."""


@contextmanager
def redis_with_tls(files: Files) -> Iterator[str]:
    """Run a real Redis that takes TLS alone, with certificates of clients; its address."""
    redis, port = shutil.which("redis-server"), free_port()
    if redis is None:
        lack("needs redis-server, as in Debian's package of that name")
    flags = {
        "port": "0",
        "tls-port": str(port),
        "bind": "127.0.0.1",
        "tls-cert-file": files.path("server.pem"),
        "tls-key-file": files.path("server.key"),
        "tls-ca-cert-file": files.path("ca.pem"),
        "tls-auth-clients": "yes",
        "save": "",
    }
    command = [redis, *(word for name, value in flags.items() for word in (f"--{name}", value))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not any("eady to accept connections" in line for line in process.stdout):
                lack("this redis-server has no TLS")
            yield f"rediss://127.0.0.1:{port}/0"
        finally:
            process.kill()


def failing(url: str, **options: object) -> StoreReply:
    """What a command comes to."""
    server = Server(StoreOptions(url=url, **{"timeout": SHORT, **options}))  # type: ignore[arg-type]
    try:
        with pytest.raises(Failure) as failure:
            server.run(layout.LIST, "name", ())
        with pytest.raises(Failure):
            server.ping()
    finally:
        server.close()
    return failure.value.reply


def test_each_kind_has_its_outcome(files: Files, tmp_path: Path) -> None:
    """A closed port, one that is silent, a wrong password, no permission, and a certificate that is not trusted."""
    silent = Fake(lambda *_: None)
    assert StoreReply.UNREACHABLE is failing(f"valkey://127.0.0.1:{free_port()}/0")
    with serving(silent) as address:
        assert StoreReply.SLOW is failing(f"valkey://{address}/0")
    with running_valkey() as valkey:
        (tmp_path / "password").write_text("another")
        valkey.client.acl_setuser("reader", enabled=True, passwords=["+right"], commands=["-@all"], keys=["*"])
        address = valkey.url.removeprefix("valkey://")
        wrong = str(tmp_path / "password")
        assert StoreReply.DENIED is failing(f"valkey://reader@{address}", password_file=wrong)
        (tmp_path / "password").write_text("right")
        assert StoreReply.DENIED is failing(f"valkey://reader@{address}", password_file=wrong)
    with redis_with_tls(files) as url:
        assert StoreReply.TLS is failing(url, connect_timeout=PATIENCE)


def test_a_store_that_asks_for_certificates(files: Files) -> None:
    """With the authority and a certificate of its own the sidecar is let in; without the certificate it is not."""
    trusting = {"tls_ca": files.path("ca.pem"), "timeout": 10.0, "connect_timeout": PATIENCE / 2}
    shown = {"tls_certificate": files.path("client.pem"), "tls_key": files.path("client.key")}
    with redis_with_tls(files) as url:
        server = Server(StoreOptions(url=url, **trusting, **shown))  # type: ignore[arg-type]
        server.ping()
        assert [] == server.run(layout.LIST, "name", ())
        server.close()
        assert failing(url, **trusting) in {
            StoreReply.TLS,
            StoreReply.UNREACHABLE,
        }  # as TLS 1.3 closes after it is done


def test_check_config_asks_the_store(tmp_path: Path) -> None:
    """Its answer ends with 0, or with 2 and what is wrong; --no-files does not ask."""
    closed = f"valkey://127.0.0.1:{free_port()}/0"
    with running_valkey() as valkey:
        assert 0 == run("check-config", KEY=KEY, STORE__URL=valkey.url).returncode
        valkey.client.config_set("requirepass", "another")
        denied = run("check-config", KEY=KEY, STORE__URL=valkey.url)
        valkey.client.execute_command("AUTH", "another")
    refused = run("check-config", KEY=KEY, STORE__URL=closed)
    missing = run("check-config", KEY=KEY, STORE__URL="valkeys://a:1/0", STORE__TLS_CA=str(tmp_path / "none.pem"))

    assert (2, 2, 2) == (denied.returncode, refused.returncode, missing.returncode)
    assert "the store cannot be used (denied: " in denied.stderr
    assert "the store cannot be used (unreachable: " in refused.stderr
    assert "store.tls_ca" in missing.stderr
    assert 0 == run("check-config", "--no-files", KEY=KEY, STORE__URL=closed).returncode


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"STORE__TLS_CERTIFICATE": "a"}, "belong together"),
        ({"STORE__TLS_CA": "a", "STORE__URL": "valkey://a:1/0"}, "need a store.url with TLS"),
        ({"STORE__REQUIRED": "true"}, "store.required needs store.url"),
    ],
)
def test_settings_that_do_not_go_together(settings: Mapping[str, str], words: str) -> None:
    """They stop the start."""
    done = run("check-config", "--no-files", KEY=KEY, **settings)
    assert (2, True) == (done.returncode, words in done.stderr)


def ready(port: int) -> bool:
    """Whether the process says that it is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False


def test_a_required_store_is_waited_for() -> None:
    """The process answers calls, and is ready once the store has answered; SIGTERM ends it before, too."""
    port, http = free_port(), free_port()
    given = {"KEY": KEY, "STORE__URL": f"valkey://127.0.0.1:{port}/0", "STORE__REQUIRED": "true"}
    with program("--listen", "", "--http", f"127.0.0.1:{http}", "--metrics", "", **given) as server:
        server.wait_for("not ready until the shared store answers")
        if not any("ready: listening" in line for line in server.lines):
            server.wait_for("ready: listening")
        assert not ready(http)
        with running_valkey(port):
            server.wait_for("the shared store answers")
            until(lambda: ready(http))
        server.process.terminate()
        assert 0 == server.end()
    with program("--listen", "", "--http", f"127.0.0.1:{http}", "--metrics", "", **given) as server:
        server.wait_for("ready: listening")
        server.process.terminate()
        assert 0 == server.end()
