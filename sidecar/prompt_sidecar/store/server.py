"""The connection to Valkey or Redis: scripts in, replies or a `Failure` out."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha1
from threading import Lock
from typing import Any, Final, Protocol

import valkey
from valkey import exceptions
from valkey.cluster import ClusterNode, ValkeyCluster
from valkey.connection import SSLConnection, parse_url
from valkey.sentinel import MasterNotFoundError, Sentinel

from prompt_sidecar.facts.archived import StoreReply
from prompt_sidecar.files import read_file
from prompt_sidecar.store.bounded import BoundedPool, FoundPool
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.values import MIB, split_address

_DENIALS: Final = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_DENIED: Final = ("NOAUTH", "WRONGPASS", "NOPERM")
"""Beginnings of a store's errors for an unknown user or password, or a command that the user may not run."""
_FULL: Final = ("OOM", "MISCONF")
"""Beginnings of a store's errors when it cannot take more: no memory, or no disk for its log."""

ERRORS: Final = (exceptions.ValkeyError, exceptions.ValkeyClusterException)
AWAY: Final = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterError,
    exceptions.ValkeyClusterException,
)
"""Errors of a store that does not answer, or of a cluster in which no node answers for a key at present."""

FOUND_AGAIN: Final = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ClusterDownError)
"""Errors after which the library's cluster client has learned from another node where the keys are."""

NO_REPLY: Final = (ValueError, TypeError, LookupError, OverflowError, RecursionError)
"""Other errors that the library raises for bytes that are not a reply, as when another program listens there."""

REPLY_ITEMS: Final = 2
"""Originals of the largest size that a reply may hold; each counts one and a half times. Several are read at once only
where they are small (`prompt_sidecar.recall.history.FETCHED_BYTES`)."""
REPLY_BYTES: Final = 32 * MIB
"""Bytes of a reply in addition: the names of 120,000 originals of a run, or the facts of as many items."""

MOST_CHARACTERS: Final = 200
"""Characters of a store's message in the log."""
NO_STORE: Final = "what answers there does not speak the protocol of Valkey and Redis"

FIRST_TRIES: Final = 3
"""How often the library may ask for the list of commands when its cluster client is created: it asks the first node,
which may be unavailable."""

MOST_CAUSES: Final = 8
"""Causes of an error that are examined: the library wraps the system's error in one or two of its own."""

Argument = bytes | str | int


class Failure(Exception):
    """A command failed, as far as is known: a write without a reply may have happened."""

    def __init__(self, reply: StoreReply, words: str = "") -> None:
        super().__init__(reply.value)
        self.reply = reply
        self.words = words
        """The message of the store or the system, for the log; empty if there is none."""


def values_in(reply: Any, size: int) -> list[bytes | None]:
    """Check that a script replied so many values, and return them. Raises Failure otherwise: the store is damaged."""
    if not isinstance(reply, list) or len(reply) != size or not all(isinstance(each, bytes | None) for each in reply):
        raise Failure(StoreReply.FAILED)
    return reply


def names_in(reply: Any) -> list[bytes]:
    """Return the names that a script replied. Raises Failure as `values_in`."""
    if not isinstance(reply, list) or not all(isinstance(each, bytes) for each in reply):
        raise Failure(StoreReply.FAILED)
    return reply


