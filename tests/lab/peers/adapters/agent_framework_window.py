"""Microsoft Agent Framework's `ContextWindowCompactionStrategy` with its defaults, the budget as context window.

Its decisions live on the message objects. Option `keeps_state`: whether they stay from prompt to prompt, as in an agent
of its own, or the agent sends its history anew. Tokens are counted with o200k_base.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from tests.lab.peers.adapters.wire import Ending, Job, Message, Trimmed, chat_lengths, serve


class Tokenizer:
    """Counts text with o200k_base."""

    def __init__(self) -> None:
        """Load the vocabulary."""
        encoding: Any = importlib.import_module("tiktoken").get_encoding("o200k_base")
        self._count = lru_cache(maxsize=100_000)(lambda text: len(encoding.encode_ordinary(text)))

    def count_tokens(self, text: str) -> int:
        """Return the tokens of a text."""
        return self._count(text)


def agent_framework(job: Job, chat: list[Message], _: Ending) -> Iterator[Trimmed]:
    """Compact each prompt."""
    framework: Any = importlib.import_module("agent_framework")
    tokenizer = Tokenizer()
    strategy = framework.ContextWindowCompactionStrategy(
        max_context_window_tokens=job.budget, max_output_tokens=0, tokenizer=tokenizer
    )
    loop = asyncio.new_event_loop()
    messages: list[Any] = []
    taken = 0
    for upto in chat_lengths(job):
        if not job.options["keeps_state"]:
            messages, taken = [], 0
        messages += [_message(framework, place, chat[place]) for place in range(taken, upto)]
        taken = upto
        start = time.perf_counter()
        work = framework.apply_compaction(messages, strategy=strategy, tokenizer=tokenizer)
        kept = loop.run_until_complete(work)
        yield Trimmed([_back(chat, message) for message in kept], time.perf_counter() - start)


def _message(framework: Any, place: int, sent: Message) -> Any:
    make = framework.Content
    if sent["role"] == "tool":
        contents = [make.from_function_result(sent["tool_call_id"], result=sent["content"])]
    else:
        contents = [make.from_text(sent["content"])] if sent.get("content") else []
        for call in sent.get("tool_calls") or []:
            function = call["function"]
            contents.append(make.from_function_call(call["id"], function["name"], arguments=function["arguments"]))
    return framework.Message(sent["role"], contents, message_id=f"sent-{place}")


def _back(chat: list[Message], message: Any) -> Message:
    known, _, place = (message.message_id or "").partition("-")
    return chat[int(place)] if known == "sent" else {"role": str(message.role), "content": message.text}


if __name__ == "__main__":
    serve(f"agent-framework-core {version('agent-framework-core')}", agent_framework)
