"""A prompt that no cache has seen, against tiktoken's own encoding of the same texts.

Each round has texts of its own, a fresh run and a cold count cache; the tokenizer itself is warm for both. The engine
is also given a limit that makes it trim at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from statistics import median
from time import perf_counter, process_time
from typing import Any

import orjson

from tests.bench.figures import Section, milliseconds, ratio, times
from tests.bench.inprocess import PLENTY, encoding, never, runs
from tests.bench.prompts import Prompts, trim_call
from tests.bench.synthetic import run

TARGET = 1.15
SIZE = 1_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A prompt of `SIZE` bytes in so many iterations."""

    name: str
    iterations: int
    limit: int = PLENTY


SHAPES = (
    Shape("100 iterations of 10 kB", 100),
    Shape("the same, trimmed to 100k tokens", 100, 100_000),
    Shape("1,000 iterations of 1 kB", 1_000),
)


def texts_of(prompts: Prompts) -> list[str]:
    """The texts of a prompt that take tokens: contents, and calls' names and arguments."""
    texts: list[str] = []
    for part in prompts.slices:
        message: dict[str, Any] = orjson.loads(part)
        texts.append(message["content"])
        for call in message.get("tool_calls", ()):
            texts += (call["function"]["name"], call["function"]["arguments"])
    return texts


def unseen(rounds: int) -> Section:
    """Tell what a fresh prompt costs against tiktoken alone."""
    encode = encoding().encode_ordinary
    rows = []
    facts: dict[str, object] = {"rounds": rounds}
    for shape in SHAPES:
        found: dict[str, list[tuple[float, float]]] = {"trim": [], "encode": []}
        for number in range(rounds):
            whole = run(1_000 + number, shape.iterations, SIZE)
            prompts = Prompts(whole.name, whole.format, whole.slices, [len(whole.slices)])
            body, texts, core = next(prompts.bodies()), texts_of(prompts), runs()
            call = trim_call("unseen", prompts.format, body, shape.limit)

            def trim() -> None:
                core.trim(call, never)

            def tiktoken_alone() -> None:
                for text in texts:
                    encode(text)

            contenders: list[tuple[str, Callable[[], None]]] = [("trim", trim), ("encode", tiktoken_alone)]
            for name, work in list(permutations(contenders))[number % 2]:
                cpu, began = process_time(), perf_counter()
                work()
                found[name].append((perf_counter() - began, process_time() - cpu))
        factors = [ratio(ours[1], theirs[1]) for ours, theirs in zip(found["trim"], found["encode"], strict=True)]
        walls = [ratio(ours[0], theirs[0]) for ours, theirs in zip(found["trim"], found["encode"], strict=True)]
        rows.append(
            [
                shape.name,
                *(milliseconds(median(wall for wall, _ in found[name])) for name in ("trim", "encode")),
                times(median(walls)),
                times(median(factors), TARGET),
            ]
        )
        facts[shape.name] = {
            "trim_ms": round(median(wall for wall, _ in found["trim"]) * 1e3, 2),
            "encode_ms": round(median(wall for wall, _ in found["encode"]) * 1e3, 2),
            "ratio_wall": round(median(walls), 3),
            "ratio_cpu": round(median(factors), 3),
        }
    return Section(
        "unseen",
        f"Unseen prompt of {SIZE:,} bytes, cold count cache, medians of {rounds} rounds",
        ["", "Runs.trim, ms", "tiktoken, ms", "ratio of wall time", "ratio of processor time"],
        rows,
        facts,
        ["tiktoken: encode_ordinary of every text of the prompt, nothing else"],
    )
