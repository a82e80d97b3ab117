"""The strategies that run in this process: the sidecar, never trimming, and the two plain ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from prompt_sidecar.tokens.weigh import PRIMING
from tests.lab.peers.material import Material, Turn
from tests.oracle.baselines import Control, Entry, Sized, trim_every_call
from tests.oracle.runs import body_of
from tests.promises.engine import Engine
from tests.promises.judge import originals_complaints, prompt_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy made of a run's prompts at one budget."""

    turns: Sequence[Turn] = ()
    """One for each prompt."""
    seconds: Sequence[float] = ()
    """Of the calls that were timed."""
    recallable: float | None = 0.0
    """Share of what the last prompt lacks that can be had back exactly; None: it lacks nothing."""
    remarks: Sequence[str] = field(default=())
    failure: str = ""
    """Why there is nothing else here."""


OURS = "cache_first (ours)"
NEVER = "never trimming"
CONTROL = "control (100 % to 50 %)"
SLIDING = "sliding window"


def ours(material: Material, budget: int) -> Outcome:
    """Trim with preset `cache_first`, and fetch every original of the last prompt."""
    run = material.run
    engine = Engine(limit=budget, preset="cache_first")
    made: list[Turn] = []
    seconds: list[float] = []
    for length in material.lengths:
        body = body_of(run.format, material.slices[:length], system=run.system)
        start = time.perf_counter()
        answer = engine.trim(run.format, body)
        seconds.append(time.perf_counter() - start)
        assert answer.prompt.body is not None
        got = prompt_of(answer.prompt.body)
        head = tuple(material.piece(raw, system=True) for raw in got.system_pieces())
        made.append(head + tuple(map(material.piece, got.slices)))
    sent = prompt_of(body_of(run.format, material.slices, system=run.system))
    found = [originals_complaints(run, sent, [(trim, engine.original(trim.stash_id))]) for trim in answer.trimmed.trims]
    return Outcome(made, seconds, sum(not complaints for complaints in found) / len(found) if found else None)


def never(material: Material, _: int) -> Outcome:
    """Send everything."""
    return Outcome([material.sent(length) for length in material.lengths], recallable=None)


def control(material: Material, budget: int) -> Outcome:
    """Drop the oldest groups from the budget to half of it, and remember the cut."""
    return _plain(material, Control(budget - PRIMING).prompt)


def sliding(material: Material, budget: int) -> Outcome:
    """Drop the oldest groups to the budget, at each call anew."""
    return _plain(material, lambda sent: trim_every_call(sent, budget - PRIMING))


def _plain(material: Material, trim: Callable[[Sequence[Sized]], list[Entry]]) -> Outcome:
    made: list[Turn] = []
    seconds: list[float] = []
    for length in material.lengths:
        sent = material.sized(length)
        start = time.perf_counter()
        kept = trim(sent)
        seconds.append(time.perf_counter() - start)
        made.append(tuple(digest for digest, _ in kept))
    return Outcome(made, seconds)
