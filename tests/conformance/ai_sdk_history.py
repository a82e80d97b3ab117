"""Valid histories of the AI SDK's model messages: every kind of part and output, and some that no reader knows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.conformance.case import INVENTED
from tests.conformance.words import picture, prose

Part = dict[str, Any]

_OPTIONS = {"anthropic": {"cacheControl": {"type": "ephemeral"}}}
_SIGNED = {"anthropic": {"signature": "EqQBCkYI" * 20}}


def history(chance: random.Random, iterations: int) -> dict[str, Any]:
    """A request body with so many iterations."""
    body: dict[str, Any] = {"model": "gpt-5", "tools": [{"name": "read", "inputSchema": {"type": "object"}}]}
    return body | {"messages": list(_Maker(chance).messages(iterations))}


class _Maker:
    """Writes messages from one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.made = 0

    def new(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}-{self.made}"

    def messages(self, iterations: int) -> Iterator[Part]:
        chance = self.chance
        if chance.random() < 0.3:
            yield {"role": "system", "content": "You are a careful engineer.", "providerOptions": _OPTIONS}
        yield self.user("Find out why the nightly build fails.")
        for _ in range(iterations):
            message, results = self.answer()
            yield {"role": "assistant", "content": message}
            yield from self.tools(results)
            if not results or chance.random() < 0.15:
                yield self.user(prose(chance, 20))

    def user(self, text: str) -> Part:
        parts: list[Part] = [{"type": "text", "text": text}]
        if self.chance.random() < 0.2:
            parts.append({"type": "image", "image": picture(self.chance), "mediaType": "image/png"})
        if self.chance.random() < 0.2:
            parts.append({"type": "file", "data": picture(self.chance), "mediaType": "application/pdf"})
        if self.chance.random() < 0.2:
            parts.append({"type": INVENTED, "data": prose(self.chance, 8)})
        message: Part = {"role": "user", "content": text if len(parts) == 1 else parts}
        return message | ({"providerOptions": _OPTIONS} if self.chance.random() < 0.1 else {})

    def tools(self, results: list[Part]) -> Iterator[Part]:
        """One tool message, or one for each result; an approval's answer stands in the first."""
        if len(results) > 1 and self.chance.random() < 0.3:
            for result in results:
                yield {"role": "tool", "content": [result]}
        elif results:
            yield {"role": "tool", "content": results}

    def answer(self) -> tuple[str | list[Part], list[Part]]:
        """What the model says in one message, and what answers its calls."""
        chance = self.chance
        parts: list[Part] = []
        if chance.random() < 0.4:
            parts.append({"type": "reasoning", "text": prose(chance, 30), "providerOptions": _SIGNED})
        if chance.random() < 0.6:
            parts.append({"type": "text", "text": prose(chance, chance.choice([8, 60]))})
        if chance.random() < 0.1:
            parts.append({"type": "file", "data": picture(chance), "mediaType": "image/png"})
        if chance.random() < 0.1:
            parts.append({"type": INVENTED, "data": prose(chance, 20)})
        if chance.random() < 0.15:
            call = self.call() | {"providerExecuted": True}
            parts += [call, self.result(call)]
        answers: list[Part] = []
        for _ in range(chance.choice([0, 1, 1, 2, 3])):
            call = self.call()
            parts.append(call)
            if chance.random() < 0.15:
                approval = self.new("approval")
                parts.append(
                    {"type": "tool-approval-request", "approvalId": approval, "toolCallId": call["toolCallId"]}
                )
                approved = chance.random() < 0.5
                answers.append({"type": "tool-approval-response", "approvalId": approval, "approved": approved})
                denied = {"type": "execution-denied", "reason": "Not now."}
                answers.append(self.result(call) | ({} if approved else {"output": denied}))
            else:
                answers.append(self.result(call))
        if not parts:
            return prose(chance, 30), answers
        return parts, answers

    def call(self) -> Part:
        given: Any = {"path": f"src/{self.made}.py", "why": prose(self.chance, self.chance.choice([2, 40])), "line": 4}
        if self.chance.random() < 0.1:
            given = prose(self.chance, 20)
        return {"type": "tool-call", "toolCallId": self.new("call"), "toolName": "read", "input": given}

    def result(self, call: Part) -> Part:
        chance = self.chance
        value: Any = self.text()
        kind = chance.choice(["text", "text", "error-text", "json", "json", "error-json", "content"])
        if kind.endswith("json"):
            value = {"lines": value.splitlines(), "total": 3, "share": 0.5, "next": None}
        elif kind == "content":
            value = [{"type": "text", "text": value}, {"type": "text", "text": self.text()}]
            value.append({"type": "media", "data": picture(chance), "mediaType": "image/png"})
            if chance.random() < 0.3:
                value.append({"type": "file-data", "data": picture(chance), "mediaType": "application/pdf"})
            if chance.random() < 0.3:
                value.append({"type": INVENTED, "data": prose(chance, 8)})
        output = {"type": kind, "value": value}
        return {"type": "tool-result", "toolCallId": call["toolCallId"], "toolName": call["toolName"], "output": output}

    def text(self) -> str:
        return prose(self.chance, self.chance.choice([0, 15, 120, 400]))
