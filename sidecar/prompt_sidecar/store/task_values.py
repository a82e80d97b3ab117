"""A run's tasks as one value in the store, readable also by the version before task records.

It is a map: `version`, `items` (the tasks by number) and `requests` are the fields that the earlier version reads and
writes; `epoch`, `records` and `made` (the version that each request has made) belong to the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Final

import msgspec

from prompt_sidecar.engine.tools.task_records import from_earlier, items_of
from prompt_sidecar.facts.archived import TaskRecord, TaskState
from prompt_sidecar.facts.task_calls import TaskItem


@dataclass(frozen=True, slots=True)
class _Stored:
    version: int
    items: Sequence[TaskItem] = ()
    requests: Sequence[str] = ()
    epoch: int = 0
    records: tuple[TaskRecord, ...] | None = None
    """None if the version before task records wrote it."""
    made: Sequence[int] = ()


# Created before threads start: msgspec crashes the process where two threads decode a type for the first time at once.
_decoder: Final = msgspec.msgpack.Decoder(_Stored)


def packed(state: TaskState) -> bytes:
    """Return the value of a state."""
    versions, names = [version for version, _ in state.requests], [name for _, name in state.requests]
    stored = _Stored(state.version, items_of(state.records), names, state.epoch, state.records, versions)
    return msgspec.msgpack.encode(stored)


def unpacked(value: bytes, known: TaskState) -> TaskState:
    """Return the state of a value; `known`: the run's state in this process. Raises msgspec.MsgspecError."""
    stored = _decoder.decode(value)
    if stored.records is None:
        return from_earlier(stored.version, stored.items, stored.requests, known)
    requests = tuple(zip(stored.made, stored.requests, strict=False))
    return TaskState(stored.version, stored.epoch, stored.records, requests)


def digest(sealed: bytes) -> bytes:
    """Return the digest by which the script that writes tasks recognises a stored value."""
    return sha1(sealed, usedforsecurity=False).hexdigest().encode()
