"""A store whose primary Sentinels name: runs outlive a failover, with real servers."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

import pytest
from valkey.exceptions import ConnectionError as LostConnection

from prompt_sidecar.config.settings import SettingsError, load
from prompt_sidecar.facts.archived import StoreReply
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Failure, Server
from prompt_sidecar.store.shared import SharedArchive
from tests.cli.running import PATIENCE, run
from tests.engine.runs.making import LIMIT, ROOM
from tests.lab.harness.processes import free_port
from tests.promises.engine import Engine
from tests.store.certificates import Files
from tests.store.sharing import LIFE
from tests.store.test_clustered import grown, originals, written
from tests.store.watched import NAME, Watch, running_watch
from tests.waiting import until

KEY: Final = "k" * 64
SECONDS: Final = 2.0
"""For a command: a server that is stopped costs each try that long."""


def engine_of(watch: Watch, **options: Any) -> tuple[Engine, SharedArchive]:
    """An engine that finds the store by the Sentinels; `options` are further ones of the store."""
    times = {"timeout": SECONDS, "connect_timeout": SECONDS}
    settings = StoreOptions(url=watch.url, sentinels=watch.addresses, **{**times, **options})
    archive = SharedArchive(settings, Server(settings), LIFE, threads=False)
    return Engine(limit=LIMIT, policy=ROOM, archive=archive), archive


def killed(process: Popen[bytes]) -> None:
    """End a server."""
    process.kill()
    process.wait()


def stopped(process: Popen[bytes]) -> None:
    """Have a server answer nothing, until it goes on and finds that it is a replica now."""
    process.send_signal(signal.SIGSTOP)


def role(client: Any) -> str:
    """Whether a server is a primary or a replica; empty while it closes its connections to become one."""
    try:
        return str(client.info("replication")["role"])
    except LostConnection:
        return ""


@pytest.mark.parametrize("kind", ["valkey", "redis"])
@pytest.mark.parametrize("end", [killed, stopped])
def test_runs_outlive_a_failover(kind: str, end: Callable[[Popen[bytes]], None], tmp_path: Path) -> None:
    """What was passed on is there, what comes then is written to the new primary, and another process reads both."""
    with running_watch(tmp_path, kind) as watch:
        engine, archive = engine_of(watch)
        ids = {"before": grown(engine, "before")}
        until(lambda: written(archive))
        before = watch.primary()
        watch.clients[0].wait(1, 0)
        end(watch.servers[0])
        ids["meanwhile"] = grown(engine, "meanwhile")
        until(lambda: watch.primary() != before)
        until(lambda: written(archive))
        if end is stopped:
            watch.servers[0].send_signal(signal.SIGCONT)
            until(lambda: "slave" == role(watch.clients[0]))
            ids["after"] = grown(engine, "after")
            until(lambda: written(archive))
        second, _ = engine_of(watch)
        assert originals(engine, ids) == originals(second, ids)


def test_runs_outlive_a_failover_within_tls(files: Files, tmp_path: Path) -> None:
    """Servers and Sentinels speak TLS alone, and ask all for a certificate; without one nothing is read."""
    own: dict[str, Any] = {"tls_ca": files.path("ca.pem"), "connect_timeout": PATIENCE / 2}
    shown = {**own, "tls_certificate": files.path("client.pem"), "tls_key": files.path("client.key")}
    with running_watch(tmp_path, "redis", files=files) as watch:
        assert "valkeys" == watch.scheme
        engine, archive = engine_of(watch, **shown)
        ids = {"before": grown(engine, "before")}
        until(lambda: written(archive))
        before = watch.primary()
        watch.clients[0].wait(1, 0)
        killed(watch.servers[0])
        ids["meanwhile"] = grown(engine, "meanwhile")
        until(lambda: watch.primary() != before)
        until(lambda: written(archive))
        second, _ = engine_of(watch, **shown)
        assert originals(engine, ids) == originals(second, ids)
        with pytest.raises(Failure) as refused:
            Server(StoreOptions(url=watch.url, sentinels=watch.addresses, **own)).ping()
        assert "of 2 Sentinels 2 do not answer" in refused.value.words
        with pytest.raises(Failure):
            Server(StoreOptions(url=f"valkey://{NAME}/0", sentinels=watch.addresses, connect_timeout=SECONDS)).ping()


def test_a_sentinel_that_is_gone_is_done_without(tmp_path: Path) -> None:
    """Wherever it stands in the list; with none left the store is out of reach, in words that say so."""
    with running_watch(tmp_path, password="secret-word") as watch:
        gone = f"127.0.0.1:{free_port()}"
        file = tmp_path / "password"
        file.write_text("secret-word\n")
        for addresses in ((gone, *watch.addresses), (*watch.addresses, gone)):
            server = Server(StoreOptions(url=watch.url, sentinels=addresses, sentinel_password_file=str(file)))
            server.ping()
            server.close()
        done = run(
            "check-config",
            KEY=KEY,
            STORE__URL=watch.url,
            STORE__SENTINELS=str([*watch.addresses]).replace("'", '"'),
            STORE__SENTINEL_PASSWORD_FILE=str(file),
        )
        masters = {}
        for name, options in {
            "away": StoreOptions(url=watch.url, sentinels=(gone,)),
            "denied": StoreOptions(url=watch.url, sentinels=watch.addresses),
            "unknown": StoreOptions(
                url="valkey://other/0", sentinels=watch.addresses, sentinel_password_file=str(file)
            ),
        }.items():
            with pytest.raises(Failure) as failed:
                Server(options).ping()
            assert StoreReply.UNREACHABLE is failed.value.reply
            masters[name] = failed.value.words

    assert 0 == done.returncode, done.stderr
    assert f"of 1 Sentinels 1 do not answer, and no other knows a primary {NAME} that is up" == masters["away"]
    assert "(denied)" in masters["denied"]
    assert "of 2 Sentinels 0 do not answer, and no other knows a primary other that is up" == masters["unknown"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"store.url": ""}, "store.sentinels needs"),
        ({"store.url": "unix:///run/valkey.sock"}, "store.sentinels needs"),
        ({"store.url": "valkey://mymaster:6379/0"}, "without a port"),
        ({"store.cluster": "true"}, "no store.cluster"),
        ({"store.sentinels": "[]", "store.sentinel_password_file": "a"}, "needs store.sentinels"),
        ({"store.sentinels": "a.example"}, "store.sentinels"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, str], words: str) -> None:
    """They stop the start."""
    given = {"store.url": "valkey://mymaster/0", "store.sentinels": "a.example:26379", "key": KEY}
    with pytest.raises(SettingsError, match=words):
        load({}, flags=given | settings)
