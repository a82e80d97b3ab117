"""Stash ids: labels that only this sidecar's key can mint.

An id is a keyed hash of the caller, the run and the occurrence of an item: its place in the run's history and the
identity of its message. The same occurrence has the same id at every re-entry and in every process that has the key; an
id of another run, or one that was guessed or made up, matches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

ID_CHARACTERS: Final = 10
_ALPHABET: Final = b"abcdefghjkmnpqrstvwxyz0123456789"
"""32 characters without i, l, o and u, which are easily misread when an id is copied. An id has 50 bits."""
_CHARACTERS: Final = _ALPHABET * (256 // len(_ALPHABET))
"""The character for each byte value; all characters are equally likely."""


def run_key(key: bytes, caller: str, run_id: str) -> bytes:
    """Return a key for one run, so that runs share an id only by chance."""
    name = b"%d:%b%b" % (len(caller.encode()), caller.encode(), run_id.encode())
    return blake2b(name, key=_short(key), digest_size=32, person=b"run").digest()


@dataclass(frozen=True, slots=True)
class Keys:
    """The sidecar's keys. Ids and signatures are made with the first, except in runs that began with a previous one."""

    first: bytes
    previous: tuple[bytes, ...] = ()
    lasting: bool = True
    """Whether other processes may have the first key, as it was configured; a random key is not."""

    @property
    def all(self) -> tuple[bytes, ...]:
        """All keys that are accepted."""
        return (self.first, *self.previous)

    def of_run(self, caller: str, run_id: str) -> tuple[bytes, ...]:
        """Return a run's possible keys, one for each key of the sidecar, in their order."""
        return tuple(run_key(key, caller, run_id) for key in self.all)


def caller_key(key: bytes, caller: str) -> bytes:
    """Return a key for all runs of one caller."""
    return blake2b(caller.encode(), key=_short(key), digest_size=32, person=b"caller").digest()


def mint(of_run: bytes, message: int, item: int, identity: bytes) -> str:
    """Return the stash id of an item, from its message's place and identity and its place in the message."""
    place = b"%d.%d." % (message, item)
    return spelled(blake2b(place + identity, key=of_run, digest_size=ID_CHARACTERS, person=b"stash").digest())


def spelled(hashed: bytes) -> str:
    """Return a hash in the characters of ids, five bits of each byte."""
    return hashed.translate(_CHARACTERS).decode()


def sealed(of_run: bytes, content: bytes) -> bytes:
    """Return a keyed digest of 16 bytes, from which nobody without the run's key can guess the content."""
    return blake2b(content, key=of_run, digest_size=16, person=b"content").digest()


def sign(key: bytes, content: bytes) -> bytes:
    """Return a 16-byte keyed tag of a revision."""
    return blake2b(content, key=_short(key), digest_size=16, person=b"revision").digest()


def _short(key: bytes) -> bytes:
    """Shorten a key for BLAKE2b, which takes up to 64 bytes; a longer one is hashed first, as in HMAC."""
    return key if len(key) <= 64 else blake2b(key).digest()
