"""How well prompts are counted by reports of usage, and what that does to cuts.

Run it with `python -m tests.lab.conformance.counts`.

Two parts. *Scripted*: recorded runs are trimmed at a share of their real tokens, where real is what a scripted provider
counts (`counting.py`); after each model call the agent reports the usage, and in the middle of the run it changes to
another model, which counts otherwise. For each seed, that is for each pair of coefficients:

- cuts, and how full the limit was before each: the prompt sent last before it (`sent`), and what would have been sent
  without it (`due`), in real tokens of the model that it goes to; median and least;
- prompts over the limit, and by how much at the most;
- the estimate's error: of the first prompt after each cut, and of all prompts since the first cut (median, 95th
  percentile);
- what the run costs (0.1 for what the cache keeps, 1.25 for the rest), as a share of the whole history sent each time.

*Recorded*: the runs whose files hold the provider's own counts are sent whole, with those counts reported; the error
of each estimate before its report. What the recorded agents sent in front of the messages, their instructions and
tools, is not in the files: words of about as many tokens stand in for it, so that the first estimate is near the first
count.

Tune on `--seeds 0-9` and report on others (default: 100-104).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from statistics import fmean, median
from typing import Any

import msgspec

from prompt_sidecar.facts.usage_calls import InputCounting, UsageCall
from tests.conformance.conversations import MEMBER, SYSTEM, Conversation, Step, recorded, recorded_paths
from tests.lab.conformance.counting import Coefficients, CountingProvider, cost
from tests.lab.harness.figures import percentile
from tests.lab.harness.tables import options, sorry
from tests.oracle import data
from tests.promises.engine import CALLER, RUN_ID, Engine

RUNS = ("cc-entire-graph", "cc-entire-cli")
MODELS = {
    "bound": ("claude-fable-5-1", "claude-opus-5-5"),
    "older": ("claude-opus-4-6", "claude-opus-4-7"),
}
"""The model that a run begins with, and the one that it ends with."""
CHANGE = 0.5
"""Share of the turns after which the model changes."""
NO_LIMIT = 1 << 30
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Task:
    """One run under one pair of coefficients."""

    run: str
    models: str
    seed: int
    share: float
    """The limit, of the run's real tokens."""
    preset: str
    reports: bool = True
    """Whether the agent reports usage."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What became of it."""

    task: Task
    turns: int
    limit: int
    cuts: int
    sent_median: float
    """Real tokens of the prompts sent right before the cuts, as shares of the limit."""
    sent_least: float
    due_median: float
    """The same of the prompts that would have been sent without them."""
    due_least: float
    over: int
    """Prompts over the limit, in real tokens."""
    worst: float
    """The largest prompt, of the limit."""
    cut_error_median: float
    """Error of the estimate of the first prompt after each cut, as a share of its real tokens."""
    cut_error_p95: float
    error_median: float
    """The same of all prompts since the first cut."""
    error_p95: float
    cost: float
    """Of the whole history sent each time."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A recorded run sent whole, with the provider's own counts reported."""

    run: str
    model: str
    turns: int
    error_median: float
    error_p95: float
    error_worst: float


@lru_cache(maxsize=4)
def _recorded(name: str, model: str) -> Conversation:
    return recorded(recorded_paths()[name], model, {"thinking": {"type": "adaptive"}})


