"""Signals of the process, one after another, for the thread that waits for them.

The kernel may deliver a signal to any thread. Python's own handlers run in the main thread, but a main thread that
waits for a lock or a queue is not woken when another thread was chosen, or when the signal came just before the wait
began: the process would go on as if it had not been told to stop. Here the signal itself writes a byte that the wait
reads.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable

_END = b"\0"


class Signals:
    """Catches signals from now on. There is one at a time, made in the main thread."""

    def __init__(self, caught: Iterable[signal.Signals]) -> None:
        self._read, self._written = socket.socketpair()
        self._written.setblocking(False)
        self._ended = False
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        for number in caught:
            signal.signal(number, lambda *_: None)  # without a handler of Python's nothing is written

    def wait(self) -> signal.Signals | None:
        """Wait for the next signal; None: `end` was called."""
        number = self._read.recv(1)[0]
        return None if self._ended or not number else signal.Signals(number)

    def end(self) -> None:
        """End the wait, from any thread."""
        self._ended = True
        try:
            self._written.send(_END)
        except BlockingIOError:  # it is full of signals, each of which ends the wait
            return
