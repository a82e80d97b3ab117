"""The archive in Valkey or Redis: written behind the answers by one thread; `reading.py` reads it.

The queue holds what calls have handed over, by reference, as the originals are in the stash anyway. It is bounded; what
it has no room for is not lost while the stash has it, as the run is then written again from there as a whole. The same
happens where the store lost a run that is still in use, as by a restart. Every write may be repeated; the order of
writes matters only within one run.

Runs of which something waits form a line, and take turns of one piece. Each server of a cluster has a line of its
own, so that one which is away holds up only the runs that need it: those that it has, and the new ones of a caller
whose runs are noted there. A run waits in the line of the server that its next command goes to, as far as is known; if
another one turns out to hold it up, it goes there.

`step` does one piece of the queue's work. A thread calls it in a server; a test may call it instead, and decide what
the store makes of each command.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from math import inf
from time import monotonic
from typing import Any, Final

import msgspec
from cachetools import FIFOCache

from prompt_sidecar import slots
from prompt_sidecar.engine.runs.archive import ArchiveLack
from prompt_sidecar.engine.tools.task_records import merged
from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.archived import (
    ArchivedRun,
    Batch,
    Everything,
    Original,
    StoreCommand,
    StoreLoss,
    StoreReply,
    StoreTotals,
    TaskState,
)
from prompt_sidecar.facts.figures import StoreFigures
from prompt_sidecar.guard.vault import Value
from prompt_sidecar.recall.counts import EventCounts
from prompt_sidecar.store import layout
from prompt_sidecar.store.breaker import FAILURES, Breakers
from prompt_sidecar.store.commands import Commands
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.place import UNKNOWN, PendingWrite, RunPlace
from prompt_sidecar.store.reading import READ_ITEMS, RunReader, original_field, value_content, value_field
from prompt_sidecar.store.sealing import Sealer, caller_name, is_run_name
from prompt_sidecar.store.server import Argument, Failure, ScriptRunner, names_in, values_in
from prompt_sidecar.store.task_values import digest, packed

PIECE_BYTES: Final = 262_144
"""Bytes of originals in one command: the store serves nobody else for the millisecond that it takes."""
PIECE_ITEMS: Final = 256
"""Originals in one command."""
MARK_BYTES: Final = 1_024
"""What a batch takes in the queue in addition to its originals, estimated."""
ENDS: Final = 10_000
"""Ends of runs that are remembered: 200 bytes each. A run that begins again under its name is distinguished by
them from the ended one where the store cannot be asked."""
READERS: Final = 2
"""Threads that look for runs while their first prompts are read."""
RENEWALS: Final = 8
"""Parts of the time to live; it is renewed in the store at most once in each, where only reads use a run, and a run is
noted as its caller's once in each."""
BIRTH_BYTES: Final = 8
"""Bytes that tell one birth of a run from another."""
NAME_BYTES: Final = 8
"""Bytes that tell one value of a run's hidden turns from another."""
VALUES_BOUND: Final = "store.vault_values"
BYTES_BOUND: Final = "store.vault_bytes"
UNWRITTEN_SECONDS: Final = 1.0
"""After which a store that is still too full for a run is told so again."""
FAILED_PAUSE: Final = 0.05
"""Seconds before a write is tried again."""
PATIENCE: Final = 0.005
"""Seconds that the writing waits for calls in flight before each piece, where no answer waits for it."""
LAST_SECONDS: Final = 2.0
"""Seconds that the end of the process leaves for what is queued."""

_log = logging.getLogger(__name__)


