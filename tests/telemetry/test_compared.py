"""The counters of the comparison with never trimming add up to what GetRun tells, reports included."""

from __future__ import annotations

from collections import Counter

import pytest

from prompt_sidecar.facts.comparison import Comparison
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.usage_calls import ReportedRefusal, UsageCall
from prompt_sidecar.telemetry import catalog, changes
from prompt_sidecar.telemetry.tallies import Change
from tests.engine.runs.making import FORMATS, LIMIT, ROOM, send
from tests.promises.engine import CALLER, RUN_ID, Engine

Counted = Counter[tuple[str, tuple[str, ...]]]


def add(counted: Counted, made: list[Change]) -> None:
    """Count changes; counters do not go down."""
    for metric, labels, number in made:
        assert number >= 0
        counted[metric.name, tuple(labels)] += int(number) if metric.kind is catalog.InstrumentKind.COUNTER else 0


def panels(counted: Counted, prompts: str, state: str) -> int:
    """What the boards make of them."""
    name = catalog.RECOUNTED_TOKENS.name
    estimate, report = (counted[name, (prompts, state, by)] for by in ("estimate", "report"))
    return counted[catalog.COMPARED_TOKENS.name, (prompts, state)] - estimate + report


@pytest.mark.parametrize("format", FORMATS)
def test_counters_agree_with_the_run(format: str) -> None:
    """Prompts that are reported, late, twice, not at all, impossibly, as refused, and as larger than the window."""
    engine, counted = Engine(limit=LIMIT, policy=ROOM), Counted()
    answers: list[TrimAnswer] = []

    def prompt(iterations: int) -> TrimAnswer:
        answer = send(engine, format, iterations)
        add(counted, changes.prompt(TrimCall(CALLER, RUN_ID, format), answer, "model"))
        answers.append(answer)
        return answer

    def report(call: UsageCall) -> None:
        add(counted, changes.report(call, engine.runs.report_usage(call)))

    for iterations in range(18):
        answer = prompt(iterations)
        size, revision = answer.tokens.after, answer.prompt.revision
        call = UsageCall(CALLER, RUN_ID, input_tokens=size + 50, cached_tokens=size // 2, revision=revision)
        match iterations % 6:
            case 1:
                report(call)
                report(call)
            case 2:
                report(UsageCall(CALLER, RUN_ID, input_tokens=size, revision=answers[-3].prompt.revision))
            case 3:
                report(UsageCall(CALLER, RUN_ID, input_tokens=100 * size, cached_tokens=1, revision=revision))
            case 4:
                report(UsageCall(CALLER, RUN_ID, refusal=ReportedRefusal("too long"), revision=revision))
            case _:
                report(UsageCall(CALLER, RUN_ID, input_tokens=3 * size, cached_tokens=0, revision=revision))
    _agree(counted, engine.runs.figures(CALLER, RUN_ID).comparison)


def _agree(counted: Counted, found: Comparison) -> None:
    for prompts, bill in (("returned", found.returned), ("untrimmed", found.untrimmed)):
        assert (bill.kept, bill.new) == (panels(counted, prompts, "kept"), panels(counted, prompts, "new"))
    name = catalog.RECOUNTED_PROMPTS.name
    assert found.reported == counted[name, ("compared",)] + counted[name, ("recall",)]
    assert 0 < found.reported < found.prompts
    assert counted[name, ("refused",)] > 0
