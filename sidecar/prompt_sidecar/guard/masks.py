"""Masks: the text in a prompt that replaces a secret.

    ⟦github_token:k7x2m9qa4t⟧

The kind is taken from the rule that found the value. The id is a keyed hash of caller, run and value: the same value
has the same mask in every prompt of its run and in every process that has the key, a value of another run has another
one, and without the key nobody can derive the value from a mask or forge one. A mask is only a label; its value is in
the vault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple
from urllib.parse import quote

import orjson

from prompt_sidecar.trim.ids import ID_CHARACTERS, spelled

OPENING: Final = "⟦"
CLOSING: Final = "⟧"
_KIND: Final = r"(?P<kind>[a-z][a-z0-9_]{0,63})"
_ID: Final = rf"(?P<id>[a-hj-km-np-tv-z0-9]{{{ID_CHARACTERS}}})"
_MASK: Final = re.compile(rf"{OPENING}{_KIND}:{_ID}{CLOSING}")
_WRITTEN: Final = re.compile(
    rf"(?P<plain>{OPENING}){_KIND}:{_ID}{CLOSING}"
    rf"|(?P<json>\\u(?:27e6|\{{0{{0,2}}27e6\}})){_KIND.replace('kind', 'json_kind')}:"
    rf"{_ID.replace('<id>', '<json_id>')}\\u(?:27e7|\{{0{{0,2}}27e7\}})"
    rf"|(?P<url>%E2%9F%A6){_KIND.replace('kind', 'url_kind')}(?:%3A|:){_ID.replace('<id>', '<url_id>')}%E2%9F%A7"
    rf"|(?P<octal>\\342\\237\\246){_KIND.replace('kind', 'octal_kind')}:{_ID.replace('<id>', '<octal_id>')}"
    r"\\342\\237\\247",
    re.IGNORECASE,
)
"""A mask, plain or as programs escape it: in JSON, JavaScript or Rust, in a URL, by the shell."""
_FIRST: Final = re.compile(r"⟦|\\u(?:27e6|\{0{0,2}27e6\})|%e2%9f%a6|\\342\\237\\246", re.IGNORECASE)


def mask(kind: str, mask_id: str) -> str:
    """Return the mask's text."""
    return f"{OPENING}{kind}:{mask_id}{CLOSING}"


def mint(of_run: bytes, value: str) -> str:
    """Return the id of a value's mask in the run of the key."""
    return spelled(blake2b(value.encode(), key=of_run, digest_size=ID_CHARACTERS, person=b"mask").digest())


def places(text: str) -> list[tuple[int, int]]:
    """Return start and end of everything in a text that looks like a mask, ours or not."""
    return [found.span() for found in _MASK.finditer(text)] if OPENING in text else []


class FoundMask(NamedTuple):
    """A mask found in a text, perhaps escaped."""

    start: int
    end: int
    kind: str
    id: str
    spelling: str

    def spelled(self, value: str) -> str:
        """Return the value, escaped as the mask is."""
        if self.spelling == "json":
            return orjson.dumps(value).decode()[1:-1]
        if self.spelling == "url":
            return quote(value, safe="")
        return value


def written(text: str) -> Iterator[FoundMask]:
    """Yield the masks in a text, however they are escaped, from left to right."""
    if _FIRST.search(text) is None:
        return
    for found in _WRITTEN.finditer(text):
        spelling = found.lastgroup or "plain"
        spelling = spelling.partition("_")[0] if "_" in spelling else "plain"
        prefix = "" if spelling == "plain" else f"{spelling}_"
        yield FoundMask(*found.span(), found[f"{prefix}kind"].lower(), found[f"{prefix}id"].lower(), spelling)
