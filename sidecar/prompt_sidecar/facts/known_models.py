"""What is known of models: the settings' facts about a model override the catalogue's.

A table `[models."NAME"]` applies to the name as sent and to its forms that the catalogue recognises: to `openai/NAME`,
a dated NAME, and a variant that the catalogue knows only as NAME. A fact that the table lacks is taken from the model
that it is `like`, else from the catalogue's row for the requested name. The tables are read at the start only; a run
keeps the windows that it began with (`engine/steps/windows.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from prompt_sidecar.providers import catalogue
from prompt_sidecar.providers.catalogue import LONG_CONTEXT_TAG, MAX_NAME_CHARS, NAMES_REMEMBERED, Model, ModelPrices
from prompt_sidecar.values import setting, text, whole

LEAST_WINDOW: Final = 256
"""Tokens, as of `limits.default_window`."""
_TOKENS: Final = whole(0, 100_000_000, "tokens")
_UNPRICED: Final = ModelPrices(None, None, None, None)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The settings' facts about one model. 0 tokens, and an empty text, mean unset."""

    like: str = setting(
        "",
        text(MAX_NAME_CHARS),
        "A model of the catalogue, whose facts, vocabulary and handling of reasoning this one has, as an Azure "
        "deployment does; empty: none.",
    )
    window: int = setting(
        0,
        _TOKENS,
        f"Tokens of prompt and answer together, at least {LEAST_WINDOW}; 0: as `like` has, else the catalogue.",
    )
    most_input: int = setting(
        0,
        _TOKENS,
        "Tokens that a prompt may take whatever answer is asked for; 0: as `like` has, else the catalogue. As many as "
        "the window: there is no such bound.",
    )
    most_output: int = setting(
        0,
        _TOKENS,
        "Tokens of the longest answer; 0: as `like` has, else the catalogue. `prompt-sidecar models` shows it; it "
        "decides nothing.",
    )

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that no model has."""
        if not (self.like or self.window or self.most_input or self.most_output):
            raise ValueError("it says nothing; it must have like, window, most_input or most_output")
        if 0 < self.window < LEAST_WINDOW:
            raise ValueError(f"window is {self.window}; it must be at least {LEAST_WINDOW}")
        for name in ("most_input", "most_output"):
            value = getattr(self, name)
            if 0 < self.window < value:
                raise ValueError(f"{name} is {value:,}; it may be at most the window, {self.window:,}")


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What is known of a model, and from where."""

    model: Model
    table: str
    """Name of the settings' table about it; empty if there is none."""
    row: str
    """Name of the catalogue's row that the other facts are from; empty if there is none."""
    like: bool = False
    """Whether that row is for the model that this one is like."""
    set_by_table: frozenset[str] = frozenset()
    """Names of the facts that the table sets."""


class Models:
    """What is known of models by the names that agents send. Thread-safe."""

    def __init__(self, tables: Mapping[str, ModelFacts] | None = None) -> None:
        """Take the tables of the settings, which must have passed `faults`."""
        self._tables = {name.lower(): (name, facts) for name, facts in (tables or {}).items()}
        self._find = lru_cache(NAMES_REMEMBERED)(self._found)

    @property
    def named(self) -> Sequence[str]:
        """Names of the models in the settings."""
        return [name for name, _ in self._tables.values()]

    def find(self, name: str) -> KnownModel | None:
        """Return what is known of the model that an agent calls `name`, or None."""
        return self._find(name) if len(name) <= MAX_NAME_CHARS else None

    def window(self, name: str) -> int | None:
        """Return the model's window in tokens, prompt and answer; for Google's the prompt's only. None if unknown."""
        known = self.find(name)
        return None if known is None else known.model.window

    def most_input(self, name: str) -> int | None:
        """Return the most tokens of a prompt, however short the answer; None if only the window limits it."""
        known = self.find(name)
        return None if known is None else known.model.most_input

    def alike(self, name: str) -> str:
        """Return the name of the model that this one behaves like: by default its own."""
        if not self._tables or len(name) > MAX_NAME_CHARS:
            return name
        _, facts, tag = self._table(name)
        return facts.like + tag if facts is not None and facts.like else name

    def _found(self, name: str) -> KnownModel | None:
        table, facts, tag = self._table(name)
        asked = facts.like + tag if facts is not None and facts.like else name
        row = catalogue.find(asked)
        if facts is None:
            return None if row is None else KnownModel(row, "", catalogue.row_name(asked))
        base = Model(table, None, None, None, _UNPRICED, (), mid_run_system=False) if row is None else row
        tagged = bool(tag) and base.window == catalogue.LONG_CONTEXT  # the agent has requested the longer window
        own: dict[str, Any] = {
            fact: tokens
            for fact in (("most_output",) if tagged else ("window", "most_input", "most_output"))
            if (tokens := getattr(facts, fact))
        }
        name_of_row = "" if row is None else catalogue.row_name(asked)
        return KnownModel(replace(base, **own), table, name_of_row, bool(facts.like), frozenset(own))

    def _table(self, name: str) -> tuple[str, ModelFacts | None, str]:
        """Return the table for a name, and the tag of a longer window if only the name, not the table's, has it."""
        whole_name = name.lower()
        plain = whole_name.removesuffix(LONG_CONTEXT_TAG)
        tag = whole_name[len(plain) :]
        if not self._tables:
            return "", None, tag
        if whole_name in self._tables:
            return *self._tables[whole_name], ""
        for form in catalogue.forms(plain):
            if form in self._tables:
                return *self._tables[form], tag
        row = catalogue.find(plain)
        return (*self._tables[row.name], tag) if row is not None and row.name in self._tables else ("", None, tag)


def faults(tables: Mapping[str, ModelFacts]) -> Iterator[str]:
    """Yield what is wrong with tables that are each valid: their names, and facts that the catalogue lacks."""
    seen: dict[str, str] = {}
    for name, facts in tables.items():
        shown = f"models.{json.dumps(name, ensure_ascii=False)}"
        if not name or len(name) > MAX_NAME_CHARS:
            yield f"{shown} has {len(name):,} characters; a model's name has 1 to {MAX_NAME_CHARS}"
        elif name == "*":
            yield f"{shown} is no model; limits.default_window is for all that are not known"
        elif seen.setdefault(name.lower(), name) != name:
            other = json.dumps(seen[name.lower()], ensure_ascii=False)
            yield f"{shown} and models.{other} are one model, as case does not matter; keep one of them"
        row = catalogue.find(facts.like or name)
        if facts.like and row is None:
            yield (
                f"{shown}.like is {json.dumps(facts.like, ensure_ascii=False)}, which the catalogue does not know; "
                "name a model for which `prompt-sidecar models NAME` shows a row, or say its window"
            )
        elif not facts.window and (row is None or row.window is None):
            yield f"{shown} has no window, and the catalogue knows none either; say window, or like"
