"""The slots of calls that run at once, as all folders see them: a call that waits gives up its own for that time.

Python runs one thread at a time, so only a few calls have one (`prompt_sidecar.calls.call_pool`). Of those that do,
heavy ones let short ones go first (`give_way`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol


class Slots(Protocol):
    """Where slots are counted."""

    def give_up(self) -> None:
        """Let another call have the current thread's."""

    def take_turns(self) -> None:
        """The current thread's call takes turns with other long ones from now on, so it counts as any other."""

    def give_way(self) -> None:
        """Where the current thread's call is a heavy one, wait for a moment while short calls have work."""

    def take_back(self) -> None:
        """Have one again, at once, so that no call waits for a slot while it holds what another one waits for."""


class _Thread(threading.local):
    """What the current thread holds."""

    slots: Slots | None = None
    """Where it has a slot; None: it has none."""


_THREAD = _Thread()


@contextmanager
def slot_of(slots: Slots) -> Iterator[None]:
    """Have a slot, which was counted before."""
    _THREAD.slots = slots
    try:
        yield
    finally:
        _THREAD.slots = None


@contextmanager
def waiting() -> Iterator[None]:
    """Wait for something that takes no processor time: another call runs meanwhile."""
    slots = _THREAD.slots
    if slots is None:
        yield
        return
    _THREAD.slots = None
    slots.give_up()
    try:
        yield
    finally:
        slots.take_back()
        _THREAD.slots = slots


def take_turns() -> None:
    """Take turns with other long calls from now on."""
    if _THREAD.slots is not None:
        _THREAD.slots.take_turns()


def give_way() -> None:
    """Let short calls go first, where the current one is heavy."""
    if _THREAD.slots is not None:
        _THREAD.slots.give_way()


@contextmanager
def holding(lock: Lock) -> Iterator[None]:
    """Hold a lock that another call may hold for long."""
    if not lock.acquire(blocking=False):
        with waiting():
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
