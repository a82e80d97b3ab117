"""All that this program takes from the core, in one place: counting, and a run's engine with its search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.tokens.weigh import PRIMING, count_opaque, weigh
from prompt_sidecar.trim.presets import PRESETS, preset
from tests.promises.engine import Engine, counter

__all__ = ["PRIMING", "Hit", "Trimmer", "checked_policy", "presets", "weigh_message", "weigh_text"]

ENCODING = "o200k_base"


def presets() -> list[str]:
    """The names of all presets."""
    return list(PRESETS)


def checked_policy(name: str, values: Mapping[str, object]) -> None:
    """Raise InvalidPolicy for a preset that does not exist or values that it does not take."""
    preset(name).override(values)


def weigh_message(format: str, raw: bytes) -> int:
    """Return the tokens of a message. Raises SidecarError if it cannot be read."""
    message = FORMATS[format].read(raw, "messages")
    return weigh([message], _count_many, FORMATS[format].call_tokens)[0].total


@cache
def weigh_text(text: str) -> int:
    """Return the tokens of a text that may hold encoded binary."""
    return count_opaque(text, lambda part: counter().count(part, ENCODING))


def _count_many(texts: Sequence[str]) -> Sequence[int]:
    return counter().count_many(texts, ENCODING)


class Hit(NamedTuple):
    """A snippet."""

    text: str
    is_json: bool
    """Whether it is a stretch of JSON, whose strings are escaped."""


class Trimmer:
    """One run's engine at one limit."""

    def __init__(self, format: str, model: str, limit: int, preset: str, policy: Mapping[str, object]) -> None:
        """Begin a run."""
        self._format = format
        self._engine = Engine(limit=limit, preset=preset, policy=policy, model=model)

    def trim(self, body: bytes) -> bytes:
        """Return the trimmed body."""
        answer = self._engine.trim(self._format, body)
        assert answer.prompt.body is not None
        return answer.prompt.body

    def search(self, query: str) -> list[Hit]:
        """Return the first snippets that a search finds, the best first."""
        found = self._engine.search(query).snippets
        return [Hit(snippet.text, is_json=snippet.item.content_type == "application/json") for snippet in found]
