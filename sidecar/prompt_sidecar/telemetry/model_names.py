"""The one label that callers choose: the model. Bounded, so that no caller can make series without end.

A name of the operator's list is told as it is; one that the table of known models covers as the family there, which
spellings, dates and prefixes share; any other as `other`. At most 32 are told apart at a time, the operator's first and
then those that came first.
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
        """`allowed` are told apart whatever else comes."""
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
