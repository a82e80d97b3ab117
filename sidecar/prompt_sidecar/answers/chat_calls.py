"""A call in a stream of chat completions whose masks are restored."""

from __future__ import annotations

from dataclasses import dataclass

from prompt_sidecar.answers.restoring import Arguments
from prompt_sidecar.providers import openai_chat


@dataclass(slots=True, eq=False)
class Called(openai_chat.Called):
    """A call, as it is pieced together."""

    shown: bool = False
    """Whether the agent has seen something of it."""
    filled: Arguments | None = None
    """Its arguments, where masks are restored."""
