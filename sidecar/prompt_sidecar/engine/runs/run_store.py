"""Where one run's originals go: the stash, which holds the only copy, and the history, which is searched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.facts.archived import Original
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.stash import Stash


class RunStore:
    """Stores at once, or not until `commit`: for calls that may still end without any change. See `turn.turn.Store`."""

    def __init__(self, stash: Stash, run: Run, caller: str, *, later: bool, iteration: int | None = None) -> None:
        """Store for this run of this caller; `iteration`: the iteration to record at; None: each item's own."""
        self._stash = stash
        self._run = run
        self._caller = caller
        self._iteration = iteration
        self._held: list[Callable[[], None]] | None = [] if later else None

    def record(self, items: Sequence[tuple[HistoryItem, bytes]]) -> None:
        """Record new items with their originals."""
        if self._iteration is not None:
            items = [(item._replace(iteration=self._iteration), original) for item, original in items]
        self._change(partial(self._record, items))

    def put(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Store an original that is trimmed now."""
        self._change(partial(self._put, stash_id, original, content_type))

    def again(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Store an original that had expired and was sent again."""
        self._change(partial(self._put, stash_id, original, content_type))
        self._change(partial(self._run.history.record_again, stash_id))

    def renew(self, stash_id: str) -> bool:
        """Renew a recorded original if it is in the stash; one that waits for `commit` is not."""
        recorded = self._held is None and self._run.history.item(stash_id) is not None
        return recorded and self._stash.renew(self._run.stash_key, stash_id)

    def dead(self) -> Collection[str]:
        """Ids whose originals can no longer be retrieved."""
        return self._stash.dead(self._run.stash_key)

    def missing(self) -> Sequence[str]:
        """Ids whose originals have expired and were not stored again."""
        return self._stash.missing(self._run.stash_key)

    def commit(self) -> None:
        """Store the waiting originals in their order."""
        for change in self._held or ():
            change()

    def _change(self, change: Callable[[], None]) -> None:
        if self._held is None:
            change()
        else:
            self._held.append(change)

    def _record(self, items: Sequence[tuple[HistoryItem, bytes]]) -> None:
        originals = [(item.stash_id, original, item.content_type) for item, original in items]
        held = self._stash.put_all(self._run.stash_key, self._caller, originals)
        kept = [each for each, is_held in zip(items, held, strict=True) if is_held]
        self._run.history.record_all([item for item, _ in kept])
        if self._run.archived.outbox is not None:
            self._run.archived.outbox += [
                Original(item.stash_id, original, item.content_type, item) for item, original in kept
            ]

    def _put(self, stash_id: str, original: bytes, content_type: str) -> None:
        if not self._stash.put(self._run.stash_key, self._caller, stash_id, original, content_type):
            raise RuntimeError("an original that was said to fit does not fit the stash")
        # Recorded items were handed over when they were recorded.
        if self._run.archived.outbox is not None and self._run.history.item(stash_id) is None:
            self._run.archived.outbox.append(Original(stash_id, original, content_type, None))
