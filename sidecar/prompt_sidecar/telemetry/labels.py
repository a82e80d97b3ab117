"""The labels whose values are open: models, agents' tools and callers.

Their number is limited, so that callers cannot create any number of series, and they are never text that a model wrote.
Names without a label of their own become `other`.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.providers.models import known_family
from prompt_sidecar.telemetry.catalog import OTHER
from prompt_sidecar.telemetry.options import MOST_MODELS
from prompt_sidecar.trim.own_text import plain_name

FIRST_TOOLS: Final = 20
"""Tools that have a label from their first result on: as many as most agents have."""
MOST_TOOLS: Final = 32
"""All labels of tools; those after the first are for large tools that appear later."""
MOST_CALLERS: Final = 32
"""All labels of callers: teams of a platform, and more than a pod has."""
_OF_DOORS: Final = ("local", "unix")
"""Callers whose labels need no name from the operator."""
_OF_TOKENS: Final = "token:"
"""The prefix of a caller with a token of the sidecar; the operator's file of tokens gives the name."""
_PLAIN_MODEL: Final = re.compile(r"[A-Za-z0-9._:/@\[\]+-]{1,128}")
"""A model's name as providers write it."""
WATCHED_TOOLS: Final = 256
"""Tools without a label whose tokens are added up; if there are more, the smallest is forgotten."""


class _FirstNames:
    """Gives each of the first names a label. Thread-safe."""

    def __init__(self, most: int, names: Collection[str] = ()) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._names = set(names)

    def label(self, name: str) -> str:
        """Return the label of a name."""
        with self._lock:
            if len(self._names) < self._most:
                self._names.add(name)
            return name if name in self._names else OTHER


class ModelNames:
    """Turns a model's name into a label. Thread-safe.

    A name of the operator's list is used unchanged. A model in the settings has the settings' name, and any other known
    one its family's, so that spelling, date and prefix make no difference. There are at most 32: those of the
    operator's list, then those of the settings' tables, then the first families seen.
    """

    def __init__(self, allowed: Sequence[str] = (), models: Models | None = None) -> None:
        """Give labels to the operator's names.

        Args:
            allowed: names that are used unchanged.
            models: the known models; those in the settings have a label of their own.
        """
        self._allowed = frozenset(allowed[:MOST_MODELS])
        self._models = models or Models()
        named = dict.fromkeys((*allowed, *self._models.named))
        self._names = _FirstNames(MOST_MODELS, tuple(named)[:MOST_MODELS])

    def label(self, model: str) -> str:
        """Return the label of a model's name."""
        if model in self._allowed:
            return model
        known = self._models.find(model)
        if known is not None and known.table:
            return self._names.label(known.table)
        family = known_family(model)
        return OTHER if family is None else self._names.label(family)

    def shown(self, model: str) -> str:
        """Return the full name of a model with a label, for spans; empty if it is not known, so it may be any text."""
        plain = _PLAIN_MODEL.fullmatch(model) is not None
        return model if plain and self.label(model) != OTHER else ""


class CallerLabels:
    """Turns a caller into a label: names that operators have given, `local` and `unix`. Thread-safe.

    Names that callers provide, such as the digest of a key or the subject of a certificate, become `other`, as there
    may be any number of these. There are at most 32: those of the settings, then the first names of tokens seen.
    """

    def __init__(self, named: Sequence[str] = ()) -> None:
        """`named`: the names in the settings' tables of callers."""
        self._first = _FirstNames(MOST_CALLERS, tuple(dict.fromkeys((*_OF_DOORS, *named)))[:MOST_CALLERS])
        self._named = frozenset((*_OF_DOORS, *named))

    def label(self, caller: str) -> str:
        """Return the label of a caller."""
        known = caller in self._named or caller.startswith(_OF_TOKENS)
        return self._first.label(caller) if known else OTHER


class ToolNames:
    """Turns the name of a tool that receives values into a label: the first ones get a label. Thread-safe."""

    def __init__(self) -> None:
        self._names = _FirstNames(MOST_TOOLS)

    def label(self, tool: str) -> str:
        """Return the label of a tool's name."""
        return self._names.label(tool) if plain_name(tool) == tool else OTHER


class AgentTools:
    """Turns names of agents' tools into labels. Thread-safe.

    If the operator gives a list, only its tools are distinguished. Otherwise tools in the agents' own definitions get
    labels: the first ones, then those whose results have more tokens than the smallest of these, until all labels are
    used. A label is kept for the life of the process, as a counter that moved to another label would seem to jump.
    """

    def __init__(self, listed: Collection[str] = ()) -> None:
        """`listed`: the operator's tools; empty: the largest are distinguished."""
        self._listed = frozenset(listed)
        self._lock = threading.Lock()
        self._labels: Counter[str] = Counter()
        self._watched: Counter[str] = Counter()

    def label(self, tool: str, tokens: int, *, declared: bool) -> str:
        """Return the label of a tool with these new tokens; `declared`: whether the agent's own definitions name it."""
        if self._listed:
            return tool if tool in self._listed else OTHER
        with self._lock:
            if tool not in self._labels and not (declared and self._enters(tool, tokens)):
                return OTHER
            self._labels[tool] += tokens
            return tool

    def known(self, tool: str) -> str:
        """Return the label of a tool if it has one already, else `other`."""
        return tool if tool in (self._listed or self._labels) else OTHER

    def _enters(self, tool: str, tokens: int) -> bool:
        """Whether a tool gets a label now; if not, its tokens are added up."""
        if len(self._labels) < FIRST_TOOLS:
            return True
        self._watched[tool] += tokens
        if len(self._labels) < MOST_TOOLS and self._watched[tool] > min(self._labels.values()):
            del self._watched[tool]
            return True
        if len(self._watched) > WATCHED_TOOLS:
            del self._watched[min(self._watched, key=self._watched.__getitem__)]
        return False
