"""Conversations to replay against a scripted provider: what the agent adds at each turn, and what the model answered.

Recorded ones, and made ones that need no data. A made one has thinking of every kind: empty with a signature, readable,
redacted, several in an answer, none; results from small to large; words of the user now and then.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.conformance import anthropic_instructions
from tests.conformance.converse_thinking import converse
from tests.conformance.words import prose
from tests.oracle import data

ANTHROPIC, GEMINI, RESPONSES = "anthropic_messages", "gemini_contents", "openai_responses"
CONVERSE = "bedrock_converse"
MEMBER = {ANTHROPIC: "messages", CONVERSE: "messages", GEMINI: "contents", RESPONSES: "input"}
"""The member of a body that holds the messages."""
SYSTEM = {ANTHROPIC: "system", CONVERSE: "system", GEMINI: "systemInstruction", RESPONSES: "instructions"}
"""The member that holds the system prompt."""
_FORMATS = {"anthropic": ANTHROPIC, "gemini_contents": GEMINI, "openai_responses": RESPONSES}


@dataclass(frozen=True, slots=True)
class Step:
    """One model call."""

    given: tuple[bytes, ...]
    """Messages that the agent adds before it, as JSON."""
    answer: tuple[bytes, ...]
    """What the model answered; empty at the end of a run that was broken off."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A whole run in one format."""

    name: str
    format: str
    model: str
    """The model that the requests name."""
    steps: Sequence[Step] = field(repr=False)
    head: Mapping[str, Any] = field(default_factory=dict)
    """Other members of each body."""
    system: object = "You are a careful software engineer."

    @property
    def messages(self) -> list[bytes]:
        """All messages, as recorded."""
        return [raw for step in self.steps for raw in (*step.given, *step.answer)]

    def body(self, messages: Sequence[bytes], system: bytes | None = None) -> bytes:
        """A request body; `system` is a system prompt as raw JSON in place of the run's own."""
        members = {**self.head} if self.format == CONVERSE else {"model": self.model, **self.head}
        if self.format == ANTHROPIC:
            members["max_tokens"] = 1_024
        own = self.system
        if self.format == GEMINI:
            own = {"parts": [{"text": self.system}]}
        if self.format == CONVERSE:
            own = [{"text": self.system}]
        raw = dumps(own) if system is None else system
        head = dumps(members)[:-1] + (b',"' if members else b'"') + SYSTEM[self.format].encode() + b'":' + raw
        return head + b',"' + MEMBER[self.format].encode() + b'":[' + b",".join(messages) + b"]}"


def dumps(value: object) -> bytes:
    """Write JSON as Python's clients do, without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def recorded_paths() -> dict[str, Path]:
    """The recorded runs in formats whose providers check reasoning, by name; none where there is no data folder."""
    paths = {path.name.split(".")[0]: path for path in data.present("runs/*.json.gz")}
    return {name: path for name, path in paths.items() if path.name.split(".")[1] in _FORMATS}


def recorded(path: Path, model: str, head: Mapping[str, Any] | None = None) -> Conversation:
    """Load a recorded run, as its requests to `model`."""
    loaded = data.document(path)
    format = _FORMATS[loaded["format"]]
    messages = [dumps(message) for message in loaded["messages"]]
    mine = [of_model(format, message) for message in loaded["messages"]]
    starts = loaded.get("turns") or [place for place, own in enumerate(mine) if own]
    system = loaded.get("instructions") or "You are a careful software engineer."
    steps = tuple(_steps(messages, mine, starts))
    return Conversation(path.name.split(".")[0], format, model, steps, head or {}, system)


def _steps(messages: Sequence[bytes], mine: Sequence[bool], starts: Sequence[int]) -> Iterator[Step]:
    done = 0
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(messages)
        stop = next((place for place in range(start, end) if not mine[place]), end)
        yield Step(tuple(messages[done:start]), tuple(messages[start:stop]))
        done = stop
    if done < len(messages):
        yield Step(tuple(messages[done:]), ())


def of_model(format: str, message: Mapping[str, Any]) -> bool:
    """Whether a message is the model's."""
    if format == RESPONSES:
        kind = str(message.get("type") or "message")
        own = kind == "message" and message.get("role") == "assistant"
        return own or kind == "reasoning" or kind.endswith("_call")
    return message.get("role") in {"assistant", "model"}


