"""Replaying a run turn by turn, as an agent does that sends its whole history each time.

A replay keeps digests and figures, not bodies: a long run's prompts together take hundreds of megabytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from statistics import median

from prompt_sidecar.facts.trim_calls import NoFit, TrimAnswer
from tests.oracle.baselines import Control, Entry, cost, cost_of, kept_prefix, trim_every_call
from tests.oracle.runs import Run, body_of, recorded, turns
from tests.oracle.tokens import count_prompt
from tests.promises.engine import Engine
from tests.promises.judge import (
    Prompt,
    Verdict,
    judge,
    originals_complaints,
    prompt_of,
    protected_tokens,
    sized,
    stuck_tokens,
)

SHARE = 0.30
"""Limit of a recorded run's replay, as a share of its final tokens."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt of a replay and what became of it."""

    length: int
    """Messages sent."""
    digest: bytes
    """Of the body returned."""
    facts: bytes
    """Digest of trims and registry."""
    fits: bool
    no_fit: NoFit | None
    before: int
    after: int
    limit: int
    counted: int
    """Tokens of the returned body by the oracle's count."""
    protected: int
    """Tokens of the protected text by the oracle's count."""
    batch_point: bool
    batch_points: int
    kept: int
    seconds: float
    verdict: Verdict = field(repr=False)


@dataclass(slots=True)
class Replay:
    """All turns of a run under one preset and limit."""

    run: Run
    preset: str
    limit: int
    engine: Engine = field(repr=False)
    turns: list[Turn] = field(default_factory=list, repr=False)
    complaints: list[str] = field(default_factory=list)
    """What the oracle has against any turn, each with its turn."""


def facts_of(answer: TrimAnswer) -> bytes:
    """Digest what an answer says was trimmed, and its registry."""
    return sha256(repr((list(answer.trimmed.trims), list(answer.trimmed.stash_entries))).encode()).digest()


def replay(run: Run, preset: str, limit: int, *, policy: Mapping[str, object] | None = None, every: int = 1) -> Replay:
    """Send each prompt of a run in turn (or one in `every`) and judge each answer."""
    engine = Engine(limit=limit, preset=preset, policy=policy or {})
    result = Replay(run, preset, limit, engine)
    slices = run.slices()
    seen: set[str] = set()
    lengths = turns(run.messages)
    for length in lengths[:-1:every] + lengths[-1:]:
        body = body_of(run.format, slices[:length], system=run.system)
        start = time.perf_counter()
        answer = engine.trim(run.format, body)
        seconds = time.perf_counter() - start
        sent = prompt_of(body)
        verdict = judge(run, sent, answer)
        fresh = [trim for trim in answer.trimmed.trims if trim.stash_id and trim.stash_id not in seen]
        seen.update(trim.stash_id for trim in fresh)
        if length == lengths[-1]:
            fresh = list(answer.trimmed.trims)
        found = [(trim, engine.original(trim.stash_id)) for trim in fresh]
        complaints = [*verdict.complaints, *originals_complaints(run, sent, found)]
        result.complaints += [f"turn of {length} messages: {complaint}" for complaint in complaints]
        result.turns.append(_turn(run, length, sent, answer, verdict, seconds=seconds))
    return result


def _turn(run: Run, length: int, sent: Prompt, answer: TrimAnswer, verdict: Verdict, *, seconds: float) -> Turn:
    assert answer.prompt.body is not None
    return Turn(
        length=length,
        digest=sha256(answer.prompt.body).digest(),
        facts=facts_of(answer),
        fits=answer.fits,
        no_fit=answer.no_fit,
        before=answer.tokens.before,
        after=answer.tokens.after,
        limit=answer.tokens.limit,
        counted=sum(tokens for _, tokens in verdict.entries),
        protected=0 if answer.fits else protected_tokens(run, sent) + stuck_tokens(run, prompt_of(answer.prompt.body)),
        batch_point=answer.cache.batch_point,
        batch_points=answer.cache.batch_points,
        kept=answer.cache.kept,
        seconds=seconds,
        verdict=verdict,
    )


