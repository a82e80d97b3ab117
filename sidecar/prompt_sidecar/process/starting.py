"""What keeps a door from being opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class StartError(Exception):
    """A door cannot be opened; the message explains what to change."""


@contextmanager
def needing(setting: str, extra: str) -> Iterator[None]:
    """Import what a setting needs of an extra of the package. Raises StartError where it is not installed."""
    try:
        yield
    except ImportError as error:
        if (error.name or "prompt_sidecar").split(".")[0] == "prompt_sidecar":
            raise  # no installation would help
        raise StartError(f"{setting} is set, and the extra `{extra}` is not installed: {error}") from None


def no_password() -> str:
    """Refuse a TLS key with a password; without this, OpenSSL asks on the terminal. Raises ValueError."""
    raise ValueError("the key has a password")
