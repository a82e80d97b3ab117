"""The floor: what anything that looks at a prompt must do. Scan it into messages, hash it, copy it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter, thread_time

import msgspec


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]


_decoder = msgspec.json.Decoder(_Body)

WHAT = "floor: one scan into raw message slices (msgspec), one SHA-256 of the body, one copy of the body"


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds of each part on the wall clock, and of processor time for all."""

    scan: float
    hash: float
    copy: float
    cpu: float

    @property
    def total(self) -> float:
        """All three."""
        return self.scan + self.hash + self.copy


def floor(body: bytes) -> Floor:
    """Do the floor's work on a request body, and time it."""
    cpu, began = thread_time(), perf_counter()
    slices = _decoder.decode(body).messages
    scanned = perf_counter()
    digest = sha256(body).digest()
    hashed = perf_counter()
    copied = bytes(memoryview(body))
    done, cpu = perf_counter(), thread_time() - cpu
    assert slices
    assert digest
    assert len(copied) == len(body)
    return Floor(scanned - began, hashed - scanned, done - hashed, cpu)
