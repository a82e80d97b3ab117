"""What the loops share: their task, their tool, and how they say what they got."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from tests.agents.lines import LINES, RAN, line

TASK: Final = "Read the logs of all builds, one after another."
MODEL: Final = "scripted"
"""A model that the sidecar does not know."""
WAY: Final = sys.argv[1] if len(sys.argv) > 1 else ""
"""Which of its APIs the loop is to use."""


def read_log(number: int) -> str:
    """Read the log of a build."""
    with Path(RAN).open("a", encoding="utf-8") as ran:
        ran.write(f"{number}\n")
    return "\n".join(line(number, each) for each in range(1, LINES + 1))


SCHEMA: Final[Any] = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


def tell(answer: object, history: object) -> None:
    """Say what the model answered last, and keep the history as the agent has it."""
    Path("history.txt").write_text(str(history), encoding="utf-8")
    print(json.dumps({"answer": str(answer)}))
