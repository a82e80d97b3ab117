"""Which run a model call belongs to, for code that cannot pass it down to the call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

_log = logging.getLogger("prompt_sidecar.client")
RUN_HEADER: Final = "x-prompt-sidecar-run"
"""The header that names a run, in each of the sidecar's doors."""
RunChoice: TypeAlias = str | Callable[[Any], str | None] | None
"""A run's id, or a function that returns it, called with the framework's object at hand. None: see `in_run`."""

_CURRENT: Final[ContextVar[str]] = ContextVar("prompt_sidecar_run", default="")


@contextmanager
def in_run(run_id: str) -> Iterator[None]:
    """Assign all model calls within this context to a run, in this thread or asyncio task and its new tasks."""
    token = _CURRENT.set(run_id)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_run() -> str:
    """Return the run that `in_run` has set, or an empty string."""
    return _CURRENT.get()


def chosen(run: RunChoice, given: Any) -> str:
    """Return the run: the one set by `in_run`, or else the configured one, or an empty string.

    A function that fails, or does not return a string, names no run: the agent continues in any case.

    Args:
        run: as configured.
        given: the argument for a function.
    """
    try:
        found: Any = current_run() or (run(given) if callable(run) else run) or ""
        if isinstance(found, str):
            found.encode()  # a lone surrogate cannot be sent
            return found
        why = type(found).__name__
    except Exception as error:  # noqa: BLE001 - it is the agent's own code
        why = type(error).__name__
    _log.warning("a function names no run: it must return a text, or None; this was %s", why)
    return ""
