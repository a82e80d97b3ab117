"""A process reads of the store what others left there, for the first time and for many runs at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from prompt_sidecar.facts.task_calls import CreateTasksCall
from tests.cli.running import PATIENCE
from tests.promises.engine import CALLER
from tests.store.sharing import Valkey, one_kind, replica

RUNS: Final = 16
PROCESSES: Final = 4


@one_kind
def test_first_reads_of_many_runs_at_once(valkey: Valkey) -> None:
    """A replica that starts under load: each of its threads may be the first to decode what is stored."""
    engine, archive = replica(valkey)
    for run in range(RUNS):
        engine.runs.recalling.create_tasks(CreateTasksCall(CALLER, f"run-{run}", ["look"]))
    archive.drain()

    command = [sys.executable, "-m", "tests.store.first_reads", valkey.url, str(RUNS)]
    for _ in range(PROCESSES):
        done = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert (0, f"{RUNS}\n") == (done.returncode, done.stdout), done.stderr[-2_000:]
