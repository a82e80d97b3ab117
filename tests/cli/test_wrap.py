"""`prompt-sidecar wrap`: an agent behind a sidecar of its own, in its terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.cli.running import PATIENCE, environment, run
from tests.cli.scripted_agent import CODE
from tests.client.provider import Says
from tests.doors.http.upstream import Upstream

AGENT = (sys.executable, "--", str(Path(__file__).with_name("scripted_agent.py")))
STEPS = 12
WRAP = (sys.executable, "-m", "prompt_sidecar", "wrap")


class Model:
    """Calls the agent's tool so often, and is done then."""

    def __init__(self) -> None:
        self.step = 0

    def __call__(self, _: object) -> Says:
        """Take a turn."""
        self.step += 1
        return Says("", [(f"c{self.step}", "run", {})]) if self.step <= STEPS else Says("done")


class Terminal:
    """A terminal of its own with `wrap` in it."""

    def __init__(self, parent: int, pid: int) -> None:
        self.parent = parent
        self.pid = pid
        self.shown = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read on until something matches in what was not matched yet."""
        while (found := re.search(pattern, self.shown)) is None:
            self.shown += os.read(self.parent, 4_096).decode()  # at the end of the program it is an OSError
        self.shown = self.shown[found.end() :]
        return found

    def end(self) -> int:
        """Read to the end; return the exit code."""
        with contextlib.suppress(OSError):
            while read := os.read(self.parent, 4_096):
                self.shown += read.decode()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextlib.contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    """Start `wrap` as the leader of a terminal's session, as a shell's user does."""
    variables = environment()
    pid, parent = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [*WRAP, *words], variables)  # this program
    try:
        yield Terminal(parent, pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.close(parent)


def listens(url: str) -> bool:
    """Whether anybody is at a URL's port."""
    try:
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])), PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True


def is_alive(pid: int) -> bool:
    """Whether there is a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_agent_s_run() -> None:
    """Its prompts go through the sidecar to where its base URL has pointed, and the end says what that was worth."""
    with Upstream(Model()) as upstream:
        command = [*WRAP, "--set", "limits.default_window=6000", *AGENT, "turns"]
        variables = environment() | {"OPENAI_BASE_URL": f"{upstream.url}/v1"}
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False
        )  # fmt: skip
    assert CODE == done.returncode, done.stderr
    assert "" == done.stdout
    assert [] == upstream.defects
    assert STEPS + 1 == len(upstream.sent)
    assert f"requests  {STEPS + 1}, of which {STEPS + 1} prompts\n" in done.stderr
    assert re.search(r"saved     [1-9]\d?% of the prompts' tokens: [\d,]+ untrimmed, [\d,]+ sent", done.stderr)
    assert re.search(r"condensed [1-9][\d,]* tokens, taken out of results", done.stderr)
    assert re.search(r"untrimmed [1-9] requests: \d no_need\n", done.stderr)
    assert "recalled  0 originals by id, 0 searches\n" in done.stderr
    assert "guard     found nothing\n" in done.stderr
    log = re.search(r"logs to (\S+)", done.stderr)
    assert log is not None
    written = Path(log[1])
    assert "tokens of o200k_base" in written.read_text()
    assert 0o600 == written.stat().st_mode & 0o777
    written.unlink()


def test_the_terminal_is_the_agent_s(tmp_path: Path) -> None:
    """It reads from it, is told its new size, gets each Ctrl-C once, and is not ended by the first."""
    with terminal("--log", str(tmp_path / "log"), *AGENT, "wait") as work:
        found = work.wait_for(r"waiting as (\d+) at (\S+), a terminal: (\w+)")
        assert "True" == found[3]
        assert listens(found[2])
        fcntl.ioctl(work.parent, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 100, 0, 0))
        work.wait_for("SIGWINCH 44 lines")
        os.write(work.parent, b"\x03")
        work.wait_for("SIGINT")
        os.write(work.parent, b"\x03")
        work.wait_for("SIGINT")
        assert CODE == work.end()
    assert f"has ended after 0 min 0 s, with code {CODE}" in work.shown
    assert not is_alive(int(found[1]))
    assert not listens(found[2])


@contextlib.contextmanager
def piped(log: Path) -> Iterator[subprocess.Popen[str]]:
    """Start `wrap` with an agent that waits, without a terminal; it is killed at the end if it still runs."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*WRAP, "--log", str(log), *AGENT, "wait"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
    ) as work:
        try:
            yield work
        finally:
            work.kill()


