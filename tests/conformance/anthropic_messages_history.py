"""Valid histories of Anthropic's messages: every kind of block that the reader knows, and some that it does not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.conformance.case import INVENTED
from tests.conformance.words import picture, prose

Block = dict[str, Any]
_SERVER = (
    ("server_tool_use", "web_search_tool_result"),
    ("server_tool_use", "bash_code_execution_tool_result"),
    ("mcp_tool_use", "mcp_tool_result"),
)


def history(chance: random.Random, iterations: int) -> dict[str, Any]:
    """A request body with so many iterations."""
    thinks = chance.random() < 0.5
    maker = _Maker(chance, thinks=thinks)
    body: dict[str, Any] = {"model": "claude-sonnet-4-5", "max_tokens": 1_000, "tools": [_TOOL]}
    if thinks:
        body["thinking"] = {"type": "enabled", "budget_tokens": 1_024}
    if chance.random() < 0.7:
        words = "You are a careful engineer."
        body["system"] = chance.choice([words, [{"type": "text", "text": words, "cache_control": _MARK}]])
    return body | {"messages": list(maker.messages(iterations))}


_MARK = {"type": "ephemeral"}
_TOOL = {"name": "read", "input_schema": {"type": "object"}}


class _Maker:
    """Writes messages from one source of chance."""

    def __init__(self, chance: random.Random, *, thinks: bool) -> None:
        self.chance = chance
        self.thinks = thinks
        self.made = 0
        self.marks = 2
        """Cache marks that messages may still have."""
        self.running = ""
        """The id of code that waits for its calls."""

    def new(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}_{self.made}"

    def messages(self, iterations: int) -> Iterator[Block]:
        chance = self.chance
        yield self.user([], "Find out why the nightly build fails.")
        for _ in range(iterations):
            content = self.answer()
            yield {"role": "assistant", "content": content}
            uses = [block for block in content if block["type"] == "tool_use"]
            results = [self.result(use["id"]) for use in uses]
            chance.shuffle(results)
            more = not results or (chance.random() < 0.15 and not self.running)
            if results and more and chance.random() < 0.3:
                yield {"role": "user", "content": results}
                yield self.user([], prose(chance, 20))  # one turn in two messages
            else:
                yield self.user(results, prose(chance, 20) if more else "")

    def user(self, results: list[Block], text: str) -> Block:
        if text and not results and self.chance.random() < 0.3:
            return {"role": "user", "content": text}
        blocks = list(results)
        if text:
            blocks.append({"type": "text", "text": text})
            if self.chance.random() < 0.3:
                blocks.append(self.image())
            if self.chance.random() < 0.2:
                blocks.append({"type": INVENTED, "data": prose(self.chance, 8)})
            if self.chance.random() < 0.2:
                blocks.append({"type": "container_upload", "file_id": "file_1"})
        if self.marks and self.chance.random() < 0.2:
            self.marks -= 1
            blocks[-1] = blocks[-1] | {"cache_control": _MARK}
        return {"role": "user", "content": blocks}

    def image(self) -> Block:
        source = {"type": "base64", "media_type": "image/png", "data": picture(self.chance)}
        return {"type": "image", "source": source}

    def answer(self) -> list[Block]:
        """What the model says in one message: signed thinking first, if it thinks."""
        chance = self.chance
        blocks: list[Block] = []
        if self.thinks:
            blocks.append(chance.choice([self.thought(), {"type": "redacted_thinking", "data": "EmwKAhgB" * 20}]))
        if self.running:  # its calls are answered, so the code ends
            result = {"type": "code_execution_result", "stdout": prose(chance, 60), "stderr": "", "return_code": 0}
            blocks.append({"type": "code_execution_tool_result", "tool_use_id": self.running, "content": result})
            self.running = ""
        if chance.random() < 0.6:
            blocks.append({"type": "text", "text": prose(chance, chance.choice([8, 60]))})
        if chance.random() < 0.2:
            blocks += self.served()
        if chance.random() < 0.1:
            blocks.append({"type": INVENTED, "data": prose(chance, 20)})
        uses = [self.use() for _ in range(chance.choice([0, 1, 1, 2, 3]))]
        if uses and chance.random() < 0.2:
            self.running = self.new("srvtoolu")
            code = {"code": prose(chance, 30)}
            blocks.append({"type": "server_tool_use", "id": self.running, "name": "code_execution", "input": code})
            caller = {"type": "code_execution_20250825", "tool_id": self.running}
            uses = [use | {"caller": caller} for use in uses]
        if self.thinks and uses and chance.random() < 0.3:
            blocks.append(self.thought())  # between what it says and its calls
        blocks += uses
        return (
            blocks if blocks and "thinking" not in blocks[-1]["type"] else [*blocks, {"type": "text", "text": "Done."}]
        )

    def thought(self) -> Block:
        return {"type": "thinking", "thinking": prose(self.chance, 40), "signature": "EqQBCkYI" * 20}

    def served(self) -> list[Block]:
        """A tool that the provider ran."""
        asked, got = self.chance.choice(_SERVER)
        call_id = self.new("srvtoolu")
        call = {"type": asked, "id": call_id, "name": "search", "input": {"query": prose(self.chance, 5)}}
        content = [{"type": "text", "text": prose(self.chance, 60)}]
        return [call, {"type": got, "tool_use_id": call_id, "content": content}]

    def use(self) -> Block:
        given = {"path": f"src/{self.made}.py", "why": prose(self.chance, self.chance.choice([2, 40]))}
        return {"type": "tool_use", "id": self.new("toolu"), "name": "read", "input": given}

    def result(self, call_id: str) -> Block:
        chance = self.chance
        block: Block = {"type": "tool_result", "tool_use_id": call_id}
        kind = chance.random()
        if kind < 0.1:
            return block
        if kind < 0.2:
            return block | {"content": self.text() or "Error.", "is_error": True}
        if kind < 0.5:
            return block | {"content": self.text()}
        parts: list[Block] = [{"type": "text", "text": self.text() or "ok"}]
        if chance.random() < 0.4:
            parts.append(self.image())
        if chance.random() < 0.2:
            plain = {"type": "text", "media_type": "text/plain", "data": self.text() or "a page"}
            parts.append({"type": "document", "title": "log", "source": plain})
        if chance.random() < 0.2:
            found = [{"type": "text", "text": self.text() or "a passage"}]
            parts.append({"type": "search_result", "source": "https://example.com", "title": "t", "content": found})
        if chance.random() < 0.1:
            parts.append({"type": INVENTED, "data": prose(chance, 8)})
        if self.marks and chance.random() < 0.1:
            self.marks -= 1
            parts[-1] = parts[-1] | {"cache_control": _MARK}
        return block | {"content": parts}

    def text(self) -> str:
        return prose(self.chance, self.chance.choice([0, 15, 120, 400]))
