"""Slots of running calls, for all folders: a call that waits gives up its slot for that time.

Python runs one thread at a time, so only a few calls have a slot (`prompt_sidecar.calls.call_pool`). Among those, heavy
ones let short ones run first (`give_way`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol


class Slots(Protocol):
    """The owner of the slots, such as a thread pool."""

    def give_up(self) -> None:
        """Release the current thread's slot to another call."""

    def take_turns(self) -> None:
        """Make the current thread's call take turns with other long ones; it then counts like any other."""

    def give_way(self) -> None:
        """If the current thread's call is heavy, wait for a moment while short calls have work."""

    def take_back(self) -> None:
        """Get a slot again at once, so that no call waits for a slot while it holds what another one waits for."""


class _Thread(threading.local):
    """The state of the current thread."""

    slots: Slots | None = None
    """The owner of its slot; None if it has no slot."""
    waits: Callable[[], None] | None = None
    """Called when it begins to wait."""


_THREAD = _Thread()


@contextmanager
def slot_of(slots: Slots) -> Iterator[None]:
    """Run this context with a slot that is already counted."""
    _THREAD.slots = slots
    try:
        yield
    finally:
        _THREAD.slots = None


@contextmanager
def reporting(waits: Callable[[], None]) -> Iterator[None]:
    """Call `waits` each time that this thread begins to wait without its slot within this context."""
    before, _THREAD.waits = _THREAD.waits, waits
    try:
        yield
    finally:
        _THREAD.waits = before


@contextmanager
def waiting() -> Iterator[None]:
    """Release the slot within this context, for a wait that takes no processor time: another call runs meanwhile."""
    slots = _THREAD.slots
    if slots is None:
        yield
        return
    _THREAD.slots = None
    if _THREAD.waits is not None:
        _THREAD.waits()
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
    """Let short calls run first, if the current one is heavy."""
    if _THREAD.slots is not None:
        _THREAD.slots.give_way()


@contextmanager
def holding(lock: Lock) -> Iterator[None]:
    """Hold, within this context, a lock that another call may hold for long."""
    if not lock.acquire(blocking=False):
        with waiting():
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
