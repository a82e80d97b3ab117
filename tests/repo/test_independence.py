"""Tests leave nothing to the tests after them, and their workers end without being interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.running import PATIENCE, ROOT

CONFTEST = """
import gc
from pathlib import Path
from tests.conftest import _same_variables, pytest_configure, pytest_sessionfinish

def pytest_unconfigure(config):
    if hasattr(config, "workerinput"):
        (Path(__file__).parent / "left").write_text(str(len(gc.get_objects())))
"""
TESTS = """
import os
HELD = [[] for _ in range(500_000)]

def test_first():
    assert {None} == {os.environ.get(name) for name in ("OTEL_SDK_DISABLED", "PROMPT_SIDECAR_KEY", "SET_BY_A_TEST")}
    os.environ["SET_BY_A_TEST"] = "yes"
    os.environ.pop("PATH")

def test_second():
    assert ("SET_BY_A_TEST" in os.environ, "PATH" in os.environ) == (False, True)
"""


def test_a_worker_that_is_done_has_little_left_to_collect(tmp_path: Path) -> None:
    """What it collects afterwards takes no time; and no variable of the machine's or another test's is seen."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ["-n", "1", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OTEL_SDK_DISABLED": "true", "PROMPT_SIDECAR_KEY": "secret"}
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert 0 == done.returncode, done.stdout
    assert int((tmp_path / "left").read_text()) < 100_000
