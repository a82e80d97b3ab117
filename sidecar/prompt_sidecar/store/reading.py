"""What is read of the store: where a run stands, and what another process left of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from prompt_sidecar.engine.tools.task_records import merged
from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.archived import ArchivedRun, Original, StoreCommand, StoreLoss, StoreReply, TaskState
from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.guard.vault import Value
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.store import layout
from prompt_sidecar.store.commands import NO_ANSWER, Commands
from prompt_sidecar.store.options import MOST_VALUES
from prompt_sidecar.store.place import UNKNOWN, RunPlace
from prompt_sidecar.store.sealing import Unreadable
from prompt_sidecar.store.server import Argument, Failure, ScriptRunner, names_in, values_in
from prompt_sidecar.store.task_values import digest, unpacked
from prompt_sidecar.trim.ids import ID_CHARACTERS

_Decoded = TypeVar("_Decoded")

READ_ITEMS: Final = 64
"""Values that one command reads."""
_FOUND: Final = (
    layout.BIRTH,
    layout.REVISION,
    layout.FIGURES,
    layout.TASKS,
    layout.HIDDEN,
    layout.HIDDEN_NAME,
    layout.VALUE_IDS,
)
_EPOCH: Final = re.compile(rb"[0-9]{1,15}")
# Made before there are threads: msgspec crashes the process where two of them decode a type for the first time at once.
_figures: Final = msgspec.msgpack.Decoder(RunFigures)
_items: Final = msgspec.msgpack.Decoder(list[HistoryItem])
_original: Final = msgspec.msgpack.Decoder(tuple[str, bytes])
_value: Final = msgspec.msgpack.Decoder(tuple[str, str, str, int])


class RunReader:
    """Reads runs. Thread-safe."""

    def __init__(
        self,
        backend: ScriptRunner,
        commands: Commands,
        time_to_live: float,
        lock: threading.RLock,
        *,
        vault: bool = False,
    ) -> None:
        """Take what it uses.

        `lock` guards the runs' places; a run stays in the store for `time_to_live` seconds after it was read. `vault`:
        whether the store has values behind masks.
        """
        self._backend, self._commands, self._life, self._lock = backend, commands, time_to_live, lock
        self._vault = vault

    def look(self, run: RunPlace) -> None:
        """Find out the run's epoch, and what another process has left of it. Raises Failure."""
        rows = self._commands.ask(StoreCommand.READ, run.sealer.name, partial(self._read, run, _FOUND), Failure)
        stored, tombstone, birth, *values = rows
        epoch = int(stored or 0)
        live = stored is not None and tombstone is None
        with self._lock:
            if run.epoch != UNKNOWN:
                return
            if epoch < run.floor:  # this process has ended that one, and the store has yet to hear of it
                epoch, live = run.floor, False
            if run.used and epoch > run.floor:
                run.detached = True
                self._commands.lose(StoreLoss.UNCERTAIN)
            run.epoch, run.begun, run.birth = epoch, live, birth or b""
        if live and not run.detached:
            run.left = self._left(run, dict(zip(_FOUND[1:], values, strict=True)))

    def _left(self, run: RunPlace, values: Mapping[bytes, bytes | None]) -> ArchivedRun:
        self.take_tasks(run, values[layout.TASKS])
        self._take_hidden(run, values[layout.HIDDEN_NAME], values[layout.HIDDEN])
        run.value_ids = values[layout.VALUE_IDS] or b""
        return ArchivedRun(
            self._opened(run, layout.REVISION, values[layout.REVISION]) or b"",
            self._decoded(self._opened(run, layout.FIGURES, values[layout.FIGURES]), _figures),
            run.tasks,
            seen=values[layout.FIGURES] is not None,
        )

    def _decoded(self, value: bytes | None, decoder: msgspec.msgpack.Decoder[_Decoded]) -> _Decoded | None:
        """A value; None if there is none, or another version wrote it."""
        if value is None:
            return None
        try:
            return decoder.decode(value)
        except msgspec.MsgspecError:
            self._commands.lose(StoreLoss.UNREADABLE)
            return None

    def tasks(self, run: RunPlace) -> None:
        """Take in what other processes have made of the tasks. Raises StoreUnavailable."""
        self.take_tasks(run, self._sealed(run, (layout.TASKS,))[0])

    def take_tasks(self, run: RunPlace, sealed: bytes | None) -> None:
        """Take in the tasks that the store has, as they were sealed; None or empty: it has none."""
        plain = self._opened(run, layout.TASKS, sealed or None)
        with self._lock:
            run.tasks_there = TaskState()
            run.tasks_digest = digest(sealed) if sealed else b""
            if plain is None:
                return
            try:
                run.tasks_there = unpacked(plain, run.tasks)
            except msgspec.MsgspecError:
                self._commands.lose(StoreLoss.UNREADABLE)
                return
            run.tasks = merged(run.tasks, run.tasks_there)

    def changes(self, run: RunPlace, *, hidden: bool) -> None:
        """Take in what other processes have made of the tasks, of values behind masks, and of the `hidden` turns.

        Raises:
            StoreUnavailable: there is no reply.
        """
        self._see_epoch(run)
        hidden_known = run.hidden_there if hidden else layout.NOT_ASKED
        ask = partial(self._read_changes, run, hidden_known, len(run.value_ids) if self._vault else "")
        stored, tombstone, tasks, name, turns, ids = self._commands.ask(StoreCommand.READ, run.sealer.name, ask)
        if stored is None or tombstone is not None or int(stored) != run.epoch:
            tasks = name = turns = ids = None
        self.take_tasks(run, tasks)
        if hidden:
            self._take_hidden(run, name, turns)
        if ids is not None:
            run.value_ids = ids

    def _read_changes(self, run: RunPlace, hidden_known: bytes, ids_known: int | str) -> list[bytes | None]:
        arguments: list[Argument] = [int(self._life * 1_000), hidden_known, ids_known]
        return _with_epoch(values_in(self._backend.run(layout.CHANGES, run.sealer.name, arguments), 6))

    def _take_hidden(self, run: RunPlace, name: bytes | None, sealed: bytes | None) -> None:
        """Take in the hidden turns that the store has, as they were sealed; None: it has none that are not known."""
        if (name or b"") == run.hidden_there:
            return
        plain = self._opened(run, layout.HIDDEN, sealed)
        with self._lock:
            run.hidden_there, run.hidden_found = name or b"", plain or b""

    def _values(self, run: RunPlace, fields: Sequence[bytes]) -> list[bytes | None]:
        """Values of a run; None for those that are not there. Raises StoreUnavailable."""
        sealed = self._sealed(run, fields)
        return [self._opened(run, name, value) for name, value in zip(fields, sealed, strict=True)]

    def _sealed(self, run: RunPlace, fields: Sequence[bytes]) -> list[bytes | None]:
        """Values of a run as they were sealed; None for those that are not there. Raises StoreUnavailable."""
        self._see_epoch(run)
        rows: list[bytes | None]
        rows = self._commands.ask(StoreCommand.READ, run.sealer.name, partial(self._read, run, fields))
        stored, tombstone, *values = rows
        if stored is None or tombstone is not None or int(stored) != run.epoch:
            return [None] * len(fields)
        return values

    def _see_epoch(self, run: RunPlace) -> None:
        """Find out the run's epoch if it is not known. Raises StoreUnavailable."""
        if run.epoch == UNKNOWN:
            try:
                self.look(run)
            except Failure:
                raise StoreUnavailable(NO_ANSWER) from None

    def _read(self, run: RunPlace, fields: Sequence[bytes]) -> list[bytes | None]:
        reply = self._backend.run(layout.READ, run.sealer.name, [int(self._life * 1_000), *fields])
        return _with_epoch(values_in(reply, len(fields) + 2))

    def _opened(self, run: RunPlace, name: bytes, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        try:
            return run.sealer.open(name, run.epoch, value)
        except Unreadable:
            self._commands.lose(StoreLoss.UNREADABLE)
            return None

    def revision(self, run: RunPlace) -> bytes:
        """The revision of the run's last answer; empty: there is none. Raises StoreUnavailable."""
        return self._values(run, (layout.REVISION,))[0] or b""

    def originals(self, run: RunPlace, stash_ids: Sequence[str]) -> Mapping[str, Original]:
        """See `Place.originals`."""
        found: dict[str, Original] = {}
        for first in range(0, len(stash_ids), READ_ITEMS):
            some = stash_ids[first : first + READ_ITEMS]
            for stash_id, value in zip(some, self._values(run, [original_field(each) for each in some]), strict=True):
                if (decoded := self._decoded(value, _original)) is not None:
                    content_type, original = decoded
                    found[stash_id] = Original(stash_id, original, content_type, None)
        return found

    def values(self, run: RunPlace, mask_ids: Sequence[str]) -> Sequence[Value]:
        """See `Place.values`."""
        found: list[Value] = []
        for first in range(0, len(mask_ids), READ_ITEMS):
            some = mask_ids[first : first + READ_ITEMS]
            for mask_id, value in zip(some, self._values(run, [value_field(each) for each in some]), strict=True):
                if (decoded := self._decoded(value, _value)) is not None:
                    kind, text, rule, place = decoded
                    found.append(Value(kind, mask_id, text, rule, place))
        return found

    def values_elsewhere(self, run: RunPlace, known: Callable[[str], bool]) -> Sequence[Value]:
        """Return the values behind masks that the store has and this process does not. Raises StoreUnavailable."""
        ids = run.value_ids[: MOST_VALUES * ID_CHARACTERS].decode(errors="replace")
        each_id = (ids[at : at + ID_CHARACTERS] for at in range(0, len(ids), ID_CHARACTERS))
        return self.values(run, [each for each in each_id if not known(each)])

    def items(self, run: RunPlace, check: Callable[[], None]) -> Sequence[Original]:
        """See `Place.items`."""
        name = run.sealer.name
        fields = self._commands.ask(StoreCommand.READ, name, lambda: names_in(self._backend.run(layout.LIST, name, ())))
        named = sorted(each for each in fields if each.startswith(layout.ITEMS))
        by_id: dict[str, HistoryItem] = {}
        for first in range(0, len(named), READ_ITEMS):
            check()
            for value in self._values(run, named[first : first + READ_ITEMS]):
                for item in self._decoded(value, _items) or ():
                    by_id.setdefault(item.stash_id, item)
        ordered = sorted(by_id.values(), key=lambda item: item.message)
        return [Original(item.stash_id, b"", item.content_type, item) for item in ordered]


def _with_epoch(rows: list[bytes | None]) -> list[bytes | None]:
    """Return values of which the first one is an epoch, or none. Raises Failure where it is something else."""
    if rows[0] is not None and not _EPOCH.fullmatch(rows[0]):
        raise Failure(StoreReply.FAILED)
    return rows


def original_field(stash_id: str) -> bytes:
    """The field of an original."""
    return layout.ORIGINAL + stash_id.encode()


def value_field(mask_id: str) -> bytes:
    """The field of the value behind a mask."""
    return layout.VALUE + mask_id.encode()


def value_content(value: Value) -> bytes:
    """Return what the field of a value holds, before it is sealed."""
    return msgspec.msgpack.encode((value.kind, value.text, value.rule, value.first))
