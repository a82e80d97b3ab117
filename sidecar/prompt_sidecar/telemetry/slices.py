"""Collections in slices: milliseconds of work in a telemetry thread, while prompts are being answered.

A computing thread releases the interpreter lock only after a millisecond, unless it waits. So telemetry waits a moment
after each slice.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final, TypeVar

SLICE: Final = 40
"""Samples of a slice: a third of a millisecond's work."""
PAUSE_SECONDS: Final = 0.0001
"""Less is not enough for a waiting thread to wake up before this one continues."""

_T = TypeVar("_T")
_never: Final = threading.Event()


def pause() -> None:
    """Let other threads run."""
    _never.wait(PAUSE_SECONDS)


class Sliced(list[_T]):
    """A list that pauses after each slice of it when it is iterated."""

    def __iter__(self) -> Iterator[_T]:
        """The items."""
        for number, item in enumerate(super().__iter__(), 1):
            yield item
            if not number % SLICE:
                pause()
