"""LangChain's `ClearToolUsesEdit`, applied to each prompt as its middleware does before each model call.

Options: `trigger`, `keep` and `clear_at_least`, the first and the last as shares of the budget. Tokens are counted with
o200k_base; the count of a message is kept, as a user would who counts exactly.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

from tests.lab.peers.adapters.wire import Ending, Job, Message, Trimmed, chat_lengths, serve

PER_MESSAGE = 4
PER_CALL = 8
"""As the sidecar weighs a message."""


def langchain(job: Job, chat: list[Message], _: Ending) -> Iterator[Trimmed]:
    """Clear old tool results."""
    editing: Any = importlib.import_module("langchain.agents.middleware.context_editing")
    core: Any = importlib.import_module("langchain_core.messages")
    edit = editing.ClearToolUsesEdit(
        trigger=int(job.budget * job.options["trigger"]),
        keep=job.options["keep"],
        clear_at_least=int(job.budget * job.options["clear_at_least"]),
    )
    converted = core.convert_to_messages(chat)
    for place, message in enumerate(converted):
        message.id = str(place)
    count = _counter()
    count(converted)
    for length in chat_lengths(job):
        messages = list(converted[:length])
        start = time.perf_counter()
        edit.apply(messages, count_tokens=count)
        seconds = time.perf_counter() - start
        yield Trimmed([_back(chat[int(message.id)], message) for message in messages], seconds)


def _back(sent: Message, message: Any) -> Message:
    cleared = message.response_metadata.get("context_editing", {}).get("cleared")
    return sent | {"content": message.content} if cleared else sent


def _counter() -> Any:
    encoding: Any = importlib.import_module("tiktoken").get_encoding("o200k_base")
    known: dict[int, tuple[Any, int]] = {}

    def tokens(text: str) -> int:
        return len(encoding.encode_ordinary(text))

    def count(messages: Sequence[Any]) -> int:
        total = 0
        for message in messages:
            entry = known.get(id(message))
            if entry is None or entry[0] is not message:
                entry = known[id(message)] = (message, weigh(message))
            total += entry[1]
        return total

    def weigh(message: Any) -> int:
        calls = getattr(message, "tool_calls", [])
        texts = [str(message.content), *(call["name"] + json.dumps(call["args"]) for call in calls)]
        frames = PER_CALL * (len(calls) + int(message.type == "tool"))
        return PER_MESSAGE + frames + sum(map(tokens, texts))

    return count


if __name__ == "__main__":
    serve(f"langchain {version('langchain')}", langchain)
