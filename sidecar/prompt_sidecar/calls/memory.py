"""How much memory the process takes, how much it may take, and whether a call's needs are within what is left.

Theory. A process that runs out of memory does not fail in one place: Python raises MemoryError wherever it stands, some
native code crashes, and in a container the kernel kills it, which loses every run. So a prompt is refused before any
work is done, by an estimate of what it may need against what is left: of the configured limit, else of the container's
(cgroup), and of the process's address space (RLIMIT_AS). Calls in flight reserve their estimates, since what they are
about to take is not in the kernel's figure yet. Large needs leave some of it to small ones. Where there is no limit,
nothing is read and nobody is refused.

Bodies of requests and answers of providers grow while they are read, or unpacked, and nobody knows how far. So they
reserve what the next piece may become before it is kept (`Reservation`), and reading ends where that is not there.

The estimate is of the worst kind of prompt with so many bytes, all of it new: bytes are copied as they are received,
lifted, sliced, kept, returned and sent, and each message becomes a record. Memory within the heap that is free again
counts as taken, so the estimate errs on the safe side; what is idle is given back to the system every half minute.
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
"""Times that a prompt's bytes are in memory at the most: as received, its body, its slices and text, the originals
before they are compressed, the returned slices, the joined answer, and two more while gRPC sends it."""
MESSAGE_BYTES: Final = 4_000
"""Memory of a new message in addition to its bytes, while its decoded form is still there."""
CALL_BYTES: Final = 2_097_152
"""Memory of any call in addition to that."""
ORIGINAL_COPIES: Final = 2
"""Times that an original's bytes are in memory while a page of it is read: decompressed, and in part as text."""
REQUEST_COPIES: Final = 3
"""Times that the bytes of a request that is sent on are in memory, besides what trimming needs: as they came, with
hidden turns and tools, and on their way to the provider."""
ANSWER_COPIES: Final = 10
"""Times that the bytes of a provider's answer, of an event of it, or of a message of a WebSocket are in memory: as they
came, on their way to the splitter, as text, which takes up to four times its bytes, read, and written again."""
SMALL_BYTES: Final = 1_048_576
"""Bytes of an original below which nothing is reserved: with all threads at it 16 MB."""
LEAST_MESSAGE: Final = 25
"""Bytes of the smallest message, with its comma: `{"role":"user"}` and some."""

BASELINE_BYTES: Final = 150_000_000
"""Memory of a process before any run: 155 MB with the extra `fast`, 118 without; about, as a reserve is added."""
RESERVE: Final = 1.25
"""Times that a process takes what its figures explain, at most; the bench holds it to that."""

ROOMY: Final = 8
"""Part of what is left that a call may reserve unseen: as many as two processors serve at once, with some waiting."""

SPARE: Final = 16
"""Part of the limit that calls with large needs leave to those with small ones: 25 MB of 400."""
ANY: Final = sys.maxsize
"""Room where there is no limit."""
SMALL_NEED: Final = 8_388_608
"""Bytes up to which a need is small: a prompt of half a megabyte, or one of 200 kB in 600 messages."""

NEAR: Final = 0.9
"""Share of the process's limit from which on caches of runs, then originals, are given up. Budgets leave a fifth free,
so it is reached only where they do not fit, or where much of the memory is none of theirs."""

_PIECE: Final = 1_048_576
"""Bytes that are looked through at once, while no other thread runs: some 5 ms."""

LEAST_BUDGET: Final = 16_777_216
"""Bytes below which no eviction budget is shrunk: a dozen runs of a small agent."""

LEAST_ADDRESSES: Final = 500_000_000
"""Bytes of addresses with which a sidecar starts: libraries, stacks of threads, and heaps of arenas, most of which hold
nothing. With fewer than some 450 MB native code of libraries ends the process, as it gets no thread."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a call failed for want of memory: Python has no one type for that.

    A thread or a lock that the system has no memory for is a RuntimeError, known by its text alone (CPython,
    `Modules/_threadmodule.c`); what the kernel refuses is an OSError.
    """
    if isinstance(error, RuntimeError):
        return str(error).startswith(("can't start new thread", "can't allocate"))
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == ENOMEM)


