"""A run as the prompts that an agent sends: its whole history again at each call."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.tokens.count import CACHE_FROM_CHARS
from prompt_sidecar.v1 import trim_pb2
from tests.oracle.runs import turns

FORMATS = {
    "openai_chat": trim_pb2.FORMAT_OPENAI_CHAT,
    "anthropic_messages": trim_pb2.FORMAT_ANTHROPIC_MESSAGES,
}
_SPELLINGS = {"anthropic": "anthropic_messages"}
_HEADS = {
    "openai_chat": b'{"stream":true,"messages":[',
    "anthropic_messages": b'{"max_tokens":1024,"system":"You are a careful engineer.","messages":[',
}
ACCEPT_BYTES = 64 * 1024 * 1024
"""What the bench can receive: as much as the server sends, so that no answer is weighed for being too large."""
CALLER = "local"
"""The caller whom a server on loopback sees."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """A run's messages, and how many of them each call sends."""

    name: str
    format: str
    slices: Sequence[bytes]
    lengths: Sequence[int]

    def bodies(self) -> Iterator[bytes]:
        """The request body of each call, in order. Bytes of its own each, as a server receives them."""
        body = bytearray(_HEADS[self.format])
        at = 0
        for length in self.lengths:
            for part in self.slices[at:length]:
                body += part
                body += b","
            at = length
            yield bytes(memoryview(body)[:-1]) + b"]}"

    def salted(self, number: int) -> Prompts:
        """The same run in size, but with long texts that no count cache has seen under another number."""
        slices = [orjson.dumps(_salt(orjson.loads(part), f"{number:04}")) for part in self.slices]
        return replace(self, slices=slices)

    @property
    def size(self) -> int:
        """Bytes of the last body."""
        return len(_HEADS[self.format]) + sum(len(part) + 1 for part in self.slices[: self.lengths[-1]]) + 1

    def __len__(self) -> int:
        """Calls."""
        return len(self.lengths)


def _salt(value: Any, salt: str) -> Any:
    """The value with the first characters of its long texts replaced; arguments excepted, which are JSON."""
    if isinstance(value, dict):
        return {name: member if name == "arguments" else _salt(member, salt) for name, member in value.items()}
    if isinstance(value, list):
        return [_salt(member, salt) for member in value]
    return salt + value[len(salt) :] if isinstance(value, str) and len(value) >= CACHE_FROM_CHARS else value


def prompts_of(name: str, format: str, slices: Sequence[bytes]) -> Prompts:
    """The prompts of a run: before each assistant message what stands before it, at the end everything."""
    return Prompts(name, format, slices, turns([orjson.loads(part) for part in slices]))


def recorded(path: Path) -> Prompts:
    """A recorded run: a file that holds {"format", "messages"}, gzipped or not.

    Raises:
        ValueError: the file holds something else.
    """
    content = path.read_bytes()
    loaded: Any = orjson.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    if not isinstance(loaded, dict) or not isinstance(loaded.get("messages"), list) or not loaded["messages"]:
        raise ValueError(f'{path} does not hold {{"format": ..., "messages": [...]}}')
    format = _SPELLINGS.get(loaded.get("format", ""), loaded.get("format", ""))
    if format not in FORMATS:
        raise ValueError(f"{path} has the format {format!r}; it may be one of {', '.join(FORMATS)}")
    return prompts_of(path.name.split(".")[0], format, [orjson.dumps(message) for message in loaded["messages"]])


def trim_call(run_id: str, format: str, body: bytes, limit: int) -> TrimCall:
    """A prompt as the core gets it; `limit` is tokens."""
    return TrimCall(
        caller=CALLER,
        run_id=run_id,
        format=format,
        body=body,
        context_window=limit,
        output_reserve=0,
        preset="cache_first",
        accept_bytes=ACCEPT_BYTES,
    )


def request(run_id: str, format: str, body: bytes, limit: int) -> bytes:
    """The same prompt as it goes over the wire."""
    return trim_pb2.TrimPromptRequest(
        run_id=run_id,
        json=trim_pb2.JsonPrompt(format=FORMATS[format], body=body),
        context_window=limit,
        output_reserve=0,
        accept_bytes=ACCEPT_BYTES,
    ).SerializeToString()