class SharedArchive:
    """See the file's docstring, and `prompt_sidecar.engine.runs.archive.Archive`."""

    def __init__(
        self,
        options: StoreOptions,
        backend: ScriptRunner,
        time_to_live: float,
        *,
        clock: Callable[[], float] = monotonic,
        threads: bool = True,
    ) -> None:
        """Begin.

        Args:
            options: the settings.
            backend: runs scripts.
            time_to_live: seconds that a run stays in the store after it was last used.
            clock: seconds that never step.
            threads: False: nothing happens but in `step`, and looks are made in the calling thread.
        """
        self._options, self._backend, self._clock = options, backend, clock
        self._life = time_to_live
        self._longest_read = options.timeout * 2 + options.connect_timeout
        self._breakers = Breakers(clock)
        self._lock = threading.RLock()
        self._kept = threading.Condition(self._lock)
        self._lines: dict[str, deque[RunPlace]] = {}
        """Runs of which something waits, by the server that they wait for, the next one first. None is empty."""
        self._queued = 0
        self._ended: FIFOCache[str, int] = FIFOCache(ENDS)
        """The epoch that follows the one that this process has ended, by the run's name."""
        self._commands = Commands(self._breakers, backend.node)
        self.reader: Final = RunReader(backend, self._commands, time_to_live, self._lock, vault=options.vault)
        self._bounds: EventCounts[str] = EventCounts()
        self.idle: Callable[[float], object] = lambda _: None
        """Waits for calls in flight, so many seconds at most."""
        self._woken = threading.Event()
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(READERS, "store-read") if threads else None
        self._thread = threading.Thread(target=self._work, name="store-write", daemon=True) if threads else None
        if self._thread is not None:
            self._thread.start()
        if self._pool is not None:
            self._pool.submit(self._try)

    @property
    def keeps_values(self) -> bool:
        """See `Archive.keeps_values`."""
        return self._options.vault

    # -- the core's side ---------------------------------------------------------------------------------------------

    def find(self, run_key: bytes, caller_key: bytes) -> SharedPlace:
        """See `Archive.find`."""
        sealer = Sealer(run_key)
        with self._lock:
            place = RunPlace(sealer, caller_name(caller_key), self._ended.get(sealer.name, 0))
        if self._pool is None:
            place.look = Future()
            self._look_first(place)
            place.look.set_result(None)
        elif self._breakers.of(self._backend.node(sealer.name)).would_allow:
            place.look = self._pool.submit(self._look_first, place)
        return SharedPlace(self, place)

    def write(self, run: RunPlace, batch: Batch, everything: Everything) -> None:
        """See `Place.write`."""
        originals = []
        for each in batch.originals:
            if len(each.original) > self._options.item_bytes:
                self._commands.lose(StoreLoss.TOO_LARGE)
                self._bounds.add("store.item_bytes")
            else:
                originals.append(each)
        hidden = batch.hidden
        if hidden is not None and len(hidden) > self._options.item_bytes:
            self._commands.lose(StoreLoss.TOO_LARGE)
            self._bounds.add("store.item_bytes")
            hidden = None
        handed: Sequence[Original | Value] = [*originals, *batch.values]
        size = MARK_BYTES + sum(map(_size, handed)) + len(hidden or b"")
        with self._lock:
            run.used |= run.epoch == UNKNOWN
            if batch.tasks is not None:
                run.tasks = merged(run.tasks, batch.tasks)
            if run.detached:
                self._commands.lose(StoreLoss.ENDED, len(originals) + len(batch.values))
                return
            run.everything = everything
            run.handed += 1
            if batch.edits:
                run.edits = run.handed
            job = PendingWrite(run, self._clock(), replace(batch, originals=originals, hidden=None), run.handed, size)
            if self._queued + size > self._options.queue_bytes:
                lost = len(originals) + len(batch.values) + (hidden is not None)
                self._commands.lose(StoreLoss.QUEUE_FULL, lost)
                self._bounds.add("store.queue_bytes")
                if run.lacking:
                    return  # it waits to be written as a whole
                run.lacking = True
                job = PendingWrite(run, self._clock(), Batch(), run.handed)
            elif hidden is not None:
                run.hidden, run.hidden_name = hidden, secrets.token_hex(NAME_BYTES).encode()
            self._enqueue(job)
            self._queued += job.size
        self._woken.set()

    def settle(self, run: RunPlace) -> None:
        """See `Place.settle`."""
        if self._options.durability != "acknowledged":
            return
        with slots.waiting(), self._kept:
            if self._kept.wait_for(lambda: run.kept >= run.edits, self._options.acknowledge_timeout):
                return
        last = self._commands.last_write
        why = f" (its last reply to a write: {last})" if last is not StoreReply.DONE else ""
        raise StoreUnavailable(
            f"the store has not acknowledged what this call must have there{why}; the call may be made again",
            bound="store.acknowledge_timeout",
        )

    def ask_tasks(self, run: RunPlace, *, hidden: bool) -> None:
        """See `Place.ask_tasks`."""
        asked = run.tasks_asked
        read = self.reader.tasks
        if hidden or self._options.vault:
            read = partial(self.reader.changes, hidden=hidden)
        if run.detached or any(each is not None and not each.done() for each in (asked, run.look)):
            return
        if self._breakers.of(self._backend.node(run.sealer.name)).would_allow:
            if self._pool is not None:
                run.tasks_asked = self._pool.submit(read, run)
                return
            run.tasks_asked = Future()
            try:
                read(run)
                run.tasks_asked.set_result(None)
            except StoreUnavailable as error:
                run.tasks_asked.set_exception(error)
        else:
            run.tasks_asked = None

    def tasks(self, run: RunPlace, wait: float | None) -> tuple[TaskState, bool]:
        """See `Place.tasks`."""
        asked, known = run.tasks_asked, False
        if asked is not None and not run.detached:
            with suppress(NotYet, StoreUnavailable), slots.waiting():
                asked.result(self._longest_read if wait is None else wait)
                known = True
        with self._lock:
            if run.owes_tasks and run.begun and not run.jobs and not run.detached:  # an earlier version wrote over them
                self._enqueue(PendingWrite(run, self._clock(), Batch(), run.handed))
                self._woken.set()
            return run.tasks, known

    def hidden(self, run: RunPlace, wait: float) -> bytes | None:
        """See `Place.hidden`."""
        for asked in (run.look, run.tasks_asked):
            if asked is not None and not asked.done():
                with suppress(NotYet, StoreUnavailable), slots.waiting():
                    asked.result(wait)
        with self._lock:
            found, run.hidden_found = run.hidden_found, None
            return None if run.detached else found

    def settle_tasks(self, run: RunPlace) -> bool:
        """See `Place.settle_tasks`."""
        reachable = self._breakers.of(self._backend.node(run.sealer.name)).closed
        limit = self._options.timeout if self._thread is not None and reachable else 0
        with slots.waiting(), self._kept:
            return self._kept.wait_for(lambda: not run.owes_tasks or run.detached, limit) and not run.detached

    def lack(self, run: RunPlace) -> ArchiveLack:
        """See `Place.lack`."""
        name = run.sealer.name
        try:
            reply = self._commands.ask(StoreCommand.WRITE, name, partial(self._backend.run, layout.TOUCH, name, ()))
        except StoreUnavailable:
            return ArchiveLack.NO_WRITES
        return ArchiveLack.UNWRITTEN if reply == layout.UNWRITTEN else ArchiveLack.NOTHING

    def lend_values(
        self, run: RunPlace, known: Callable[[str], bool], take: Callable[[Sequence[Value]], None], *, again: bool
    ) -> None:
        """See `Place.lend_values`."""

        def read() -> None:
            size = len(run.value_ids)
            if run.detached or not size or (size == run.values_read and not again):
                return
            with suppress(StoreUnavailable):
                take(self.reader.values_elsewhere(run, known))
                run.values_read = size

        def submit(_: object = None) -> None:
            with suppress(RuntimeError):  # the process ends
                if self._pool is not None:
                    self._pool.submit(read)

        under_way = next((each for each in (run.look, run.tasks_asked) if each is not None and not each.done()), None)
        if under_way is not None:
            under_way.add_done_callback(submit)
        elif self._pool is None:
            read()
        elif run.value_ids and (len(run.value_ids) != run.values_read or again):
            submit()

    def figures(self, run: RunPlace) -> StoreFigures:
        """See `Place.figures`."""
        with self._lock:
            reachable = self._breakers.of(self._backend.node(run.sealer.name)).closed
            return StoreFigures(reachable, max(run.handed - run.kept, 0), run.detached)

    def renew(self, run: RunPlace) -> None:
        """See `Place.renew`."""
        with self._lock:
            if self._clock() - run.renewed < self._life / RENEWALS or run.detached or not run.begun:
                return
            run.renewed = self._clock()
            self._enqueue(PendingWrite(run, self._clock(), Batch(), run.handed))
        self._woken.set()

    def end(self, run: RunPlace) -> None:
        """See `Place.end`. The store is asked at once; if it does not answer, again until the run has expired."""
        if run.look is not None:
            self.restored(run, None)
        with self._lock:
            run.detached = run.over = True
            if run.epoch == UNKNOWN:
                self._commands.lose(StoreLoss.UNCERTAIN)
                return
            self._ended[run.sealer.name] = run.epoch + 1
        job = PendingWrite(run, self._clock(), None)
        try:
            self._tell_end(job)
        except Failure:
            with self._lock:
                self._enqueue(job)
            self._woken.set()

    def end_all(self, caller_key: bytes, check: Callable[[], None]) -> int:
        """See `Archive.end_all`."""
        name, ended = caller_name(caller_key), 0
        tombstone = int(2 * self._life * 1_000)
        runs: Sequence[bytes] = ()
        forgotten = 1
        while True:
            check()
            before = runs
            runs = self._commands.ask(
                StoreCommand.READ, name, lambda: names_in(self._backend.run(layout.NOTED, name, [READ_ITEMS]))
            )
            if not runs:
                return ended
            if runs == before and forgotten != len(before):
                raise StoreUnavailable(
                    "the store that replicas share does not forget the names of runs that were ended"
                )
            for run in filter(is_run_name, runs):  # anything else there is no run, and may be somebody's key
                check()
                end = partial(self._backend.run, layout.END_NOW, run.decode(), [tombstone])
                ended += self._commands.ask(StoreCommand.END, run.decode(), end) == layout.DONE
            check()
            forget = partial(self._backend.run, layout.FORGET, name, runs)
            forgotten = self._commands.ask(StoreCommand.END, name, forget)

    def totals(self) -> StoreTotals:
        """See `Archive.totals`."""
        with self._lock:
            self._breakers.keep({*self._backend.nodes(), *self._lines})
            born = (run.jobs[0].born for line in self._lines.values() for run in line)
            return StoreTotals(
                commands=self._commands.replies,
                lost=self._commands.lost,
                queued_bytes=self._queued,
                queue_limit=self._options.queue_bytes,
                lag=max(self._clock() - min(born, default=inf), 0.0),
                reachable=not self._breakers.open(),
                bounds=self._bounds.read(),
            )

    def restored(self, run: RunPlace, wait: float | None) -> ArchivedRun | None:
        """See `Place.restored`."""
        if run.look is not None:
            try:
                with slots.waiting():
                    run.look.result(self._longest_read if wait is None else wait)
            except NotYet:
                return None
        return run.left

    def newest_revision(self, run: RunPlace, wait: float) -> bytes:
        """See `Place.newest_revision`."""
        if run.detached or not self._breakers.of(self._backend.node(run.sealer.name)).would_allow:
            return b""
        try:
            if self._pool is None:
                return self.reader.revision(run)
            asked = self._pool.submit(self.reader.revision, run)
            with slots.waiting():
                return asked.result(wait)
        except (NotYet, StoreUnavailable):
            return b""

    def _try(self) -> None:
        """Ask the store for something, so that the log tells at the start where it cannot be reached."""
        name = caller_name(b"")
        for _ in range(FAILURES):
            with suppress(Failure):
                read = partial(self._backend.run, layout.NOTED, name, [1])
                self._commands.ask(StoreCommand.READ, name, read, Failure)
                return

    def _look_first(self, run: RunPlace) -> None:
        with suppress(Failure):  # the writing looks again
            self.reader.look(run)

    # -- writing -----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do one piece of what waits; whether anything was done. A piece that fails is the next one of its run again.

        The lines take turns. Where a server is not asked now, or does not do what it is asked, the next line goes on.
        """
        with self._lock:
            turns = [(node, line[0]) for node, line in self._lines.items()]
        for node, run in turns:
            if not self._breakers.of(node).would_allow:
                continue
            job = run.jobs[0]
            try:
                done = self._tell_end(job) if job.batch is None else self._write_piece(job)
            except Failure as failure:
                if failure.reply is StoreReply.FULL:
                    self._tell_unwritten(run)
                self._move(run, node)
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, the next runs must be written
                _log.error("a batch cannot be written to the store: %s", type(error).__name__)
                run.lacking = done = True
            self._take_turns(run, node, done=done)
            return True
        return False

    def close(self) -> None:
        """Write what is queued, for a limited time, and end.

        A store that did not answer last is waited for, too: it is tried again within half of that time.
        """
        until = self._clock() + LAST_SECONDS
        while self._lines and self._clock() < until:
            self._woken.set()
            with self._kept:
                self._kept.wait(0.05)
        self._ending.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(LAST_SECONDS)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._backend.close()

    def _work(self) -> None:
        while not self._ending.is_set():
            self._woken.wait()
            self._woken.clear()
            while self._lines:
                if self._options.durability == "local":
                    self.idle(PATIENCE)
                if not self.step():
                    if self._ending.is_set():
                        return
                    self._woken.wait(FAILED_PAUSE)
                    self._woken.clear()

    def _enqueue(self, job: PendingWrite) -> None:
        """Have it wait; the lock is held."""
        run = job.place
        run.jobs.append(job)
        if len(run.jobs) == 1:
            self._stand(run, self._backend.node(run.sealer.name))

    def _stand(self, run: RunPlace, node: str) -> None:
        """Put a run at the end of a line; the lock is held."""
        self._lines.setdefault(node, deque()).append(run)

    def _leave(self, node: str) -> deque[RunPlace]:
        """Take the first run out of a line; the rest of the line, which has no place any more. The lock is held."""
        line = self._lines.pop(node)
        line.popleft()
        return line

    def _move(self, run: RunPlace, node: str) -> None:
        """A run that stood first could not be written: it waits for the server that holds it up, and lets others go."""
        with self._lock:
            needs = (run.caller_name, run.sealer.name)
            away = [at for at in map(self._backend.node, needs) if not self._breakers.of(at).healthy]
            if line := self._leave(node):
                self._lines[node] = line
            self._stand(run, node if node in away or not away else away[0])

    def _take_turns(self, run: RunPlace, node: str, *, done: bool) -> None:
        """A run that stood first has had its turn, and so has its line; a job that is done waits no more."""
        with self._kept:
            line = self._leave(node)
            if done:
                job = run.jobs.popleft()
                self._queued -= job.size
                self._kept.notify_all()
            if line:
                self._lines[node] = line
            if run.jobs:
                self._stand(run, self._backend.node(run.sealer.name))

    def _tell_end(self, job: PendingWrite) -> bool:
        run = job.place
        with self._lock:
            late = self._clock() - job.born > self._life
        if late:
            return True
        arguments = [run.epoch, int(2 * self._life * 1_000)]
        ask = partial(self._backend.run, layout.END, run.sealer.name, arguments)
        self._commands.ask(StoreCommand.END, run.sealer.name, ask, Failure)
        return True

    def _write_piece(self, job: PendingWrite) -> bool:
        """Write a piece; whether the job is done. Raises Failure."""
        run, batch = job.place, job.batch
        assert batch is not None
        if not run.detached and self._clock() - job.born > self._life:
            with self._lock:
                self._commands.lose(StoreLoss.TOO_OLD, len(batch.originals) + len(batch.values))
                run.lacking = True
            return True
        if run.epoch == UNKNOWN and not run.detached:
            self.reader.look(run)
        if run.detached:
            if not run.over:
                self._commands.lose(StoreLoss.ENDED, len(batch.originals) + len(batch.values))
            return True
        with self._lock:
            if run.lacking and not job.whole:
                job.whole, job.pieces = True, None
                run.lacking, job.number = False, run.handed
        if job.pieces is None:
            every: Iterable[Original | Value] = [*batch.values, *batch.originals]
            if job.whole and run.everything is not None:
                every = run.everything()
            job.pieces, job.at = self._cut(every), 0
            job.piece = next(job.pieces, ())
        assert job.piece is not None
        self._note(run)
        reply = self._send(job)
        if isinstance(reply, list):
            _, birth, others, *_ = reply
            if others is not None:  # another process has changed the tasks: this one's are merged with them
                self.reader.take_tasks(run, others)
                with self._lock:
                    run.begun, run.birth = True, birth or b""
                return False
            return self._next_piece(job, birth or b"")
        with self._lock:
            run.begun = False
            run.tasks_there, run.tasks_digest = TaskState(), b""
            if run.hidden_there:
                run.hidden_there, run.hidden_found = b"", b""
            run.value_ids, run.values_read = b"", 0
            if reply == layout.GONE:  # the store has lost it: the next step writes it as a whole
                run.lacking, job.whole, run.noted = True, False, -inf
                return False
            run.detached = True
            if not run.over:
                self._commands.lose(StoreLoss.ENDED, len(batch.originals))
        return True

    def _note(self, run: RunPlace) -> None:
        """Have the run noted as one of its caller's, before anything of it is written. Raises Failure."""
        if self._clock() - run.noted < self._life / RENEWALS:
            return
        arguments: list[Argument] = [int(2 * self._life * 1_000), run.sealer.name]
        ask = partial(self._backend.run, layout.NOTE, run.caller_name, arguments)
        self._commands.ask(StoreCommand.WRITE, run.caller_name, ask, Failure)
        run.noted = self._clock()

    def _next_piece(self, job: PendingWrite, birth: bytes) -> bool:
        run = job.place
        assert job.pieces is not None
        following = next(job.pieces, None)
        with self._kept:
            run.begun, run.birth, run.renewed = True, birth, self._clock()
            if following is not None:
                job.piece, job.at = following, job.at + 1
                return False
            run.kept = max(run.kept, job.number)
            caught_up = run.unwritten and len(run.jobs) == 1 and not run.lacking
        if caught_up:
            self._tell_written(run)
        return True

    def _tell_unwritten(self, run: RunPlace) -> None:
        """Note in the store that it is too full for something of a run, so that nobody takes it for unknown there.

        Repeated while it is, as another process may have had something, too, and take back its own note.
        """
        if not run.begun or self._clock() - run.unwritten_since < UNWRITTEN_SECONDS:
            return
        run.unwritten_since, name = self._clock(), run.sealer.name
        tell = partial(self._backend.write, layout.UNWRITTEN_HERE, name, [run.epoch], 0)
        with suppress(Failure):
            # Counted as a read, which a full store takes too: a write that succeeds would mean that it takes writes.
            reply = self._commands.ask(StoreCommand.READ, name, tell, Failure)
            run.unwritten = run.unwritten or reply == layout.DONE

    def _tell_written(self, run: RunPlace) -> None:
        """Take that note back. If it fails, what is written next takes it back."""
        name = run.sealer.name
        tell = partial(self._backend.write, layout.WRITTEN_SINCE, name, [run.epoch], 0)
        with suppress(Failure):
            self._commands.ask(StoreCommand.WRITE, name, tell, Failure)
            run.unwritten, run.unwritten_since = False, -inf

    def _cut(self, every: Iterable[Original | Value]) -> Iterator[Sequence[Original | Value]]:
        piece: list[Original | Value] = []
        size = 0
        for each in every:
            own = _size(each)
            if own > self._options.item_bytes:
                continue
            if piece and (size + own > PIECE_BYTES or len(piece) == PIECE_ITEMS):
                yield piece
                piece, size = [], 0
            piece.append(each)
            size += own
        if piece:
            yield piece

    def _send(self, job: PendingWrite) -> bytes | list[bytes | None]:
        run, batch, piece = job.place, job.batch, job.piece
        assert batch is not None
        assert piece is not None
        seal, epoch = run.sealer.seal, run.epoch
        revision: tuple[Argument, ...] = ("", 0, -1)
        figures: tuple[Argument, ...] = ("", 0)
        tasks: tuple[Argument, ...] = ("", 0, "")
        sent, sealed_tasks = TaskState(), b""
        hidden: tuple[Argument, ...] = ("", "", "")
        sent_hidden: bytes | None = None
        if job.at == 0:
            if batch.revision is not None:
                sealed = seal(layout.REVISION, epoch, batch.revision.revision)
                revision = (sealed, batch.revision.iteration, batch.revision.before)
            if batch.figures is not None:
                figures = (seal(layout.FIGURES, epoch, msgspec.msgpack.encode(batch.figures)), batch.figures.calls)
            with self._lock:
                if run.owes_tasks:
                    sent = run.tasks
                    sealed_tasks = seal(layout.TASKS, epoch, packed(sent))
                    tasks = (sealed_tasks, sent.version, run.tasks_digest)
                sent_hidden, hidden_name, hidden_there = run.hidden, run.hidden_name, run.hidden_there
            if sent_hidden is not None:
                hidden = (seal(layout.HIDDEN, epoch, sent_hidden), hidden_name, hidden_there)
        vault, values = self._contents(job, piece)
        birth = run.birth if run.begun else secrets.token_bytes(BIRTH_BYTES)
        arguments = [epoch, int(not run.begun), birth, int(self._life * 1_000), *revision, *figures, *tasks, *hidden]
        replicas = self._options.replicas if self._options.durability == "acknowledged" else 0
        key, written = run.sealer.name, [*arguments, *vault, *values]

        def ask() -> Any:
            reply = self._backend.write(layout.WRITE, key, written, replicas)
            return reply if reply in (layout.GONE, layout.ENDED) else values_in(reply, 6)

        reply: bytes | list[bytes | None] = self._commands.ask(StoreCommand.WRITE, key, ask, Failure)
        if sealed_tasks and isinstance(reply, list) and reply[2] is None:
            with self._lock:
                run.tasks_there, run.tasks_digest = sent, digest(sealed_tasks)
        if isinstance(reply, list):
            self._count_refused(reply[4:])
        if sent_hidden is not None and isinstance(reply, list):
            with self._lock:
                if reply[3] is None:
                    run.hidden_there = hidden_name
                if run.hidden is sent_hidden:  # else others came meanwhile
                    run.hidden = None
        return reply

    def _contents(
        self, job: PendingWrite, piece: Sequence[Original | Value]
    ) -> tuple[Sequence[Argument], Sequence[Argument]]:
        """Return the last arguments of a write: values behind masks with their bounds, then fields and values."""
        seal, epoch = job.place.sealer.seal, job.place.epoch
        originals = [each for each in piece if isinstance(each, Original)]
        behind = [each for each in piece if isinstance(each, Value)]
        vault: list[Argument] = [self._options.vault_values, self._options.vault_bytes, len(behind)]
        for value in behind:
            vault += [value.id, seal(value_field(value.id), epoch, value_content(value))]
        fields: list[tuple[bytes, bytes]] = []
        facts = [each.item for each in originals if each.item is not None]
        if facts:
            name = layout.ITEMS + job.name + (b"w" if job.whole else b"") + b"%d" % job.at
            fields.append((name, msgspec.msgpack.encode(facts)))
        fields += [
            (original_field(each.stash_id), msgspec.msgpack.encode((each.content_type, each.original)))
            for each in originals
        ]
        return vault, [*chain.from_iterable((name, seal(name, epoch, value)) for name, value in fields)]

    def _count_refused(self, refused: Sequence[bytes | None]) -> None:
        """Count the values behind masks that the store did not take, by the bound that they would have passed."""
        for bound, number in zip((VALUES_BOUND, BYTES_BOUND), refused, strict=True):
            if number and number != b"0" and number.isdigit():
                self._commands.lose(StoreLoss.VAULT_FULL, int(number))
                self._bounds.add(bound)


