"""A prompt that no cache has seen, against tiktoken's own encoding of the same texts.

Each round has texts of its own, a fresh run and a cold count cache; the tokenizer itself is warm for both. The engine
is also given a limit that makes it trim at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import orjson

from tests.lab.bench.inprocess import PLENTY, never, runs
from tests.lab.harness.counting import encoding
from tests.lab.harness.figures import Section, milliseconds, ratio, times
from tests.lab.harness.prompts import Prompts, trim_call
from tests.lab.harness.synthetic import run

TARGET = 1.15
SIZE = 1_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A prompt of `SIZE` bytes in so many iterations."""

    name: str
    iterations: int
    limit: int = PLENTY


SHAPES = (
    Shape("100 x 10 kB", 100),
    Shape("the same, limit 100k", 100, 100_000),
    Shape("1,000 x 1 kB", 1_000),
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


@dataclass(slots=True)
class Found:
    """Seconds of the rounds, wall and processor."""

    ours: list[tuple[float, float]] = field(default_factory=list)
    theirs: list[tuple[float, float]] = field(default_factory=list)

    def ratio(self, which: int) -> float:
        """The median of the rounds' ratios; 0: wall, 1: processor."""
        return median(ratio(one[which], other[which]) for one, other in zip(self.ours, self.theirs, strict=True))


def measure(shape: Shape, rounds: int) -> Found:
    """Let the two take turns on a fresh prompt each round."""
    found = Found()
    for number in range(rounds):
        whole = run(1_000 + number, shape.iterations, SIZE)
        prompts = Prompts(whole.name, whole.format, whole.slices, [len(whole.slices)])
        call = trim_call("unseen", prompts.format, next(prompts.bodies()), shape.limit)
        texts, core = texts_of(prompts), runs()
        if number % 2:
            found.theirs.append(_timed(partial(_encode, texts)))
        found.ours.append(_timed(partial(core.trim, call, never)))
        if not number % 2:
            found.theirs.append(_timed(partial(_encode, texts)))
    return found


def _encode(texts: list[str]) -> None:
    encode = encoding().encode_ordinary
    for text in texts:
        encode(text)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    cpu, began = thread_time(), perf_counter()
    work()
    return perf_counter() - began, thread_time() - cpu


def unseen(rounds: int) -> Section:
    """Tell what a fresh prompt costs against tiktoken alone."""
    rows = []
    facts: dict[str, object] = {"rounds": rounds}
    for shape in SHAPES:
        found = measure(shape, rounds)
        ours, theirs = (min(wall for wall, _ in seconds) for seconds in (found.ours, found.theirs))
        rows.append(
            [
                shape.name,
                milliseconds(ours),
                milliseconds(theirs),
                times(ratio(ours, theirs)),
                times(found.ratio(0)),
                times(found.ratio(1), TARGET),
            ]
        )
        facts[shape.name] = {
            "trim_ms": round(ours * 1e3, 2),
            "encode_ms": round(theirs * 1e3, 2),
            "ratio_of_bests": round(ratio(ours, theirs), 3),
            "ratio_wall": round(found.ratio(0), 3),
            "ratio_cpu": round(found.ratio(1), 3),
        }
    return Section(
        "unseen",
        f"Unseen prompt of {SIZE:,} bytes, cold count cache, {rounds} rounds",
        ["", "Runs.trim, best ms", "tiktoken, best ms", "ratio of bests", "ratio, wall", "ratio, processor"],
        rows,
        facts,
        ["tiktoken: encode_ordinary of every text of the prompt, nothing else; ratios are medians over the rounds"],
    )