class ScriptRunner(Protocol):
    """Runs scripts, each on one run's key. Thread-safe except for `write`, which one thread uses."""

    def run(self, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        """Run a script and return its reply. Raises Failure."""
        ...

    def write(self, script: str, name: str, arguments: Sequence[Argument], replicas: int) -> Any:
        """As `run`, in the order of the calls; returns once as many replicas have the write, too. Raises Failure."""
        ...

    def node(self, name: str) -> str:
        """Return the server that has the key, as far as is known without asking; empty: a single server, or unknown."""
        ...

    def nodes(self) -> Collection[str]:
        """Return all names that `node` may return now."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class StoreClient(Protocol):
    """The library's client of a server or a cluster. Each method may raise one of `ERRORS`."""

    def all(self) -> Any:
        """The library's client, for commands that name a key."""
        ...

    def of(self, name: str) -> Any:
        """The library's client for the server that has the key."""
        ...

    def node(self, name: str) -> str:
        """See `ScriptRunner.node`."""
        ...

    def nodes(self) -> Collection[str]:
        """See `ScriptRunner.nodes`."""
        ...

    def lost(self, error: Exception) -> None:
        """Handle a command that was not answered."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class Single:
    """A client of one server; the library reconnects by itself."""

    def __init__(self, pool: Any) -> None:
        """`pool`: a pool of connections of the library's, such as a `BoundedPool`."""
        self._client: Any = valkey.Valkey.from_pool(pool)

    def all(self) -> Any:
        """See `StoreClient.all`."""
        return self._client

    def of(self, name: str) -> Any:  # noqa: ARG002 - it has all keys
        """See `StoreClient.of`."""
        return self._client

    def node(self, name: str) -> str:  # noqa: ARG002 - it has all keys
        """See `ScriptRunner.node`."""
        return ""

    def nodes(self) -> Collection[str]:
        """See `ScriptRunner.nodes`."""
        return ("",)

    def lost(self, error: Exception) -> None:
        """See `StoreClient.lost`."""

    def close(self) -> None:
        """See `StoreClient.close`."""
        self._client.close()


class _Sentinels(Sentinel):
    """The library's Sentinels, whose order the library changes: therefore used by one thread at a time."""

    def __init__(self, addresses: Sequence[str], given: Mapping[str, Any]) -> None:
        """`given`: the library's options of connections to them, and those of `BoundedPool`."""
        super().__init__([])  # type: ignore[no-untyped-call]
        pool: Any = BoundedPool
        places = map(split_address, addresses)
        self.sentinels = [valkey.Valkey.from_pool(pool(host=host, port=port, **given)) for host, port in places]
        self._lock = Lock()

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the primary's address. Raises MasterNotFoundError, with the number of Sentinels that do not answer."""
        with self._lock:
            try:
                found: tuple[str, int] = super().discover_master(service_name)  # type: ignore[no-untyped-call]
            except MasterNotFoundError as error:
                away = str(error).count(" - ")  # the library repeats it for each
                denied = "AuthenticationError" in str(error)
                words = f"of {len(self.sentinels)} Sentinels {away} do not answer{' (denied)' if denied else ''}"
                raise MasterNotFoundError(f"{words}, and no other knows a primary {service_name} that is up") from None
        return found


class Watched(Single):
    """A client of the primary that Sentinels name. A lost connection is made again to the present primary."""

    def __init__(self, options: StoreOptions, given: Mapping[str, Any], password: str) -> None:
        """`given`: options of connections to the primary, and of `BoundedPool`; `password`: the Sentinels'."""
        shared = {name: value for name, value in given.items() if name != "password"}
        place = {name: value for name, value in parse_url(options.url).items() if name in {"username", "db"}}
        tls: dict[str, Any] = {"connection_class": SSLConnection} if options.uses_tls else {}
        sentinels = _Sentinels(options.sentinels, shared | tls | ({"password": password} if password else {}))
        found: Any = FoundPool
        pool = found(options.sentinel_name, sentinels, ssl=options.uses_tls, **given, **place)
        self._sentinels: Sequence[Any] = sentinels.sentinels
        super().__init__(pool)

    def close(self) -> None:
        """See `StoreClient.close`."""
        super().close()
        for each in self._sentinels:
            each.close()


class Cluster:
    """A client of a cluster, created when first needed, as the library asks for the nodes when it is created.

    If a node does not answer, the library asks another one where its keys are now. It forgets nodes that do not answer
    that either, until it knows none: then the client is created again, from the URL and the nodes that were known.
    """

    def __init__(self, url: str, given: Mapping[str, Any]) -> None:
        """`given`: the library's options, and those of `BoundedPool`."""
        self._url = url
        given = dict(given)
        pool = partial(BoundedPool, reply_bytes=given.pop("reply_bytes"))
        self._given = {**given, "connection_pool_class": pool, "cluster_error_retry_attempts": FIRST_TRIES}
        self._known: Any = None
        """The present client, or the last one: the nodes that are known."""
        self._client: Any = None
        self._lock = Lock()

    def all(self) -> Any:
        """See `StoreClient.all`."""
        with self._lock:
            if self._client is None:
                node: Any = ClusterNode
                cluster: Any = ValkeyCluster
                nodes = self._known.get_nodes() if self._known is not None else ()
                known = [node(each.host, each.port) for each in nodes]
                client = cluster.from_url(self._url, startup_nodes=known, **self._given)
                client.cluster_error_retry_attempts = 0  # the caller repeats commands
                self._client = self._known = client
            return self._client

    def of(self, name: str) -> Any:
        """See `StoreClient.of`."""
        cluster = self.all()
        return cluster.get_valkey_connection(cluster.get_node_from_key(name))

    def node(self, name: str) -> str:
        """See `ScriptRunner.node`."""
        known = self._known
        if known is None:
            return ""
        try:
            return str(known.get_node_from_key(name).name)
        except exceptions.ValkeyClusterException:  # no node has its slot
            return ""

    def nodes(self) -> Collection[str]:
        """See `ScriptRunner.nodes`."""
        known = self._known
        return ("", *(node.name for node in known.get_primaries())) if known is not None else ("",)

    def lost(self, error: Exception) -> None:
        """See `StoreClient.lost`. Other threads may use the client: its connections close when the last use ends."""
        if isinstance(error, FOUND_AGAIN):
            return
        with self._lock:
            self._client = None

    def close(self) -> None:
        """See `StoreClient.close`."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


class Server:
    """A real server, or a cluster of servers."""

    def __init__(self, options: StoreOptions) -> None:
        """Make no connection yet. Raises OSError if the password cannot be read."""
        given: dict[str, Any] = {
            "socket_timeout": options.timeout,
            "socket_connect_timeout": options.connect_timeout,
            "socket_keepalive": True,
            "health_check_interval": 0,
            "reply_bytes": REPLY_ITEMS * options.item_bytes + REPLY_BYTES,
        }
        if options.url.startswith("unix:"):
            del given["socket_keepalive"]
        if options.uses_tls:
            files = {
                "ssl_ca_certs": options.tls_ca,
                "ssl_certfile": options.tls_certificate,
                "ssl_keyfile": options.tls_key,
            }
            given |= {name: path for name, path in files.items() if path}
        self._password = read_file(options.password_file).decode().strip() if options.password_file else ""
        if options.password_file:
            given["password"] = self._password
        file = options.sentinel_password_file
        self._sentinels_password = read_file(file).decode().strip() if file else ""
        self._timeout = options.timeout
        self._any: StoreClient = self._client(options, given)
        self._writer: StoreClient = self._client(options, given)
        """For one thread, whose commands so use one connection for each server."""
        self._loaded: dict[str, str] = {}

    def _client(self, options: StoreOptions, given: Mapping[str, Any]) -> StoreClient:
        if options.sentinels:
            return Watched(options, given, self._sentinels_password)
        if options.cluster:
            return Cluster(options.url, given)
        pool: Any = BoundedPool
        return Single(pool.from_url(options.url, **given))

    def run(self, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        """See `ScriptRunner.run`."""
        return self._eval(self._any, script, name, arguments)

    def write(self, script: str, name: str, arguments: Sequence[Argument], replicas: int) -> Any:
        """See `ScriptRunner.write`."""
        reply = self._eval(self._writer, script, name, arguments)
        if replicas:
            try:
                reached = self._writer.of(name).wait(replicas, max(1, int(self._timeout * 500)))
            except ERRORS as error:
                raise self._failure(self._writer, error) from None
            except NO_REPLY:
                raise Failure(StoreReply.FAILED, NO_STORE) from None
            if not isinstance(reached, int):
                raise Failure(StoreReply.FAILED)
            if reached < replicas:
                raise Failure(StoreReply.UNREACHABLE)
        return reply

    def node(self, name: str) -> str:
        """See `ScriptRunner.node`."""
        return self._any.node(name) or self._writer.node(name)

    def nodes(self) -> Collection[str]:
        """See `ScriptRunner.nodes`."""
        return {*self._any.nodes(), *self._writer.nodes()}

    def ping(self) -> None:
        """Connect, log in, and send a ping. Raises Failure."""
        try:
            self._any.all().ping()
        except ERRORS as error:
            raise self._failure(self._any, error) from None
        except NO_REPLY:
            raise Failure(StoreReply.FAILED, NO_STORE) from None

    def close(self) -> None:
        """See `ScriptRunner.close`."""
        self._any.close()
        self._writer.close()

    def _eval(self, client: StoreClient, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        try:
            commands = client.all()
            digest = self._loaded.get(script)
            if digest is not None:
                try:
                    return commands.evalsha(digest, 1, name, *arguments)
                except exceptions.NoScriptError:  # it was restarted, or another one has replaced it
                    pass
            reply = commands.eval(script, 1, name, *arguments)
            self._loaded[script] = _digest(script)
        except ERRORS as error:
            raise self._failure(client, error) from None
        except NO_REPLY:
            raise Failure(StoreReply.FAILED, NO_STORE) from None
        return reply

    def _failure(self, client: StoreClient, error: Exception) -> Failure:
        reply = _reply_of(error)
        if isinstance(error, AWAY):
            client.lost(error)
        return Failure(reply, self._words(error))

    def _words(self, error: Exception) -> str:
        """Return an error's message on one line: a store that does not know a command quotes it, also the login."""
        text = " ".join("".join(each if each.isprintable() else " " for each in str(error)).split())
        for password in filter(None, (self._password, self._sentinels_password)):
            text = text.replace(password, "…")
        return text[:MOST_CHARACTERS]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    at: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if at is None:
            return
        yield at
        at = at.__cause__ or at.__context__


def _digest(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


def _reply_of(error: Exception) -> StoreReply:
    causes = [*_causes(error)]
    if any(isinstance(each, _DENIALS) or str(each).startswith(_DENIED) for each in causes):
        return StoreReply.DENIED
    if any(isinstance(each, ssl.SSLError) for each in causes):
        return StoreReply.TLS
    if any(isinstance(each, (exceptions.TimeoutError, TimeoutError)) for each in causes):
        return StoreReply.SLOW
    if isinstance(error, AWAY):
        return StoreReply.UNREACHABLE
    if isinstance(error, exceptions.OutOfMemoryError) or str(error).startswith(_FULL):
        return StoreReply.FULL
    return StoreReply.FAILED