def thoughtful(conversation: Conversation, seed: int = 1) -> Conversation:
    """The same Anthropic run with thinking in nearly every answer, as newer models give it.

    They return what they say between tool calls in a thinking block of its own ("progress updates", the provider's page
    on thinking); so text beside a call becomes one. Answers that have thinking stay as they are.
    """
    chance = random.Random(seed)
    steps = [Step(step.given, tuple(_rethought(raw, chance) for raw in step.answer)) for step in conversation.steps]
    return replace(conversation, name=f"{conversation.name}+thinking", steps=tuple(steps))


def instructed(conversation: Conversation, seed: int = 1) -> Conversation:
    """The same Anthropic run with system messages after what the agent adds, for a model that takes them."""
    chance = random.Random(seed)
    steps = []
    for number, step in enumerate(conversation.steps):
        more = anthropic_instructions.instructions(chance) if number == 0 or chance.random() < 0.3 else ()
        steps.append(Step((*step.given, *map(dumps, more)), step.answer))
    model = conversation.model.replace("opus-4-6", "opus-4-8")
    return replace(conversation, name=f"{conversation.name}+instructed", model=model, steps=tuple(steps))


def _rethought(raw: bytes, chance: random.Random) -> bytes:
    message = json.loads(raw)
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if any("thinking" in block["type"] for block in blocks) or chance.random() < 0.1:
        return raw
    calls = any(block["type"] == "tool_use" for block in blocks)
    changed = [_thought(chance)]
    for block in blocks:
        if block["type"] == "text" and calls and chance.random() < 0.5:
            signature = _thought(chance).get("signature", "c2lnbmF0dXJl" * 30)
            changed.append({"type": "thinking", "thinking": block["text"], "signature": signature})
        else:
            changed.append(block)
    if "thinking" in changed[-1]["type"]:
        return raw
    return dumps(message | {"content": changed})


# -- made conversations ----------------------------------------------------------------------------------------------


def made(format: str, model: str, *, seed: int = 1, turns: int = 45, thinking: str = "adaptive") -> Conversation:
    """Make a conversation of so many turns; `thinking` is the mode that Anthropic's bodies ask for."""
    chance = random.Random(seed)
    makers = {ANTHROPIC: _anthropic, CONVERSE: _anthropic, GEMINI: _gemini, RESPONSES: _responses}
    head: dict[str, Any] = {}
    if format == ANTHROPIC:
        head["thinking"] = {"type": thinking} | ({"budget_tokens": 1_024} if thinking == "enabled" else {})
        head["tools"] = [{"name": "read", "input_schema": {"type": "object"}}]
    always = thinking == "enabled"
    steps = tuple(makers[format](chance, turns, always))
    if format == CONVERSE:
        head = {"toolConfig": {"tools": [{"toolSpec": {"name": "read", "inputSchema": {"json": {"type": "object"}}}}]}}
        steps = tuple(Step(*(tuple(map(_conversed, part)) for part in (step.given, step.answer))) for step in steps)
    return Conversation(f"made-{seed}", format, model, steps, head)


def _conversed(raw: bytes) -> bytes:
    return dumps(converse(json.loads(raw)))


def _size(chance: random.Random) -> int:
    """Words of a result: log-normal, as in recorded runs."""
    return min(3_000, int(chance.lognormvariate(4.5, 1.2)) + 3)