def _size(each: Original | Value) -> int:
    """Bytes that it takes in the queue, before compression; estimated for a value behind a mask."""
    return len(each.original) if isinstance(each, Original) else each.bytes


class SharedPlace:
    """One run's place, as the core has it. See `prompt_sidecar.engine.runs.archive.ArchivePlace`."""

    __slots__ = ("_archive", "run")

    def __init__(self, archive: SharedArchive, run: RunPlace) -> None:
        self._archive = archive
        self.run = run

    def restored(self, wait: float | None) -> ArchivedRun | None:
        """See `Place.restored`."""
        return self._archive.restored(self.run, wait)

    def newest_revision(self, wait: float) -> bytes:
        """See `Place.newest_revision`."""
        return self._archive.newest_revision(self.run, wait)

    def ask_tasks(self, *, hidden: bool = False) -> None:
        """See `Place.ask_tasks`."""
        self._archive.ask_tasks(self.run, hidden=hidden)

    def hidden(self, wait: float) -> bytes | None:
        """See `Place.hidden`."""
        return self._archive.hidden(self.run, wait)

    def tasks(self, wait: float | None) -> tuple[TaskState, bool]:
        """See `Place.tasks`."""
        return self._archive.tasks(self.run, wait)

    def settle_tasks(self) -> bool:
        """See `Place.settle_tasks`."""
        return self._archive.settle_tasks(self.run)

    @property
    def looked(self) -> bool:
        """See `Place.looked`."""
        return self.run.epoch != UNKNOWN

    def write(self, batch: Batch, everything: Everything) -> None:
        """See `Place.write`."""
        self._archive.write(self.run, batch, everything)

    def settle(self) -> None:
        """See `Place.settle`."""
        self._archive.settle(self.run)

    def originals(self, stash_ids: Sequence[str]) -> Mapping[str, Original]:
        """See `Place.originals`."""
        return self._archive.reader.originals(self.run, stash_ids)

    def values(self, mask_ids: Sequence[str]) -> Sequence[Value]:
        """See `Place.values`."""
        return self._archive.reader.values(self.run, mask_ids)

    def lend_values(
        self, known: Callable[[str], bool], take: Callable[[Sequence[Value]], None], *, again: bool
    ) -> None:
        """See `Place.lend_values`."""
        self._archive.lend_values(self.run, known, take, again=again)

    def lack(self) -> ArchiveLack:
        """See `Place.lack`."""
        return self._archive.lack(self.run)

    def items(self, check: Callable[[], None]) -> Sequence[Original]:
        """See `Place.items`."""
        return self._archive.reader.items(self.run, check)

    def figures(self) -> StoreFigures:
        """See `Place.figures`."""
        return self._archive.figures(self.run)

    def renew(self) -> None:
        """See `Place.renew`."""
        self._archive.renew(self.run)

    def end(self) -> None:
        """See `Place.end`."""
        self._archive.end(self.run)
