"""Checks what would prevent a server with these settings from starting here: files, folders, missing extras.

No address is bound, and only the store is connected to: a server with the same settings may be running. Modules are
imported only if the settings need them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prompt_sidecar.calls.tls import TlsFiles
from prompt_sidecar.calls.tokens import TokensError, read_tokens
from prompt_sidecar.config.settings import Settings
from prompt_sidecar.files import read_file
from prompt_sidecar.process.starting import StartError, needing

if TYPE_CHECKING:
    from prompt_sidecar.store.options import StoreOptions
    from prompt_sidecar.store.server import Server as Store  # needs the extra `store`


def obstacles(settings: Settings) -> Sequence[str]:
    """Return what would prevent a start, a line each; empty if nothing would, except an address in use."""
    found: list[str] = []
    for check in _CHECKS:
        try:
            check(settings)
        except (StartError, TokensError) as error:
            found.append(str(error))
    return found


def store_of(options: StoreOptions) -> Store:
    """Create a store's client, which does not connect yet.

    Raises:
        StartError: the extra `store` is not installed, or the password or a TLS file cannot be read.
    """
    with needing("store.url", "store"):
        from prompt_sidecar.store.server import Server as Store
    for name in ("tls_ca", "tls_certificate", "tls_key"):
        if path := getattr(options, name):
            try:
                Path(path).read_bytes()
            except OSError as error:
                raise StartError(f"store.{name} {path} cannot be read: {error.strerror}") from None
    for name, path in (
        ("password_file", options.password_file),
        ("sentinel_password_file", options.sentinel_password_file),
    ):
        try:
            _ = path and read_file(path).decode()
        except OSError as error:
            raise StartError(f"store.{name} {path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise StartError(f"store.{name} {path} is not UTF-8") from None
    return Store(options)


def store_problem(options: StoreOptions) -> str:
    """Ping the store, within its own timeouts; return what is wrong with it, empty if nothing.

    Raises: as `store_of`.
    """
    store = store_of(options)
    from prompt_sidecar.store.server import Failure

    try:
        store.ping()
    except Failure as failure:
        return f"{failure.reply.value}: {failure.words or 'it did not answer in time'}"
    finally:
        store.close()
    return ""


def _tokens(settings: Settings) -> None:
    if settings.server.tokens_file:
        read_tokens(settings.server.tokens_file)


def _tls(settings: Settings) -> None:
    if settings.server.tls_certificate:
        TlsFiles(settings.server)


def _socket(settings: Settings) -> None:
    if settings.server.socket:
        from prompt_sidecar.doors.grpc.unix_socket import check_socket

        check_socket(settings.server)


def _http(settings: Settings) -> None:
    if settings.http.listen:
        with needing("http.listen", "http"):
            import_module("prompt_sidecar.doors.http.lifecycle")


def _admin(settings: Settings) -> None:
    if settings.admin.listen:
        with needing("admin.listen", "admin"):
            import_module("prompt_sidecar.doors.admin.listener")
        if settings.admin.tokens_file:
            read_tokens(settings.admin.tokens_file, "admin.tokens_file")


def _store(settings: Settings) -> None:
    if settings.store.url:
        store_of(settings.store).close()


_CHECKS: Final[Sequence[Callable[[Settings], None]]] = (_tokens, _tls, _socket, _http, _admin, _store)
