"""Whether a long run's prompt stays within its marks: tokens of each returned prompt, as a small chart.

A run of 500 iterations comes to many times its limit. Under `cache_first` its prompts go from the high-water mark down
to the low one and up again; under `lean` all that is old is clipped at every call, and the rest rises slowly. Neither
may rise for good. The bench shows it; `tests/promises/test_ageing.py` asserts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from prompt_sidecar.trim.policy import AgeStage
from prompt_sidecar.trim.presets import PRESETS
from tests.lab.bench.inprocess import never, runs
from tests.lab.harness.figures import Section
from tests.lab.harness.prompts import Prompts, prompts_of, recorded, run, trim_call
from tests.oracle.browsing import Browsing, browsing
from tests.oracle.data import present
from tests.oracle.shapes import OPENAI_CHAT

AGEING = tuple(name for name, policy in PRESETS.items() if policy.age_stage is not AgeStage.OFF and "fit" not in name)
"""Presets under which items age, and are clipped for that before anything else is done."""
LAST = 100
"""Prompts at the end that are looked at on their own."""
ROWS = 10
COLUMNS = 72
LIMITS = {"browsing": 24_000, "coding": 60_000}
"""Tokens: a small part of what these runs come to."""
RECORDED = "runs/pi-large.*"
RECORDED_LIMIT = 64_000
_LEVELS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Course:
    """What became of one run under one preset. Tokens."""

    run: str
    preset: str
    limit: int
    before: int
    """The last prompt as it was sent."""
    after: Sequence[int]
    """Each prompt as it was returned."""
    batch_points: int

    @property
    def high(self) -> int:
        """The high-water mark."""
        return int(PRESETS[self.preset].fit_high * self.limit)

    @property
    def low(self) -> int:
        """The low-water mark."""
        return int(PRESETS[self.preset].fit_low * self.limit)


def plateau(iterations: int, *, with_recorded: bool = True) -> Section:
    """Send each long run through each ageing preset, and chart it."""
    courses = [
        course_of(prompts, name, limit) for prompts, limit in _long_runs(iterations, with_recorded) for name in AGEING
    ]
    charts = [line for course in courses for line in chart(course)]
    return Section(
        name="plateau",
        title=f"Tokens a prompt over a long run; the last {LAST} prompts beside the water marks",
        columns=(
            "run, preset",
            "limit",
            "untrimmed",
            "low mark",
            f"last {LAST}: least",
            "most",
            "high mark",
            "batches",
        ),
        rows=[
            (
                f"{course.run}, {course.preset}",
                *(f"{number:,}" for number in (course.limit, course.before, course.low)),
                *(f"{number:,}" for number in (min(course.after[-LAST:]), max(course.after[-LAST:]), course.high)),
                f"{course.batch_points:,}",
            )
            for course in courses
        ],
        facts={
            f"{course.run}/{course.preset}": {
                "limit": course.limit,
                "untrimmed": course.before,
                "low": course.low,
                "high": course.high,
                "last_least": min(course.after[-LAST:]),
                "last_most": max(course.after[-LAST:]),
                "batch_points": course.batch_points,
            }
            for course in courses
        },
        remarks=charts,
    )


def course_of(prompts: Prompts, name: str, limit: int) -> Course:
    """Send a run's prompts under a preset."""
    core = runs()
    after: list[int] = []
    for body in prompts.bodies():
        answer = core.trim(replace(trim_call("plateau", prompts.format, body, limit), preset=name), never)
        after.append(answer.tokens.after)
    return Course(prompts.name, name, limit, answer.tokens.before, after, answer.cache.batch_points)


def chart(course: Course) -> Iterator[str]:
    """A chart of a course: each column the most of some prompts in a row, eighths of a row told apart."""
    top = max(course.limit, *course.after)
    columns = min(COLUMNS, len(course.after))
    edges = [round(at * len(course.after) / columns) for at in range(columns + 1)]
    tops = [max(course.after[one:other]) for one, other in pairwise(edges)]
    yield f"{course.run}, {course.preset}: {len(course.after)} prompts, at most {max(course.after):,} tokens"
    marks = {_row(course.high, top): "high", _row(course.low, top): "low", _row(course.limit, top): "limit"}
    for row in range(ROWS - 1, -1, -1):
        cells = (max(0, min(8, round((value / top * ROWS - row) * 8))) for value in tops)
        yield f"{marks.get(row, ''):>5} |{''.join(_LEVELS[cell] for cell in cells)}|"


def _row(tokens: int, top: int) -> int:
    return min(ROWS - 1, int(tokens / top * ROWS))


def _long_runs(iterations: int, with_recorded: bool) -> Iterator[tuple[Prompts, int]]:
    pages = browsing(5, OPENAI_CHAT, Browsing(iterations=iterations))
    yield prompts_of(f"browsing, {iterations} iterations", OPENAI_CHAT, pages.slices), LIMITS["browsing"]
    coding = run(20, iterations, iterations * 8_000)
    yield replace(coding, name=f"coding, {iterations} iterations"), LIMITS["coding"]
    for path in present(RECORDED) if with_recorded else ():
        yield recorded(path), RECORDED_LIMIT