def line(pipe: IO[str] | None) -> str:
    """The next line of what a program writes."""
    assert pipe is not None
    return pipe.readline()


def test_an_agent_that_stops(tmp_path: Path) -> None:
    """The shell has the terminal until it goes on, as with an agent that runs without `wrap`.

    A shell ends stopped programs by a signal and SIGCONT, in this order: any thread may get the signal.
    """
    with piped(tmp_path / "log") as work:
        found = re.match(r"waiting as (\d+)", line(work.stdout))
        assert found is not None
        os.kill(int(found[1]), signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(work.pid, os.WUNTRACED)[1])
        work.terminate()
        os.kill(work.pid, signal.SIGCONT)
        assert "SIGTERM\n" == line(work.stdout)
        assert CODE == work.wait(PATIENCE)


def test_no_signal_waits_for_the_next_one(tmp_path: Path) -> None:
    """Each is passed on at once, also one that arrives as `wrap` begins to wait, of which five in 4,000 were missed."""
    with piped(tmp_path / "log") as work:
        assert line(work.stdout).startswith("waiting as")
        for _ in range(500):
            os.kill(work.pid, signal.SIGUSR1)
            os.kill(work.pid, signal.SIGUSR2)
            assert {"SIGUSR1\n", "SIGUSR2\n"} == {line(work.stdout), line(work.stdout)}
        work.terminate()
        assert CODE == work.wait(PATIENCE)


@pytest.mark.parametrize(
    ("number", "to_agent", "code"),
    [
        (signal.SIGTERM, False, CODE),
        (signal.SIGTERM, True, CODE),
        (signal.SIGKILL, True, 128 + signal.SIGKILL),
    ],
    ids=["wrap is told to end", "the agent is told to end", "the agent is killed"],
)
def test_whatever_ends_it_nothing_is_left(number: signal.Signals, to_agent: bool, code: int, tmp_path: Path) -> None:
    """A signal goes on to the agent; the exit code is the agent's, and neither agent nor door is there any more."""
    with piped(tmp_path / "log") as work:
        found = re.match(r"waiting as (\d+) at (\S+), a terminal: False", line(work.stdout))
        assert found is not None
        assert work.stderr is not None
        os.kill(int(found[1]) if to_agent else work.pid, number)
        shown = work.stderr.read()
        assert code == work.wait(PATIENCE)
    assert f"with code {code}" in shown
    assert "requests  none came through the sidecar" in shown
    assert not is_alive(int(found[1]))
    assert not listens(found[2])


@pytest.mark.parametrize("name", ["gemini", "other"])
def test_an_agent_that_sends_nothing_says_what_it_needs(name: str, tmp_path: Path) -> None:
    """Gemini CLI refuses a base URL without a setting that only its user can make."""
    program = tmp_path / name
    program.write_text("#!/bin/sh\nexit 41\n")
    program.chmod(0o755)
    done = subprocess.run(
        [*WRAP, "--log", str(tmp_path / "log"), str(program)],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert 41 == done.returncode
    assert "none came through the sidecar" in done.stderr
    assert (name == "gemini") is ("gemini-api-key" in done.stderr)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "wrap needs an AGENT, as in prompt-sidecar wrap claude"),
        (["no-such-agent"], "no-such-agent is not on the PATH, or no program: install it, or name its file"),
        (
            ["claude", "-p", "hi"],
            "-p: what is the agent's own comes after --, as in prompt-sidecar wrap claude -- -p hi",
        ),
        (["--set", "guard.mode=some", sys.executable], '--set guard.mode is "some"; it must be one of audit, enforce'),
    ],
    ids=["no agent", "not there", "no --", "a setting"],
)
def test_what_cannot_be_run(words: list[str], message: str) -> None:
    """The error says what to write."""
    done = run("wrap", *words)
    assert 2 == done.returncode
    assert message in done.stderr