def out_of_memory() -> OutOfMemory:
    """The error of a call for which `is_out_of_memory` holds."""
    return OutOfMemory(
        "memory ran out; nothing that was kept is lost: retry a little later, or give the sidecar more",
        bound="limits.process_bytes",
    )


def sizing(limits: Limits, container: int) -> str:
    """Return a warning if all that may be kept does not fit the container; empty: it does, or there is no limit."""
    need = int((BASELINE_BYTES + limits.stash_bytes + limits.memory_bytes) * RESERVE)
    if not container or need <= container:
        return ""
    return (
        f"the process may take {container:,} bytes, and may come to {need:,}: limits.stash_bytes, limits.memory_bytes "
        f"and {BASELINE_BYTES:,} of its own, with a quarter in reserve; lower them, or prompts will be refused"
    )


def fitted(limits: Limits, container: int) -> Limits:
    """Return limits whose eviction budgets fit a container; `container` is 0 where it has no limit.

    Both budgets shrink in the same proportion. They decide what is evicted and nothing else: pods of different sizes
    trim the same prompt in the same way.
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
    """Return what `fitted` changed, for the log; empty: nothing."""
    names = ("stash_bytes", "run_stash_bytes", "memory_bytes")
    told = [
        f"limits.{name} is {getattr(effective, name):,} in place of {getattr(limits, name):,}"
        for name in names
        if getattr(effective, name) != getattr(limits, name)
    ]
    return (
        f"the container may take {container:,} bytes: {', '.join(told)}; originals are evicted earlier" if told else ""
    )


def check_addresses() -> None:
    """Check that the process may use as many addresses as a start takes. Raises StartError: it may not."""
    limit = _address_limit()
    if 0 < limit < LEAST_ADDRESSES:
        raise StartError(
            f"the process may use {limit:,} bytes of addresses; {LEAST_ADDRESSES:,} is the least with which it starts: "
            "raise the limit (ulimit -v), and limit memory with limits.process_bytes or the container's limit instead"
        )


def _address_limit() -> int:
    """Bytes of addresses that the process may use; 0: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 0 if soft == resource.RLIM_INFINITY else soft


