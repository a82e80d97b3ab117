"""Values behind masks that the archive keeps, where the settings say so: another process of the run has them lent.

Only values that the settings may give back to a tool are written: of a kind that a pair of `guard.restore` allows. What
is read decides nothing about a prompt. It fills masks in the arguments of calls, and becomes a value of the run here
when it has done so: the agent then has it, and may send it back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from prompt_sidecar.engine.runs.archive import Archive
from prompt_sidecar.engine.runs.metering import Rules
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.runs.table import RunTable
from prompt_sidecar.guard.restoring import gives_back
from prompt_sidecar.guard.vault import Value
from prompt_sidecar.trim.ids import Keys, caller_key

MOST_ASKED: Final = 1_000
"""Masks that one call has looked up in the archive: as many as it keeps of a run by default."""


class SharedVault:
    """See the file's docstring. Thread-safe, except for a run's own state, which the run's lock guards."""

    def __init__(self, table: RunTable, archive: Archive | None, rules: Rules, keys: Keys) -> None:
        """`rules`: the settings of each caller; `keys`: the sidecar's."""
        self._table = table
        self._archive = archive if archive is not None and archive.keeps_values else None
        self._rules = rules
        self._keys = keys

    def enabled(self, caller: str) -> bool:
        """Whether any of a caller's values are kept."""
        return self._archive is not None and bool(self._rules.of(caller).guard.restore)

    def new(self, run: Run) -> Sequence[Value]:
        """Return the run's values that were not handed over yet, and take them for handed over."""
        caller, vault = run.name[0], self._table.vault
        if not self.enabled(caller):
            return ()
        changes = vault.changes(run.stash_key)
        if changes == run.archived.vault_changes:
            return ()
        run.archived.vault_changes = changes
        found = [each for each in self.all(run) if each.id not in run.archived.vaulted]
        run.archived.vaulted.update(each.id for each in found)
        return found

    def all(self, run: Run) -> Sequence[Value]:
        """Return the values of a run that are kept."""
        caller = run.name[0]
        if not self.enabled(caller):
            return ()
        pairs = self._rules.of(caller).guard.restore
        return [each for each in self._table.vault.values(run.stash_key) if gives_back(pairs, each.kind)]

    def read(self, run: Run, mask_ids: Collection[str]) -> None:
        """Have the values of these masks lent, as far as the archive has them. Raises StoreUnavailable."""
        place = run.archived.place
        if self._archive is None or place is None:
            return
        wanted = [each for each in mask_ids if not self._table.vault.has(run.stash_key, each)][:MOST_ASKED]
        found = [*place.values(wanted)] if wanted else []
        self._lend(run, found)
        known = {each.id for each in found}
        caller, run_id = run.name
        for key, of_run in zip(self._keys.all, self._keys.of_run(caller, run_id), strict=True):
            left = [each for each in wanted if each not in known]
            if of_run == run.key or not left:
                continue
            found = [*self._archive.find(of_run, caller_key(key, caller)).values(left)]
            self._lend(run, found)
            known.update(each.id for each in found)

    def lend(self, run: Run) -> None:
        """Have all values lent, soon, that other processes found in the run; nothing is waited for."""
        place = run.archived.place
        if place is not None and self.enabled(run.name[0]):
            vault, lost = self._table.vault, self._table.vault.lost(run.stash_key)
            again, run.archived.vault_lost = lost != run.archived.vault_lost, lost
            place.lend_values(partial(vault.has, run.stash_key), partial(self._lend, run), again=again)

    def filled(self, run: Run, values: Collection[Value]) -> None:
        """Have values known as the run's own that were put in place of masks: the agent may send them back."""
        vault = self._table.vault
        for value in values:
            if vault.is_lent(run.stash_key, value.id):
                vault.put(run.stash_key, run.key, value)

    def _lend(self, run: Run, values: Sequence[Value]) -> None:
        """Lend values, unless the run was ended or forgotten while they came."""
        if not values or not self._table.has(run):
            return
        self._table.vault.lend(run.stash_key, values)
        if not self._table.has(run):  # it was just now, and nobody else would forget these
            self._table.vault.forget(run.stash_key)
