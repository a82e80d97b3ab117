"""Sidecars that share a store, an Envoy that hashes runs over them, and what both take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.doors.envoy.through import Envoy, balanced, envoy
from tests.lab.harness.processes import free_port
from tests.lab.harness.servers import Server, sidecar
from tests.lab.scale.agents import REPLICA
from tests.store.sharing import Valkey, running_valkey

KEY: Final = "the key of all replicas"
UNSHARED: Final = {"TELEMETRY__METRICS_LISTEN": ""}
"""Settings of a sidecar that has no store."""


@dataclass(slots=True)
class Replica:
    """A sidecar that is started again at the same address."""

    settings: dict[str, str]
    port: int = field(default_factory=free_port)
    idle: int = 0
    """Bytes that it took when it was ready."""
    running: Server | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; return once it is ready."""
        self.running = sidecar({"KEY": KEY, **self.settings}, listen=self.address)
        self.idle = self.resident()

    def kill(self) -> None:
        """SIGKILL."""
        assert self.running is not None
        self.running.kill()

    def resident(self) -> int:
        """Bytes of memory that it takes now; 0 where the system does not tell."""
        assert self.running is not None
        return self.running.resident()


@dataclass(frozen=True, slots=True)
class Deployment:
    """What runs."""

    replicas: Sequence[Replica]
    proxy: Envoy
    store: Valkey

    def stored(self) -> dict[str, int]:
        """The store's figures."""
        told: Any = self.store.client.info("all")
        return {
            "memory": int(told["used_memory"]),
            "received": int(told["total_net_input_bytes"]),
            "commands": sum(told.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval")),
        }


@contextmanager
def deployed(folder: Path, number: int, **more: str) -> Iterator[Deployment]:
    """Run so many replicas; all ends with the context."""
    with ExitStack() as stack:
        store = stack.enter_context(running_valkey())
        settings = {**UNSHARED, "STORE__URL": store.url, **more}
        replicas = [Replica(settings) for _ in range(number)]
        for replica in replicas:
            replica.start()
            stack.callback(replica.kill)
        told = balanced([replica.port for replica in replicas])
        connections = told["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        header = {"header": {"key": REPLICA, "value": "%UPSTREAM_REMOTE_ADDRESS%"}}
        connections["route_config"]["response_headers_to_add"] = [header]
        yield Deployment(replicas, stack.enter_context(envoy(folder, told)), store)
