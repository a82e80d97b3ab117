"""The ruler: what is hidden, which edits are harmed, what a run costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.trim.condense.calls import call_of
from tests.lab.condensing.measuring import Figures, Material
from tests.lab.evidence.recordings import CHAT, Recording

RESULT = (
    "connected to db_primary_7\nstatus of queue_orders_9 is open\nold text that an edit replaces\n"
    + "filler line\n" * 50
)


def call(name: str, number: int, **arguments: Any) -> dict[str, Any]:
    """An assistant message with one call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{number}", "function": function}]}


def result(number: int, text: str) -> dict[str, Any]:
    """Its result."""
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


MESSAGES = [
    {"role": "user", "content": "look at the services"},
    call("bash", 0, command="status"),
    result(0, RESULT),
    call("bash", 1, command="restart db_primary_7 queue_orders_9"),
    result(1, "done"),
    call("edit", 2, old_string="old text that an edit replaces", new_string="new"),
    result(2, "edited"),
]


def measured(text: str | None) -> Figures:
    """Measure the run with the first result as this text."""
    run = Recording("run", CHAT, MESSAGES, [1, 3, 5], system="")
    return Material(run).measure(lambda given, _: text if given == RESULT else None)


def test_nothing_is_done() -> None:
    """Nothing is saved, hidden or harmed."""
    figures = measured(None)
    assert (0, 0.0, 1, 0, 1.0) == (figures.saved, figures.hidden, figures.edits, figures.harmed, figures.bill)
    assert (3, 0) == (figures.results, figures.changed)


def test_what_is_hidden() -> None:
    """By string, and by the weight of what the action used."""
    figures = measured("connected to db_primary_7\nold text that an edit replaces\n")
    assert pytest.approx(0.25, abs=0.1) == figures.hidden
    assert (1, 0) == (figures.edits, figures.harmed)
    assert figures.saved > 100
    assert 1.0 > figures.bill > 0.0
    assert 0.0 == measured(RESULT.replace("filler line\n", "")).hidden


def test_harmed_edits() -> None:
    """An edit whose text stands nowhere any more."""
    assert 1 == measured("connected to db_primary_7\nstatus of queue_orders_9 is open").harmed
    numbered = "connected to db_primary_7\n12→old text that an edit replaces"
    assert 0 == measured(numbered).harmed


def test_a_result_knows_its_call() -> None:
    """A result knows its call, whatever the form of the run."""
    material = Material(Recording("run", CHAT, MESSAGES, [1, 3, 5], system=""))
    assert call_of("bash", '{"command": "status"}') == material.results[0].call