def _anthropic(chance: random.Random, turns: int, always: bool) -> Iterator[Step]:
    given: list[Any] = [{"role": "user", "content": "Find out why the nightly build fails, and fix it."}]
    for turn in range(turns):
        blocks: list[Any] = []
        if always or chance.random() < 0.8:
            blocks += [_thought(chance) for _ in range(chance.choice([1, 1, 1, 2]))]
        if chance.random() < 0.4:
            blocks.append({"type": "text", "text": prose(chance, chance.choice([8, 60]))})
        calls = [f"toolu_{turn}_{number}" for number in range(chance.choice([0, 1, 1, 1, 2]))]
        for number, call in enumerate(calls):
            if number == 0 and chance.random() < 0.2:
                blocks.append(_thought(chance))  # an update between what is said and a call
            arguments = {"path": f"src/{turn}.py", "why": prose(chance, chance.choice([2, 80]))}
            blocks.append({"type": "tool_use", "id": call, "name": "read", "input": arguments})
        if not calls:
            blocks.append({"type": "text", "text": prose(chance, 30)})
        answer = {"role": "assistant", "content": blocks}
        yield Step(tuple(map(dumps, given)), (dumps(answer),))
        results = [
            {"type": "tool_result", "tool_use_id": call, "content": prose(chance, _size(chance))} for call in calls
        ]
        texts = [] if calls and chance.random() < 0.95 else [{"type": "text", "text": prose(chance, 12)}]
        given = [{"role": "user", "content": [*results, *texts]}]
    yield Step(tuple(map(dumps, given)), ())


def _thought(chance: random.Random) -> dict[str, Any]:
    signature = "".join(chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=600))
    if chance.random() < 0.1:
        return {"type": "redacted_thinking", "data": signature}
    words = prose(chance, 40) if chance.random() < 0.4 else ""
    return {"type": "thinking", "thinking": words, "signature": signature}


def _gemini(chance: random.Random, turns: int, _: bool) -> Iterator[Step]:
    given: list[Any] = [{"role": "user", "parts": [{"text": "Find out why the nightly build fails, and fix it."}]}]
    for _turn in range(turns):
        parts: list[Any] = []
        if chance.random() < 0.3:
            parts.append({"text": prose(chance, 20), "thought": True})
        if chance.random() < 0.5:
            parts.append({"text": prose(chance, 30)})
        calls = chance.choice([0, 1, 1, 1, 2])
        parts += [
            {"functionCall": {"name": "read", "args": {"path": prose(chance, 1), "why": prose(chance, 40)}}}
            for _call in range(calls)
        ]
        if not parts or (not calls and parts[-1].get("thought")):
            parts.append({"text": prose(chance, 20)})
        yield Step(tuple(map(dumps, given)), (dumps({"role": "model", "parts": parts}),))
        results = [
            {"functionResponse": {"name": "read", "response": {"output": prose(chance, _size(chance))}}}
            for _ in range(calls)
        ]
        given = [{"role": "user", "parts": results or [{"text": prose(chance, 12)}]}]
    yield Step(tuple(map(dumps, given)), ())


def _responses(chance: random.Random, turns: int, always: bool) -> Iterator[Step]:
    def message(role: str, kind: str, words: int) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": prose(chance, words)}]}

    given: list[Any] = [message("user", "input_text", 12)]
    for turn in range(turns):
        items: list[Any] = []
        if always or chance.random() < 0.8:
            items.append({"type": "reasoning", "summary": []})
        if chance.random() < 0.4:
            items.append(message("assistant", "output_text", 30))
        calls = [f"call_{turn}_{number}" for number in range(chance.choice([0, 1, 1, 2]))]
        for call in calls:
            arguments = json.dumps({"path": f"src/{turn}.py", "why": prose(chance, chance.choice([2, 80]))})
            items.append({"type": "function_call", "call_id": call, "name": "read", "arguments": arguments})
        if not items or items[-1]["type"] == "reasoning":
            items.append(message("assistant", "output_text", 20))
        yield Step(tuple(map(dumps, given)), tuple(map(dumps, items)))
        given = [
            {"type": "function_call_output", "call_id": call, "output": prose(chance, _size(chance))} for call in calls
        ] or [message("user", "input_text", 12)]
    yield Step(tuple(map(dumps, given)), ())
