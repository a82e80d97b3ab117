"""The process's memory: how much it uses, how much it may use, and whether a call fits in the rest.

Theory. A process that runs out of memory fails anywhere: Python raises MemoryError at any statement, some native code
crashes, and in a container the kernel kills it, which loses every run. So a prompt is refused before any work is done,
if its estimated need exceeds what is left: of the configured limit, or else of the container's (cgroup), and of the
process's address space (RLIMIT_AS). Calls in flight reserve their estimates, since memory that they have yet to
allocate is not in the kernel's figure. Calls with large needs leave some memory to those with small ones. Without a
limit nothing is measured and no call is refused.

Bodies of requests and answers of providers grow while they are read, or decompressed, to a size not known in advance.
So memory for the next piece is reserved before the piece is kept (`Reservation`), and reading ends if there is not
enough.

The estimate assumes the most expensive prompt of that size, all of it new: bytes are copied when they are received,
extracted, sliced, stored, returned and sent, and each message becomes a record. Free memory within the heap counts as
used, so the estimate errs on the safe side; free memory is returned to the system every half minute.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from errno import ENOMEM
from types import TracebackType
from typing import Final, Self

from prompt_sidecar.errors import OutOfMemory, TooLarge
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.totals import ProcessMemory
from prompt_sidecar.process.allocator import free_blocks
from prompt_sidecar.process.cgroups import memory_limit
from prompt_sidecar.process.starting import StartError

COPIES: Final = 10
"""Largest number of copies of a prompt's bytes in memory: as received, its body, its slices and text, the originals
before they are compressed, the returned slices, the joined answer, and two more while gRPC sends it."""
MESSAGE_BYTES: Final = 4_000
"""Memory of a new message in addition to its bytes, while its decoded form is still there."""
CALL_BYTES: Final = 2_097_152
"""Memory of any call in addition to that of its prompt."""
ORIGINAL_COPIES: Final = 2
"""Copies of an original in memory while a page of it is read: decompressed, and in part as text."""
REQUEST_COPIES: Final = 3
"""Copies of a forwarded request in memory, in addition to what trimming needs: as received, with hidden turns and
tools, and while it is sent to the provider."""
ANSWER_COPIES: Final = 10
"""Copies in memory of a provider's answer, of an event in it, or of a WebSocket message: as received, as input of the
splitter, as text, which takes up to four times its bytes, parsed, and written again."""
SMALL_BYTES: Final = 1_048_576
"""Originals below this size reserve nothing: with all threads reading one, 16 MB."""
LEAST_MESSAGE: Final = 25
"""Bytes of the smallest message, with its comma: `{"role":"user"}` and some more."""

BASELINE_BYTES: Final = 150_000_000
"""Memory of a process before any run: 155 MB with the extra `fast`, 118 without; rough, as a reserve is added."""
RESERVE: Final = 1.25
"""Largest ratio of a process's memory to what its figures explain; the bench checks it."""

ROOMY: Final = 8
"""A call may reserve this part (one over the number) of what is left without a closer estimate: as many calls as two
processors serve at once, with some waiting."""

SPARE: Final = 16
"""Part (one over the number) of the limit that calls with large needs leave to those with small ones: 25 MB of 400."""
ANY: Final = sys.maxsize
"""The room if there is no limit."""
SMALL_NEED: Final = 8_388_608
"""Needs up to this many bytes are small: a prompt of half a megabyte, or one of 200 kB in 600 messages."""

NEAR: Final = 0.9
"""Share of the process's limit from which on caches of runs, then originals, are evicted. Budgets leave a fifth free,
so it is reached only if they do not fit, or if other data takes much of the memory."""

_PIECE: Final = 1_048_576
"""Bytes that are searched at once, while no other thread runs: some 5 ms."""

LEAST_BUDGET: Final = 16_777_216
"""Eviction budgets are not reduced below this many bytes: a dozen runs of a small agent."""

LEAST_ADDRESSES: Final = 500_000_000
"""Address space that a sidecar needs to start: libraries, stacks of threads, and heaps of arenas, mostly unused. With
less than some 450 MB native code of libraries ends the process, as it gets no thread."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a call failed for lack of memory: Python has no single type for that.

    A thread or a lock that the system has no memory for raises a RuntimeError that only its text identifies (CPython,
    `Modules/_threadmodule.c`); an allocation that the kernel refuses raises an OSError.
    """
    if isinstance(error, RuntimeError):
        return str(error).startswith(("can't start new thread", "can't allocate"))
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == ENOMEM)


