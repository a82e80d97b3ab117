"""The last revision of each run. A sidecar that has not seen the run needs it to make the same edits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

MOST_RUNS: Final = 1_000
"""Most runs that are remembered. A revision takes about 2 kB at 500 trimmed items. Without it, a sidecar that has not
seen the run may make other edits if its inputs changed."""


class Revisions:
    """Revisions by run, the oldest evicted first. Thread-safe.

    By hand, as the client may depend on nothing but gRPC and protobuf.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, run_id: str) -> bytes:
        """Return a run's last revision; empty if there is none."""
        with self._lock:
            return self._kept.get(run_id, b"")

    def keep(self, run_id: str, revision: bytes) -> None:
        """Replace a run's revision."""
        with self._lock:
            self._kept[run_id] = revision
            self._kept.move_to_end(run_id)
            if len(self._kept) > MOST_RUNS:
                self._kept.popitem(last=False)

    def forget(self, run_id: str) -> None:
        """Forget a run."""
        with self._lock:
            self._kept.pop(run_id, None)

    def forget_all(self) -> None:
        """Forget all runs."""
        with self._lock:
            self._kept.clear()
