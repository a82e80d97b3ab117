"""Valid histories of OpenAI's chat: every kind of part and call that the reader knows, and some that it does not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.conformance.case import INVENTED
from tests.conformance.words import picture, prose

Message = dict[str, Any]

MODELS = ("gpt-5", "gpt-5", "gpt-4o-audio-preview", "mistral-large-latest")


def history(chance: random.Random, iterations: int) -> dict[str, Any]:
    """A request body with so many iterations."""
    maker = _Maker(chance, chance.choice(MODELS))
    return {"model": maker.model, "messages": list(maker.messages(iterations)), "tools": [_TOOL]}


_TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


class _Maker:
    """Writes messages from one source of chance."""

    def __init__(self, chance: random.Random, model: str) -> None:
        self.chance = chance
        self.model = model
        self.made = 0
        self.strict = model.startswith("mistral")
        """Whether system messages stand first only, and calls are plain."""

    def messages(self, iterations: int) -> Iterator[Message]:
        chance = self.chance
        if chance.random() < 0.7:
            role = "system" if self.strict or chance.random() < 0.6 else "developer"
            yield {"role": role, "content": "You are a careful engineer."}
        yield self.user("Find out why the nightly build fails.")
        for _ in range(iterations):
            answers = self.answers()
            yield from answers
            if len(answers) == 1 or chance.random() < 0.15:
                yield self.user(prose(chance, 20))
                if not self.strict and chance.random() < 0.2:
                    yield {"role": "system", "content": "The user is in a hurry."}

    def user(self, text: str) -> Message:
        parts: list[Message] = [{"type": "text", "text": text}]
        if self.chance.random() < 0.3:
            parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture(self.chance)}"}})
        if self.chance.random() < 0.2:
            parts.append({"type": INVENTED, "data": prose(self.chance, 8)})
        if self.chance.random() < 0.2:
            parts.append({"type": "file", "file": {"file_id": "file-1"}})
        if "audio" in self.model and self.chance.random() < 0.3:
            parts.append({"type": "input_audio", "input_audio": {"data": picture(self.chance), "format": "wav"}})
        return {"role": "user", "content": text if len(parts) == 1 else parts}

    def answers(self) -> list[Message]:
        """What the model says in one answer, and what its calls got."""
        chance = self.chance
        message: Message = {"role": "assistant", "content": None}
        if chance.random() < 0.2:
            message["reasoning_content"] = prose(chance, 40)
        if chance.random() < 0.1:
            message["reasoning_details"] = [{"type": "reasoning.encrypted", "data": "gAAAA" * 40, "index": 0}]
        if chance.random() < 0.1:
            message["x_new"] = {"type": INVENTED, "data": prose(chance, 20)}
        text = prose(chance, chance.choice([8, 60]))
        kind = chance.random()
        if not self.strict and kind < 0.1:
            call = {"name": "read", "arguments": json.dumps({"path": prose(chance, 20)})}
            result = {"role": "function", "name": "read", "content": self.result()}
            return [message | {"content": chance.choice([None, text]), "function_call": call}, result]
        if kind < 0.2:
            return [
                message | {"content": [{"type": "text", "text": text}, {"type": "refusal", "refusal": "Not that."}]}
            ]
        if kind < 0.3:
            return [message | {"content": text}]
        calls = [self.call() for _ in range(chance.choice([1, 1, 2, 3]))]
        answers = [self.answer(call["id"]) for call in calls]
        chance.shuffle(answers)
        content: Any = chance.choice([None, text, "", [{"type": "text", "text": text}]])
        return [message | {"content": content, "tool_calls": calls}, *answers]

    def call(self) -> Message:
        self.made += 1
        call_id = f"call_{self.made % 40}"  # used again in long runs, as some providers do
        if not self.strict and self.chance.random() < 0.2:
            return {"id": call_id, "type": "custom", "custom": {"name": "patch", "input": prose(self.chance, 30)}}
        arguments = {"path": f"src/{self.made}.py", "why": prose(self.chance, self.chance.choice([2, 40]))}
        return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": json.dumps(arguments)}}

    def answer(self, call_id: str) -> Message:
        content: Any = self.result()
        if self.chance.random() < 0.2:
            content = [{"type": "text", "text": content}, {"type": "text", "text": self.result()}]
        return {"role": "tool", "tool_call_id": call_id, "content": content}

    def result(self) -> str:
        return prose(self.chance, self.chance.choice([0, 15, 120, 400]))
