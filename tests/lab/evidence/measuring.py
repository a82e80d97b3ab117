"""One cell: what a strategy's prompts of one run at one limit show of what each next action used, and their cost."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple

from tests.conformance.table import CASES
from tests.lab.evidence.contenders import Contender, Search, prompts_of
from tests.lab.evidence.core import Hit
from tests.lab.evidence.history import History, Need
from tests.lab.evidence.recordings import Recording, paths, recorded
from tests.lab.evidence.ruler import Prompt, Ruler, Sight
from tests.lab.harness.environments import Unavailable
from tests.oracle.baselines import CACHE_READ, CACHE_WRITE

BANDS = ((3, "1-3"), (10, "4-10"), (30, "11-30"))
OLDER = "older"
BAND_NAMES = (*(name for _, name in BANDS), OLDER)
FIRST = 5
"""Snippets of a search that count."""
ASKED = 12
"""Hidden references of one turn that are searched for, drawn by chance; each represents its share of all."""


def band(age: int) -> str:
    """The age band of some iterations."""
    return next((name for most, name in BANDS if age <= most), OLDER)


@dataclass(slots=True)
class Sums:
    """Weights of references, summed over turns; those of one turn sum to 1."""

    total: float = 0.0
    visible: float = 0.0
    sourced: float = 0.0
    """With a source at all."""
    source: float = 0.0
    read: float = 0.0
    """Visible, or to be read back from a condensed result."""
    source_read: float = 0.0
    """The source likewise."""
    quoted: float = 0.0
    """Whole lines."""
    lines: float = 0.0
    hidden: float = 0.0
    askable: float = 0.0
    """Hidden, and the name is in the prompt."""
    asked: float = 0.0
    """Hidden and searched for; a sample represents all."""
    by_name_1: float = 0.0
    by_name_3: float = 0.0
    by_name: float = 0.0
    contexts: float = 0.0
    """Of those asked, the ones with other rare words to ask by."""
    by_context_1: float = 0.0
    by_context_3: float = 0.0
    by_context: float = 0.0
    lost: float = 0.0
    """Hidden, neither askable nor found by context."""
    lost_without_names: float = 0.0
    """Hidden, not found by context, askable or not."""
    unfound: float = 0.0
    """Hidden, found neither by name nor by context."""

    def add(self, other: Sums) -> None:
        """Add the sums of others."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def share(self, part: str, whole: str = "total") -> float | None:
        """A sum as a share of another; None where there is nothing to share."""
        of = getattr(self, whole)
        return getattr(self, part) / of if of else None


@dataclass(slots=True)
class Cell:
    """A strategy on one run at one limit."""

    run: str
    share: float
    limit: int
    contender: str
    turns: int = 0
    counted: int = 0
    """Turns whose full history exceeds the limit, which can be fitted, and whose action refers to something."""
    cost: float = 0.0
    """In prices of one plain token: 0.1 for each of a kept prefix, 1.25 for each other."""
    tokens: int = 0
    """Of all prompts."""
    kept: int = 0
    """Of them, those that a prompt begins with as the one before did."""
    over: int = 0
    """Prompts over the limit that need not be."""
    unavoidable: int = 0
    """Those whose system prompt, opening and newest turn alone are over it."""
    invalid: int = 0
    """Prompts with a defect that the sent prompt does not have."""
    seconds: float = 0.0
    failure: str = ""
    searchable: bool = False
    """Whether the model can search what was taken out."""
    searched: bool = False
    sums: Sums = field(default_factory=Sums)
    bands: dict[str, Sums] = field(default_factory=lambda: {name: Sums() for name in BAND_NAMES})
    source_bands: dict[str, Sums] = field(default_factory=lambda: {name: Sums() for name in BAND_NAMES})

    def facts(self) -> Mapping[str, object]:
        """For the JSON file."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Cell:
        """Read what `facts` gave."""
        bands = {
            member: {name: Sums(**sums) for name, sums in facts[member].items()} for member in ("bands", "source_bands")
        }
        return cls(**{**facts, **bands, "sums": Sums(**facts["sums"])})


@dataclass(slots=True)
class Material:
    """A run with what its turns needed, worked out once for all cells."""

    run: Recording
    history: History = field(init=False, repr=False)
    needs: list[list[Need]] = field(init=False, repr=False)
    ruler: Ruler = field(init=False, repr=False)
    _in_chat: Ruler | None = field(init=False, repr=False, default=None)
    _defects: dict[tuple[str, int], Counter[str]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History(self.run)
        self.needs = [self.history.needs(turn) for turn in range(len(self.run.starts))]
        self.ruler = Ruler(self.run, self.history)

    @property
    def in_chat(self) -> Ruler:
        """The ruler for the run in chat completions' form."""
        if self._in_chat is None:
            self._in_chat = Ruler(self.run.in_chat(), self.history)
        return self._in_chat

    def fresh_defects(self, ruler: Ruler, turn: int, prompt: Prompt) -> bool:
        """Whether a prompt has a defect that the sent one has not, by the format's validator."""
        found = _defects(ruler, prompt)
        if not found:
            return False
        key = ruler.run.format, turn
        if key not in self._defects:
            self._defects[key] = _defects(ruler, ruler.prompt(turn))
        return bool(found - self._defects[key])


def _defects(ruler: Ruler, prompt: Prompt) -> Counter[str]:
    """The defects of a prompt without the places that they name, which trimming shifts."""
    body = ruler.run.decoded(ruler.messages(prompt))
    return Counter(re.sub(r"\d+", "#", text) for text in CASES[ruler.run.format].defects(body))


