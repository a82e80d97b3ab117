"""Every panel that answers an owner's question has something to show under the load of `make observe`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.dashboards.questions import questions
from tests.lab.harness import components
from tests.lab.harness.processes import Programs
from tests.lab.observe import dashboards
from tests.lab.observe.dashboards import Moment, substitute
from tests.lab.observe.load import Load, Pace
from tests.lab.observe.stack import SCRAPE_SECONDS, Prometheus, Series
from tests.lab.observe.whole import whole
from tests.real.needing import need

SECONDS: Final = 32.0
SEED: Final = 3
QUIET: Final = frozenset({"Alerts"})
"""Panels in which 0 says something: an alert needs minutes to fire."""
SHOWN: Final = {
    "Commands to the store": ("unreachable", "skipped"),
    "Providers' answers by status": ("5xx",),
    "Recalls by outcome": ("expired",),
    "Findings of the guard, by caller": ("masked",),
    "Spans and events": ("rejected by the collector",),
}
"""Of some panels the lines without which the question has no answer; of what was broken meanwhile."""
PROVIDERS: Final = (
    "Provider calls by outcome",
    "Time to the provider's first byte (p90)",
    "Time to the end of the provider's answer (p90)",
    "Time to the first chunk by model (p90)",
    "Provider errors by model",
    "Tokens by model, as counted by providers",
    "Time of HTTP requests (p90)",
)
"""Panels of calls of providers, which only agents at the HTTP door bring about."""


def test_questions_have_answers(tmp_path: Path) -> None:
    """Agents come through every door; the provider is overloaded, the store killed, the collector too."""
    found = need(components.prometheus), need(components.rotel)
    with ExitStack() as opened:
        programs = opened.enter_context(Programs(tmp_path))
        everything = whole(programs, tmp_path, opened, found, SEED)
        load = Load(everything.sidecars, Pace(SECONDS), SEED)
        start = time.time()
        everything.work(load, SECONDS)
        moment = Moment(start, time.time(), SCRAPE_SECONDS, SCRAPE_SECONDS)
        assert [] == [problem for agent in everything.others.through for problem in agent.problems]
        assert all(agent.answered > 10 for agent in everything.others.through)
        unanswered = {}
        for row in questions():
            lines = shown(everything.prometheus, moment, row.board, row.panel)
            wanted = SHOWN.get(row.panel, ("",))
            if row.panel not in QUIET and not any(word in line for word in wanted for line in lines):
                unanswered[row.panel] = lines
        empty = [title for title in PROVIDERS if not shown(everything.prometheus, moment, "Health", title)]
    assert {} == unanswered
    assert [] == empty


def shown(prometheus: Prometheus, moment: Moment, board: str, title: str) -> list[str]:
    """The names and labels of the lines of a panel that are somewhere above 0."""
    (found,) = [each for each in dashboards.all_dashboards() if each.raw["title"].endswith(f" / {board}")]
    values = found.values(prometheus, moment)
    (panel,) = [each for each in found.panels() if each.title == title]
    lines = []
    for target in panel.targets:
        query = substitute(target.expression, values)
        series: list[Series]
        if target.instant:
            series = prometheus.instant(query, moment.end)
        else:
            series = prometheus.range(query, moment.start, moment.end, moment.step)
        lines += [
            f"{target.legend} {dict(each.labels)}" for each in series if any(value > 0 for _, value in each.points)
        ]
    return lines
