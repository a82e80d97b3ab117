"""Processes that measure files for another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.cli.running import PATIENCE

KILLED: Final = """
import multiprocessing, os, signal
from concurrent.futures import ProcessPoolExecutor
from prompt_sidecar.report.work import Measurement, _begin
from prompt_sidecar.config.settings import Settings

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, _begin, (Measurement(None, Settings()),))
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_they_end_with_the_one_that_is_killed(tmp_path: Path) -> None:
    """Else each would stay, with its vocabulary."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED, encoding="utf-8")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        try:
            program.communicate(timeout=PATIENCE)  # ends when the worker, which writes to it too, has ended
        except subprocess.TimeoutExpired:
            os.kill(worker, signal.SIGKILL)
            raise
    assert -signal.SIGKILL == program.returncode