class MemoryGate:
    """Admits prompts, and reading of large originals, while there is memory for them. Thread-safe.

    `most` is bytes that the process may take; 0: the container's limit, if it has one.
    """

    def __init__(self, most: int = 0, read: Callable[[], tuple[int, int]] | None = None) -> None:
        self._read = read or _Statm()
        self.limit = most or memory_limit()
        self._address_limit = _address_limit()
        self._lock = threading.Lock()
        self._reserved = 0
        self._baseline = 0

    def settle(self) -> None:
        """Take the memory of the process, which is ready now, as its baseline."""
        self._baseline = self._read()[1]

    def figures(self) -> ProcessMemory:
        """Return the process's memory, as the kernel reports it."""
        return ProcessMemory(self._read()[1], self._baseline, self.limit or self._address_limit, free_blocks())

    def excess(self) -> int:
        """Return by how many bytes the process passes the share of its limit from which on it sheds."""
        address, resident = self._read()
        over = 0
        if self.limit:
            over = resident - int(self.limit * NEAR)
        if self._address_limit:
            over = max(over, address - int(self._address_limit * NEAR))
        return max(over, 0)

    def room(self) -> int:
        """Return how many bytes the process may take besides what it has and what is reserved; `ANY`: no limit."""
        if not self.limit and not self._address_limit:
            return ANY
        return max(self._left() - self._reserved, 0)

    @contextmanager
    def admit(self, raw: bytes) -> Iterator[None]:
        """Reserve what a prompt of these bytes may need until it is answered.

        Raises:
            TooLarge: it may need more than is left; nothing was done.
        """
        if not self.limit and not self._address_limit:
            yield
            return
        need = CALL_BYTES + COPIES * len(raw)
        left = self._left()
        # The worst, which is mostly far too much, is reserved where other calls find room as well, and where it makes
        # no large need of a small one. Else the messages are looked for.
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
        """Reserve what reading an original of so many bytes may need; a small one needs no more than any call does.

        Raises:
            TooLarge: it may need more than is left.
        """
        if original < SMALL_BYTES or not (self.limit or self._address_limit):
            yield
            return
        with self.growing() as held:
            held.resize(ORIGINAL_COPIES * original)
            yield

    def growing(self) -> Reservation:
        """Return a reservation of nothing yet, for what is read piece by piece and may become more than its bytes."""
        return Reservation(self)

    def take(self, more: int, before: int = 0) -> None:
        """Reserve so many bytes more, besides the `before` that the same call has. `give` must follow.

        Raises:
            TooLarge: they are not there.
        """
        if more > 0 and (self.limit or self._address_limit):
            self._reserve(more, self._left(), before + more)
        else:
            self.give(-more)

    def give(self, less: int) -> None:
        """Reserve so many bytes less."""
        if less and (self.limit or self._address_limit):
            with self._lock:
                self._reserved -= less

    def _reserve(self, more: int, left: int, need: int) -> None:
        """Reserve `more` of what is left, for a call that needs so much in all. Raises TooLarge."""
        if need > SMALL_NEED:
            left -= (self.limit or self._address_limit) // SPARE
        with self._lock:
            if more + self._reserved > left:
                raise self._refusal(need, max(left - self._reserved, 0))
            self._reserved += more

    def _refusal(self, need: int, left: int) -> TooLarge:
        """The error of a call that needs so much: what helps depends on whether an idle process has that."""
        told = f"this call may need {need:,} bytes of memory and {left:,} are left"
        idle = self.limit - self.limit // SPARE - self._baseline
        if self.limit and need > max(idle, SMALL_NEED):
            enough = (need + self._baseline) * SPARE // (SPARE - 1) + SPARE
            helps = (
                f"an idle sidecar has {max(idle, 0):,}, so a retry does not help: send a smaller prompt, or give the "
                f"sidecar {enough:,} or more (limits.process_bytes, the container's limit)"
            )
        else:
            helps = "retry a little later, or give the sidecar more (limits.process_bytes, the container's limit)"
        return TooLarge(f"{told}; {helps}", bound="limits.process_bytes")

    def _left(self) -> int:
        address, resident = self._read()
        lefts = []
        if self.limit:
            lefts.append(self.limit - resident)
        if self._address_limit:
            lefts.append(self._address_limit - address)
        return min(lefts)


def _objects(raw: bytes) -> int:
    """At most how many objects a JSON text has outside strings, which bounds its messages. Linear.

    Each begins with a brace that no backslash follows, as one does in JSON that is quoted in a string: a result of 30
    MB may hold 800,000 of those.
    """
    starts = range(0, len(raw), _PIECE)
    return sum(raw.count(b"{", at, at + _PIECE) - raw.count(b"{\\", at, at + _PIECE + 1) for at in starts)


class Reservation:
    """What one body, or what is unpacked of it, may come to take, as it grows. A context manager of one thread.

    What is there already counts twice, as the kernel's figure has it too: so it errs on the safe side, and is to be
    given back as soon as nothing more is made of it.
    """

    __slots__ = ("_gate", "size")

    def __init__(self, gate: MemoryGate) -> None:
        self._gate = gate
        self.size = 0
        """Bytes that are reserved."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resize(0)

    def resize(self, size: int) -> None:
        """Reserve so many bytes in place of what is reserved. Raises TooLarge: they are not there; what was stays."""
        self._gate.take(size - self.size, self.size)
        self.size = size


class _Statm:
    """Reads the process's address space and resident memory, in bytes; zeros where the system does not report them."""

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