def measured(task: Task) -> Measured:
    """Replay one run."""
    first, second = MODELS[task.models]
    before, after = _recorded(task.run, first), _recorded(task.run, second)
    providers = [
        CountingProvider(Coefficients.drawn(f"{task.seed} {task.run} {number}"), f"{task.seed} {number}")
        for number in range(2)
    ]
    steps = before.steps
    # The run's real tokens are the later model's: its last prompt is sent to that one.
    limit = int(task.share * providers[1].count(after.body(after.messages)))
    engine = Engine(limit=limit, preset=task.preset)
    history: list[bytes] = []
    sent, due, cut_errors, errors = [], [], [], []
    ours, whole = [], []
    last = b""
    real = over = cuts = 0
    worst = 0.0
    for turn, step in enumerate(steps):
        later = turn >= CHANGE * len(steps)
        run, provider = (after, providers[1]) if later else (before, providers[0])
        history += step.given
        answer = engine.trim(run.format, run.body(history))
        assert answer.prompt.body is not None
        pieces = _pieces(run, answer.prompt.body)
        if answer.cache.batch_point:
            cuts += 1
            sent.append(real / limit)
            without = run.body([*_pieces(run, last)[2:], *_added(steps, turn)] if last else history)
            due.append(provider.count(without) / limit)
        real = provider.count(answer.prompt.body)
        error = abs(answer.tokens.after / real - 1)
        if answer.cache.batch_point:
            cut_errors.append(error)
        errors += [error] if cuts else []
        over += real > limit
        worst = max(worst, real / limit)
        ours.append(list(zip(pieces, provider.pieces(answer.prompt.body), strict=True)))
        untrimmed = run.body(history)
        whole.append(list(zip(_pieces(run, untrimmed), provider.pieces(untrimmed), strict=True)))
        if task.reports:
            _report(engine, real)
        last = answer.prompt.body
        history += step.answer
    return Measured(
        task=task,
        turns=len(steps),
        limit=limit,
        cuts=cuts,
        sent_median=median(sent or [0]),
        sent_least=min(sent or [0]),
        due_median=median(due or [0]),
        due_least=min(due or [0]),
        over=over,
        worst=worst,
        cut_error_median=median(cut_errors or [0]),
        cut_error_p95=percentile(cut_errors or [0], 0.95),
        error_median=median(errors or [0]),
        error_p95=percentile(errors or [0], 0.95),
        cost=cost(ours) / cost(whole),
    )


def _report(engine: Engine, real: int) -> None:
    engine.runs.report_usage(UsageCall(CALLER, RUN_ID, input_tokens=real, counting=InputCounting.WITH_CACHED))


def _pieces(run: Conversation, body: bytes) -> list[bytes]:
    members = _members.decode(body)
    head = [bytes(members.get(name, b"null")) for name in ("tools", SYSTEM[run.format])]
    return [*head, *(bytes(each) for each in _array.decode(members[MEMBER[run.format]]))]


def _added(steps: Sequence[Step], turn: int) -> list[bytes]:
    """What came after it: the answer, and what the agent adds."""
    return [*steps[turn - 1].answer, *steps[turn].given]


