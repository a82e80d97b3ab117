"""Bearer tokens of callers: reads the file with them, and finds the caller of a token.

A caller is named by its token, so that it has the same name at all doors, and keeps its runs whichever door it uses.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prompt_sidecar.files import read_file

_TOKEN_CHARACTERS = 16
"""Shortest token that is accepted; a shorter one can be guessed over the network."""

MOST_NAMES = 20
"""Names that are listed for one kind of change, at most."""

_log = logging.getLogger(__name__)


class TokensError(Exception):
    """The tokens file cannot be used. The message names the file and line, never a token."""


def read_tokens(path: str, setting: str = "server.tokens_file") -> Mapping[str, str]:
    """Read a file of `name:token` lines into name → token. Empty lines and lines that start with # are skipped.

    `setting` is the name of the file's setting, for messages.

    Raises:
        TokensError: the file cannot be read, holds no token, or a line is not valid.
    """
    try:
        mode = Path(path).stat().st_mode
        lines = read_file(path).decode().splitlines()
    except OSError as error:
        raise TokensError(f"{setting} {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokensError(f"{setting} {path} is not UTF-8") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        _log.warning("%s can be read by others than its owner; set its mode to 0600", setting)
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


class Tokens:
    """Finds callers by token. `tokens` is name → token; empty: no token is required."""

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

    def __bool__(self) -> bool:
        """Whether a token is required."""
        return bool(self._names)

    def caller(self, token: str) -> str | None:
        """Return the caller with a token, as `token:name`; None if the token is unknown."""
        name = self._names.get(self._digest(token))
        return None if name is None else "token:" + name

    def _by_digest(self, tokens: Mapping[str, str]) -> Mapping[bytes, str]:
        return {
            self._digest(token): name for name, token in reversed(list(tokens.items()))
        }  # of two names with the same token the first

    def _digest(self, token: str) -> bytes:
        """Return the digest under which a token is stored.

        It is keyed with a random key of this process, so the time of a look-up does not reveal how near a guess is.
        """
        return hmac.digest(self._key, token.encode("utf-8", "surrogateescape"), "sha256")


def bearer_token(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Return the token in the only `authorization` of a gRPC call's metadata; empty if there is none."""
    sent = [value for name, value in metadata or () if name == "authorization"]
    scheme, _, token = (sent[0] if len(sent) == 1 and isinstance(sent[0], str) else "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _and_more(names: Sequence[str]) -> str:
    return f", with {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
