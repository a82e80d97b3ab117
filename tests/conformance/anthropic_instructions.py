"""Valid histories of Anthropic's messages with system messages in them, as agents send them to models that take these.

There are reminders of one turn, which remain in the history, several in a row, changes of tools and of the effort, the
same text again and again, and instructions after a server tool's result.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.conformance.anthropic_messages_history import history
from tests.conformance.words import prose

Block = dict[str, Any]

MODELS = ("claude-opus-4-8", "claude-opus-5", "claude-opus-5-5", "claude-fable-5-1", "claude-sonnet-5-5")
"""Models that take system messages in the history; the last three bind their thinking to the prompt before it."""
REMINDER = "The task list was not used lately. Consider keeping it current."
TURN_SCOPED = {"clear_at": "next_user_message"}


def instructed(chance: random.Random, iterations: int) -> dict[str, Any]:
    """A request body with so many iterations, and system messages between them."""
    body = history(chance, iterations)
    body["model"] = chance.choice(MODELS)
    if "thinking" in body:
        body["thinking"] = {"type": "adaptive"}
    deferred = {"name": "ticket", "input_schema": {"type": "object"}, "defer_loading": True}
    body["tools"] = [*body["tools"], deferred]
    return body | {"messages": list(between(chance, body["messages"]))}


def between(chance: random.Random, messages: Sequence[Block]) -> Iterator[Block]:
    """The messages with system messages between them."""
    often = chance.choice((0.1, 0.4, 1.0))
    for place, message in enumerate(messages):
        yield message
        last = place + 1 == len(messages)
        if message["role"] != "user" or not (last or messages[place + 1]["role"] == "assistant"):
            continue
        if chance.random() < often:
            yield from instructions(chance)
        if not last and chance.random() < 0.1:
            yield from _paused(chance, place)


def instructions(chance: random.Random) -> Iterator[Block]:
    """One system message, or several in a row."""
    for _ in range(chance.choice((1, 1, 1, 1, 2, 3))):
        yield chance.choice((_reminder, _reminder, _text, _blocks, _tools, _effort))(chance)


def _reminder(chance: random.Random) -> Block:
    return {"role": "system", "content": REMINDER} | chance.choice(({}, TURN_SCOPED))


def _text(chance: random.Random) -> Block:
    return {"role": "system", "content": prose(chance, chance.choice((8, 120)))}


def _blocks(chance: random.Random) -> Block:
    return {"role": "system", "content": [{"type": "text", "text": prose(chance, 12)} for _ in range(2)]}


def _tools(chance: random.Random) -> Block:
    definition = {"name": f"tool_{chance.randrange(9)}", "input_schema": {"type": "object"}}
    tool: Block = {"type": "tool_reference", "name": "ticket"}
    if chance.random() < 0.3:
        tool = {"type": "tool_definition", "definition": definition}
    change = {"type": "tool_addition", "tool": tool}
    if chance.random() < 0.3:
        change = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "ticket"}}
    return {"role": "system", "content": [change, *chance.choice(([], [{"type": "text", "text": prose(chance, 8)}]))]}


def _effort(chance: random.Random) -> Block:
    effort = {"output_config": {"effort": chance.choice(("low", "high"))}}
    return {"role": "system", "content": []} | effort


def _paused(chance: random.Random, place: int) -> Iterator[Block]:
    """A turn of the model that ends in a server tool's result, and an instruction before it goes on."""
    call = {"type": "server_tool_use", "id": f"srvtoolu_p{place}", "name": "web_search", "input": {"query": "x"}}
    found = [{"type": "text", "text": prose(chance, 60)}]
    result = {"type": "web_search_tool_result", "tool_use_id": call["id"], "content": found}
    yield {"role": "assistant", "content": [call, result]}
    yield _text(chance)
