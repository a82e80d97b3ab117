"""What a way of condensing saves on one recorded run, and what it hides of what the run's actions used.

A reference (`tests.lab.evidence`) is hidden if its newest source is a tool result that shows it no longer, by
string; where it has several names, in shares. An edit is harmed if the text that it replaces stood in an earlier
result, with or without the numbers of lines, and stands in none any more. A message is written once, at 1.25 of the
price of a token, and read at each later call, at 0.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from time import process_time
from typing import Any

from prompt_sidecar.trim.condense.calls import SourceCall, call_of
from prompt_sidecar.trim.condense.condensing import label
from tests.lab.evidence.core import weigh_text
from tests.lab.evidence.history import History, Need, stands
from tests.lab.evidence.recordings import CHAT, Kind, Recording, lines_of, texts_of
from tests.oracle.baselines import CACHE_READ, CACHE_WRITE

LABEL = "\n" + label("a1b2c3d4e5")
"""What a condensed result ends with."""
LEAST_EDIT = 20
"""Characters of a replaced text that stands somewhere for a reason."""
TRIES = 3
"""The least time of so many counts."""
_NUMBERS = re.compile(r"^ *\d*(?:→|\t)", re.MULTILINE)
_HUNK = re.compile(r"^(?:@@.*|\*\*\* .*)$", re.MULTILINE)

Condense = Callable[[str, SourceCall], str | None]
"""Makes a result smaller, or leaves it: None."""


@dataclass(frozen=True, slots=True)
class Result:
    """A tool result of a run."""

    place: int
    """Of its message."""
    text: str
    call: SourceCall


@dataclass(frozen=True, slots=True)
class Used:
    """Something that an action used of a result, and what it weighs."""

    place: int
    names: Sequence[str]
    weight: float


@dataclass(slots=True)
class Figures:
    """What a way of condensing does to one run."""

    run: str
    tokens: int = 0
    """Of all results."""
    saved: int = 0
    results: int = 0
    changed: int = 0
    hidden: float = 0.0
    """Share of what actions used of results."""
    edits: int = 0
    """Edits of a text that stood in an earlier result."""
    harmed: int = 0
    bill: float = 1.0
    """Share of the run's cost without condensing."""
    characters: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    """Of results that were changed, and of the others."""
    seconds: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    """Of processor time, likewise."""

    @property
    def share(self) -> float:
        """Of the results' tokens saved."""
        return self.saved / self.tokens if self.tokens else 0.0


@dataclass(slots=True)
class Material:
    """A run in chat completions' form, with what its actions used, worked out once for all ways."""

    run: Recording
    results: list[Result] = field(init=False)
    used: list[Used] = field(init=False)
    edits: list[tuple[int, str]] = field(init=False)
    """For each edit the place of its message, and the text that it replaces."""

    def __post_init__(self) -> None:
        self.run = self.run.in_chat()
        self.results = list(results_of(self.run.messages))
        self.used = list(_used(self.run, {result.place for result in self.results}))
        self.edits = [
            (place, old)
            for place, message in enumerate(self.run.messages)
            for call in message.get("tool_calls") or ()
            for old in _replaced(call["function"]["arguments"])
            if len(old) >= LEAST_EDIT
        ]

    def measure(self, condense: Condense) -> Figures:
        """Measure a way of condensing."""
        figures = Figures(self.run.name)
        made: dict[int, str] = {}
        for result in self.results:
            text, seconds = _timed(condense, result)
            figures.characters[text is not None] += len(result.text)
            figures.seconds[text is not None] += seconds
            if text is not None:
                made[result.place] = text + LABEL
        return self.judge(made, figures)

    def judge(self, made: Mapping[int, str], figures: Figures | None = None) -> Figures:
        """What results that were made smaller save and hide; `made`: the texts by the places of their messages."""
        figures = figures or Figures(self.run.name)
        figures.results = len(self.results)
        figures.tokens = sum(weigh_text(result.text) for result in self.results)
        whole = {result.place: result.text for result in self.results}
        figures.saved = sum(weigh_text(whole[place]) - weigh_text(text) for place, text in made.items())
        figures.changed = len(made)
        figures.hidden = self._hidden(made)
        self._count_edits(made, figures)
        figures.bill = self._cost(made) / self._cost({})
        return figures

    def _hidden(self, made: Mapping[int, str]) -> float:
        whole = sum(used.weight for used in self.used)
        hidden = 0.0
        for used in self.used:
            text = made.get(used.place)
            if text is not None:
                hidden += used.weight * sum(not stands(name, text) for name in used.names) / len(used.names)
        return hidden / whole if whole else 0.0

    def _count_edits(self, made: Mapping[int, str], figures: Figures) -> None:
        for place, old in self.edits:
            before = [result for result in self.results if result.place < place]
            if any(_shows(result.text, old) for result in before):
                figures.edits += 1
                figures.harmed += not any(_shows(made.get(result.place, result.text), old) for result in before)

    def _cost(self, made: Mapping[int, str]) -> float:
        sizes = [_weight(message, made.get(place)) for place, message in enumerate(self.run.messages)]
        cost, sent = 0.0, 0
        for start in self.run.starts:
            cost += CACHE_WRITE * sum(sizes[sent:start]) + CACHE_READ * sum(sizes[:sent])
            sent = start
        return cost


