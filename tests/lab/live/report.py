"""What the trial came to: one table for people, one tree of facts for machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tests.lab.evidence.summary import Estimate, estimate
from tests.lab.harness.figures import Section, Share
from tests.lab.live.agent import Arm, Ending, Outcome
from tests.lab.live.relay import Used
from tests.lab.live.tasks import Task

NOTHING: Final = "–"


@dataclass(frozen=True, slots=True)
class Case:
    """One conversation."""

    task: Task
    arm: Arm
    repeat: int
    """From 1."""
    outcome: Outcome
    used: Used

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.task.name}, {self.arm}, time {self.repeat}"


def progress(case: Case) -> str:
    """One conversation in a line."""
    outcome, used = case.outcome, case.used
    words = [
        "solved" if outcome.solved else "not solved" if outcome.ending is Ending.ANSWERED else str(outcome.ending),
        f"{outcome.calls} tool calls",
        f"{used.tokens_in + used.tokens_out:,} tokens",
        *([] if used.cost is None else [f"${used.cost:.4f}"]),
        *([f"{used.recalls} recalls"] if used.recalls else []),
        *([outcome.error] if outcome.error else []),
    ]
    return f"{case.name}: {', '.join(words)}"


def table(cases: Sequence[Case], arms: Sequence[Arm]) -> Section:
    """The figures of each arm."""
    counted = [case for case in cases if case.outcome.ending.counts]
    by_arm = {arm: [case for case in counted if case.arm is arm] for arm in arms}
    base = {(case.task.name, case.repeat): case for case in by_arm.get(Arm.WITHOUT, [])}
    rows, facts = [], {}
    for arm, some in by_arm.items():
        pairs = [(case, base[key]) for case in some if (key := (case.task.name, case.repeat)) in base]
        solved = Share.among(case.outcome.solved for case in some)
        billed = _mean(some, lambda case: case.used.cost)
        share = estimate([one.used.cost / other.used.cost for one, other in pairs if one.used.cost and other.used.cost])
        figures = {
            "tokens_in": _mean(some, lambda case: case.used.tokens_in),
            "cached": _mean(some, lambda case: case.used.cached),
            "tokens_out": _mean(some, lambda case: case.used.tokens_out),
            "tool_calls": _mean(some, lambda case: case.outcome.calls),
            "requests": _mean(some, lambda case: case.used.requests),
            "recalls": _mean(some, lambda case: case.used.recalls),
        }
        rows.append(
            [
                arm,
                solved.full,
                _shown(billed, "${:.4f}"),
                NOTHING if arm is Arm.WITHOUT else _shown(share, "{:.0%}"),
                *(_plain(figures[name], "{:,.0f}") for name in ("tokens_in", "cached")),
                *(_plain(figures[name], "{:.1f}") for name in ("tool_calls", "requests", "recalls")),
            ]
        )
        facts[arm.value] = {
            "conversations": len(some),
            "solved": solved.facts(),
            "billed_usd": _fact(billed),
            "billed_share_of_without": _fact(share),
            **{name: _fact(value) for name, value in figures.items()},
            "largest_prompt": max((case.used.largest for case in some), default=0),
            "solved_here_alone": sum(one.outcome.solved and not other.outcome.solved for one, other in pairs),
            "solved_without_alone": sum(other.outcome.solved and not one.outcome.solved for one, other in pairs),
        }
    return Section(
        name="arms",
        title="Without the sidecar, with it, with a ceiling, and with safe condensing",
        columns=(
            "",
            "solved",
            "billed a task",
            "of without",
            "tokens in",
            "cached",
            "tool calls",
            "requests",
            "recalls",
        ),
        rows=rows,
        facts=facts,
        remarks=_remarks(cases),
    )


def facts_of(case: Case) -> dict[str, Any]:
    """One conversation for the JSON file."""
    return {
        "task": case.task.name,
        "kind": case.task.kind.value,
        "arm": case.arm.value,
        "repeat": case.repeat,
        **asdict(case.outcome),
        "provider": asdict(case.used),
    }


def _mean(cases: Sequence[Case], value: Callable[[Case], float | None]) -> Estimate | None:
    return estimate([known for case in cases if (known := value(case)) is not None])


def _shown(value: Estimate | None, form: str) -> str:
    if value is None:
        return NOTHING
    return f"{form.format(value.mean)} ({form.format(value.low)} to {form.format(value.high)})"


def _plain(value: Estimate | None, form: str) -> str:
    return NOTHING if value is None else form.format(value.mean)


def _fact(value: Estimate | None) -> Mapping[str, float] | None:
    return None if value is None else {"mean": value.mean, "low": value.low, "high": value.high}


def _remarks(cases: Sequence[Case]) -> list[str]:
    endings = [case.outcome.ending for case in cases]
    remarks = [
        "Solved: with Wilson's 95 % interval. Of without: the mean of each task's ratio.",
        "Billed: the provider's count of all requests, the sidecar's too, by list prices; 95 % bootstrap interval.",
        "Tasks are few and of four kinds: read the intervals, not the means.",
    ]
    if count := endings.count(Ending.FAILED):
        remarks.append(f"{count} conversations failed and are left out; --json has the reasons.")
    if count := endings.count(Ending.REFUSED):
        remarks.append(f"{count} were refused by the provider, such as for a prompt that is too long; not solved.")
    if count := endings.count(Ending.OUT_OF_TURNS):
        remarks.append(f"{count} ended at --turns, and count as not solved.")
    if any(case.used.estimated for case in cases):
        remarks.append("The endpoint does not count all tokens; estimates were counted in their place, and no cache.")
    return remarks
