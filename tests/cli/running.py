"""The real program in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which a test that waits has failed: long, as only a fault makes one wait for it."""


def environment(**more: str) -> dict[str, str]:
    """This process's environment without settings of its own, with `more` settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PROMPT_SIDECAR_")}
    path = os.pathsep.join(filter(None, (str(ROOT), clean.get("PYTHONPATH", ""))))
    return clean | {"PYTHONPATH": path} | {f"PROMPT_SIDECAR_{name}": value for name, value in more.items()}


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "prompt_sidecar", *arguments]
    return subprocess.run(
        command, env=environment(**settings), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@dataclass(slots=True)
class Program:
    """A server that runs; `lines` is what it has logged."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read the log until a line matches; a program that keeps silent for too long is killed."""
        assert self.process.stderr is not None
        patience = threading.Timer(PATIENCE, self.process.kill)
        patience.start()
        try:
            for line in self.process.stderr:
                self.lines.append(line)
                if found := re.search(pattern, line):
                    return found
        finally:
            patience.cancel()
        raise AssertionError(f"the program ended without {pattern}: {''.join(self.lines)}")

    def keep_reading(self) -> None:
        """Read its log from now on, in a thread: lines for which the pipe has no room are left out."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):  # closed
            self.lines.extend(self.process.stderr)

    def end(self) -> int:
        """Wait for its end; return the exit code."""
        code = self.process.wait(PATIENCE)
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)
        return code


@contextlib.contextmanager
def program(*arguments: str, **settings: str) -> Iterator[Program]:
    """Start `serve`; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "prompt_sidecar", "serve", *arguments]
    with subprocess.Popen(command, env=environment(**settings), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Program(process)
        finally:
            process.kill()
