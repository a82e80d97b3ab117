"""Programs that run beside us: each in a session of its own with a log, and none of them outlives us.

A Ctrl-C goes to a terminal's whole foreground group; a session of its own keeps it from the children, so that they are
ended in order, the newest first, and what they say at their end is still heard.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

START_SECONDS = 60.0
"""All of them start in a second or two; a starved machine may need many times that."""
STOP_SECONDS = 15.0
_LOOK_EVERY = 0.05
_PORTS = range(12_000, 32_000)
"""Below what Linux (from 32,768) and others (from 49,152) give out, above most that services are known by."""


class NotStarted(Exception):
    """A program ended or fell silent before it was ready; the message holds its last words."""


@dataclass(frozen=True, slots=True)
class Running:
    """A program that was started."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    """All that it writes."""

    def output(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_until(self, ready: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait for a sign that it is ready.

        Raises:
            NotStarted: it has ended, or the time is up.
        """
        until = time.monotonic() + seconds
        while not ready():
            if self.process.poll() is not None:
                raise NotStarted(f"{self.name} ended with code {self.process.returncode}:\n{self.last_words()}")
            if time.monotonic() > until:
                raise NotStarted(f"{self.name} was not ready after {seconds:.0f} s:\n{self.last_words()}")
            time.sleep(_LOOK_EVERY)

    def wait_for(self, pattern: str) -> str:
        """Wait until its log matches; return what the first group matches. Raises NotStarted."""
        self.wait_until(lambda: re.search(pattern, self.output()) is not None)
        return str(re.findall(pattern, self.output())[0])

    def last_words(self, lines: int = 20) -> str:
        """The end of its log."""
        return "\n".join(self.output().splitlines()[-lines:])

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """End it as an orchestrator would, by force if it takes too long; return its exit code."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            # The whole session: a program may have children of its own.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


class Programs:
    """Starts programs and ends those that still run when the `with` block is left, however it is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Running] = []

    def start(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Running:
        """Start a program; `environment` replaces that of this process."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        running = Running(name, process, log)
        self._running.append(running)
        return running

    def __enter__(self) -> Self:
        """Nothing runs yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End all."""
        while self._running:
            running = self._running.pop()
            if running.process.poll() is None:
                running.stop()


def free_port() -> int:
    """A port of loopback on which nothing listens now.

    Who is given it binds it a little later. So it is none of those that a system gives to whoever asks for any: another
    test's server or connection could be given it meanwhile.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as asked, suppress(OSError):
            asked.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    """Whether something on loopback takes connections on a port."""
    with socket.socket() as asked:
        asked.settimeout(1)
        return asked.connect_ex(("127.0.0.1", port)) == 0
