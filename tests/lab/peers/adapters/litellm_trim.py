"""LiteLLM's `trim_messages`, with the budget as `max_tokens`.

It counts the whole prompt anew for each message that it adds, which takes seconds a prompt. So its counter is replaced
by one that remembers the count of each message: the figure is a sum over messages plus a constant, so that nothing else
changes. The time told is that of its own counter on the middle prompt, where both must agree.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from tests.lab.peers.adapters.wire import Ending, Job, Message, Trimmed, chat_lengths, serve

MODEL = "gpt-4o"
"""Counted with o200k_base."""


def litellm(job: Job, chat: list[Message], ending: Ending) -> Iterator[Trimmed]:
    """Trim to the budget."""
    utils: Any = importlib.import_module("litellm.utils")
    own = utils.token_counter
    ours = Remembering(own)
    lengths = chat_lengths(job)
    middle = lengths[len(lengths) // 2]
    for length in lengths:
        utils.token_counter = ours
        ours.forget()
        start = time.perf_counter()
        trimmed = utils.trim_messages(chat[:length], model=MODEL, max_tokens=job.budget)
        seconds = time.perf_counter() - start
        if length == middle:
            utils.token_counter = own
            start = time.perf_counter()
            again = utils.trim_messages(chat[:length], model=MODEL, max_tokens=job.budget)
            ending.seconds.append(time.perf_counter() - start)
            if json.dumps(again) != json.dumps(trimmed):
                raise RuntimeError("with remembered counts it trims otherwise")
        yield Trimmed(trimmed, seconds)
    ending.remark = "time of the middle prompt, the others being counted faster"


class Remembering:
    """Counts as LiteLLM's own counter does, each message once."""

    def __init__(self, own: Any) -> None:
        """Take its own counter."""
        self._own = own
        self._constant = own(model=MODEL, messages=[])
        self._by_text: dict[tuple[Any, ...], int] = {}
        self._by_object: dict[int, int] = {}

    def forget(self) -> None:
        """Begin a prompt: objects of the last one are gone, and others may have their place."""
        self._by_object.clear()

    def __call__(self, model: str = MODEL, messages: Any = None, **more: Any) -> int:
        """Count."""
        if more or messages is None:
            return int(self._own(model=model, messages=messages, **more))
        # It shortens a message in place, and then counts it alone, first or last.
        for message in (*messages[:1], *messages[-1:]):
            self._by_object[id(message)] = self._weigh(message)
        try:
            return int(self._constant + sum(map(self._by_object.__getitem__, map(id, messages))))
        except KeyError:
            self._by_object |= {id(message): self._weigh(message) for message in messages}
            return self(model, messages)

    def _weigh(self, message: Message) -> int:
        calls = tuple(call["function"]["arguments"] for call in message.get("tool_calls") or ())
        key = (*(message.get(name) for name in ("role", "content", "tool_call_id", "name")), calls)
        if key not in self._by_text:
            self._by_text[key] = self._own(model=MODEL, messages=[message]) - self._constant
        return self._by_text[key]


if __name__ == "__main__":
    serve(f"litellm {version('litellm')}", litellm)
