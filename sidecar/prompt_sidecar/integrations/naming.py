"""Which run a model call belongs to, for code that cannot pass it down to the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

RUN_HEADER: Final = "x-prompt-sidecar-run"
"""The header that names a run, in each of the sidecar's doors."""
RunChoice: TypeAlias = str | Callable[[Any], str | None] | None
"""A run's id, or a function that returns it, given what the framework has at hand. None: see `in_run`."""

_CURRENT: Final[ContextVar[str]] = ContextVar("prompt_sidecar_run", default="")


@contextmanager
def in_run(run_id: str) -> Iterator[None]:
    """Make all model calls inside belong to a run, in this thread or asyncio task and in the tasks that it starts."""
    token = _CURRENT.set(run_id)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_run() -> str:
    """Return the run that `in_run` has named; empty: none."""
    return _CURRENT.get()


def chosen(run: RunChoice, given: Any) -> str:
    """Return the run: the one around the call, else the configured one; empty: none.

    Args:
        run: as configured.
        given: what a function is given to choose by.
    """
    return current_run() or (run(given) if callable(run) else run) or ""
