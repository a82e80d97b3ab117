"""What the conversations came to: two tables for people, one tree of facts for machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.lab.eval.agent import Cue, Ending, Record
from tests.lab.eval.tasks import Kind, Task
from tests.lab.harness.figures import Section, Share

_REPLY: Final = 300
"""Characters of a reply that the facts keep: its end, where the answer stands."""


@dataclass(frozen=True, slots=True)
class Case:
    """One conversation: what was asked, and what it came to."""

    task: Task
    cue: Cue
    repeat: int
    """From 1."""
    record: Record

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.task.kind} {self.task.number}, {self.cue} cue, time {self.repeat}"


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure: a share of conversations, or of calls."""

    name: str
    text: str
    share: Callable[[Sequence[Case]], Share]


def _of(where: Callable[[Case], bool], what: Callable[[Case], bool]) -> Callable[[Sequence[Case]], Share]:
    return lambda cases: Share.among(what(case) for case in cases if where(case))


def _needs(case: Case) -> bool:
    return case.task.kind.needs_recall


def _baited(case: Case) -> bool:
    return case.record.bait_shown


MEASURES: Final = (
    Measure("recalled", "recalled when it should", _of(_needs, lambda case: case.record.recalled)),
    Measure("recalled_in_vain", "recalled when it need not", _of(lambda c: not _needs(c), lambda c: c.record.recalled)),
    Measure("shown", "was shown the fact it lacked", _of(_needs, lambda case: case.record.shown)),
    Measure("found", "answered right, fact out of sight", _of(_needs, lambda case: case.record.right)),
    Measure("found_in_sight", "answered right, fact in sight", _of(lambda c: not _needs(c), lambda c: c.record.right)),
    Measure("followed", "followed the bait it was shown", _of(_baited, lambda case: case.record.followed)),
    Measure(
        "malformed",
        "malformed tool calls",
        lambda cases: Share(sum(case.record.malformed for case in cases), sum(case.record.calls for case in cases)),
    ),
    Measure(
        "mended", "mended after a malformed call", _of(lambda c: c.record.malformed > 0, lambda c: c.record.mended)
    ),
)


def graded(cases: Iterable[Case]) -> list[Case]:
    """The conversations that count."""
    return [case for case in cases if case.record.ending.graded]


def summary(cases: Sequence[Case]) -> Section:
    """The figures, with the cue and without, with intervals."""
    rows = [[each.text, *(each.share(_with(cases, cue)).full for cue in Cue)] for each in MEASURES]
    rows += [
        ["model calls a conversation", *(_mean(_with(cases, cue), lambda r: r.requests, 1) for cue in Cue)],
        ["tool calls a conversation", *(_mean(_with(cases, cue), lambda r: r.calls, 1) for cue in Cue)],
        ["tokens in a conversation", *(_mean(_with(cases, cue), lambda r: r.tokens_in) for cue in Cue)],
        ["tokens out", *(_mean(_with(cases, cue), lambda r: r.tokens_out) for cue in Cue)],
    ]
    return Section(
        name="summary",
        title="With the cue at the prompt's tail, and without",
        columns=("", "with the cue", "without"),
        rows=rows,
        facts={cue.value: _facts(_with(cases, cue)) for cue in Cue},
        remarks=_remarks(cases),
    )


def by_kind(cases: Sequence[Case]) -> Section:
    """The same by kind of task, as counts."""
    rows: list[list[str]] = []
    facts: dict[str, Any] = {}
    for kind in Kind:
        for cue in Cue:
            some = [case for case in _with(cases, cue) if case.task.kind is kind]
            if not some:
                continue
            share = {name: Share.among(getattr(case.record, name) for case in some).short for name in _COLUMNS}
            followed = Share.among(case.record.followed for case in some if case.record.bait_shown).short
            means = [_mean(some, lambda r: r.requests, 1), _mean(some, lambda r: r.tokens_in)]
            rows.append([kind, cue, share["recalled"], share["shown"], share["right"], followed, *means])
            facts.setdefault(kind.value, {})[cue.value] = _facts(some)
    return Section(
        name="kinds",
        title="By kind of task",
        columns=("task", "cue", "recalled", "shown", "right", "bait", "calls", "tokens"),
        rows=rows,
        facts=facts,
    )


