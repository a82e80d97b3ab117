"""What is saved at first sight: results as the core returns them, and the table."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.conformance.conversations import ANTHROPIC, RESPONSES
from tests.lab.condensing.measuring import Figures, Material
from tests.lab.evidence.first_sight import first_sight, first_sight_table, rival_figures, rivals_first_sight
from tests.lab.evidence.making import Step, filler, made
from tests.lab.evidence.recordings import CHAT
from tests.lab.harness.environments import Environment, Unavailable
from tests.lab.peers.adapters.first_sight import each_result
from tests.lab.peers.adapters.wire import Job, Message
from tests.lab.peers.peers import Peer

RED = "".join(f"\x1b[31mcase_{number}\x1b[0m expected {number * 7}\n" for number in range(120))


@pytest.mark.parametrize("format", [CHAT, ANTHROPIC, RESPONSES])
def test_what_a_terminal_would_not_show(format: str) -> None:
    """The codes go in each format; nothing that a later action uses is hidden."""
    steps = [Step(says="I run them.", arguments={"q": "all"}, result=RED), filler(1), Step(arguments={"q": "case_7"})]
    run = made(format, steps)
    messages = json.loads(json.dumps(run.messages).replace('"read"', '"bash"'))  # what was read stays
    assert not any(one.changed for runs in first_sight([run]).values() for one in runs)
    found = first_sight([replace(run, messages=messages)])
    (exact,) = found["exact"]
    assert (1, 3) == (exact.changed, exact.results)
    assert exact.share > 0.2
    assert exact.bill < 1
    assert not exact.hidden
    assert not exact.harmed
    console = Console(width=160)
    with console.capture() as shown:
        console.print(first_sight_table(found))
    assert "exact" in shown.get()


KEPT = "first line of the status\ndb_primary_7 is up\n"
RESULT = KEPT + "plain talk goes on here\n" * 40 + "queue_orders_9 is down\nold text that an edit replaces"
STEPS = [
    Step(arguments={"q": "status"}, result=RESULT),
    Step(arguments={"q": "db_primary_7"}, result="up"),
    Step(arguments={"q": "queue_orders_9"}, result="down"),
    Step(arguments={"old_string": "old text that an edit replaces"}, result="edited"),
]
RIVAL = Peer("rival", "rival", "of_the_test")
ADAPTER = """
from tests.lab.peers.adapters.first_sight import each_result
from tests.lab.peers.adapters.wire import serve

def two_lines(messages):
    *before, result = messages
    return [*before, {**result, "content": "".join(result["content"].splitlines(True)[:2])}]

serve("rival 1.0", lambda job, chat, ending: each_result(job, two_lines))
"""


@pytest.fixture
def home(tmp_path: Path) -> Environment:
    """An environment whose interpreter runs an adapter that keeps two lines of each result."""
    adapter = tmp_path / "adapter.py"
    adapter.write_text(ADAPTER)
    environment = Environment(tmp_path / "rival")
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{adapter}'\n")
    environment.python.chmod(0o755)
    return environment


@pytest.mark.skipif(sys.platform == "win32", reason="its interpreter is a shell script")
def test_a_rival_is_measured_by_the_same_ruler(home: Environment) -> None:
    """Its results are judged as ours are: saved, hidden of what later actions used, and edits harmed."""
    material = Material(made(CHAT, STEPS))
    version, figures = rival_figures(RIVAL, home, material)
    assert "rival 1.0" == version
    assert material.judge({material.results[0].place: KEPT}) == figures
    assert (1, 4) == (figures.changed, figures.results)
    assert (1, 1) == (figures.harmed, figures.edits)
    assert 0.9 < figures.share < 1
    # Each of three actions used one thing of the first result; the first thing is what stays.
    assert pytest.approx(2 / 3) == figures.hidden


def test_a_rival_that_cannot_be_measured(tmp_path: Path) -> None:
    """It is no row; that and why is said."""
    material = Material(made(CHAT, STEPS))
    with pytest.raises(Unavailable, match="no requirements"):
        rival_figures(RIVAL, Unavailable("there are no requirements"), material)
    missing = Peer("rival", "no-such-rival", "of_the_test")
    found, failures = rivals_first_sight([made(CHAT, STEPS)], [missing], tmp_path)
    assert ({}, ["rival: there are no requirements no-such-rival.txt"]) == (found, failures)


def test_a_rival_is_given_the_call_and_the_users_newest_text() -> None:
    """Each result once, after the user's last message and the call alone, also of several calls at once."""
    calls: list[Message] = [{"id": f"c{number}", "function": {"name": "read"}} for number in range(2)]
    messages: list[Message] = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "I read.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c0", "content": "zero"},
        {"role": "user", "content": "second"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
    ]
    sent: list[list[Message]] = []

    def note(given: list[Message]) -> list[Message]:
        sent.append(given)
        return given

    job = Job(CHAT, None, messages, [3, 5], 1_000, {})
    assert [[messages[2]], [messages[4]]] == [list(made.messages) for made in each_result(job, note)]
    texts = [[message["content"] for message in given] for given in sent]
    assert [["first", "", "zero"], ["second", "", "one"]] == texts
    assert [[calls[0]], [calls[1]]] == [given[1]["tool_calls"] for given in sent]


def test_a_table_has_rivals_too() -> None:
    """A rival is a row beneath the levels, with its version."""
    console = Console(width=160)
    with console.capture() as shown:
        console.print(first_sight_table({"exact": [Figures("run")], "rival (rival 1.0)": [Figures("run")]}))
    assert "rival (rival 1.0)" in shown.get()
