"""Values are compressed, then encrypted, before they are written, so that the store reveals their sizes only.

Each run has a cipher key of its own, derived by HKDF (RFC 5869) from the run's key, which is itself derived from the
sidecar's key, the caller and the run id. So a caller's values cannot be read with another caller's keys, and a value
cannot be moved: run, field and epoch are its associated data. Ids in the store are derived in the same way.
"""

from __future__ import annotations

import os
import re
from typing import Final

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE: Final = 12
"""Bytes, random: with one key for each run, 2^32 values would have to be written before a nonce may repeat (NIST SP
800-38D)."""
_VERSION: Final = b"\x01"
_PLAIN, _PACKED = b"\x00", b"\x01"
_RUN_NAME: Final = re.compile(rb"ps:\{[0-9a-f]{32}\}")
_COMPRESS_FROM: Final = 64
"""Bytes; for smaller values Zstandard's frame takes more than compression saves."""


class Unreadable(Exception):
    """A value is damaged, or was not written for this run, field and epoch with this key."""


class Sealer:
    """Seals and opens the values of one run."""

    def __init__(self, run_key: bytes) -> None:
        """`run_key`: 32 secret bytes that are derived from the sidecar's key, the caller and the run id."""
        self.name = "ps:{%s}" % _derived(run_key, b"prompt-sidecar store: name", 16).hex()  # noqa: UP031 - braces
        """The run's key in the store; the part in braces decides its place in a cluster."""
        self._cipher = AESGCM(_derived(run_key, b"prompt-sidecar store: content", 32))

    def seal(self, field: bytes, epoch: int, value: bytes) -> bytes:
        """Return the sealed form of a value for a field."""
        plain = _PLAIN + value
        if len(value) >= _COMPRESS_FROM:
            packed = zstandard.ZstdCompressor(level=1).compress(value)
            if len(packed) < len(value):
                plain = _PACKED + packed
        nonce = os.urandom(_NONCE)
        return _VERSION + nonce + self._cipher.encrypt(nonce, plain, self._bound_to(field, epoch))

    def open(self, field: bytes, epoch: int, sealed: bytes) -> bytes:
        """Return the value that was sealed. Raises Unreadable."""
        if sealed[:1] != _VERSION or len(sealed) < 1 + _NONCE:
            raise Unreadable
        nonce, content = sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :]
        try:
            plain = self._cipher.decrypt(nonce, content, self._bound_to(field, epoch))
        except InvalidTag:
            raise Unreadable from None
        value = plain[1:]
        return zstandard.ZstdDecompressor().decompress(value) if plain[:1] == _PACKED else value

    def _bound_to(self, field: bytes, epoch: int) -> bytes:
        return b"%b\x00%d\x00%b" % (self.name.encode(), epoch, field)


def is_run_name(name: bytes) -> bool:
    """Whether a key in the store may be a run's, by its form."""
    return _RUN_NAME.fullmatch(name) is not None


def caller_name(caller_key: bytes) -> str:
    """Return the key in the store under which the names of a caller's runs are kept."""
    return "pc:{%s}" % _derived(caller_key, b"prompt-sidecar store: caller", 16).hex()  # noqa: UP031 - braces


def _derived(key: bytes, info: bytes, size: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=size, salt=None, info=info).derive(key)
