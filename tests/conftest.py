"""What holds for all tests: none depends on how busy the machine is, on its variables, or on the tests before it.

Their order is drawn anew at each run; pytest-randomly prints the seed, which `--randomly-seed` takes. Hypothesis draws
the same examples at every run in CI, so that a red build is red again; an example may take its time, and so may drawing
it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

ON_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("ci", ON_ANY_MACHINE, derandomize=True, print_blob=True)
settings.register_profile("local", ON_ANY_MACHINE)
settings.load_profile("ci" if os.environ.get("CI") else "local")

_OURS = "PROMPT_SIDECAR_DATA"
"""The one of our variables that is meant for tests; the others are settings of somebody's sidecar."""


def pytest_configure() -> None:
    """Take away the machine's own settings of what is tested, and have loopback reached without its proxy."""
    for name in list(os.environ):
        if name.startswith(("EVAL_", "OTEL_", "PROMPT_SIDECAR_")) and name != _OURS:
            del os.environ[name]
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1,localhost")))


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests have recorded, such as the size of the image."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
