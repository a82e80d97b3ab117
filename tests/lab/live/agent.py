"""The agent of the trial: a loop around chat completions that knows nothing of a sidecar but its base URL."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from tests.lab.eval.chat import Address, Chat, ChatError
from tests.lab.live.tasks import SYSTEM, Task, Workspace, tools

_PAUSE_REPLY: Final = "Go on. End with the line ANSWER: and the answer."
"""What a user says where the model neither calls a tool nor answers."""


class Arm(StrEnum):
    """How a task is run."""

    WITHOUT = "without"
    """The agent asks the provider itself."""
    WITH = "with"
    """Through the sidecar by its defaults, in the trial's window."""
    CEILING = "ceiling"
    """Through the sidecar, in the model's own window, with `policy.ceiling_tokens`."""
    SAFE = "safe"
    """As `with`, and `policy.condense` is safe."""


class Ending(StrEnum):
    """How a conversation ended."""

    ANSWERED = "answered"
    OUT_OF_TURNS = "out_of_turns"
    REFUSED = "refused"
    """The provider refused a request of it, such as one that is too long."""
    FAILED = "failed"
    """No request was answered, or the budget was used up; it counts for nothing."""

    @property
    def counts(self) -> bool:
        """Whether the conversation is in the figures."""
        return self is not Ending.FAILED


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one conversation may take."""

    turns: int
    """Requests."""
    reply_tokens: int
    seconds: float
    """Of one request."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Members of the request body; null takes one away."""


@dataclass(slots=True)
class Outcome:
    """What a conversation came to."""

    ending: Ending = Ending.FAILED
    solved: bool = False
    calls: int = 0
    """Tool calls that the agent ran."""
    requests: int = 0
    """Of the agent; the sidecar may ask the model more often."""
    error: str = ""
    seconds: float = 0.0


def converse(task: Task, name: str, address: Address, headers: Mapping[str, str], bounds: Bounds) -> Outcome:
    """Let an agent work on a task.

    Args:
        task: what it is asked.
        name: of this conversation. It is first in the prompt, so that no conversation reads another one's prefix from
            the provider's cache.
        address: whom it asks.
        headers: more headers of each request.
        bounds: what it may take.
    """
    outcome, began = Outcome(), time.perf_counter()
    # Failures of the provider are tried again behind the relay; here there is nothing to wait for.
    chat = Chat(address, bounds.seconds, lambda _: None, headers)
    workspace = Workspace(task)
    history: list[dict[str, Any]] = [
        {"role": "system", "content": f"Conversation {name}. {SYSTEM}"},
        {"role": "user", "content": task.prompt},
    ]
    try:
        outcome.ending = _loop(workspace, history, chat, bounds, outcome)
    except ChatError as error:
        outcome.error = str(error)
        outcome.ending = Ending.REFUSED if error.status in (400, 413) else Ending.FAILED
    last = history[-1].get("content")
    outcome.solved = outcome.ending is Ending.ANSWERED and workspace.solved(last if isinstance(last, str) else "")
    outcome.seconds = time.perf_counter() - began
    return outcome


def _loop(workspace: Workspace, history: list[dict[str, Any]], chat: Chat, bounds: Bounds, outcome: Outcome) -> Ending:
    for _ in range(bounds.turns):
        body: dict[str, Any] = {
            "model": chat.address.model,
            "messages": history,
            "tools": tools(),
            "max_tokens": bounds.reply_tokens,
        }
        body = {name: value for name, value in (body | dict(bounds.extra)).items() if value is not None}
        reply = chat.ask(json.dumps(body, ensure_ascii=False).encode())
        outcome.requests += 1
        history.append({**reply.message, "content": reply.text or None})
        calls = reply.message.get("tool_calls") or []
        if not calls:
            if "ANSWER:" in reply.text or workspace.solved(reply.text):
                return Ending.ANSWERED
            history.append({"role": "user", "content": _PAUSE_REPLY})
        for call in calls:
            function = call["function"]
            outcome.calls += 1
            content = workspace.call(function["name"], function.get("arguments") or "{}")
            history.append({"role": "tool", "tool_call_id": call.get("id") or "", "content": content})
    return Ending.OUT_OF_TURNS