def out_of_memory() -> OutOfMemory:
    """Return the error for a call for which `is_out_of_memory` is true."""
    return OutOfMemory(
        "memory ran out; nothing that was kept is lost: retry a little later, or give the sidecar more",
        bound="limits.process_bytes",
    )


def sizing(limits: Limits, container: int) -> str:
    """Return a warning if the budgets together do not fit the container; empty if they do, or there is no limit."""
    need = int((BASELINE_BYTES + limits.stash_bytes + limits.memory_bytes) * RESERVE)
    if not container or need <= container:
        return ""
    return (
        f"the process may take {container:,} bytes, and may come to {need:,}: limits.stash_bytes, limits.memory_bytes "
        f"and {BASELINE_BYTES:,} of its own, with a quarter in reserve; lower them, or prompts will be refused"
    )


def fitted(limits: Limits, container: int) -> Limits:
    """Return limits whose eviction budgets fit a container; `container` is its limit, 0 for none.

    Both budgets are reduced in the same proportion. They only decide what is evicted: pods of different sizes trim the
    same prompt in the same way.
    """
    budgets = limits.stash_bytes + limits.memory_bytes
    room = int(container / RESERVE) - BASELINE_BYTES
    if not container or budgets <= room:
        return limits
    share = max(room, 0) / budgets
    stash = min(limits.stash_bytes, max(int(limits.stash_bytes * share), LEAST_BUDGET))
    return replace(
        limits,
        stash_bytes=stash,
        run_stash_bytes=min(limits.run_stash_bytes, stash),
        memory_bytes=min(limits.memory_bytes, max(int(limits.memory_bytes * share), LEAST_BUDGET)),
    )


def changed(limits: Limits, effective: Limits, container: int) -> str:
    """Return what `fitted` changed, for the log; empty if nothing."""
    names = ("stash_bytes", "run_stash_bytes", "memory_bytes")
    changes = [
        f"limits.{name} is {getattr(effective, name):,} in place of {getattr(limits, name):,}"
        for name in names
        if getattr(effective, name) != getattr(limits, name)
    ]
    return (
        f"the container may take {container:,} bytes: {', '.join(changes)}; originals are evicted earlier"
        if changes
        else ""
    )


def check_addresses() -> None:
    """Check that the process may use as much address space as it needs to start. Raises StartError otherwise."""
    limit = _address_limit()
    if 0 < limit < LEAST_ADDRESSES:
        raise StartError(
            f"the process may use {limit:,} bytes of addresses; {LEAST_ADDRESSES:,} is the least with which it starts: "
            "raise the limit (ulimit -v), and limit memory with limits.process_bytes or the container's limit instead"
        )


