"""What each test costs in processor time: `--write-costs` measures it, and `lanes.py` chooses by it.

A test's cost is that of its set-up, its call and its tear-down, with the processes that it waited for. What a file or
a session sets up once belongs to the test that came first, so means over cases are approximate, and so is the choice.
"""

from __future__ import annotations

import json
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

FILE: Final = Path(__file__).with_name("costs.json")
LEAST: Final = 0.5
"""Seconds that a test's cases take together to be in the file; the thousands of others take less than one in all."""


@cache
def costs() -> Mapping[str, float]:
    """Return the mean seconds of processor time of a case, by the id of the test without its parameters."""
    found: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def _spent() -> float:
    """Return the seconds of processor time of this process and of its children that have ended and were waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Costs:
    """A plugin that measures each test where it runs, and writes the file where the reports arrive."""

    def __init__(self, target: Path | None) -> None:
        """Begin; a worker has no target."""
        self._target = target
        self._mark = _spent()
        self._by_case: dict[str, float] = defaultdict(float)

    def pytest_runtest_logstart(self) -> None:
        """Begin with the test, so that collecting all of them is no part of the first one."""
        self._mark = _spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Add to a phase's report what was spent since the phase before."""
        report = yield
        now = _spent()
        report.processor_seconds, self._mark = now - self._mark, now
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add a phase to its case."""
        self._by_case[report.nodeid] += getattr(report, "processor_seconds", 0.0)

    def pytest_sessionfinish(self) -> None:
        """Write the file; what it says of tests that did not run stays."""
        if self._target is None:
            return
        measured = {case.partition("[")[0] for case in self._by_case}
        others = {test: seconds for test, seconds in costs().items() if test not in measured}
        text = json.dumps({**others, **means(self._by_case)}, indent=0, sort_keys=True)
        self._target.write_text(text + "\n", encoding="utf-8")


def means(by_case: Mapping[str, float]) -> dict[str, float]:
    """Return the mean seconds of a case by test, of the tests whose cases take `LEAST` or more together."""
    by_test: dict[str, list[float]] = defaultdict(list)
    for case, seconds in by_case.items():
        by_test[case.partition("[")[0]].append(seconds)
    return {test: round(sum(each) / len(each), 3) for test, each in by_test.items() if sum(each) >= LEAST}
