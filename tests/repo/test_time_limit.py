"""A test that hangs is reported, though its cleanup hangs as well."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.cli.running import PATIENCE, ROOT

CONFTEST: Final = """
import tests.conftest
from tests.conftest import pytest_timeout_set_timer

tests.conftest.AGAIN_SECONDS = 8.0
"""
HANGING: Final = """
import os, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
from hypothesis import given, strategies as st

hanging = threading.Event()

@given(st.integers())
def test_each_example(number):
    hanging.wait()

def test_a_process_that_is_waited_for():
    reading, _ = os.pipe()  # which this process holds open
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=reading):
        hanging.wait()

def test_threads_that_are_waited_for():
    threading.Timer(4, hanging.set).start()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hanging.wait).result()
"""


def test_each_is_reported(tmp_path: Path) -> None:
    """A property, a process that its context waits for, threads that a pool waits for: none holds up the others."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_hanging.py").write_text(HANGING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "sidecar")))
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider", "--timeout=2", "-q"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert re.search(r"^3 failed in \d+", done.stdout, re.MULTILINE), done.stdout
    assert 3 == len(re.findall(r"^E +tests\.conftest\.TimeIsOver: Timeout", done.stdout, re.MULTILINE))
