"""Where one run's originals go: the stash, which holds the only copy, and the history, which is searched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.facts.archived import Original
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.stash import Stash


class RunStore:
    """Stores at once. See `prompt_sidecar.engine.steps.turn.Store`."""

    def __init__(self, stash: Stash, run: Run, caller: str) -> None:
        """Store for this run of this caller."""
        self._stash = stash
        self._run = run
        self._caller = caller

    def record(self, items: Sequence[tuple[HistoryItem, bytes]]) -> None:
        """Keep items that are new, with their originals."""
        originals = [(item.stash_id, original, item.content_type) for item, original in items]
        kept = self._stash.put_all(self._run.stash_key, self._caller, originals)
        self._run.history.record_all([item for (item, _), held in zip(items, kept, strict=True) if held])
        if self._run.archived.outbox is not None:
            self._run.archived.outbox += [
                Original(item.stash_id, original, item.content_type, item)
                for (item, original), held in zip(items, kept, strict=True)
                if held
            ]

    def put(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Store an original from which something is taken now."""
        if not self._stash.put(self._run.stash_key, self._caller, stash_id, original, content_type):
            raise RuntimeError("an original that was said to fit does not fit the stash")
        # What is recorded was handed over then.
        if self._run.archived.outbox is not None and self._run.history.item(stash_id) is None:
            self._run.archived.outbox.append(Original(stash_id, original, content_type, None))

    def renew(self, stash_id: str) -> bool:
        """Store an original that was recorded, if it is still there."""
        return self._run.history.item(stash_id) is not None and self._stash.renew(self._run.stash_key, stash_id)

    def again(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Store an original that had expired and has come again."""
        self.put(stash_id, original, content_type)
        self._run.history.record_again(stash_id)

    def commit(self) -> None:
        """Store what was held back: nothing, here."""

    def dead(self) -> Collection[str]:
        """Ids that can no longer be retrieved."""
        return self._stash.dead(self._run.stash_key)

    def missing(self) -> Sequence[str]:
        """Ids that have expired and were not stored again."""
        return self._stash.missing(self._run.stash_key)


class LaterStore(RunStore):
    """Stores nothing until `commit`: for calls that may yet change nothing."""

    def __init__(self, stash: Stash, run: Run, caller: str) -> None:
        """As RunStore."""
        super().__init__(stash, run, caller)
        self._held: list[Callable[[], None]] = []

    def record(self, items: Sequence[tuple[HistoryItem, bytes]]) -> None:
        """Remember to record."""
        self._held.append(partial(super().record, items))

    def put(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Remember to store."""
        self._held.append(partial(super().put, stash_id, original, content_type))

    def renew(self, stash_id: str) -> bool:  # noqa: ARG002 - what was recorded is not there yet
        """Nothing is stored yet."""
        return False

    def again(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Remember to store again."""
        self._held.append(partial(super().again, stash_id, original, content_type))

    def commit(self) -> None:
        """Store what was held back, in its order."""
        for store in self._held:
            store()
