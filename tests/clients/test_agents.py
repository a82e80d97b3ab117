"""Each language's agent finishes its run: with the sidecar, without it, and when it goes in the middle."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import PATIENCE, environment, program
from tests.clients.conftest import LOG
from tests.clients.languages import Language
from tests.clients.relay import relayed

READY = r"ready: listening on ([^\s,]+)"
LONG = "60"
"""Seconds: a deadline that no starved machine passes."""
SHORT = "0.1"
"""One that a server which never answers is not waited for."""
KEY = "a key that both sidecars have"
RECONNECT = 2.0
"""Seconds after which an agent's gRPC has tried again: they wait one, or begin with one."""
DAYS = 12
KILLED_AT = 8
"""The last iteration with a sidecar, where it is killed; by then the first days are clipped."""
WHOLE = {"iterations": DAYS + 2, "trimmed": DAYS + 2, "untrimmed": 0, "recalled": True, "finished": True}
"""What an agent tells at its end when every call was answered."""


def without(trimmed: int, *, asks: bool = False) -> dict[str, Any]:
    """What it tells when the sidecar has answered the first calls only.

    Where its last prompt has a label, as the last trimmed prompt had, the model asks for what it stands for.
    """
    iterations = DAYS + 1 + asks
    untrimmed = iterations - trimmed
    return {
        "iterations": iterations,
        "trimmed": trimmed,
        "untrimmed": untrimmed,
        "recalled": False,
        "finished": True,
    }


@contextmanager
def running(language: Language, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the agent; it is killed at the end if it still runs."""
    pipe = subprocess.PIPE
    command = language.command(*arguments)
    with subprocess.Popen(command, cwd=folder, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def output_of(language: Language, folder: Path, *arguments: str) -> tuple[list[str], dict[str, Any]]:
    """Run the agent to its end; return the lines of its iterations and what it told at last."""
    with running(language, folder, *arguments) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode, err
    *lines, last = out.splitlines()
    return lines, json.loads(last)


def feed(process: subprocess.Popen[str], pipe: Path) -> None:
    """Write the log into the pipe once the agent reads it. Raises AssertionError if the agent ends instead."""
    while True:
        try:
            # Without waiting for a reader: an agent that has ended is none.
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        else:
            with os.fdopen(writer, "w") as file:
                file.write(LOG)
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.returncode is None, "the agent has ended"


def test_over_tcp(language: Language, folder: Path, log: str) -> None:
    """Every prompt is trimmed, and the model gets back what was taken from it."""
    with program("--listen", "127.0.0.1:0") as sidecar:
        lines, end = output_of(language, folder, sidecar.wait_for(READY)[1], log, LONG)
    assert [f"iteration {number}: trimmed" for number in range(1, DAYS + 3)] == lines  # an error is named in its line
    assert WHOLE == end


def test_each_call_names_its_run(language: Language, folder: Path, log: str) -> None:
    """In its metadata, by which a load balancer keeps the run with one sidecar: one run, the same in all calls."""
    with program("--listen", "127.0.0.1:0") as sidecar, relayed(sidecar.wait_for(READY)[1]) as relay:
        assert WHOLE == output_of(language, folder, relay.address, log, LONG)[1]
    assert {"TrimPrompt", "CallTool", "EndRun"} <= {method for method, _ in relay.calls}
    (run,) = {run for method, run in relay.calls if method != "ListTools"}
    assert run


def test_over_a_unix_socket(language: Language, folder: Path, log: str, tmp_path: Path) -> None:
    """The same over a unix socket."""
    if not language.unix:
        pytest.skip(f"Debian's gRPC for {language.heading} reaches no unix socket; docs/clients.md tells why")
    with program("--listen", "", "--socket", str(tmp_path / "s")) as sidecar:
        sidecar.wait_for(READY)
        assert WHOLE == output_of(language, folder, f"unix://{tmp_path / 's'}", log, LONG)[1]


def test_killed_in_the_middle(language: Language, folder: Path, tmp_path: Path) -> None:
    """When the sidecar is killed after an answer, the agent goes on with its last trimmed prompt, and finishes.

    The labels in that prompt tell: in the untrimmed history there are none. The client in Python leaves out the oldest
    iterations, which have them.

    The tool reads a pipe, so that the agent waits in its iteration until the sidecar is gone.
    """
    pipe = tmp_path / "log.pipe"
    os.mkfifo(pipe)
    with (
        program("--listen", "127.0.0.1:0") as sidecar,
        running(language, folder, sidecar.wait_for(READY)[1], str(pipe), LONG) as process,
    ):
        assert process.stdout is not None
        for number in range(1, DAYS + 1):
            trimmed = "trimmed" if number <= KILLED_AT else "untrimmed ("
            assert process.stdout.readline().startswith(f"iteration {number}: {trimmed}")
            if number == KILLED_AT:
                sidecar.process.kill()
                sidecar.end()
            feed(process, pipe)
        out, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode, err
    assert without(KILLED_AT, asks=not language.leaves_out) == json.loads(out.splitlines()[-1])


def test_started_anew(language: Language, folder: Path, tmp_path: Path) -> None:
    """A sidecar that comes back is used again, and gives back what was taken from the prompts before it came."""
    pipe = tmp_path / "log.pipe"
    os.mkfifo(pipe)
    with ExitStack() as stack:
        sidecar = stack.enter_context(program("--listen", "127.0.0.1:0", KEY=KEY))
        address = sidecar.wait_for(READY)[1]
        process = stack.enter_context(running(language, folder, address, str(pipe), LONG))
        assert process.stdout is not None
        for number in range(1, DAYS + 1):
            line = process.stdout.readline()
            if number == KILLED_AT:
                sidecar.process.kill()
                sidecar.end()
                stack.enter_context(program("--listen", address, KEY=KEY)).wait_for(READY)
            elif "untrimmed" in line:  # refused while the sidecar was away, the agent's gRPC tries again after a while
                with suppress(subprocess.TimeoutExpired):
                    process.wait(RECONNECT)
            feed(process, pipe)
        out, err = process.communicate(timeout=PATIENCE)
    assert 0 == process.returncode, err
    end = json.loads(out.splitlines()[-1])
    assert (DAYS + 2, True) == (end["iterations"], end["recalled"])
    assert KILLED_AT + 2 < end["trimmed"]


def test_never_there(language: Language, folder: Path, log: str) -> None:
    """Without a sidecar the agent finishes all the same."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen: nobody else does, and connecting is refused
        assert without(0) == output_of(language, folder, f"127.0.0.1:{bound.getsockname()[1]}", log, LONG)[1]


def test_too_slow(language: Language, folder: Path, log: str) -> None:
    """A sidecar that takes the connection and never answers is waited for no longer than the deadline."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert without(0) == output_of(language, folder, f"127.0.0.1:{silent.getsockname()[1]}", log, SHORT)[1]


def test_a_refused_prompt_goes_to_the_model_untrimmed(language: Language, folder: Path, log: str) -> None:
    """Prompts that the sidecar refuses, here as larger than it takes, go to the model untrimmed and are counted."""
    with program("--listen", "127.0.0.1:0", "--set", "server.max_message_bytes=40KiB") as sidecar:
        lines, end = output_of(language, folder, sidecar.wait_for(READY)[1], log, LONG)
    if language.leaves_out:  # it sends only new messages, which are never that large
        assert (DAYS + 2, 0, True) == (end["trimmed"], end["untrimmed"], end["recalled"])
        return
    assert without(end["trimmed"]) == end
    assert 0 < end["trimmed"] < DAYS
    refused = [" untrimmed " in line for line in lines]
    assert sorted(refused) == refused
