"""The example agent in Python does what the agents in the other languages do: it is held to the same table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import program
from tests.clients import test_agents as table
from tests.clients.conftest import LOG

AGENT = Path(__file__).parents[1] / "clients" / "python" / "agent.py"


class Python:
    """As one of `tests.clients.languages`; it needs no build."""

    unix = True
    leaves_out = True

    def command(self, *arguments: str) -> list[str]:
        """The command that runs the agent with the package of this checkout."""
        code = f"import runpy, sys; sys.path.insert(0, {str(AGENT.parents[3])!r}); sys.argv[0] = {str(AGENT)!r}; "
        return [sys.executable, "-c", code + "runpy.run_path(sys.argv[0], run_name='__main__')", *arguments]


PYTHON: Any = Python()


@pytest.fixture
def log(tmp_path: Path) -> str:
    """The file that the agent's tool reads."""
    path = tmp_path / "log.txt"
    path.write_text(LOG)
    return str(path)


def test_over_tcp(tmp_path: Path, log: str) -> None:
    """Every prompt is trimmed, and the model gets back what was taken from it."""
    table.test_over_tcp(PYTHON, tmp_path, log)


def test_over_a_unix_socket(tmp_path: Path, log: str) -> None:
    """The same over a unix socket."""
    table.test_over_a_unix_socket(PYTHON, tmp_path, log, tmp_path)


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """The agent goes on with what it sent last, counts that and finishes."""
    table.test_killed_in_the_middle(PYTHON, tmp_path, tmp_path)


def test_never_there(tmp_path: Path, log: str) -> None:
    """Without a sidecar the agent finishes all the same."""
    table.test_never_there(PYTHON, tmp_path, log)


def test_too_slow(tmp_path: Path, log: str) -> None:
    """It waits no longer than the deadline."""
    table.test_too_slow(PYTHON, tmp_path, log)


def test_a_prompt_larger_than_a_message_may_be_is_trimmed(tmp_path: Path, log: str) -> None:
    """The client sends only the messages since the last prompt; the sidecar adds them to the history that it has."""
    with program("--listen", "127.0.0.1:0", "--set", "server.max_message_bytes=40KiB") as sidecar:
        _, end = table.output_of(PYTHON, tmp_path, sidecar.wait_for(table.READY)[1], log, table.LONG)
    assert (table.DAYS + 2, 0, True) == (end["trimmed"], end["untrimmed"], end["recalled"])


def test_it_can_be_read_in_a_minute() -> None:
    """It is an example before it is a program."""
    assert len(AGENT.read_text(encoding="utf-8").splitlines()) <= 120
