"""Windows of models that are neither in the settings nor in the catalogue, learned from providers' refusals.

A refusal that names a limit lowers it for its own run (`engine/runs/reported_usage.py`). For an unknown model it holds
for the caller's later runs too: without it each of them would begin with the window that is assumed, and be refused. It
can only lower a window, and only from a run's first prompt for that model on, so that no prompt of a running run
changes. A prompt that the provider accepts shows that its window is not smaller than that.

A learned window belongs to one caller: the reports of that caller's agents change no window of another caller. It lasts
as long as the process; runs that began with it carry it in their revisions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

LEAST_TAUGHT: Final = 4_096
"""Tokens: the smallest window that is taken from a refusal for later runs. No model that agents use has a smaller one,
so a smaller number is a mistake or a lie, which must not affect more than its own run."""
CALLER_MODELS: Final = 16
"""Models of one caller: few models that agents use are unknown. A caller that makes up names forgets only its own."""
MOST_MODELS: Final = 1_024
"""Models of all callers together, which take a third of a megabyte."""
BOUND: Final = "limits.taught_windows"
"""The name under which both limits are counted when one is reached."""


@dataclass(frozen=True, slots=True)
class Taught:
    """The limits that refusals named for one model. Tokens; 0 if unknown."""

    window: int = 0
    """Prompt and answer together."""
    most_input: int = 0
    """The prompt alone."""


class TaughtWindows:
    """Limits learned from refusals, for the life of the process. Thread-safe."""

    def __init__(self, reached: Callable[[str], None] = lambda _: None) -> None:
        """Begin with nothing; `reached` is called with a limit's name when an entry is forgotten because of it."""
        self._lock = Lock()
        self._reached = reached
        self._callers: OrderedDict[str, OrderedDict[str, Taught]] = OrderedDict()
        self._models = 0

    def of(self, caller: str, model: str) -> Taught:
        """Return what a caller's refusals have shown about a model."""
        with self._lock:
            return self._find(caller, model.lower())

    def refused(self, caller: str, model: str, limit: int, *, input_only: bool) -> None:
        """Learn the limit that a refusal names; `input_only`: it is for the prompt alone."""
        limit = max(limit, LEAST_TAUGHT)
        with self._lock:
            was = self._find(caller, model.lower())
            if input_only:
                self._put(caller, model.lower(), replace(was, most_input=min(was.most_input or limit, limit)))
            else:
                self._put(caller, model.lower(), replace(was, window=min(was.window or limit, limit)))

    def accepted(self, caller: str, model: str, tokens: int) -> None:
        """Learn from an accepted prompt, by the provider's count, that the window is not smaller."""
        with self._lock:
            was = self._find(caller, model.lower())
            if any(0 < taught < tokens for taught in (was.window, was.most_input)):
                window, most_input = (taught and max(taught, tokens) for taught in (was.window, was.most_input))
                self._put(caller, model.lower(), Taught(window, most_input))

    def _find(self, caller: str, model: str) -> Taught:
        theirs = self._callers.get(caller)
        return theirs.get(model, Taught()) if theirs is not None else Taught()

    def _put(self, caller: str, model: str, taught: Taught) -> None:
        theirs = self._callers.setdefault(caller, OrderedDict())
        self._callers.move_to_end(caller)
        self._models += model not in theirs
        theirs[model] = taught
        theirs.move_to_end(model)
        if len(theirs) > CALLER_MODELS:
            theirs.popitem(last=False)
            self._models -= 1
            self._reached(BOUND)
        while self._models > MOST_MODELS:
            idle, of_idle = next(iter(self._callers.items()))
            of_idle.popitem(last=False)
            self._models -= 1
            self._reached(BOUND)
            if not of_idle:
                del self._callers[idle]
