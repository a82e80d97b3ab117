"""Agents of a few lines that set a base URL, one for each API, and the provider that they all talk to.

The provider asks for the next tool call, now and then for what has left the prompt, says what it counted, takes its
time, and for a while is overloaded, so that an operator sees in the pictures what that looks like.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import random
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import aiohttp

from tests.client.provider import Says

THINK: Final = 0.3
"""Seconds between two prompts of an agent."""
TURNS: Final = 30
"""Of a run; then another begins."""
SERVES: Final = 120
"""Answers of the provider before it is overloaded."""
OVERLOADED: Final = 25
"""Requests that it refuses then."""
RECALLS: Final = 0.25
"""Part of the turns in which the model asks for what its prompt lacks, where it can."""
RECALL: Final = "recall_elided_content"
LABEL: Final = re.compile(r"id=(\w{10})")
RESULT: Final = "12:00:01 GET /items 200 in 3 ms, served by worker " * 30
PATIENCE: Final = 60.0
_BYTES_A_TOKEN: Final = 4.4


class Model:
    """What the model of all these agents says. Thread-safe."""

    def __init__(self, seed: int) -> None:
        """`seed`: of its choices."""
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._answers = itertools.count()
        self._sizes: dict[str, int] = {}

    def __call__(self, body: Any) -> Says:
        """Answer a request."""
        text = json.dumps(body)
        with self._lock:
            number = next(self._answers)
            model = body["model"]
            if number % (SERVES + OVERLOADED) >= SERVES:
                return Says("overloaded", status=503)
            took, before = int(len(text) / _BYTES_A_TOKEN), self._sizes.get(model, 0)
            self._sizes[model] = took
            tokens = {"input": took, "cached": min(before, int(took * 0.9)) if took > before else 0, "output": 40}
            gone = LABEL.search(text)
            if gone and RECALL in text and self._chance.random() < RECALLS:
                return Says("", [(f"r{number}", RECALL, {"id": gone[1]})], tokens=tokens, model=model)
        return Says("Next.", [(f"c{number}", "read", {"path": f"module_{number}.py"})], tokens=tokens, model=model)


class Api(Protocol):
    """How an API has a run's prompts."""

    path: str
    model: str

    def first(self) -> dict[str, Any]:
        """The first prompt of a run."""
        ...

    def goes_on(self, body: dict[str, Any], answer: Any) -> None:
        """Add the model's answer, and the results of its calls, to the prompt."""
        ...


@dataclass
class Chat:
    """Chat Completions."""

    model: str = "gpt-4o"
    path: str = "/v1/chat/completions"

    def first(self) -> dict[str, Any]:
        """See `Api`."""
        tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
        return {"model": self.model, "tools": [tool], "messages": [{"role": "user", "content": "Find the culprit."}]}

    def goes_on(self, body: dict[str, Any], answer: Any) -> None:
        """See `Api`."""
        message = answer["choices"][0]["message"]
        body["messages"].append(message)
        for call in message.get("tool_calls") or ():
            body["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": f"{call['id']} {RESULT}"})


@dataclass
class Messages:
    """Anthropic's Messages."""

    model: str = "claude-sonnet-4-5"
    path: str = "/v1/messages"

    def first(self) -> dict[str, Any]:
        """See `Api`."""
        tool = {"name": "read", "input_schema": {"type": "object", "properties": {}}}
        asked = [{"role": "user", "content": "Find the culprit."}]
        return {"model": self.model, "max_tokens": 500, "tools": [tool], "messages": asked}

    def goes_on(self, body: dict[str, Any], answer: Any) -> None:
        """See `Api`."""
        body["messages"].append({"role": "assistant", "content": answer["content"]})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": f"{block['id']} {RESULT}"}
            for block in answer["content"]
            if block["type"] == "tool_use"
        ]
        body["messages"].append({"role": "user", "content": results or [{"type": "text", "text": "Go on."}]})


@dataclass
class Responses:
    """OpenAI's Responses."""

    model: str = "gpt-5"
    path: str = "/v1/responses"

    def first(self) -> dict[str, Any]:
        """See `Api`."""
        tool = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}
        asked = [{"type": "message", "role": "user", "content": "Find the culprit."}]
        return {"model": self.model, "store": False, "tools": [tool], "input": asked}

    def goes_on(self, body: dict[str, Any], answer: Any) -> None:
        """See `Api`."""
        body["input"] += answer["output"]
        body["input"] += [
            {"type": "function_call_output", "call_id": item["call_id"], "output": f"{item['call_id']} {RESULT}"}
            for item in answer["output"]
            if item["type"] == "function_call"
        ]


@dataclass
class Agent:
    """One run after the other through a port, until it is over."""

    name: str
    api: Api
    port: int
    over: threading.Event
    answered: int = 0
    """Prompts that were answered."""
    problems: list[str] = field(default_factory=list)

    def work(self) -> None:
        """Work by requests."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        for run in itertools.count():
            body = self.api.first()
            for _ in range(TURNS):
                if self.over.wait(THINK):
                    connection.close()
                    return
                headers = {"content-type": "application/json", "x-prompt-sidecar-run": f"{self.name}-{run}"}
                connection.request("POST", self.api.path, json.dumps(body), headers)
                with connection.getresponse() as answer:
                    self._take(body, answer.status, json.loads(answer.read()))

    def _take(self, body: dict[str, Any], status: int, answer: Any) -> None:
        if status == 200:
            self.answered += 1
            self.api.goes_on(body, answer)
        elif status < 500:
            self.problems.append(f"{self.name}: {status} {str(answer)[:200]}")

    def work_on_a_socket(self) -> None:
        """Work by messages of a WebSocket, as Codex does."""
        asyncio.run(self._on_a_socket())

    async def _on_a_socket(self) -> None:
        async with aiohttp.ClientSession() as session:
            for run in itertools.count():
                headers = {"x-prompt-sidecar-run": f"{self.name}-{run}"}
                address = f"http://127.0.0.1:{self.port}{self.api.path}"
                async with session.ws_connect(address, headers=headers, max_msg_size=0) as socket:
                    body = self.api.first()
                    for _ in range(TURNS):
                        if await asyncio.to_thread(self.over.wait, THINK):
                            return
                        await socket.send_json({"type": "response.create", **body})
                        status, answer = await self._received(socket)
                        self._take(body, status, answer)

    async def _received(self, socket: aiohttp.ClientWebSocketResponse) -> tuple[int, Any]:
        """The response, or how it failed."""
        while True:
            event = await asyncio.wait_for(socket.receive_json(), PATIENCE)
            if event["type"] == "response.completed":
                return 200, event["response"]
            if event["type"] == "error":
                return int(event.get("status") or 500), event


def threads(agents: Sequence[tuple[Agent, Callable[[Agent], None]]]) -> list[threading.Thread]:
    """One thread for each, not begun."""
    return [threading.Thread(target=work, args=(agent,), name=agent.name, daemon=True) for agent, work in agents]
