"""What is saved at first sight: results as the core returns them, and the table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from tests.conformance.conversations import ANTHROPIC, RESPONSES
from tests.lab.evidence.first_sight import first_sight, first_sight_table
from tests.lab.evidence.making import Step, filler, made
from tests.lab.evidence.recordings import CHAT

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
