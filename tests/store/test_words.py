"""What the log says of a store that cannot be reached, and how long connecting to one may take."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from prompt_sidecar.store.breaker import LONGEST_PAUSE
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Server
from prompt_sidecar.store.shared import SharedArchive
from tests.cli.running import PATIENCE, Program, program
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, send
from tests.lab.harness.processes import free_port
from tests.promises.engine import Clock, Engine
from tests.store.sharing import LIFE, PATIENT, Stepped, Valkey, replica, running_valkey
from tests.store.test_bounded import Fake, serving, trusted

AWAY: Final = "the shared store cannot be used"
BACK: Final = "the shared store answers again"
SECRET: Final = "a-password-that-nobody-may-see"
ONE_WAY: Final = 0.05
"""Seconds that each piece takes on its way: 0.1 s for a round trip."""


def program_with(url: str, **settings: str) -> Program:
    """Start the program with a store that cannot be reached, until it has said so and is ready; then stop it."""
    with program("--listen", "127.0.0.1:0", KEY="a key that all replicas have", STORE__URL=url, **settings) as running:
        running.wait_for(AWAY)
        if not any("ready:" in line for line in running.lines):
            running.wait_for("ready:")
        running.process.terminate()
        assert 0 == running.end()
    assert 1 == len([line for line in running.lines if AWAY in line])
    assert SECRET not in "".join(running.lines)
    return running


def test_a_refused_port_is_reported_at_the_start() -> None:
    """Before any prompt, in the system's words, and the server starts."""
    assert any("refused" in line for line in program_with("valkey://127.0.0.1:1/0").lines)


def test_a_wrong_password_is_reported_in_the_servers_words(tmp_path: Path) -> None:
    """Without the password."""
    password = tmp_path / "password"
    password.write_text(SECRET)
    with running_valkey() as valkey:
        valkey.client.config_set("requirepass", "another")
        running = program_with(valkey.url, STORE__PASSWORD_FILE=str(password))
    assert any("invalid username-password pair" in line for line in running.lines)


def test_a_certificate_that_is_not_trusted_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the authority is a private one: by the words of TLS."""
    context = trusted(tmp_path, monkeypatch)
    monkeypatch.delenv("SSL_CERT_FILE")
    with serving(Fake(lambda *_: None, context)) as address:
        lines = program_with(f"valkeys://{address}/0", STORE__CONNECT_TIMEOUT="60s").lines
    assert any("CERTIFICATE_VERIFY_FAILED" in line for line in lines)


def test_each_change_of_state_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """A store that is not there, and comes; however often it is asked."""
    caplog.set_level(logging.INFO, "prompt_sidecar.store")
    port, clock = free_port(), Clock()
    archive = Stepped(f"valkey://127.0.0.1:{port}/0", clock)
    engine = Engine(limit=LIMIT, policy=ROOM, archive=archive)
    for iterations in range(8):
        send(engine, OPENAI_CHAT, iterations)
        archive.step()
        clock.now += LONGEST_PAUSE
    with running_valkey(port):
        clock.now += LONGEST_PAUSE
        archive.drain()
        send(engine, OPENAI_CHAT, 9)
        archive.drain()

    records = [record for record in caplog.records if record.name.startswith("prompt_sidecar.store")]
    assert [logging.WARNING, logging.INFO] == [record.levelno for record in records]
    assert AWAY in records[0].getMessage()
    assert BACK == records[1].getMessage()


def test_a_store_that_is_full_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """In its own words, though it answers what is read."""
    caplog.set_level(logging.INFO, "prompt_sidecar.store")
    with running_valkey() as valkey:
        engine, archive = replica(valkey)
        valkey.client.config_set("maxmemory", 1)
        for iterations in range(4):
            send(engine, OPENAI_CHAT, iterations)
            archive.step()
        valkey.client.config_set("maxmemory", 0)
        archive.drain()

    lines = [record.getMessage() for record in caplog.records if record.name.startswith("prompt_sidecar.store")]
    assert 2 == len(lines)
    assert "maxmemory" in lines[0]
    assert BACK == lines[1]


@contextmanager
def far_away(port: int) -> Iterator[int]:
    """A port from which everything takes `ONE_WAY` to another one of this machine, and back."""
    ending, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source, sink:
            while piece := source.recv(65_536):
                if ending.wait(ONE_WAY):
                    return
                sink.sendall(piece)

    def accept() -> None:
        with suppress(OSError):
            while True:
                here, _ = listener.accept()
                there = socket.create_connection(("127.0.0.1", port))
                threading.Thread(target=carry, args=(here, there.dup()), daemon=True).start()
                threading.Thread(target=carry, args=(there, here.dup()), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        ending.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_store_that_is_far_away_is_written_to(valkey: Valkey) -> None:
    """Connecting takes several round trips of 0.1 s, for which the time of one command would not do."""
    clock = Clock()
    with far_away(int(valkey.url.rpartition(":")[2].partition("/")[0])) as port:
        settings = StoreOptions(url=f"valkey://127.0.0.1:{port}/0", connect_timeout=PATIENT)
        archive = SharedArchive(settings, Server(settings), LIFE, clock=clock, threads=False)
        engine = Engine(limit=LIMIT, policy=ROOM, archive=archive)
        calls = send(engine, OPENAI_CHAT, 3).iteration
        late = monotonic() + PATIENCE
        while archive.totals().queued_bytes:
            assert monotonic() < late, "nothing was written"
            if not archive.step():
                clock.now += LONGEST_PAUSE
        archive.close()

    assert calls == replica(valkey)[0].figures().iteration
