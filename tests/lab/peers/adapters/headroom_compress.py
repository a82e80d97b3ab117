"""headroom's `compress` with its defaults, the budget as `model_limit`, in the run's own format.

What it takes out it may keep in a store of its own, under a hash that its marker names: what of the last prompt's
changed results comes back from there exactly, or is the same JSON in other words, is told as recallable.
"""

from __future__ import annotations

import copy
import importlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

from tests.lab.peers.adapters.chat import OPENAI, to_chat
from tests.lab.peers.adapters.wire import Ending, Job, Message, Trimmed, serve

MODELS = {OPENAI: "gpt-4o", "anthropic_messages": "claude-sonnet-4-5-20250929"}
HASH = re.compile(r"(?:hash=|<<ccr:)([0-9a-fA-F]{6,64})")


def headroom(job: Job, _: list[Message], ending: Ending) -> Iterator[Trimmed]:
    """Compress each prompt."""
    compress: Any = importlib.import_module("headroom").compress
    for length in job.lengths:
        sent = copy.deepcopy(list(job.messages[:length]))
        start = time.perf_counter()
        result = compress(sent, model=MODELS[job.format], model_limit=job.budget)
        seconds = time.perf_counter() - start
        if length == job.lengths[-1]:
            ending.recallable = _recallable(job, length, result.messages)
        yield Trimmed(result.messages, seconds, native=True)


def _recallable(job: Job, length: int, shown: Sequence[Message]) -> float | None:
    before = to_chat(job.format, None, job.messages[:length])
    after = to_chat(job.format, None, shown)
    if len(before) != len(after):
        return None
    changed = [(old["content"], new["content"]) for old, new in zip(before, after, strict=True) if _differs(old, new)]
    whole = sum(len(old) for old, _ in changed)
    return sum(len(old) for old, new in changed if _comes_back(old, new)) / whole if whole else None


def _differs(old: Message, new: Message) -> bool:
    return bool(old["role"] == "tool" and old["content"] != new["content"])


def _comes_back(old: str, new: str) -> bool:
    if _value(old) is not None and _value(old) == _value(new):
        return True
    store: Any = importlib.import_module("headroom.cache.compression_store").get_compression_store()
    entries = [store.retrieve(found) for found in HASH.findall(new)]
    return any(entry is not None and entry.original_content == old for entry in entries)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


if __name__ == "__main__":
    serve(f"headroom-ai {version('headroom-ai')}", headroom)
