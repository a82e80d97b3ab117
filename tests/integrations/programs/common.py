"""What the agents share: their task, their tool, and how they speak with the test."""

from __future__ import annotations

import json
import sys
from typing import Any

QUESTION = "Which build failed?"
FACT = "the build number of iteration"


def settings_read() -> Any:
    """The test's words: where sidecar and provider are, and in which way to run."""
    return json.loads(sys.argv[1])


def result(number: int) -> str:
    """What the agent's tool answers: some 500 tokens, with one fact of its own."""
    return f"{FACT} {number} is {number * 7919}\n" + f"log line of iteration {number}: nothing happened\n" * 50


GOT: dict[str, str] = {}
"""What each of the tools was given that take a text."""


def deploy(token: str) -> str:
    """Deploy with a token."""
    GOT["deploy"] = token
    return "deployed"


def show(text: str) -> str:
    """Show a text."""
    GOT["show"] = text
    return "shown"


def tell(**values: Any) -> None:
    """Report to the test."""
    print(json.dumps(values))
