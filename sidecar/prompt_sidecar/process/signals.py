"""Delivers the process's signals, one after another, to the thread that waits for them.

The kernel may deliver a signal to any thread. Python's own handlers run in the main thread, but a main thread that
waits for a lock or a queue is not woken when another thread was chosen, or when the signal came just before the wait
began: the process would continue as if it had not been signalled. Here the signal itself writes a byte that the wait
reads.

A byte only wakes the thread. Python's handlers record which signals arrived, each at most twice: so a signal is
recorded even if many others have filled the socket and its byte is lost.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable
from types import FrameType

_END = b"\0"
_BYTES = 4_096
"""Bytes that are read at once: all that a socket of usual size holds."""
_MOST = 2
"""How often one signal is recorded: the second one that stops has its own meaning."""


class Signals:
    """Catches signals from its creation on. There is one instance at a time, created in the main thread."""

    def __init__(self, caught: Iterable[signal.Signals]) -> None:
        """Catch these signals: until `close`, if it is called."""
        self._read, self._written = socket.socketpair()
        self._written.setblocking(False)
        self._ended = False
        self._received: list[signal.Signals] = []
        """Signals that arrived and were not waited for yet, oldest first."""
        self._wakeup_before = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        # Without a Python handler no byte is written.
        self._before = {number: signal.signal(number, self._note) for number in caught}

    def wait(self) -> signal.Signals | None:
        """Wait for the next signal, in the main thread; return None if `end` was called."""
        while not self._ended:
            if self._received:
                return self._received.pop(0)
            self._read.recv(_BYTES)
        return None

    def end(self) -> None:
        """End the wait, from any thread."""
        self._ended = True
        try:
            self._written.send(_END)
        except BlockingIOError:  # it is full, so the wait ends
            return

    def close(self) -> None:
        """Handle signals as before the creation, in the main thread."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not Python's
        signal.set_wakeup_fd(self._wakeup_before)
        self._read.close()
        self._written.close()

    def _note(self, number: int, _: FrameType | None) -> None:
        received = signal.Signals(number)
        if self._received.count(received) < _MOST:
            self._received.append(received)
