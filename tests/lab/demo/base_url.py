"""The second part: the same script, streamed, and an agent that knows nothing of a sidecar but a base URL.

The scripted model is a provider on loopback here, which refuses what the real one would. The agent is the provider's
own SDK, its own tools and a loop; calls of the sidecar's tools are answered on the way, and it never sees one.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console

from tests.client.provider import Says
from tests.client.serving import sdk
from tests.doors.http.upstream import Upstream
from tests.lab.demo import stranger
from tests.lab.demo.agent import SYSTEM, WINDOW
from tests.lab.demo.investigation import QUESTION
from tests.lab.demo.prompt import Prompt
from tests.lab.demo.script import FOLLOW_UP, Notes, script
from tests.lab.demo.tools import Tools, schemas
from tests.lab.harness.servers import LOCAL, sidecar
from tests.oracle.tokens import count_prompt

MODEL: Final = "scripted"
"""No known model: its window is the configured one."""
OURS: Final = ("recall_elided_content", "search_conversation_history", "create_tasks", "update_task")
PAUSE: Final = "There is more to read."
"""What the model says when it may not call a tool: the sidecar answers six turns in a row by itself."""
RULER: Final = 1.1
"""How much our own count may be above the sidecar's: it counts each message apart."""


@dataclass(slots=True)
class Model:
    """The scripted model behind the provider's API."""

    notes: Notes = field(default_factory=Notes)
    turns: int = 0
    own_calls: int = 0
    sizes: list[int] = field(default_factory=list)
    """Tokens of each prompt, by our own count."""
    _script: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, body: Any) -> Says:
        """Take the script's next turn, on nothing but this prompt."""
        with self._lock:
            if body.get("tool_choice") == "none":
                return Says(PAUSE)
            prompt = Prompt.of(json.dumps(body, ensure_ascii=False).encode())
            self.sizes.append(count_prompt(body))
            try:
                if self._script is None:
                    self._script = script(stranger.MADE_UP_ID, self.notes)
                    turn = next(self._script)
                else:
                    turn = self._script.send(prompt)
            except StopIteration:
                return Says("All is said.")
            self.turns += 1
            self.own_calls += sum(call.name in OURS for call in turn.calls)
            calls = [(f"call_{self.turns:04}_{at}", call.name, call.arguments) for at, call in enumerate(turn.calls)]
            tokens = {"input": self.sizes[-1], "cached": 0, "output": 50}
            return Says(turn.text, calls, tokens=tokens)


@dataclass(slots=True)
class Agent:
    """A loop around the SDK."""

    create: Any
    tools: Tools
    history: list[dict[str, Any]]
    requests: int = 0
    pieces: int = 0
    """Chunks that came."""

    def run(self) -> None:
        """Ask until the model calls nothing; then once more, with what the user says next."""
        for words in (QUESTION, FOLLOW_UP):
            self.history.append({"role": "user", "content": words})
            while (calls := self._asked()) or self._pauses():
                for call in calls:
                    function = call["function"]
                    content = self.tools.call(function["name"], json.loads(function["arguments"]))
                    self.history.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    def _pauses(self) -> bool:
        """Have the model go on, where it has read so much that the sidecar had it answer first."""
        if not str(self.history[-1]["content"]).endswith(PAUSE):
            return False
        self.history.append({"role": "user", "content": "Go on."})
        return True

    def _asked(self) -> list[dict[str, Any]]:
        self.requests += 1
        with self.create.stream(model=MODEL, messages=self.history, tools=schemas(), max_tokens=1_000) as events:
            for _ in events:
                self.pieces += 1
            message = events.get_final_completion().choices[0].message
        calls = [
            {"id": each.id, "type": "function"}
            | {"function": {"name": each.function.name, "arguments": each.function.arguments}}
            for each in message.tool_calls or []
        ]
        self.history.append(
            {"role": "assistant", "content": message.content} | ({"tool_calls": calls} if calls else {})
        )
        return calls


def base_url(console: Console, tools: Tools) -> bool:
    """Run the second part; return whether every check has passed."""
    model, began = Model(), time.perf_counter()
    with Upstream(model) as upstream, _door(upstream.url) as url:
        console.print(f"\nthe same script, and an agent that only sets OPENAI_BASE_URL={url}/v1; streamed …")
        client = sdk("openai").OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        agent = Agent(client.chat.completions, tools, [{"role": "system", "content": SYSTEM}])
        agent.run()
        sent = [len(each.raw) for each in upstream.sent]
    held, notes = json.dumps(agent.history), model.notes
    checks = {
        "the provider refused no request, by the rules of its documentation": not upstream.defects,
        "every prompt fits its limit, by our own count": max(model.sizes) <= WINDOW * RULER,
        "the agent's history is longer than its window, and was trimmed": len(held) > 2 * max(sent),
        "the agent saw no call of the sidecar's tools": not any(f'"name": "{name}"' in held for name in OURS),
        "the model called the sidecar's tools, and was answered": model.own_calls > agent.requests // 4,
        "all three facts that had left the prompt were recalled": all(
            (notes.searched_fact, notes.fact, notes.other_fact, *notes.hidden.values())
        ),
        "answers came in pieces": agent.pieces > 3 * agent.requests,
    }
    for what, passed in checks.items():
        console.print(f"  {'✓' if passed else '✗'} {what}")
    console.print(
        f"  {agent.requests} requests of the agent, {model.turns} turns of the model, {model.own_calls} calls of the "
        f"sidecar's tools among them, {time.perf_counter() - began:.0f} s"
    )
    return all(checks.values())


@contextmanager
def _door(upstream: str) -> Iterator[str]:
    """A sidecar with an HTTP door in a process of its own; its address."""
    settings = {"HTTP__OPENAI_UPSTREAM": upstream, "TELEMETRY__METRICS_LISTEN": ""}
    settings |= {"LIMITS__DEFAULT_WINDOW": str(WINDOW), "KEY": "of the demo, for one run"}
    with sidecar(settings, "--http", LOCAL, listen="") as server:
        yield server.address
