"""Agents of a few lines on the providers' own SDKs, which know nothing of the sidecar but a base URL."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.client.histories import result
from tests.client.provider import MODEL
from tests.client.serving import sdk

OWN: Final = {"type": "object", "properties": {}}
TOOL: Final = "read_log"
SILENCE: Final = 60.0
"""Seconds without a byte after which an SDK gives up; by default it is ten minutes."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer, as an agent sees it."""

    text: str
    calls: Sequence[tuple[str, str]]
    """Id and name of each call."""
    entries: Sequence[Any]
    """What it adds to the history, as JSON."""
    usage: Any
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Agent:
    """An agent that keeps its history as its SDK gives it."""

    format: str
    stream: bool
    base: str
    history: list[Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    tools: bool = True
    model: str = MODEL
    _client: Any = None

    def ask(self) -> Heard:
        """Send the history; take the answer into it."""
        heard = _ASK[self.format](self)
        self.history += heard.entries
        return heard

    def answer(self, heard: Heard, text: Callable[[str], str]) -> None:
        """Answer each call."""
        self.history += ANSWERS[self.format]([(call_id, text(call_id)) for call_id, _ in heard.calls])

    @property
    def client(self) -> Any:
        """Its SDK's client."""
        if self._client is None:
            if self.format == "anthropic_messages":
                self._client = sdk("anthropic").Anthropic(
                    base_url=self.base, api_key="secret-key", max_retries=0, timeout=SILENCE
                )
            else:
                self._client = sdk("openai").OpenAI(
                    base_url=self.base + "/v1", api_key="secret-key", max_retries=0, timeout=SILENCE
                )
        return self._client


def _chat(agent: Agent) -> Heard:
    tools = [{"type": "function", "function": {"name": TOOL, "parameters": OWN}}]
    words = {"model": agent.model, "messages": agent.history, "max_tokens": 300, "extra_headers": dict(agent.headers)}
    words |= {"tools": tools} if agent.tools else {}
    create = agent.client.chat.completions
    headers: Mapping[str, str] = {}
    if agent.stream:
        with create.stream(**words, stream_options={"include_usage": True}, **agent.more) as events:
            for _ in events:
                pass
            answer = events.get_final_completion()
    else:
        raw = create.with_raw_response.create(**words, **agent.more)
        answer, headers = raw.parse(), raw.headers
    message = answer.choices[0].message
    calls = [(call.id, call.function.name) for call in message.tool_calls or []]
    entry: dict[str, Any] = {"role": "assistant", "content": message.content}
    if calls:
        entry["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
        ]
    return Heard(message.content or "", calls, [entry], answer.usage, headers)


def _responses(agent: Agent) -> Heard:
    tools = [{"type": "function", "name": TOOL, "parameters": OWN, "strict": False}]
    words = {"model": agent.model, "input": agent.history, "store": False, "extra_headers": dict(agent.headers)}
    words |= {"tools": tools} if agent.tools else {}
    headers: Mapping[str, str] = {}
    if agent.stream:
        with agent.client.responses.stream(**words, **agent.more) as events:
            for _ in events:
                pass
            answer = events.get_final_response()
    else:
        raw = agent.client.responses.with_raw_response.create(**words, **agent.more)
        answer, headers = raw.parse(), raw.headers
    calls = [(item.call_id, item.name) for item in answer.output if item.type == "function_call"]
    entries = [_plain(item) for item in answer.output]
    return Heard(answer.output_text, calls, entries, answer.usage, headers)


def _plain(item: Any) -> Any:
    made = json.loads(item.to_json())
    made.pop("parsed_arguments", None)
    for part in made.get("content") or []:
        part.pop("parsed", None)
    return made


def _messages(agent: Agent) -> Heard:
    words = {"model": agent.model, "messages": agent.history, "max_tokens": 300, "extra_headers": dict(agent.headers)}
    words |= {"tools": [{"name": TOOL, "input_schema": OWN}]} if agent.tools else {}
    headers: Mapping[str, str] = {}
    if agent.stream:
        with agent.client.messages.stream(**words, **agent.more) as events:
            for _ in events:
                pass
            answer = events.get_final_message()
    else:
        raw = agent.client.messages.with_raw_response.create(**words, **agent.more)
        answer, headers = raw.parse(), raw.headers
    blocks = json.loads(answer.to_json())["content"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [(block["id"], block["name"]) for block in blocks if block["type"] == "tool_use"]
    return Heard(
        text, calls, [{"role": "assistant", "content": [_clean(each) for each in blocks]}], answer.usage, headers
    )


def _clean(block: Any) -> Any:
    return {
        name: value for name, value in block.items() if value is not None and name not in ("caller", "parsed_output")
    }


_ASK: Final[Mapping[str, Callable[[Agent], Heard]]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _messages,
}
ANSWERS: Final[Mapping[str, Callable[[Sequence[tuple[str, str]]], list[Any]]]] = {
    "openai_chat": lambda results: [{"role": "tool", "tool_call_id": call, "content": text} for call, text in results],
    "openai_responses": lambda results: [
        {"type": "function_call_output", "call_id": call, "output": text} for call, text in results
    ],
    "anthropic_messages": lambda results: [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": t} for call, t in results]}
    ],
}
FORMATS: Final = tuple(_ASK)


def log_of(call_id: str) -> str:
    """What the agent's tool answers: some 500 tokens with a fact of its own."""
    return result(int(call_id.rpartition("-")[2]))
