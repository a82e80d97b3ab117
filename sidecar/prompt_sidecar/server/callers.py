"""Authentication: the caller of a call, to whom its runs belong.

In this order: `unix` for a peer on the unix socket, the name of the bearer token where tokens are configured, the
subject of the client's certificate where client certificates are, else `local`. Python's gRPC does not expose the uid
of a unix peer; the socket's mode 0600 admits one uid (and root), so all its peers are one caller and need no token.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import stat
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import grpc

from prompt_sidecar.errors import Unauthenticated

CALLER: ContextVar[str] = ContextVar("caller")
"""The caller of the current call; set before its handler runs."""

_TOKEN_CHARACTERS = 16
"""The least length of a token; a shorter one can be guessed over the network."""

MOST_NAMES = 20
"""Most names that are listed for one kind of change."""

_log = logging.getLogger(__name__)


class TokensError(Exception):
    """The tokens file cannot be used. The message names the file and line, never a token."""


def read_tokens(path: str) -> Mapping[str, str]:
    """Read a file of `name:token` lines into name → token. Empty lines and lines that start with # are skipped.

    Raises:
        TokensError: the file cannot be read, holds no token, or a line is not valid.
    """
    try:
        mode = Path(path).stat().st_mode
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TokensError(f"server.tokens_file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokensError(f"server.tokens_file {path} is not UTF-8") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        _log.warning("server.tokens_file can be read by others than its owner; set its mode to 0600")
    tokens: dict[str, str] = {}
    for index, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, token = (part.strip() for part in line.partition(":"))
        if not (colon and name and name.isprintable() and name not in tokens and token.isascii()):
            raise TokensError(f"{path} line {index} is not name:token with a name of its own")
        if len(token) < _TOKEN_CHARACTERS:
            raise TokensError(f"{path} line {index}: the token is shorter than {_TOKEN_CHARACTERS} characters")
        tokens[name] = token
    if not tokens:
        raise TokensError(f"{path} holds no token; write one name:token a line")
    return tokens


class Callers:
    """Authenticates calls. `tokens` is name → token; empty: no token is required."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._names = self._by_digest(tokens)

    def replace(self, tokens: Mapping[str, str]) -> str:
        """Replace the tokens; return what changed, for the log: names, never tokens."""
        old, new = self._names, self._by_digest(tokens)
        self._names = new
        before, after = ({name: digest for digest, name in names.items()} for names in (old, new))
        changes = {
            "added": [name for name in after if name not in before],
            "removed": [name for name in before if name not in after],
            "changed": [name for name in after if name in before and before[name] != after[name]],
        }
        parts = [
            f"{', '.join(sorted(names)[:MOST_NAMES])} {change}{_and_more(names)}"
            for change, names in changes.items()
            if names
        ]
        return f"tokens: {'; '.join(parts) or 'nothing changed'}"

    def of(self, context: grpc.ServicerContext) -> str:
        """Return the caller's identity.

        Raises:
            Unauthenticated: a token is needed and none, or an unknown one, was sent.
        """
        if context.peer().startswith("unix"):
            return "unix"
        if self._names:
            return "token:" + self._by_token(context)
        proven: Mapping[str, Any] = context.auth_context()
        subject = proven.get("x509_subject") or proven.get("x509_common_name")
        if subject:
            return "mtls:" + str(subject[0], "utf-8", "replace")
        return "local"

    def _by_token(self, context: grpc.ServicerContext) -> str:
        sent = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
        scheme, _, token = (sent[0] if len(sent) == 1 and isinstance(sent[0], str) else "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("send the metadata `authorization: Bearer …` with a token of this sidecar")
        name = self._names.get(self._digest(token.strip()))
        if name is None:
            raise Unauthenticated("the bearer token is not known to this sidecar")
        return name

    def _by_digest(self, tokens: Mapping[str, str]) -> Mapping[bytes, str]:
        return {
            self._digest(token): name for name, token in reversed(list(tokens.items()))
        }  # of two with the same token the first

    def _digest(self, token: str) -> bytes:
        """Return the digest by which a token is looked up.

        It is keyed with a random key of this process, so the time of a look-up does not reveal how near a guess is.
        """
        return hmac.digest(self._key, token.encode(), "sha256")


def _and_more(names: Sequence[str]) -> str:
    return f", with {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
