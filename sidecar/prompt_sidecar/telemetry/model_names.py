"""The model label, the only one that callers choose. Bounded, so that callers cannot create any number of series.

A name of the operator's list is used unchanged; a known model's name is replaced by its family, which is independent of
spelling, date and prefix; any other is `other`. There are at most 32 values: those of the operator, then the first
families seen.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from prompt_sidecar.telemetry.catalog import OTHER
from prompt_sidecar.telemetry.options import MOST_MODELS
from prompt_sidecar.tokens.models import known_family


class ModelNames:
    """Turns a model's name into a label. Thread-safe."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        """`allowed` are names that always have a label of their own."""
        self._lock = threading.Lock()
        self._allowed = frozenset(allowed[:MOST_MODELS])
        self._families: set[str] = set()

    def label(self, model: str) -> str:
        """The label of a model's name."""
        if model in self._allowed:
            return model
        family = known_family(model)
        if family is None:
            return OTHER
        if family in self._families or family in self._allowed:
            return family
        with self._lock:
            if len(self._families | self._allowed) < MOST_MODELS:
                self._families.add(family)
            return family if family in self._families else OTHER
