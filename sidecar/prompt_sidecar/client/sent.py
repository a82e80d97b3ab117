"""What went to the model last in each run: what a prompt falls back to when the sidecar does not trim the next one.

Everything is kept as bytes, since an agent may change its own objects at any time. Nothing is decoded until the sidecar
fails: in ordinary turns remembering costs a reference to the body that was sent, and the edits that came back.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from prompt_sidecar.client import native

Edit: TypeAlias = tuple[str, str, bytes]
MOST_RUNS: Final = 1_000
"""Runs that are remembered, the newest; `fallback_bytes` is the other bound, and the one that long prompts meet."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One run's last prompt, and the untrimmed history that it was made of."""

    format: str
    asked: tuple[bytes, ...]
    """The untrimmed history: a body, and those that followed it with a `base_revision`."""
    edits: tuple[Edit, ...] | None = None
    """What made it the prompt that was sent; None: that is `made`."""
    made: bytes = b""
    notes: frozenset[int] = frozenset()
    """Messages of the prompt that stand in no later one."""
    revision: bytes = b""
    """Of the sidecar's last answer."""
    told: tuple[bytes, ...] = ()
    """The untrimmed history that this revision stands for."""
    tokens: int = 0
    """Of the prompt, as the sidecar counted; 0: it did not."""
    limit: int = 0
    """Tokens that a prompt may take, as the sidecar knew."""
    most_bytes: int = 0
    """Bytes from which on a prompt is taken to be too long; 0: not known."""
    refused: bool = False
    """Whether the provider refused the prompt as too long."""
    gone: frozenset[bytes] = frozenset()
    """Digests of the blocks of thinking that were removed, and must not come back."""
    left_out: int = 0
    """Iterations that were left out of it."""
    fell_back: bool = False
    """Whether it was made here, without the sidecar."""

    @property
    def weight(self) -> int:
        """Bytes that it takes."""
        edits = sum(len(value) + len(pointer) for _, pointer, value in self.edits or ())
        told = 0 if self.told == self.asked else sum(map(len, self.told))
        return sum(map(len, self.asked)) + told + edits + len(self.made) + 64 * len(self.gone)

    def prompt(self) -> Any:
        """The prompt that was sent, as JSON; blocks that are `gone` still stand in what edits make."""
        return json.loads(self.made) if self.edits is None else native.edited(json.loads(self.asked[0]), self.edits)


class LastPrompts:
    """The last prompt of each run, within a bound. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Sent] = OrderedDict()
        self._bytes = 0
        self._forgotten = 0

    @property
    def forgotten(self) -> int:
        """Runs whose prompt was forgotten for others' sake."""
        return self._forgotten

    def of(self, run_id: str) -> Sent | None:
        """A run's last prompt."""
        with self._lock:
            return self._kept.get(run_id)

    def keep(self, run_id: str, sent: Sent) -> None:
        """Remember a run's prompt in place of the one before."""
        if not self._most_bytes:
            return
        with self._lock:
            self._drop(run_id)
            self._kept[run_id] = sent
            self._bytes += sent.weight
            while len(self._kept) > 1 and (self._bytes > self._most_bytes or len(self._kept) > MOST_RUNS):
                self._drop(next(iter(self._kept)))
                self._forgotten += 1

    def forget(self, run_id: str) -> None:
        """Forget a run."""
        with self._lock:
            self._drop(run_id)

    def _drop(self, run_id: str) -> None:
        dropped = self._kept.pop(run_id, None)
        if dropped is not None:
            self._bytes -= dropped.weight