def _address_limit() -> int:
    """Return the process's limit of address space in bytes, 0 if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 0 if soft == resource.RLIM_INFINITY else soft


class MemoryGate:
    """Admits prompts, and reading of large originals, while there is memory for them. Thread-safe.

    `most` is the process's limit in bytes; 0: the container's limit, if it has one.
    """

    def __init__(self, most: int = 0, read: Callable[[], tuple[int, int]] | None = None) -> None:
        self._read = read or _Statm()
        self.limit = most or memory_limit()
        self._address_limit = _address_limit()
        self._lock = threading.Lock()
        self._reserved = 0
        self._baseline = 0

    def settle(self) -> None:
        """Record the memory of the process, now that it is ready, as its baseline."""
        self._baseline = self._read()[1]

    def figures(self) -> ProcessMemory:
        """Return the process's memory, as the kernel reports it."""
        return ProcessMemory(self._read()[1], self._baseline, self.limit or self._address_limit, free_blocks())

    def excess(self) -> int:
        """Return by how many bytes the process exceeds the share of its limit from which on it evicts."""
        address, resident = self._read()
        over = 0
        if self.limit:
            over = resident - int(self.limit * NEAR)
        if self._address_limit:
            over = max(over, address - int(self._address_limit * NEAR))
        return max(over, 0)

    def room(self) -> int:
        """Return how many bytes the process may use beyond those used and reserved; `ANY` if there is no limit."""
        if not self.limit and not self._address_limit:
            return ANY
        return max(self._left() - self._reserved, 0)

    @contextmanager
    def admit(self, raw: bytes) -> Iterator[None]:
        """Reserve the estimated need of a prompt of these bytes until it is answered.

        Raises:
            TooLarge: the prompt may need more than is left; nothing was done.
        """
        if not self.limit and not self._address_limit:
            yield
            return
        need = CALL_BYTES + COPIES * len(raw)
        left = self._left()
        # The worst case, mostly far too much, is reserved if other calls still find room, and if it does not turn a
        # small need into a large one. Otherwise the messages are counted.
        most_messages = len(raw) // LEAST_MESSAGE
        room = (left - self._reserved) // ROOMY
        if need + MESSAGE_BYTES * most_messages > (min(room, SMALL_NEED) if need <= SMALL_NEED else room):
            most_messages = min(most_messages, _objects(raw))
        need += MESSAGE_BYTES * most_messages
        with self.growing() as held:
            held.resize(need)
            yield

    @contextmanager
    def reserve(self, original: int) -> Iterator[None]:
        """Reserve memory for reading an original of so many bytes; a small one needs no more than any call.

        Raises:
            TooLarge: the original may need more than is left.
        """
        if original < SMALL_BYTES or not (self.limit or self._address_limit):
            yield
            return
        with self.growing() as held:
            held.resize(ORIGINAL_COPIES * original)
            yield

    def growing(self) -> Reservation:
        """Return an empty reservation, for a body that is read piece by piece and may expand."""
        return Reservation(self)

    def take(self, more: int, before: int = 0) -> None:
        """Reserve so many more bytes; the same call has reserved `before`. `give` must follow.

        Raises:
            TooLarge: there is not enough memory.
        """
        if more > 0 and (self.limit or self._address_limit):
            self._reserve(more, self._left(), before + more)
        else:
            self.give(-more)

    def give(self, less: int) -> None:
        """Release so many reserved bytes."""
        if less and (self.limit or self._address_limit):
            with self._lock:
                self._reserved -= less

    def _reserve(self, more: int, left: int, need: int) -> None:
        """Reserve `more` of what is left, for a call whose total need is `need`. Raises TooLarge."""
        if need > SMALL_NEED:
            left -= (self.limit or self._address_limit) // SPARE
        with self._lock:
            if more + self._reserved > left:
                raise self._refusal(need, max(left - self._reserved, 0))
            self._reserved += more

    def _refusal(self, need: int, left: int) -> TooLarge:
        """Return the error for a call with this need; its advice depends on whether an idle process has enough."""
        message = f"this call may need {need:,} bytes of memory and {left:,} are left"
        idle = self.limit - self.limit // SPARE - self._baseline
        if self.limit and need > max(idle, SMALL_NEED):
            enough = (need + self._baseline) * SPARE // (SPARE - 1) + SPARE
            helps = (
                f"an idle sidecar has {max(idle, 0):,}, so a retry does not help: send a smaller prompt, or give the "
                f"sidecar {enough:,} or more (limits.process_bytes, the container's limit)"
            )
        else:
            helps = "retry a little later, or give the sidecar more (limits.process_bytes, the container's limit)"
        return TooLarge(f"{message}; {helps}", bound="limits.process_bytes")

    def _left(self) -> int:
        address, resident = self._read()
        lefts = []
        if self.limit:
            lefts.append(self.limit - resident)
        if self._address_limit:
            lefts.append(self._address_limit - address)
        return min(lefts)


def _objects(raw: bytes) -> int:
    """Return an upper bound of the objects outside strings in a JSON text, which limits its messages. Linear time.

    Each begins with a brace that no backslash follows. In JSON quoted in a string a backslash does follow; a result of
    30 MB may contain 800,000 of those.
    """
    starts = range(0, len(raw), _PIECE)
    return sum(raw.count(b"{", at, at + _PIECE) - raw.count(b"{\\", at, at + _PIECE + 1) for at in starts)


class Reservation:
    """Memory reserved for one body, or its decompressed form, as it grows. A context manager of one thread.

    Bytes already in memory count twice, as the kernel's figure contains them too: so it errs on the safe side, and has
    to be released as soon as the body is processed.
    """

    __slots__ = ("_gate", "size")

    def __init__(self, gate: MemoryGate) -> None:
        self._gate = gate
        self.size = 0
        """Bytes reserved."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resize(0)

    def resize(self, size: int) -> None:
        """Change the reservation to so many bytes. Raises TooLarge without a change if there is not enough memory."""
        self._gate.take(size - self.size, self.size)
        self.size = size


class _Statm:
    """Reads the process's address space and resident memory, in bytes; zeros if the system does not report them."""

    def __init__(self) -> None:
        self._file = -1
        with suppress(OSError):
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> tuple[int, int]:
        try:
            size, resident, *_ = os.pread(self._file, 128, 0).split()
        except (OSError, ValueError):
            return 0, 0
        return int(size) * _PAGE, int(resident) * _PAGE

    def __del__(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