def cell_of(
    material: Material, contender: Contender, share: float, *, asked: int = ASKED, window: int | None = None
) -> Cell:
    """Measure a strategy on a run at a share of its size.

    `window`: what the strategy is told that prompts may take, where that is not the limit that they are measured by.

    Raises:
        Unavailable: a peer cannot be measured here.
    """
    limit = round(material.ruler.final * share) if window else int(material.ruler.final * share)
    ruler = material.in_chat if contender.in_chat else material.ruler
    cell = Cell(
        material.run.name,
        share,
        limit,
        contender.name,
        searchable=contender.ours,
        searched=contender.ours and asked > 0,
    )
    began = time.perf_counter()
    sight = Sight(ruler.pieces)
    chance = random.Random(f"{material.run.name} {share}")
    for turn, (prompt, search) in enumerate(prompts_of(contender, ruler, window or limit)):
        last = len(sight.prompt)
        kept = sight.move(prompt)
        tokens = ruler.tokens(prompt)
        stays = sum(ruler.pieces[number].tokens for number in prompt[:kept])
        cell.turns += 1
        cell.tokens += tokens
        cell.kept += stays
        cell.cost += CACHE_READ * stays + CACHE_WRITE * (tokens - stays)
        fits = ruler.least(turn) <= limit
        cell.over += tokens > limit and fits
        cell.unavoidable += tokens > limit and not fits
        # A prompt that only grew has the defects that it had, but for those of what the agent sent.
        if kept < last or turn == len(material.needs) - 1:
            cell.invalid += material.fresh_defects(ruler, turn, prompt)
        if fits and material.ruler.size(turn) > limit and material.needs[turn]:
            cell.counted += 1
            _judge(cell, material.needs[turn], sight, _Searcher(material.history, search), chance=chance, asked=asked)
    cell.seconds = time.perf_counter() - began
    return cell


def _judge(
    cell: Cell, needs: Sequence[Need], sight: Sight, searcher: _Searcher, *, chance: random.Random, asked: int
) -> None:
    """Add the verdict on each reference of a turn to the sums."""
    hidden: list[tuple[Need, Sums]] = []
    for need in needs:
        weight = need.weight
        seen = sight.shows(need.lines)
        sums = Sums(total=weight, visible=weight * seen, hidden=weight * (not seen))
        sums.read = weight * (seen or sight.derives(need.lines))
        if need.quotes_line:
            sums.quoted, sums.lines = weight, weight * seen
        if need.source:
            source_seen = sight.shows_source(need.source)
            sums.sourced, sums.source = weight, weight * source_seen
            sums.source_read = weight * (source_seen or sight.derives(need.source))
            cell.source_bands[band(need.source_age)].add(Sums(sourced=sums.sourced, source=sums.source))
        if not seen:
            sums.askable = weight * sight.names(need.names)
            hidden.append((need, sums))
        cell.sums.add(sums)
        cell.bands[band(need.age)].add(sums)
    if not searcher.there:
        for need, _ in hidden:
            lost = Sums(lost=need.weight, lost_without_names=need.weight, unfound=need.weight)
            cell.sums.add(lost)
            cell.bands[band(need.age)].add(lost)
        return
    drawn = hidden if len(hidden) <= asked else chance.sample(hidden, asked)
    weight = sum(need.weight for need, _ in drawn)
    scale = sum(need.weight for need, _ in hidden) / weight if weight else 0.0
    for need, sums in drawn:
        found = _asked(need, searcher, scale * need.weight, askable=sums.askable > 0)
        cell.sums.add(found)
        cell.bands[band(need.age)].add(found)


def _asked(need: Need, searcher: _Searcher, weight: float, *, askable: bool) -> Sums:
    name, context = searcher.rank(need.names[0], need.lines), searcher.rank(need.context, need.lines)
    return Sums(
        asked=weight,
        by_name_1=weight * (name <= 1),
        by_name_3=weight * (name <= 3),
        by_name=weight * (name <= FIRST),
        contexts=weight * bool(need.context),
        by_context_1=weight * (context <= 1),
        by_context_3=weight * (context <= 3),
        by_context=weight * (context <= FIRST),
        lost=weight * (context > FIRST and not askable),
        lost_without_names=weight * (context > FIRST),
        unfound=weight * (context > FIRST and name > FIRST),
    )


@dataclass(slots=True)
class _Searcher:
    """The searches of one turn; the same question is asked once."""

    history: History
    search: Search | None
    _found: dict[str, list[Hit]] = field(default_factory=dict)

    @property
    def there(self) -> bool:
        """Whether the model can search at all."""
        return self.search is not None

    def rank(self, query: str, lines: frozenset[int]) -> int:
        """Return the place, from 1, of the first snippet that holds one of the lines; one too many: none does."""
        if not query or self.search is None:
            return FIRST + 1
        if query not in self._found:
            self._found[query] = list(self.search(query)[:FIRST])
        shown = (self.history.shown(hit, lines) for hit in self._found[query])
        return next((place for place, holds in enumerate(shown, 1) if holds), FIRST + 1)


class Task(NamedTuple):
    """One cell to measure."""

    run: str
    contender: Contender
    share: float
    asked: int
    reasoning: bool


def measured(task: Task) -> Cell:
    """Measure a cell; one that cannot be measured here has a failure."""
    material = _material(task.run, reasoning=task.reasoning)
    try:
        return cell_of(material, task.contender, task.share, asked=task.asked)
    except Unavailable as error:
        return Cell(
            task.run, task.share, int(material.ruler.final * task.share), task.contender.name, failure=str(error)
        )


@lru_cache(maxsize=2)
def _material(run: str, *, reasoning: bool) -> Material:
    return Material(recorded(paths()[run], reasoning=reasoning))
