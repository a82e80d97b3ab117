"""What holds for all tests: none depends on how busy the machine is, on its variables, or on the tests before it.

Their order is drawn anew at each run; pytest-randomly prints the seed, which `--randomly-seed` takes. Hypothesis draws
the same examples at every run, so that what is red is red again; an example may take its time, and so may drawing it.
With PROMPT_SIDECAR_EXAMPLES it draws so many others for each property, by the seed that pytest-randomly prints.

With `--lane=test` some of the tests run, with `--lane=all` some cases of each; `lanes.py` says which. By default every
case runs.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests import lanes
from tests.costs import FILE, Costs

_OURS = "PROMPT_SIDECAR_DATA"
"""The one of our variables that stays as it is; the others are settings of somebody's sidecar, or end here."""
_FOR_WORKERS = "EXAMPLES_OF_EACH_PROPERTY"
"""Hands PROMPT_SIDECAR_EXAMPLES on to pytest's workers: a sidecar that a test starts would not know that name."""
EXAMPLES = int(os.environ.get("PROMPT_SIDECAR_EXAMPLES") or os.environ.get(_FOR_WORKERS) or 0)
"""Examples of each property, drawn by chance; 0: as many as its test says, the same ones at every run."""

AGAIN_SECONDS = 60.0
"""Seconds after which a test whose time is over is interrupted once more."""
ON_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("same", ON_ANY_MACHINE, derandomize=True)
settings.register_profile("chance", ON_ANY_MACHINE, derandomize=False)
settings.load_profile("chance" if EXAMPLES else "same")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of a lane, and the measuring of what tests cost."""
    parser.addoption(
        "--lane", choices=("test", "all", "cases"), default="cases", help="which tests run: tests/lanes.py"
    )
    parser.addoption("--write-costs", action="store_true", help="write tests/costs.json: tests/costs.py")


def pytest_configure(config: pytest.Config) -> None:
    """Take away the machine's own settings of what is tested, and have loopback reached without its proxy."""
    if config.getoption("--write-costs", default=False):
        config.pluginmanager.register(Costs(None if hasattr(config, "workerinput") else FILE))
    for name in list(os.environ):
        if name.startswith(("EVAL_", "OTEL_", "PROMPT_SIDECAR_")) and name != _OURS:
            del os.environ[name]
    if EXAMPLES:
        os.environ[_FOR_WORKERS] = str(EXAMPLES)
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1,localhost")))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many workers run: one a core, and one more unless costs are measured, as waiting leaves cores idle."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + int(not config.getoption("--write-costs"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread of which nothing is of the lane: reading all takes a worker half a minute the first time."""
    if config.getoption("--lane") != "test" or not collection_path.name.startswith("test_"):
        return None
    return lanes.left_whole(collection_path.relative_to(config.rootpath).as_posix()) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of the lane, and have every property try as many examples as were asked for."""
    lane = config.getoption("--lane")
    in_part = lane == "test"
    stay, left = lanes.chosen(items)  # in any lane, as it marks tests as thorough
    if lane == "all":
        stay, left = lanes.some_of_each(items)
    if lane != "cases":
        config.hook.pytest_deselected(items=left)
        items[:] = stay
    if EXAMPLES or in_part:
        for item in items:
            _set_examples(item)


def _set_examples(item: pytest.Item) -> None:
    """Have a property try as many examples as were asked for, though its test says how many are usual."""
    test = getattr(item, "obj", None)
    if not is_hypothesis_test(test):
        return
    case = getattr(item, "cls", None)
    of_machine = getattr(case, "settings", None)
    if isinstance(of_machine, settings):
        case.settings = _with_examples(of_machine)  # type: ignore[union-attr]
        return
    function: Any = getattr(test, "__func__", test)
    name = "_hypothesis_internal_use_settings"  # where the decorator keeps them; there is no public place
    if not hasattr(function, "usual_settings"):  # a test's cases share the function
        function.usual_settings = getattr(function, name, None) or settings.default
    setattr(function, name, _with_examples(function.usual_settings))


def _with_examples(usual: settings) -> settings:
    return settings(usual, max_examples=EXAMPLES or lanes.examples(usual.max_examples))


class TimeIsOver(BaseException):
    """A test has taken more than its time. No `except Exception` ends it, and hypothesis does not try it again."""


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Generator[None, object, object]:
    """Interrupt a test whose time is over again and again, as what cleans up after it may hang like the test itself.

    Once is too little: the test would never end, nor be reported.
    """
    result = yield
    if settings.method == "signal":
        fail = signal.getsignal(signal.SIGALRM)
        assert callable(fail)

        def interrupt(number: int, frame: FrameType | None) -> None:
            try:
                fail(number, frame)
            except pytest.fail.Exception as failure:
                raise TimeIsOver(str(failure)) from None

        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, AGAIN_SECONDS)
    return result


@pytest.fixture(autouse=True)
def _same_variables() -> Iterator[None]:
    """A test leaves the process's variables as it found them; starting telemetry sets one, for instance."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect garbage while a worker may still take its time, and leave nothing to collect for later.

    pytest collects once more after a worker has told that it is done. From then on xdist gives it five seconds, in
    which a busy machine may not get through a million objects, and sends it SIGINT: a KeyboardInterrupt from nobody.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In continuous integration, say at once what failed: a run that is ended from outside prints no summary."""
    if report.failed and os.environ.get("CI") and not os.environ.get("PYTEST_XDIST_WORKER"):
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = str(getattr(crash, "message", "")).partition("\n")[0]
        print(f"\nFAILED {report.nodeid} ({report.when}, {report.duration:.0f} s): {reason[:200]}", flush=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests have recorded, such as the size of the image."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