def whole(name: str) -> Whole:
    """Send a run with usage whole, and report the provider's own counts."""
    loaded = data.document(recorded_paths()[name])
    run = recorded(recorded_paths()[name], loaded["model"])
    bare = Engine(limit=NO_LIMIT).trim(run.format, run.body(run.steps[0].given), dry_run=True).tokens.before
    run = replace(run, system=f"{run.system} {_words(loaded['usage'][0][0] - bare)}")
    engine = Engine(limit=NO_LIMIT)
    history: list[bytes] = []
    errors = []
    for step, usage in zip(run.steps, loaded["usage"], strict=False):
        history += step.given
        answer = engine.trim(run.format, run.body(history))
        if usage is not None:  # the file has no counts of a call that failed
            errors.append(abs(answer.tokens.after / usage[0] - 1))
            _report(engine, usage[0])
        history += step.answer
    return Whole(
        name, loaded["model"], len(errors), median(errors), percentile(errors, 0.95), max(errors[len(errors) // 4 :])
    )


def _words(tokens: int) -> str:
    """Words of so many tokens; each of these is one."""
    return " ".join(random.Random(1).choices(("module", "client", "server", "token", "index", "buffer"), k=tokens))


def with_usage() -> list[str]:
    """The runs whose files hold the provider's own counts."""
    return [name for name, path in recorded_paths().items() if "usage" in data.document(path)]


def parser() -> argparse.ArgumentParser:
    """The program's options."""
    found = options("python -m tests.lab.conformance.counts", __doc__)
    found.add_argument("--runs", nargs="+", default=RUNS, help="Anthropic runs")
    found.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="whose rules on thinking hold")
    found.add_argument("--seeds", default="100-104", help="of the coefficients, such as 100-104 or 3,5")
    found.add_argument("--limits", nargs="+", type=float, default=[30], help="per cent of the run's real tokens")
    found.add_argument("--no-reports", action="store_true", help="the agent reports no usage")
    found.add_argument("--preset", default="cache_first")
    found.add_argument("--part", choices=("scripted", "recorded", "both"), default="both")
    found.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    found.add_argument("--json", action="store_true", help="print one JSON object for each line")
    return found


def seeds(text: str) -> list[int]:
    """Read `3,5` or `100-104`."""
    found: list[int] = []
    for part in text.split(","):
        start, _, end = part.partition("-")
        found += range(int(start), int(end or start) + 1)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the tables."""
    chosen = parser().parse_args(arguments)
    if not recorded_paths():
        return sorry("counts", f"no recorded runs: {data.ENVIRONMENT} names the folder that holds them")
    asked = [
        Task(run, models, seed, limit / 100, chosen.preset, not chosen.no_reports)
        for run in chosen.runs
        for models in chosen.models
        for limit in chosen.limits
        for seed in seeds(chosen.seeds)
    ]
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        scripted = pool.map(measured, asked) if chosen.part != "recorded" else iter(())
        recordings = pool.map(whole, with_usage()) if chosen.part != "scripted" else iter(())
        found: list[Measured] = []
        for one in scripted:
            found.append(one)
            print(f"{len(found)} of {len(asked)} replays", end="\r", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        if chosen.json:
            for each in [*map(asdict, found), *map(asdict, recordings)]:
                print(json.dumps(each))
            return 0
        _scripted(found)
        _whole(list(recordings))
    return 0


def _scripted(found: Sequence[Measured]) -> None:
    if not found:
        return
    print(
        f"{'run':18}{'models':8}{'seed':>6}{'turns':>6}{'limit':>9}{'cuts':>5}   sent before a cut   due at a cut"
        "     over (worst)   error after a cut   since the first     cost"
    )
    groups: dict[tuple[str, str, float], list[Measured]] = {}
    for one in found:
        groups.setdefault((one.task.run, one.task.models, one.task.share), []).append(one)
    for (run, models, _), members in groups.items():
        for one in members:
            print(f"{run:18}{models:8}{one.task.seed:>6}" + _line(one))
        names = [name for name in Measured.__slots__ if name != "task"]
        mean: dict[str, Any] = {name: fmean(getattr(one, name) for one in members) for name in names}
        print(f"{run:18}{models:8}{'mean':>6}" + _line(replace(members[0], **mean)))


def _line(one: Measured) -> str:
    return (
        f"{one.turns:>6.0f}{one.limit:>9.0f}{one.cuts:>5.1f}"
        f"   {one.sent_median:6.1%} ({one.sent_least:6.1%})"
        f"   {one.due_median:6.1%} ({one.due_least:6.1%})"
        f"   {one.over:>3.0f} ({one.worst:6.1%})"
        f"   {one.cut_error_median:5.1%}, {one.cut_error_p95:6.1%}"
        f"     {one.error_median:5.1%}, {one.error_p95:6.1%}"
        f"   {one.cost:6.3f}"
    )


def _whole(found: Sequence[Whole]) -> None:
    for one in found:
        print(
            f"{one.run:18} whole, {one.model}: {one.turns} turns, error median {one.error_median:.2%}, "
            f"p95 {one.error_p95:.2%}, worst after the first quarter {one.error_worst:.2%}"
        )


if __name__ == "__main__":
    sys.exit(main())
