"""The last prompt of each run: what the next one is made of when the sidecar does not trim it.

Everything is kept as bytes, since an agent may change its own objects at any time. Nothing is decoded until the sidecar
fails: in ordinary turns this costs a reference to the body that was sent, and the edits that were returned.
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
"""Most runs that are remembered; `fallback_bytes` is the other limit, which long prompts reach first."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One run's last prompt, and the untrimmed history that it was made from."""

    format: str
    asked: tuple[bytes, ...]
    """The untrimmed history: a body, and those that followed it with a `base_revision`."""
    edits: tuple[Edit, ...] | None = None
    """The edits that turn the history into the prompt; None: the prompt is `made`."""
    made: bytes = b""
    notes: frozenset[int] = frozenset()
    """Indices of messages that no later prompt contains."""
    revision: bytes = b""
    """Of the sidecar's last answer."""
    covered: tuple[bytes, ...] = ()
    """The untrimmed history that this revision covers."""
    tokens: int = 0
    """Tokens of the prompt as the sidecar counted them; 0: unknown."""
    limit: int = 0
    """The limit that the sidecar applied, in tokens."""
    most_bytes: int = 0
    """Bytes from which a prompt is assumed to be too long; 0: unknown."""
    refused: bool = False
    """Whether the provider refused the prompt as too long."""
    removed: frozenset[bytes] = frozenset()
    """Digests of the blocks of thinking that were removed and must not return."""
    left_out: int = 0
    """Number of iterations that were left out."""
    fell_back: bool = False
    """Whether it was made here, without the sidecar."""

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        edits = sum(len(value) + len(pointer) for _, pointer, value in self.edits or ())
        covered = 0 if self.covered == self.asked else sum(map(len, self.covered))
        return sum(map(len, self.asked)) + covered + edits + len(self.made) + 64 * len(self.removed)

    def prompt(self) -> Any:
        """Return the prompt that was sent, as JSON. If it is made by edits, it still holds the blocks in `removed`."""
        return json.loads(self.made) if self.edits is None else native.edited(json.loads(self.asked[0]), self.edits)


class LastPrompts:
    """The last prompt of each run, the least recently used evicted first. Thread-safe.

    By hand, as the client may depend on nothing but gRPC and protobuf.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Sent] = OrderedDict()
        self._bytes = 0
        self._forgotten = 0

    @property
    def forgotten(self) -> int:
        """Runs whose prompt was evicted for others'."""
        return self._forgotten

    def of(self, run_id: str) -> Sent | None:
        """Return a run's last prompt; None: unknown."""
        with self._lock:
            return self._kept.get(run_id)

    def keep(self, run_id: str, sent: Sent) -> None:
        """Replace a run's last prompt."""
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

    def forget_all(self) -> None:
        """Forget all runs."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def _drop(self, run_id: str) -> None:
        dropped = self._kept.pop(run_id, None)
        if dropped is not None:
            self._bytes -= dropped.weight
