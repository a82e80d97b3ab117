"""`make counted`: compare estimates of what recorded runs cost with what their providers counted.

A recorded run is replayed with a sidecar that observes, and each prompt is reported as its provider counted it.

The runs were recorded without a sidecar, so what was sent and counted are the untrimmed prompts. Each is estimated
first, with what earlier reports have taught, and then reported; both are added up. What the sidecar would have
returned is estimated by the same reports (`prompt_sidecar/engine/runs/comparing.py`).

System prompts and tools' definitions are not in the files, or not all of them; an agent sends both. In their place
stands a text that is as long as the first prompt's count shows that something is missing.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.facts.comparison import Bill, Comparability, Recount
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.facts.usage_calls import InputCounting, UsageCall
from prompt_sidecar.guard.ceilings import Ceilings
from prompt_sidecar.report.transcripts.model import RecordedPrompt, Transcript
from prompt_sidecar.report.transcripts.reading import read_transcripts
from prompt_sidecar.trim.presets import preset
from tests.lab.harness.tables import sorry
from tests.oracle import data
from tests.promises.engine import CALLER, RUN_ID, Engine

CACHED, WRITTEN = 0.1, 1.25
"""Prices, relative to plain input."""
SHARE: Final = 0.6
"""The limit, of the run's largest prompt: the stand-ins alone take up to a third of it."""
WIDE: Final = 10_000_000
"""A window that no prompt fills."""
COLD: Final = 0.8
"""A prompt is cold if less than this part of what could have been cached was."""
_OBSERVED: Final = Rules(CallerRules(preset("cache_first"), {}, Ceilings()), observe=True)
_SYSTEM: Final = {"openai_responses": "instructions", "anthropic_messages": "system"}


@dataclass(frozen=True, slots=True)
class Figures:
    """One run: by estimates, and by reports."""

    name: str
    model: str
    prompts: int
    """With a report that was taken."""
    tokens: float
    """Of never trimming, estimated as a share of counted."""
    off: float
    """By how much the estimate of a single prompt is wrong, in 19 of 20."""
    price: float
    """As `tokens`, with the cache."""
    cold: int
    share_estimated: float
    """What trimming at `SHARE` costs of never trimming, by estimates."""
    share_reported: float


def runs() -> list[Path]:
    """The recorded runs that may have counts."""
    return [path for path in data.present("runs/*.json.gz") if any(one.usage for one in _read(path).prompts)]


def measure(path: Path) -> Figures:
    """Measure one run."""
    run = _read(path)
    stand_in = _stand_in(run)
    largest = max(one.usage.input for one in run.prompts if one.usage)
    whole, trimmed = (_recounts(run, stand_in, limit) for limit in (WIDE, int(SHARE * largest)))
    untrimmed, counted = _sums(whole)[1::2]
    off = [abs(_size(one.estimated.untrimmed) / _size(one.reported.untrimmed) - 1) for one in whole]
    sides = _sums(trimmed)
    return Figures(
        name=path.name.split(".")[0],
        model=run.model,
        prompts=len(whole),
        tokens=_size(untrimmed) / _size(counted),
        off=quantiles(off, n=20, method="inclusive")[-1],
        price=_price(untrimmed) / _price(counted),
        cold=sum(one.reported.untrimmed.kept < COLD * one.estimated.untrimmed.kept for one in whole),
        share_estimated=_price(sides[0]) / _price(sides[1]),
        share_reported=_price(sides[2]) / _price(sides[3]),
    )


def _recounts(run: Transcript, stand_in: str, limit: int) -> list[Recount]:
    """What the reports change of each prompt that fits the window on both sides."""
    engine, recounts = Engine(limit=limit, rules=_OBSERVED), list[Recount]()
    for prompt in run.prompts:
        answer = _sent(engine, run, prompt, stand_in)
        used = prompt.usage
        if used is None or answer.savings.compared is None:
            continue
        report = engine.runs.report_usage(
            UsageCall(
                CALLER,
                RUN_ID,
                input_tokens=used.input,
                cached_tokens=used.cached,
                output_tokens=used.output,
                counting=InputCounting.WITH_CACHED,
            )
        )
        one = report.recount
        if one is not None and {one.estimated.how, one.reported.how} == {Comparability.COMPARED}:
            recounts.append(one)
    return recounts


def _sums(recounts: list[Recount]) -> list[Bill]:
    """What was returned and untrimmed, by estimates and then by reports."""
    sides = [Bill(), Bill(), Bill(), Bill()]
    for one in recounts:
        bills = (*one.estimated.sides, *one.reported.sides)
        sides = [total.plus(bill) for total, bill in zip(sides, bills, strict=True)]
    return sides


def _read(path: Path) -> Transcript:
    return read_transcripts(path)[0]


def _stand_in(run: Transcript) -> str:
    """A text for what the file does not have."""
    first = run.prompts[0]
    if first.usage is None:
        return ""
    answer = _sent(Engine(limit=WIDE), run, first, "")
    return " word" * max(0, int((first.usage.input - answer.tokens.after) / answer.tokens.factor))


def _sent(engine: Engine, run: Transcript, prompt: RecordedPrompt, stand_in: str) -> TrimAnswer:
    found = json.loads(prompt.body(run.form))
    body: dict[str, Any] = {"messages": found} if isinstance(found, list) else found
    name = _SYSTEM[run.form]
    body[name] = body.get(name, "") + stand_in
    return engine.trim(run.form, json.dumps(body).encode(), model=run.model)


def _size(bill: Bill) -> int:
    return bill.kept + bill.new


def _price(bill: Bill) -> float:
    return CACHED * bill.kept + WRITTEN * bill.new


def main() -> int:
    """Print a row for each run; return the exit code."""
    paths = runs()
    if not paths:
        return sorry("counted", "the recorded runs are not here; PROMPT_SIDECAR_DATA names their folder", 2)
    print("| run (model) | prompts | tokens | single prompts, 19 of 20 | price | cold | by estimates | by reports |")
    print("|---|---|---|---|---|---|---|---|")
    for path in paths:
        one = measure(path)
        print(
            f"| {one.name} ({one.model}) | {one.prompts} | {one.tokens - 1:+.1%} | within {one.off:.1%} | "
            f"{one.price - 1:+.1%} | {one.cold} | {one.share_estimated:.2f} | {one.share_reported:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
