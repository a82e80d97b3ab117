"""Providers that refuse what is too long, and what a provider refuses anyway: the rules that a fallback must keep.

A token is four bytes of the request's body here, so that the provider, unlike the sidecar, counts all that is sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.client.provider import Says

BYTES_A_TOKEN = 4
BOUND_ELSEWHERE = "The block is bound to a different conversation. Remove the block."


def size(body: Any) -> int:
    """Tokens of a request, as this provider counts."""
    return len(json.dumps(body["messages"] if "messages" in body else body["input"])) // BYTES_A_TOKEN


def defects(format: str, body: Any) -> list[str]:
    """What the provider would refuse in the pairing: calls that are not answered at once, answers to nothing."""
    return _PAIRING[format](body)


def _chat(body: Any) -> list[str]:
    opened: list[str] = []
    wrong: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            wrong += [] if message["tool_call_id"] in opened else [f"orphan {message['tool_call_id']}"]
            opened = [each for each in opened if each != message["tool_call_id"]]
        else:
            wrong += [f"open {each}" for each in opened]
            opened = [call["id"] for call in message.get("tool_calls") or ()]
    return wrong + [f"open {each}" for each in opened]


def _responses(body: Any) -> list[str]:
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    return sorted(set(calls) ^ set(outputs)) + ([] if len(calls) == len(outputs) else ["unequal"])


def _anthropic(body: Any) -> list[str]:
    opened: list[str] = []
    wrong: list[str] = []
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        wrong += [f"orphan {each}" for each in answered if each not in opened]
        wrong += [f"open {each}" for each in opened if each not in answered]
        opened = [block["id"] for block in blocks if block["type"] == "tool_use"]
        wrong += [] if message["content"] else ["empty"]
    return wrong + [f"open {each}" for each in opened]


_PAIRING: Mapping[str, Callable[[Any], list[str]]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _anthropic,
}


@dataclass(slots=True)
class Windowed:
    """A model that calls its tool until it has done so often enough, and refuses a prompt above its window."""

    format: str
    turns: int
    window: int
    words: str = "prompt is too long: {} tokens > {} maximum"
    """What it says when it refuses; the numbers are those of the prompt and of the window."""
    at: Callable[[int], None] = lambda _: None
    """Called with the number of each turn that it takes, before its answer."""
    thinking: Thinking | None = None
    sizes: list[int] = field(default_factory=list)
    """Tokens of each prompt that it took."""
    refusals: int = 0

    def __call__(self, body: Any) -> Says:
        """Take a turn."""
        assert [] == defects(self.format, body)
        tokens = size(body)
        if tokens > self.window:
            self.refusals += 1
            return Says(self.words.format(tokens, self.window), status=400)
        if self.thinking is not None and (wrong := self.thinking.wrong(body)):
            return Says(wrong, status=400)
        self.sizes.append(tokens)
        turn, used = len(self.sizes), {"input": tokens, "cached": 0, "output": 10}
        self.at(turn)
        block = () if self.thinking is None else (self.thinking.block(body),)
        if turn > self.turns:
            return Says("I have read it all.", blocks=block, tokens=used)
        return Says(calls=[(f"call-{turn}", "read_log", {"day": turn})], blocks=block, tokens=used)


@dataclass(slots=True)
class Thinking:
    """Signs each block of thinking over what it was produced under, and tells which that is sent back is not valid.

    As platform.claude.com says under "Preserved thinking" (read on 2026-11-22): the prefix is `system`, `tools` and all
    messages before, without thinking and marks of the cache; each block records which one came before it.
    """

    signed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Signature → digest of its prefix, and the block before."""
    sent_back: list[int] = field(default_factory=list)
    """How many blocks each valid prompt held."""

    def wrong(self, body: Any) -> str:
        """What a provider says of the first block that is not valid; empty: all are."""
        before, count = "", 0
        for at, message in enumerate(body["messages"]):
            for place, block in enumerate(message["content"] if isinstance(message["content"], list) else []):
                if block["type"] != "thinking":
                    continue
                if self.signed.get(block["signature"]) != (self._prefix(body, at), before):
                    where = f"messages.{at}.content.{place}"
                    return f"{where}: Invalid `signature` in `thinking` block. {BOUND_ELSEWHERE}"
                before, count = block["signature"], count + 1
        self.sent_back.append(count)
        return ""

    def block(self, body: Any) -> Any:
        """A new block for the answer to a prompt."""
        newest = [
            block["signature"]
            for message in body["messages"]
            for block in (message["content"] if isinstance(message["content"], list) else [])
            if block["type"] == "thinking"
        ]
        signature = f"signature-{len(self.signed)}"
        self.signed[signature] = (self._prefix(body, len(body["messages"])), newest[-1] if newest else "")
        return {"type": "thinking", "thinking": "Let me see.", "signature": signature}

    @staticmethod
    def _prefix(body: Any, messages: int) -> str:
        plain = [
            {**message, "content": [block for block in message["content"] if block["type"] != "thinking"]}
            if isinstance(message["content"], list)
            else message
            for message in body["messages"][:messages]
        ]
        prefix = json.dumps([body.get("system"), body.get("tools"), plain], sort_keys=True)
        return hashlib.sha256(prefix.encode()).hexdigest()
