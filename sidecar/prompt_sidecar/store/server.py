"""The connection to Valkey or Redis: scripts in, replies or a `Failure` out."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any, Final, Protocol

import valkey
from valkey import exceptions

from prompt_sidecar.facts.archived import StoreReply
from prompt_sidecar.store.options import StoreOptions

_FULL: Final = ("OOM", "MISCONF")
"""How the errors of a store begin that cannot take more: no memory, or no disk for its log."""

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


class Server:
    """A real one."""

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
        self._any: Any = valkey.Valkey.from_url(options.url, **given)
        self._writer: Any = valkey.Valkey.from_url(options.url, max_connections=1, **given)
        self._loaded: dict[str, str] = {}

    def run(self, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        """See `Backend.run`."""
        return self._eval(self._any, script, name, arguments)

    def write(self, script: str, name: str, arguments: Sequence[Argument], replicas: int) -> Any:
        """See `Backend.write`."""
        reply = self._eval(self._writer, script, name, arguments)
        if replicas:
            try:
                reached = self._writer.wait(replicas, max(1, int(self._timeout * 500)))
            except exceptions.ValkeyError as error:
                raise Failure(_reply_of(error)) from None
            if reached < replicas:
                raise Failure(StoreReply.UNREACHABLE)
        return reply

    def close(self) -> None:
        """See `Backend.close`."""
        self._any.close()
        self._writer.close()

    def _eval(self, client: Any, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        try:
            digest = self._loaded.get(script)
            if digest is not None:
                try:
                    return client.evalsha(digest, 1, name, *arguments)
                except exceptions.NoScriptError:  # it was restarted, or another has taken its place
                    pass
            reply = client.eval(script, 1, name, *arguments)
            self._loaded[script] = _digest(script)
        except exceptions.ValkeyError as error:
            raise Failure(_reply_of(error)) from None
        return reply


def _digest(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


def _reply_of(error: Exception) -> StoreReply:
    if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError)):
        return StoreReply.UNREACHABLE
    if isinstance(error, exceptions.OutOfMemoryError) or str(error).startswith(_FULL):
        return StoreReply.FULL
    return StoreReply.FAILED