def _timed(condense: Condense, result: Result) -> tuple[str | None, float]:
    text, least = None, float("inf")
    for _ in range(TRIES):
        began = process_time()
        text = condense(result.text, result.call)
        least = min(least, process_time() - began)
    return text, least


def results_of(messages: Sequence[Mapping[str, Any]]) -> Iterator[Result]:
    """The tool results of a run in chat completions' form, each with its call."""
    calls: dict[str, SourceCall] = {}
    for place, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            calls[call["id"]] = call_of(call["function"]["name"], call["function"]["arguments"])
        if message["role"] == "tool":
            text = "\n".join(text for _, text in texts_of(CHAT, message))
            yield Result(place, text, calls.get(message["tool_call_id"], SourceCall("")))


def _used(run: Recording, results: set[int]) -> Iterator[Used]:
    """What actions used whose newest source is a tool result."""
    history = History(run)
    sources: dict[int, list[int]] = {}
    for place, message in enumerate(run.messages):
        for kind, text in texts_of(run.format, message):
            if kind in {Kind.RESULT, Kind.USER}:
                for line in lines_of(text):
                    sources.setdefault(history.ids[line], []).append(place)
    for turn, start in enumerate(run.starts):
        for need in history.needs(turn):
            newest = _newest(need, sources, start)
            if newest in results:
                yield Used(newest, need.names, need.weight)


def _newest(need: Need, sources: Mapping[int, Sequence[int]], start: int) -> int:
    places = (place for line in need.source for place in sources.get(line, ()) if place < start)
    return max(places, default=-1)


def _replaced(arguments: str) -> Iterator[str]:
    """The texts that an edit replaces, in the ways of several agents."""
    try:
        decoded = json.loads(arguments)
    except ValueError:
        return
    if not isinstance(decoded, dict):
        return
    for name in ("old_string", "old_str", "oldText"):
        if isinstance(decoded.get(name), str):
            yield decoded[name]
    patch = decoded.get("input") or decoded.get("patch")
    if isinstance(patch, str) and "*** Begin Patch" in patch:
        for hunk in _HUNK.split(patch):
            yield "\n".join(line[1:] for line in hunk.split("\n") if line[:1] in {" ", "-"})


@cache
def _without_numbers(text: str) -> str:
    return _NUMBERS.sub("", text)


def _shows(text: str, old: str) -> bool:
    return old in text or old in _without_numbers(text)


def _weight(message: Mapping[str, Any], text: str | None) -> int:
    """Tokens of a message, or of one with another text."""
    own = "\n".join(found for _, found in texts_of(CHAT, message))
    return 4 + weigh_text(own if text is None else text)
