"""Valid histories of OpenAI's responses: every kind of item that the reader knows, and some that it does not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.conformance.case import INVENTED
from tests.conformance.words import picture, prose

Item = dict[str, Any]


def history(chance: random.Random, iterations: int) -> dict[str, Any]:
    """A request body with so many iterations."""
    return {"model": "gpt-5", "input": list(_Maker(chance).items(iterations)), "tools": [_TOOL]}


_TOOL = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {"path": {}}}}


class _Maker:
    """Writes items from one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.made = 0

    def new(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}_{self.made}"

    def items(self, iterations: int) -> Iterator[Item]:
        chance = self.chance
        if chance.random() < 0.5:
            yield {"role": "developer", "content": "You are a careful engineer."}
        yield self.user("Find out why the nightly build fails.", picture=chance.random() < 0.3)
        for _ in range(iterations):
            block, outputs = self.block()
            yield from block
            yield from outputs
            if not outputs or chance.random() < 0.15:
                yield self.user(prose(chance, 20), picture=chance.random() < 0.2)

    def user(self, text: str, *, picture: bool) -> Item:
        if not picture:
            return {"role": "user", "content": text}
        parts: list[Item] = [{"type": "input_text", "text": text}, self.picture()]
        if self.chance.random() < 0.5:
            parts.append({"type": INVENTED, "data": prose(self.chance, 8)})
        return {"type": "message", "role": "user", "content": parts}

    def picture(self) -> Item:
        return {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{picture(self.chance)}"}

    def block(self) -> tuple[list[Item], list[Item]]:
        """What the model says in one answer, and the outputs of its calls."""
        chance = self.chance
        items: list[Item] = []
        if chance.random() < 0.15:
            items.append({"type": "web_search_call", "id": self.new("ws"), "status": "completed"})
        if chance.random() < 0.1:
            items.append({"type": INVENTED, "id": self.new("iv"), "data": prose(chance, 30)})
        if chance.random() < 0.1:
            items.append({"type": "item_reference", "id": self.new("msg")})
        if chance.random() < 0.6:
            items.append(self.message())
        pairs = [self.call() for _ in range(chance.choice([0, 1, 1, 1, 2, 3]))]
        items += [call for call, _ in pairs]
        if not items:
            items.append(self.message())
        if chance.random() < 0.5:
            at = chance.randrange(len(items))
            items.insert(at, self.reasoning())
        return items, [output for _, output in pairs]

    def reasoning(self) -> Item:
        summary = [{"type": "summary_text", "text": prose(self.chance, 12)}]
        item = {"type": "reasoning", "id": self.new("rs"), "summary": summary, "encrypted_content": "gAAAA" * 40}
        return item | {"metadata": {"turn_id": "t1"}} if self.chance.random() < 0.3 else item  # as Codex does

    def message(self) -> Item:
        chance = self.chance
        if chance.random() < 0.3:
            return {"role": "assistant", "content": prose(chance, 30)}
        part: Item = {"type": "output_text", "text": prose(chance, chance.choice([8, 60])), "annotations": []}
        if chance.random() < 0.2:
            cited = {
                "type": "url_citation",
                "start_index": 0,
                "end_index": 4,
                "url": "https://example.com",
                "title": "",
            }
            part["annotations"] = [cited]
        parts = [part, {"type": "refusal", "refusal": "Not that."}] if chance.random() < 0.1 else [part]
        return {
            "type": "message",
            "id": self.new("msg"),
            "role": "assistant",
            "status": "completed",
            "content": parts,
        }

    def call(self) -> tuple[Item, Item]:
        chance = self.chance
        call_id = self.new("call")
        kind = chance.choice(["function"] * 6 + ["custom", "computer", "shell"])
        if kind == "custom":
            call: Item = {"type": "custom_tool_call", "name": "patch", "input": prose(chance, 25)}
            return call | {"call_id": call_id}, {
                "type": "custom_tool_call_output",
                "call_id": call_id,
                "output": self.result(),
            }
        if kind == "computer":
            call = {"type": "computer_call", "id": self.new("cu"), "action": {"type": "screenshot"}}
            call |= {"pending_safety_checks": [], "status": "completed", "call_id": call_id}
            shot = {"type": "computer_screenshot", "image_url": self.picture()["image_url"]}
            return call, {"type": "computer_call_output", "call_id": call_id, "output": shot}
        if kind == "shell":
            call = {"type": "shell_call", "action": {"commands": ["make", "make check"]}, "call_id": call_id}
            ended = {"type": "exit", "exit_code": 0}
            ran = [{"stdout": self.result(), "stderr": "", "outcome": ended} for _ in range(2)]
            return call, {"type": "shell_call_output", "call_id": call_id, "output": ran}
        arguments = {"path": f"src/{call_id}.py", "why": prose(chance, chance.choice([2, 40]))}
        call = {"type": "function_call", "name": "read", "arguments": json.dumps(arguments), "call_id": call_id}
        if chance.random() < 0.5:
            call["id"] = self.new("fc")
        output: object = self.result()
        if chance.random() < 0.2:
            output = [{"type": "input_text", "text": self.result()}, self.picture()]
        return call, {"type": "function_call_output", "call_id": call_id, "output": output}

    def result(self) -> str:
        return prose(self.chance, self.chance.choice([0, 15, 120, 400, 1_000]))
