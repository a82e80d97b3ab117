"""Server processes of the bench: started, waited for, and ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from tests.lab.harness import counting

ROOT = Path(__file__).parents[3]
REAL = ("-m", "prompt_sidecar", "serve", "--listen", "127.0.0.1:0")
FLOOR = ("-m", "tests.lab.bench.floor_server")
BARE = ("-m", "tests.lab.bench.bare_server")
KEY = "the bench's key, the same in each process"
"""One key, so that the server and the core in this process mint the same ids and give the same answers."""
PATIENCE = 120.0
"""Seconds that a process gets to end by itself."""

_READY = re.compile(r"listening on (\S+)")


@dataclass(frozen=True, slots=True)
class Started:
    """A server process that is ready."""

    address: str
    """As its log tells it."""
    process: subprocess.Popen[str]
    seconds: float
    """From its beginning to ready."""


@contextmanager
def serving(command: tuple[str, ...], **more: str) -> Iterator[str]:
    """As `started`; give the address alone."""
    with started(command, **more) as server:
        yield server.address


@contextmanager
def started(command: tuple[str, ...], **more: str) -> Iterator[Started]:
    """Run a server in a process of its own, with `more` in its environment, until it ends or the context does."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PROMPT_SIDECAR_", "OTEL_"))}
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), clean.get("PYTHONPATH", ""))))
    clean["PROMPT_SIDECAR_KEY"] = KEY
    clean["PROMPT_SIDECAR_TOKENS__COUNTER"] = counting.chosen
    clean["PROMPT_SIDECAR_TELEMETRY__METRICS_LISTEN"] = ""  # several servers run at once
    clean |= more
    pipe = subprocess.PIPE
    began = perf_counter()
    with subprocess.Popen([sys.executable, *command], env=clean, stdin=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        assert process.stdin is not None
        lines: list[str] = []
        try:
            for line in process.stderr:
                lines.append(line)
                if found := _READY.search(line):
                    break
            else:
                raise RuntimeError(f"the server did not start: {''.join(lines)}")
            seconds = perf_counter() - began
            # What it logs later must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield Started(found[1].rstrip(","), process, seconds)
        finally:
            process.stdin.close()
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
