"""Signals of the process, one after another, for the thread that waits for them.

The kernel may deliver a signal to any thread. Python's own handlers run in the main thread, but a main thread that
waits for a lock or a queue is not woken when another thread was chosen, or when the signal came just before the wait
began: the process would go on as if it had not been told to stop. Here the signal itself writes a byte that the wait
reads.

A byte only wakes. Which signals have come is noted by Python's handlers, each at most twice: where so many of one come
that there is no room for another's byte, the other is known all the same.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable
from types import FrameType

_END = b"\0"
_BYTES = 4_096
"""Read at once: all that a socket of usual size holds."""
_MOST = 2
"""Of one signal that are noted: the second one of those that stop has a meaning of its own."""


class Signals:
    """Catches signals from now on. There is one at a time, made in the main thread."""

    def __init__(self, caught: Iterable[signal.Signals]) -> None:
        self._read, self._written = socket.socketpair()
        self._written.setblocking(False)
        self._ended = False
        self._came: list[signal.Signals] = []
        """Those that have come and were not waited for yet, oldest first."""
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        for number in caught:
            signal.signal(number, self._note)  # without a handler of Python's nothing is written

    def wait(self) -> signal.Signals | None:
        """Wait for the next signal, in the main thread; None: `end` was called."""
        while not self._ended:
            if self._came:
                return self._came.pop(0)
            self._read.recv(_BYTES)
        return None

    def end(self) -> None:
        """End the wait, from any thread."""
        self._ended = True
        try:
            self._written.send(_END)
        except BlockingIOError:  # it is full, so that the wait ends
            return

    def _note(self, number: int, _: FrameType | None) -> None:
        came = signal.Signals(number)
        if self._came.count(came) < _MOST:
            self._came.append(came)