@cache
def recorded_replay(path: Path, preset: str) -> Replay:
    """Replay a recorded run at its limit; made once for all the tests that look at it."""
    run = recorded(path)
    return replay(run, preset, limit_of(run))


def limit_of(run: Run) -> int:
    """Return the limit of a run's replay."""
    return int(SHARE * count_prompt({"messages": list(run.messages)}))


def sticky_complaints(result: Replay) -> list[str]:
    """Say where old bytes changed without a batch point, the prefix broke, or an item grew."""
    complaints = []
    for before, after in zip(result.turns, result.turns[1:], strict=False):
        name = f"turn of {after.length} messages"
        old, new = before.verdict, after.verdict
        changed = [place for place, digest in old.shown.items() if new.shown.get(place) != digest]
        if changed and not after.batch_point:
            complaints.append(f"{name}: {len(changed)} old messages changed, first {changed[0]}, with no batch point")
        stable = list(old.entries[: len(old.entries) - old.tail])
        if not after.batch_point and kept_prefix(stable, new.entries) < len(stable):
            complaints.append(f"{name}: the prefix is not kept, with no batch point")
        complaints += [f"{name}: {complaint}" for complaint in _grown(old, new)]
        if after.batch_points != before.batch_points + after.batch_point:
            complaints.append(f"{name}: {before.batch_points} batch points became {after.batch_points}")
    return complaints


def _grown(old: Verdict, new: Verdict) -> list[str]:
    ranks = {"condensed": 0, "elided": 1, "clipped": 2, "collapsed": 2, "dropped": 3}
    complaints = []
    for place, (action, saved, stash_id) in old.trims.items():
        if place not in new.trims:
            complaints.append(f"item {place} is whole again")
            continue
        later, later_saved, later_id = new.trims[place]
        counting = later == action == "collapsed"  # a label that counts one more may be a token longer
        if ranks[later] < ranks[action] or (later_saved < saved and not counting):
            complaints.append(f"item {place} grew: {action} saving {saved}, then {later} saving {later_saved}")
        if later_id != stash_id:
            complaints.append(f"item {place} changed its id")
    back = set(new.shown) - set(old.shown)
    returned = [place for place in back if old.shown and place < max(old.shown)]
    complaints += [f"message {place} is there again" for place in returned]
    return complaints


@dataclass(frozen=True, slots=True)
class Figures:
    """What a replay cost, next to the two plain strategies and never trimming. Prices of one plain token."""

    limit: int
    turns: int
    untrimmed: float
    ours: float
    control: float
    every_call: float
    own_text: float
    batch_points: int
    over: int
    final: int
    """Tokens of the last prompt untrimmed."""
    seconds: float
    """Median of a call."""

    @property
    def of_control(self) -> float:
        """Our cost as a share of the control's."""
        return self.ours / self.control

    @property
    def own_share(self) -> float:
        """The part of our cost that is our own text's."""
        return self.own_text / self.ours


def figures(result: Replay) -> Figures:
    """Measure a replay and the baselines on the same prompts with the same ruler."""
    control = Control(result.limit)
    whole: list[list[Entry]] = []
    kept: list[list[Entry]] = []
    again: list[list[Entry]] = []
    slices = result.run.slices()
    everything = sized(prompt_of(body_of(result.run.format, slices, system=result.run.system)))
    extra = len(everything) - len(slices)
    for turn in result.turns:
        sent = everything[: turn.length + extra]
        whole.append([message.entry for message in sent])
        kept.append(control.prompt(sent))
        again.append(trim_every_call(sent, result.limit))
    ours = [turn.verdict.entries for turn in result.turns]
    return Figures(
        limit=result.limit,
        turns=len(result.turns),
        untrimmed=cost(whole),
        ours=cost(ours),
        control=cost(kept),
        every_call=cost(again),
        own_text=cost_of(ours, [turn.verdict.own for turn in result.turns]),
        batch_points=result.turns[-1].batch_points,
        over=sum(not turn.fits for turn in result.turns),
        final=sum(tokens for _, tokens in whole[-1]),
        seconds=median(turn.seconds for turn in result.turns),
    )