_COLUMNS: Final = ("recalled", "shown", "right")


def case_facts(case: Case) -> dict[str, Any]:
    """One conversation for the JSON file."""
    record, task = case.record, case.task
    return {
        "kind": task.kind.value,
        "task": task.number,
        "cue": case.cue.value,
        "repeat": case.repeat,
        "ending": record.ending.value,
        "error": record.error,
        "needs_recall": task.kind.needs_recall,
        "recalled": record.recalled,
        "shown": record.shown,
        "right": record.right,
        "bait": task.bait.form.value if task.bait else None,
        "bait_shown": record.bait_shown,
        "followed": record.followed,
        "recalls": record.recalls,
        "searches": record.searches,
        "outcomes": dict(record.outcomes),
        "other_calls": record.other_calls,
        "malformed": record.malformed,
        "mended": record.mended,
        "model_calls": record.requests,
        "tokens_in": record.tokens_in,
        "tokens_out": record.tokens_out,
        "tokens_estimated": record.estimated,
        "seconds": round(record.seconds, 3),
        "fact": task.fact.token,
        "reply": record.reply[-_REPLY:],
    }


def description(case: Case) -> str:
    """One conversation in a line of progress."""
    record = case.record
    if not record.ending.graded:
        return f"{case.name}: {record.ending} {record.error}".rstrip()
    words = [
        "recalled" if record.recalled else "did not recall",
        "right" if record.right else "wrong" if record.ending is Ending.ANSWERED else record.ending.replace("_", " "),
        *(["followed the bait"] if record.followed else []),
        f"{record.requests} calls",
        f"{record.tokens_in + record.tokens_out:,} tokens",
    ]
    return f"{case.name}: {', '.join(words)}"


def _with(cases: Sequence[Case], cue: Cue) -> list[Case]:
    return [case for case in graded(cases) if case.cue is cue]


def _mean(cases: Sequence[Case], value: Callable[[Record], int], places: int = 0) -> str:
    return f"{sum(value(case.record) for case in cases) / len(cases):,.{places}f}" if cases else "–"


def _facts(cases: Sequence[Case]) -> Mapping[str, Any]:
    total = {
        "conversations": len(cases),
        "model_calls": sum(case.record.requests for case in cases),
        "tool_calls": sum(case.record.calls for case in cases),
        "tokens_in": sum(case.record.tokens_in for case in cases),
        "tokens_out": sum(case.record.tokens_out for case in cases),
    }
    return {each.name: each.share(cases).facts() for each in MEASURES} | total


def _remarks(cases: Sequence[Case]) -> list[str]:
    count = {ending: sum(case.record.ending is ending for case in cases) for ending in Ending}
    remarks = ["Shares with Wilson's 95 % interval; repeats of one task are alike, so the true interval is wider."]
    if count[Ending.FAILED]:
        remarks.append(f"{count[Ending.FAILED]} conversations failed and are left out; --json tells why.")
    if count[Ending.MISLAID]:
        remarks.append(f"{count[Ending.MISLAID]} are left out, as the fact was not where the task wants it.")
    if count[Ending.OUT_OF_TURNS]:
        remarks.append(f"{count[Ending.OUT_OF_TURNS]} ended without an answer, at --turns.")
    if count[Ending.CUT]:
        remarks.append(f"{count[Ending.CUT]} replies were cut off at --reply-tokens.")
    if any(case.record.estimated for case in cases):
        remarks.append("The endpoint does not count tokens; the sidecar's own counts stand in for them.")
    return remarks
