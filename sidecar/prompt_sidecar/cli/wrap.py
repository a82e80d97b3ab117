"""An agent behind a sidecar of its own: a door on a free port of loopback, the agent in the terminal, a summary.

The sidecar lives in this process, so nothing of it is left when this process ends, whatever ends it. The agent is a
child in the same process group: what the terminal says (Ctrl-C, Ctrl-Z, a new size) reaches it without help.
Signals that others send to this process are passed on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from prompt_sidecar.cli.agents import Upstream, command
from prompt_sidecar.cli.wrap_summary import WrapSummary, summarised

if TYPE_CHECKING:
    from prompt_sidecar.config.settings import Settings

LISTEN: Final = "127.0.0.1:0"
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
"""Signals that the terminal sends to this process and to the agent alike."""
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_KILLED: Final = 128
"""Added to a signal's number, the exit code of what it has ended, as shells count."""


class WrapError(Exception):
    """The agent cannot be run; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A run of an agent."""

    code: int
    """The agent's exit code; of one that a signal ended, 128 and the signal's number."""
    seconds: float
    summary: WrapSummary | None
    """None: there are no figures."""


def found(agent: str) -> str:
    """Return an agent's program. Raises WrapError: there is none of this name."""
    program = which(agent)
    if program is None:
        raise WrapError(
            f"{agent} is not on the PATH, or no program: install it, or name its file, as in "
            f"prompt-sidecar wrap ./{agent.rpartition('/')[2]}"
        )
    return program


def settled(settings: Settings) -> Settings:
    """Return the settings of a sidecar that one agent reaches.

    Who is alone on loopback needs no token and no TLS; and whatever else the settings have listening may be in use by
    a sidecar that runs already.
    """
    from prompt_sidecar.doors.admin.options import AdminOptions
    from prompt_sidecar.doors.envoy.options import EnvoyOptions

    server = replace(
        settings.server, listen="", socket="", health_listen="", tokens_file="",
        tls_certificate="", tls_key="", client_ca="",
    )  # fmt: skip
    return replace(
        settings,
        server=server,
        http=replace(settings.http, listen=LISTEN),
        envoy=EnvoyOptions(),
        admin=AdminOptions(),
        telemetry=replace(settings.telemetry, metrics_listen=LISTEN),
    )


def new_log(named: str) -> tuple[TextIO, str]:
    """Open the sidecar's log, and return it with its path.

    It is the file of this name; without one, a new file where temporary ones are, which its owner alone can read.
    """
    if not named:
        number, named = tempfile.mkstemp(prefix="prompt-sidecar-", suffix=".log")
        os.close(number)
    return Path(named).open("a", encoding="utf-8"), named


def run(
    settings: Settings, ways: Sequence[Upstream], words: Sequence[str], log: TextIO, environment: Mapping[str, str]
) -> Ended:
    """Run an agent behind a sidecar until it ends.

    Args:
        settings: the sidecar's.
        ways: its upstreams.
        words: the agent's program and arguments.
        log: where the sidecar logs.
        environment: the user's variables.

    Raises:
        StartError: the sidecar cannot start.
        WrapError: the system does not start the agent.
    """
    from prompt_sidecar.app import start
    from prompt_sidecar.calls.refusals import library_lines_limited
    from prompt_sidecar.process.logs import configure, written_by_a_thread
    from prompt_sidecar.telemetry.shown import MetricFamilies
    from prompt_sidecar.telemetry.spans import current_ids

    configure(settings.log.format, settings.log.level, current_ids, log)
    with library_lines_limited(settings.log.refusals), written_by_a_thread():
        sidecar = start(settings, _telemetry_variables(environment))
        try:
            began = time.monotonic()
            code = _foreground(*command(sidecar.addresses[0], words, environment, ways))
            exposition = sidecar.telemetry.exposition
            summary = None if exposition is None else summarised(MetricFamilies(exposition.exposed.collect()))
            return Ended(code, time.monotonic() - began, summary)
        finally:
            sidecar.stop(0)


def _telemetry_variables(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variables that telemetry reads: the summary is made of its figures, also where it is to push nothing."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() != "true":
        return environment
    return {name: value for name, value in environment.items() if not name.startswith("OTEL_")}


def _foreground(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program in the terminal of this process; return its exit code."""
    with _Signals() as signals, _terminal_kept():
        try:
            child = subprocess.Popen(words, env=environment)  # noqa: S603  # the user's own command
        except OSError as error:
            raise WrapError(f"{words[0]} cannot be started: {error.strerror}") from None
        signals.hand_to(child)
        child.returncode = code = _waited(child)
        return code if code >= 0 else _KILLED - code


def _waited(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child's end; where it stops, stop too, so that the shell has the terminal until it goes on."""
    while True:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.kill(child.pid, signal.SIGCONT)


class _Signals:
    """Has signals end the agent and not this process, which ends with it; a context."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (*_FROM_TERMINAL, *_PASSED_ON, signal.SIGTSTP):
            self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hand_to(self, child: subprocess.Popen[bytes]) -> None:
        """Pass signals on to this child from now on, those before as well."""
        self._child = child
        for number in self._early:
            child.send_signal(number)

    def _caught(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGTSTP or (number in _FROM_TERMINAL and _in_foreground()):
            return  # the agent has it from the terminal
        if self._child is None:
            self._early.append(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, number)


def _in_foreground() -> bool:
    """Whether what the terminal sends reaches this process and its children: they are the terminal's foreground."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Set the terminal as it was at the end: an agent that is killed leaves it as a program of full screen has it."""
    import termios

    try:
        before = termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, OSError, ValueError):  # no terminal
        yield
        return
    try:
        yield
    finally:
        hidden = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
        signal.signal(signal.SIGTTOU, hidden)
