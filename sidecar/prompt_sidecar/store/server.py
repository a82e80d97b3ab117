"""The connection to Valkey or Redis: scripts in, replies or a `Failure` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha1
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

import valkey
from valkey import exceptions
from valkey.cluster import ClusterNode, ValkeyCluster

from prompt_sidecar.facts.archived import StoreReply
from prompt_sidecar.store.options import StoreOptions

_FULL: Final = ("OOM", "MISCONF")
"""How the errors of a store begin that cannot take more: no memory, or no disk for its log."""

ERRORS: Final = (exceptions.ValkeyError, exceptions.ValkeyClusterException)
AWAY: Final = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterError,
    exceptions.ValkeyClusterException,
)
"""Errors of a store that does not answer, or of a cluster that has nobody to answer for a key just then."""

Argument = bytes | str | int


class Failure(Exception):
    """The store did not do what it was asked, as far as is known: a write without a reply may have happened."""

    def __init__(self, reply: StoreReply) -> None:
        super().__init__(reply.value)
        self.reply = reply


class Backend(Protocol):
    """Runs scripts, each on one run's key. Thread-safe but for `write`, which one thread uses."""

    def run(self, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        """The script's reply. Raises Failure."""
        ...

    def write(self, script: str, name: str, arguments: Sequence[Argument], replicas: int) -> Any:
        """As `run`, in the order of the calls; returns once so many replicas have it, too. Raises Failure."""
        ...

    def close(self) -> None:
        """End all connections."""
        ...


class Client(Protocol):
    """The library's client of a server or a cluster. Each method may raise one of `ERRORS`."""

    def all(self) -> Any:
        """The library's client, for commands that name a key."""
        ...

    def of(self, name: str) -> Any:
        """The library's client of the server that has the key."""
        ...

    def lost(self) -> None:
        """A command was not answered."""
        ...

    def close(self) -> None:
        """End all connections."""
        ...


class Single:
    """A client of one server; the library connects again by itself."""

    def __init__(self, url: str, given: Mapping[str, Any]) -> None:
        """`given`: the library's options."""
        self._client: Any = valkey.Valkey.from_url(url, **given)

    def all(self) -> Any:
        """See `Client.all`."""
        return self._client

    def of(self, name: str) -> Any:  # noqa: ARG002 - it has all keys
        """See `Client.of`."""
        return self._client

    def lost(self) -> None:
        """See `Client.lost`."""

    def close(self) -> None:
        """See `Client.close`."""
        self._client.close()


class Cluster:
    """A client of a cluster, made when it is first needed, as the library then asks for the nodes at once.

    The library forgets each node that did not answer, until it knows none. So after a command that was not answered
    the client is made again, from the URL and the nodes that were known.
    """

    def __init__(self, url: str, given: Mapping[str, Any]) -> None:
        """`given`: the library's options."""
        self._url = url
        self._given = {**given, "cluster_error_retry_attempts": 0}
        self._nodes: list[tuple[str, int]] = []
        self._client: Any = None
        self._lock = Lock()

    def all(self) -> Any:
        """See `Client.all`."""
        with self._lock:
            if self._client is None:
                node: Any = ClusterNode
                cluster: Any = ValkeyCluster
                known = [node(host, port) for host, port in self._nodes]
                self._client = cluster.from_url(self._url, startup_nodes=known, **self._given)
                self._nodes = [(node.host, node.port) for node in self._client.get_nodes()]
            return self._client

    def of(self, name: str) -> Any:
        """See `Client.of`."""
        cluster = self.all()
        return cluster.get_valkey_connection(cluster.get_node_from_key(name))

    def lost(self) -> None:
        """See `Client.lost`. Other threads may be using the client: its connections end when the last one is done."""
        with self._lock:
            self._client = None

    def close(self) -> None:
        """See `Client.close`."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


class Server:
    """A real one, or a cluster of them."""

    def __init__(self, options: StoreOptions) -> None:
        """Connect to nothing yet. Raises OSError where the password cannot be read."""
        given: dict[str, Any] = {
            "socket_timeout": options.timeout,
            "socket_connect_timeout": options.timeout,
            "socket_keepalive": True,
            "health_check_interval": 0,
        }
        if options.url.startswith("unix:"):
            del given["socket_connect_timeout"], given["socket_keepalive"]
        if options.password_file:
            given["password"] = Path(options.password_file).read_text(encoding="utf-8").strip()
        self._timeout = options.timeout
        made = Cluster if options.cluster else Single
        self._any: Client = made(options.url, given)
        self._writer: Client = made(options.url, given)
        """For one thread, whose commands so have one connection for each server."""
        self._loaded: dict[str, str] = {}

    def run(self, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        """See `Backend.run`."""
        return self._eval(self._any, script, name, arguments)

    def write(self, script: str, name: str, arguments: Sequence[Argument], replicas: int) -> Any:
        """See `Backend.write`."""
        reply = self._eval(self._writer, script, name, arguments)
        if replicas:
            try:
                reached = self._writer.of(name).wait(replicas, max(1, int(self._timeout * 500)))
            except ERRORS as error:
                raise self._failure(self._writer, error) from None
            if reached < replicas:
                raise Failure(StoreReply.UNREACHABLE)
        return reply

    def close(self) -> None:
        """See `Backend.close`."""
        self._any.close()
        self._writer.close()

    def _eval(self, client: Client, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        try:
            commands = client.all()
            digest = self._loaded.get(script)
            if digest is not None:
                try:
                    return commands.evalsha(digest, 1, name, *arguments)
                except exceptions.NoScriptError:  # it was restarted, or another has taken its place
                    pass
            reply = commands.eval(script, 1, name, *arguments)
            self._loaded[script] = _digest(script)
        except ERRORS as error:
            raise self._failure(client, error) from None
        return reply

    @staticmethod
    def _failure(client: Client, error: Exception) -> Failure:
        reply = _reply_of(error)
        if reply is StoreReply.UNREACHABLE:
            client.lost()
        return Failure(reply)


def _digest(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


def _reply_of(error: Exception) -> StoreReply:
    if isinstance(error, AWAY):
        return StoreReply.UNREACHABLE
    if isinstance(error, exceptions.OutOfMemoryError) or str(error).startswith(_FULL):
        return StoreReply.FULL
    return StoreReply.FAILED
