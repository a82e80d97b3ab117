"""Runs an agent with its own sidecar: a door on a free loopback port, the agent in the terminal, a summary at the end.

The sidecar runs in this process, so nothing of it is left when this process ends, for whatever reason. The agent is a
child in the same process group, so the terminal's signals (Ctrl-C, Ctrl-Z, a new size) reach it directly. Signals that
other processes send to this one are passed on.
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
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final, TextIO

from prompt_sidecar.cli.agents import Upstream, command
from prompt_sidecar.cli.wrap_summary import WrapSummary, summarised
from prompt_sidecar.process.signals import Signals

if TYPE_CHECKING:
    from prompt_sidecar.config.settings import Settings

LISTEN: Final = "127.0.0.1:0"
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
"""Signals that the terminal sends to this process and to the agent as well."""
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_KILLED: Final = 128
"""Added to the number of the signal that ended a program, it is the exit code in shells."""


class WrapError(Exception):
    """The agent cannot be run; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An ended run of an agent."""

    code: int
    """The agent's exit code; if a signal ended it, 128 plus the signal's number."""
    seconds: float
    summary: WrapSummary | None
    """The summary; None if there are no figures."""


def found(agent: str) -> str:
    """Return an agent's program. Raises WrapError if it is not found."""
    program = which(agent)
    if program is None:
        raise WrapError(
            f"{agent} is not on the PATH, or no program: install it, or name its file, as in "
            f"prompt-sidecar wrap ./{agent.rpartition('/')[2]}"
        )
    return program


def settled(settings: Settings) -> Settings:
    """Return the settings of a sidecar that only one agent can reach.

    A single agent on loopback needs no token and no TLS, and the settings' other addresses may be in use by a running
    sidecar.
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

    The log is the named file; without a name, a new temporary file that only its owner can read.
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
        settings: of the sidecar.
        ways: the sidecar's upstreams.
        words: the agent's program and arguments.
        log: the file for the sidecar's log.
        environment: the user's environment variables.

    Raises:
        StartError: the sidecar cannot start.
        WrapError: the agent cannot be started.
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
    """Return the variables that telemetry reads: the summary needs its figures, even if nothing may be pushed."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() != "true":
        return environment
    return {name: value for name, value in environment.items() if not name.startswith("OTEL_")}


def _foreground(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program in the terminal of this process; return its exit code."""
    with closing(Signals((*_FROM_TERMINAL, *_PASSED_ON, signal.SIGTSTP, signal.SIGCHLD))) as signals, _terminal_kept():
        try:
            child = subprocess.Popen(words, env=environment)  # noqa: S603  # the user's own command
        except OSError as error:
            raise WrapError(f"{words[0]} cannot be started: {error.strerror}") from None
        child.returncode = code = _waited(child, signals)
        return code if code >= 0 else _KILLED - code


def _waited(child: subprocess.Popen[bytes], signals: Signals) -> int:
    """Wait until a child ends, and pass signals on to it; return its exit code.

    When it stops, this process stops too, so that the shell has the terminal until it continues. A child that ends or
    stops sends SIGCHLD: a wait for the child alone would miss a signal that another thread receives.
    """
    while True:
        changed, status = os.waitpid(child.pid, os.WUNTRACED | os.WNOHANG)
        if not changed:
            received = signals.wait()
            if received is not None:
                _pass_on(received, child)
        elif os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(child.pid, signal.SIGCONT)
        else:
            return os.waitstatus_to_exitcode(status)


def _pass_on(received: signal.Signals, child: subprocess.Popen[bytes]) -> None:
    """Send a signal to the agent, unless it gets it from the terminal."""
    if received in {signal.SIGTSTP, signal.SIGCHLD} or (received in _FROM_TERMINAL and _in_foreground()):
        return
    os.kill(child.pid, received)  # it may have ended, and was not waited for yet


def _in_foreground() -> bool:
    """Whether the terminal's signals reach this process and its children, as they are its foreground group."""
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
    """Restore the terminal at the end: an agent that is killed may leave it in full-screen mode."""
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
