"""What a run gives to the archive and takes from it. A run is used under its lock.

Without an archive every method returns at its first line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock
from typing import Final

from prompt_sidecar.engine.runs.archive import Archive, ArchiveLack, ArchivePlace
from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.runs.shared_vault import SharedVault
from prompt_sidecar.engine.runs.table import RunTable
from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.archived import ArchivedRun, Batch, Original, RevisionState, TaskState
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.guard.vault import Value
from prompt_sidecar.trim.ids import Keys, caller_key
from prompt_sidecar.trim.revision import run_digest, unseal

NOT_ASKED: Final = "the store that replicas share gave no answer in time, and this process has not seen the run"

NOT_STORED: Final = {
    ArchiveLack.NO_WRITES: (
        "neither this process nor the store that replicas share has such an id, but the store takes no writes now, so "
        "another process may have returned it; send the run's prompt, then ask again"
    ),
    ArchiveLack.UNWRITTEN: (
        "neither this process nor the store that replicas share has such an id, but the store was full and lacks some "
        "of what another process has returned in this run, which is lost if that process has ended; send the run's "
        "prompt, then ask again"
    ),
}
"""Why an id that nobody has is not simply unknown."""

RECORDED_AT_ONCE: Final = 1_000
"""Items whose facts are recorded at once: a millisecond."""

Hold = Callable[[Lock], AbstractContextManager[object]]
"""Holds a lock while a call works; see `prompt_sidecar.engine.runs.pace.Pace.holding`."""


class Archiving:
    """Runs between this process and the archive."""

    def __init__(  # noqa: PLR0917 - the parts that it works with
        self,
        table: RunTable,
        archive: Archive | None,
        vault: SharedVault,
        keys: Keys,
        first_wait: float,
        clocks: Clocks,
    ) -> None:
        """Take what a prompt may wait for, and how the wall's clock differs from the table's.

        Args:
            table: the runs of this process.
            archive: keeps them; None: nothing does.
            vault: their values behind masks, as far as the archive keeps them.
            keys: the sidecar's keys.
            first_wait: seconds that a run's first prompt waits for the archive once it has been read.
            clocks: the table's and the wall's.
        """
        self._table = table
        self._archive = archive
        self._vault = vault
        self._keys = keys
        self._first_wait = first_wait
        self._clocks = clocks

    @property
    def enabled(self) -> bool:
        """Whether anything is kept at all."""
        return self._archive is not None

    def _found(
        self, caller: str, run_id: str, wait: float | None, *, needed: bool = False
    ) -> tuple[bytes, ArchivePlace, ArchivedRun | None]:
        """What another process left of a run that this one has not seen: by the newest key that has any of it.

        Raises:
            StoreUnavailable: it is `needed`, and the archive gave no answer.
        """
        assert self._archive is not None
        places = [
            (of_run, self._archive.find(of_run, caller_key(key, caller)))
            for key, of_run in zip(self._keys.all, self._keys.of_run(caller, run_id), strict=True)
        ]
        for key, place in places:
            found = place.restored(wait)
            if found is not None:
                return key, place, found
        if needed and not all(place.looked for _, place in places):
            raise StoreUnavailable(NOT_ASKED)
        return *places[0], None

    # -- prompts -----------------------------------------------------------------------------------------------------

    def key_of(self, caller: str, run_id: str, sealed: bytes) -> bytes | None:
        """The key of the run that a prompt is of, if it began with a previous one and this process has not seen it.

        The revision that was sent, `sealed`, shows it, or the archive, which is asked for at most `first_wait` for each
        key. None: the run has been seen, or nothing shows that it began elsewhere.
        """
        if not self._keys.previous or self._table.known(caller, run_id) is not None:
            return None
        if sealed:
            began = {run_digest(key): key for key in self._keys.of_run(caller, run_id)}
            opened = (unseal(key, sealed) for key in self._keys.all)
            return next((began[each.run] for each in opened if each is not None and each.run in began), None)
        if self._archive is None:
            return None
        key, _, found = self._found(caller, run_id, self._first_wait)
        return None if found is None else key

    def begin(self, run: Run, *, hidden: bool = False) -> None:
        """A prompt of the run has come: begin to look for what another process left of it, while the prompt is read.

        `hidden`: also for its hidden turns, where the process knows the run.
        """
        asked, run.archived.asked = run.archived.asked, False
        if self._archive is not None and run.archived.place is None:
            run.archived.place = self._archive.find(run.key, self._caller_key(run))
            run.archived.outbox = []
        elif run.archived.place is not None and not asked:
            run.archived.place.ask_tasks(hidden=hidden)

    def hidden_turns(self, run: Run) -> bytes | None:
        """A door is about to make a prompt of the run: what others have made of its hidden turns, if they have.

        The archive is asked for all that the prompt needs, and waited for `first_wait` at most. See
        `ArchivePlace.hidden`.
        """
        run.archived.asked = False
        self.begin(run, hidden=True)
        if run.archived.place is None:
            return None
        run.archived.asked = True
        return run.archived.place.hidden(self._first_wait)

    def keep_hidden(self, run: Run, hidden: bytes, *, at_once: bool) -> None:
        """Hand over a run's hidden turns: `at_once`, or with what its next prompt brings."""
        run.archived.hidden = hidden
        if at_once and run.archived.place is not None:
            run.archived.hidden = None
            run.archived.place.write(Batch(edits=True, hidden=hidden), partial(self._everything, run))

    def first_revision(self, run: Run) -> bytes:
        """The revision of the answer that another process gave last, where this one has yet to see a prompt.

        It waits for the archive, which has had the time that reading the prompt took, and `first_wait` more.
        """
        if run.archived.place is not None and not run.archived.adopted:
            restored = run.archived.place.restored(self._first_wait)
            if restored is not None:
                run.adopt(restored, self._clocks.ahead())
                self._table.keep(run)
        return run.archived.revision_left

    def newest_revision(self, run: Run) -> bytes:
        """The revision of the run's last answer, where others have answered prompts of it since this process did.

        The archive is asked now, and waited for `first_wait` at most.
        """
        return run.archived.place.newest_revision(self._first_wait) if run.archived.place is not None else b""

    def read_tasks(self, run: Run) -> None:
        """Take in what other processes have made of the run's tasks, which a prompt has had asked for.

        The archive is waited for `first_wait` at most; what comes later is there for the next prompt.
        """
        if run.archived.place is not None:
            run.tasks.restore(run.archived.place.tasks(self._first_wait)[0])

    def answered(self, run: Run, answer: TrimAnswer | None) -> None:
        """Hand over what a prompt has brought; None: its call had to end before it was answered."""
        place = run.archived.place
        if place is None:
            return
        originals, run.archived.outbox = run.archived.outbox or (), []
        hidden, run.archived.hidden = run.archived.hidden, None
        batch = Batch(originals=originals, hidden=hidden)
        if answer is not None:
            revision = None
            if answer.prompt.revision:
                revision = RevisionState(answer.iteration, answer.prompt.revision, run.archived.iteration)
                run.archived.iteration = answer.iteration
            first, run.archived.revision_left = not run.archived.answered, b""
            run.archived.answered = True
            edits = answer.trimmed.compacted or (first and bool(answer.trimmed.cuts))
            tasks = run.tasks.state() if first else None
            values = self._vault.new(run)
            figures = run.figures(self._clocks.ahead())
            batch = Batch(originals, revision, figures, tasks, edits or bool(values), hidden, values)
        place.write(batch, partial(self._everything, run))

    def settle(self, run: Run) -> None:
        """See `ArchivePlace.settle`. The run's lock need not be held."""
        if run.archived.place is not None:
            run.archived.place.settle()

    # -- other calls -------------------------------------------------------------------------------------------------

    def restore(self, caller: str, run_id: str, holding: Hold, *, tasks: bool = False, begins: bool = False) -> bool:
        """See that a run which another process has seen is known here too, before a call asks for it.

        Args:
            caller: whose run it is.
            run_id: its name.
            holding: holds its lock.
            tasks: also where it is known, as another process may have changed its tasks since.
            begins: whether the call begins a run that nobody has seen.

        Returns:
            Whether all that other processes have made of its tasks is known now, as far as the archive has it.

        Raises:
            StoreUnavailable: this process has not seen it, the call does not begin it, and the archive cannot be asked.
        """
        if self._archive is None:
            return True
        known = self._table.known(caller, run_id)
        newer: TaskState | None = None
        if known is None:
            key, place, found = self._found(caller, run_id, None, needed=not begins)
            heard = place.looked
        else:
            key = known.key
            place = known.archived.place or self._archive.find(key, self._caller_key(known))
            found = None if known.archived.adopted else place.restored(None)
            heard = True
            if tasks:
                place.ask_tasks()
                newer, heard = place.tasks(None)
        if found is None and newer is None:
            return heard
        run = self._table.begun(caller, run_id, key)
        try:
            with holding(run.lock):
                if run.ended:
                    return heard
                if run.archived.place is None:
                    run.archived.place, run.archived.outbox = place, []
                if found is not None:
                    run.adopt(found, self._clocks.ahead())
                if newer is not None:
                    run.tasks.restore(newer)
                self._table.keep(run)
        finally:
            self._table.leave(run)
        return heard

    def place_of(self, run: Run, holding: Hold) -> None:
        """See that the archive has been asked for a run, also where no prompt of it has come since."""
        if run.archived.place is None:
            with holding(run.lock):
                self.begin(run)

    @staticmethod
    def shares_tasks(run: Run) -> bool:
        """Whether the archive has the run's tasks; see `ArchivePlace.settle_tasks`. The run's lock need not be held."""
        return run.archived.place is None or run.archived.place.settle_tasks()

    def changed(self, run: Run, *, tasks: bool = False) -> None:
        """The run's figures have changed without a prompt, or its tasks, which are nowhere else."""
        self.begin(run)
        place = run.archived.place
        if place is None:
            return
        batch = Batch(
            figures=run.figures(self._clocks.ahead()) if run.calls else None,
            tasks=run.tasks.state(),
            edits=tasks,
            values=self._vault.new(run),
        )
        place.write(batch, partial(self._everything, run))

    def fetch(self, run: Run, stash_id: str) -> None:
        """Have an original that another process stored, or that this one has lost, in the stash, if it is kept.

        Raises:
            StoreUnavailable: the archive cannot be asked, and only it can know; or it does not have the original, and
                lacks what another process has returned, or may lack it as it takes no writes now.
        """
        place = run.archived.place
        if place is None:
            return
        if self._table.stash.alive(run.stash_key, (stash_id,)):
            place.renew()
            return
        try:
            found = place.originals((stash_id,)).get(stash_id)
        except StoreUnavailable:
            mine = place.looked and run.archived.restored is None
            if mine or stash_id in self._table.stash.dead(run.stash_key):
                return
            raise
        if found is not None:
            self._store(run, (found,))
        elif stash_id not in self._table.stash.dead(run.stash_key) and (words := NOT_STORED.get(place.lack())):
            raise StoreUnavailable(words)

    def load(self, run: Run, check: Callable[[], None]) -> None:
        """Have the facts of all that another process recorded in the history, for a search; once for a run.

        The history fetches the originals as it comes to index them, or as a query names them; the run's lock is not
        held. `check` is called now and then; what it raises ends the call, and the next one begins again.

        Raises:
            StoreUnavailable: the archive cannot be asked, so the search would not even know what it misses.
        """
        place = run.archived.place
        if place is None or run.archived.restored is None or run.archived.loaded:
            return
        items = [each.item for each in place.items(check) if each.item is not None]
        fetch = partial(self._fetch_all, run, place)
        for first in range(0, len(items), RECORDED_AT_ONCE):
            run.history.record_elsewhere(items[first : first + RECORDED_AT_ONCE], fetch)
        run.archived.loaded = True

    def _fetch_all(self, run: Run, place: ArchivePlace, stash_ids: Sequence[str]) -> None:
        """Have those of the originals in the stash that are kept anywhere. Raises StoreUnavailable."""
        stash = self._table.stash
        here = stash.alive(run.stash_key, stash_ids)
        found = place.originals([stash_id for stash_id in stash_ids if stash_id not in here])
        self._store(run, found.values())

    def _store(self, run: Run, found: Iterable[Original]) -> None:
        """Store originals that were fetched, unless the run was ended or forgotten meanwhile."""
        if not self._table.has(run):
            return
        stash = self._table.stash
        stash.put_all(run.stash_key, run.name[0], [(each.stash_id, each.original, each.content_type) for each in found])
        if not self._table.has(run):  # it was just now, and nobody else would forget these
            stash.forget(run.stash_key)

    def end(self, run: Run) -> None:
        """The run is ended: forget it everywhere."""
        self.begin(run)
        if run.archived.place is not None:
            run.archived.place.end()

    def end_all(self, caller: str, check: Callable[[], None]) -> int:
        """Forget all runs of a caller that the archive has; how many there were. Raises StoreUnavailable."""
        if self._archive is None:
            return 0
        return sum(self._archive.end_all(caller_key(key, caller), check) for key in self._keys.all)

    def _caller_key(self, run: Run) -> bytes:
        """The key of the caller's runs, of the key of the sidecar's that the run has."""
        caller, run_id = run.name
        of_run = dict(zip(self._keys.of_run(caller, run_id), self._keys.all, strict=True))
        return caller_key(of_run[run.key], caller)

    def _everything(self, run: Run) -> Iterator[Original | Value]:
        if run.ended:
            return
        yield from self._vault.all(run)
        for stash_id, held in self._table.stash.copies(run.stash_key):
            yield Original(stash_id, held.original, held.content_type, run.history.item(stash_id))
