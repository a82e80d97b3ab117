"""A provider that pairs reasoning items with what was produced after them, as OpenAI's Responses does.

The rules are those of the texts of its refusals, which issues of SDKs and agents quote (read in November 2026:
openai/openai-node 1567, vercel/ai 7099, continuedev/continue 8933, 11466 and 12620), and of the guide on reasoning
("we recommend you include all reasoning items between the latest function call and the previous user message"):

- "Item 'fc_…' of type 'function_call' was provided without its required 'reasoning' item: 'rs_…'": an item that carries
  an id is known by it, and with it the reasoning that it was produced after.
- "Item 'rs_…' of type 'reasoning' was provided without its required following item."
- An item without an id is not known again and needs nothing: with `store` off and no ids reasoning may be absent.
- With `store` off a reasoning item must carry its `encrypted_content`, unaltered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from tests.conformance.providers import Cause, Refusal, Reply

_PREFIXES = {"reasoning": "rs", "message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
LENGTH = 1_200
"""Characters of encrypted content, about as long as real ones."""


@dataclass(frozen=True, slots=True)
class Produced:
    """An item that this provider has produced."""

    reasoning: str
    """Id of the reasoning that it came after in its answer; empty: none."""
    follows: bool
    """Whether it came right after that."""


class ReasoningItems:
    """A provider of one conversation. It remembers what it has produced."""

    def __init__(self, *, ids: bool = True) -> None:
        """`ids`: whether the agent sends items back with their ids; without them it has to turn `store` off."""
        self._ids = ids
        self._items: dict[str, Produced] = {}
        self._content: set[str] = set()

    def ask(self, body: bytes, recorded: Sequence[bytes]) -> Reply:
        """Judge a request and answer it with the recorded items."""
        request = orjson.loads(body)
        items = request["input"] if isinstance(request["input"], list) else []
        refusals = [*self._pairs(items), *self._encrypted(items, stored=request.get("store", True))]
        carried = sum(item.get("type") == "reasoning" for item in items)
        before = len(self._content)
        answer = self._produce(recorded)
        return Reply(refusals, answer, carried=carried, given=len(self._content) - before)

    def _pairs(self, items: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
        group = ""
        """Id of the reasoning whose items stand here."""
        for place, item in enumerate(items):
            found = str(item.get("id") or "")
            if item.get("type") == "reasoning":
                group = found
                after = items[place + 1] if place + 1 < len(items) else {}
                if not self._goes_on(found, after):
                    yield Refusal(Cause.PAIRING, f"input.{place}", "reasoning without its required following item")
                continue
            produced = self._items.get(found)
            if produced is not None and produced.reasoning and produced.reasoning != group:
                kind = item.get("type", "message")
                yield Refusal(Cause.PAIRING, f"input.{place}", f"{kind} without its required reasoning item")
            if not _of_model(item):
                group = ""

    def _goes_on(self, reasoning: str, after: Mapping[str, Any]) -> bool:
        """Whether the item that follows a reasoning item may."""
        if not after or not _of_model(after):
            return False
        if not reasoning or after.get("type") == "reasoning":
            return True
        produced = self._items.get(str(after.get("id") or ""))
        return produced is None or (produced.reasoning == reasoning and produced.follows)

    def _encrypted(self, items: Sequence[Mapping[str, Any]], *, stored: bool) -> Iterator[Refusal]:
        for place, item in enumerate(items):
            if item.get("type") != "reasoning":
                continue
            content = item.get("encrypted_content")
            if content is not None and content not in self._content:
                yield Refusal(Cause.FORGED, f"input.{place}", "the encrypted content could not be verified")
            elif content is None and not stored:
                yield Refusal(Cause.FORGED, f"input.{place}", "reasoning that was not stored, without its content")

    def _produce(self, recorded: Sequence[bytes]) -> list[bytes]:
        produced = []
        reasoning, last = "", ""
        for raw in recorded:
            item = orjson.loads(raw)
            kind = item.get("type", "message")
            made = dict(item)
            name = f"{_PREFIXES.get(kind, 'item')}_{len(self._items):06}"
            if kind == "reasoning":
                content = blake2b(raw + name.encode()).hexdigest() * (LENGTH // 128 + 1)
                made["encrypted_content"] = content[:LENGTH]
                self._content.add(content[:LENGTH])
                self._items[name] = Produced(reasoning if last == "reasoning" else "", follows=last == "reasoning")
                reasoning = name
            else:
                self._items[name] = Produced(reasoning, follows=last == "reasoning")
            last = kind
            if self._ids:
                made = {"id": name, **made}
            produced.append(orjson.dumps(made))
        return produced


def _of_model(item: Mapping[str, Any]) -> bool:
    """Whether the model makes such an item."""
    kind = str(item.get("type") or "message")
    return (kind == "message" and item.get("role") == "assistant") or kind == "reasoning" or kind.endswith("_call")
