"""Prompts never seen before: what one costs beside tiktoken, and what one costs that is made to be slow.

All that is not counting must not add much, so a fresh prompt of a megabyte takes turns with tiktoken on the same texts.
Messages that are made to be slow are held against an ordinary one of the same size; so is the way back from the stash.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import orjson

from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.recall.selection import PatternMatch
from tests.lab.bench.inprocess import PLENTY, never, runs, timed_trim
from tests.lab.harness.counting import encoding
from tests.lab.harness.figures import Section, milliseconds, ratio, times
from tests.lab.harness.prompts import CALLER, Prompts, Writer, run, trim_call

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


HOSTILE_TARGET = 10.0
HOSTILE_SIZE = 4_000_000
LIMIT = 100_000
RUN_ID = "hostile"
TINY = 99_990
"""Messages of the prompt of tiny ones; limits.run_messages allows a few more."""


def _result(text: str) -> bytes:
    """A prompt whose one tool result is `text`."""
    return _turn('{"path":"a"}', orjson.dumps(text))


def _turn(arguments: str, content: bytes) -> bytes:
    head = orjson.dumps([{"role": "user", "content": "Look."}])[:-1]
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": arguments}}
    asked = orjson.dumps({"role": "assistant", "content": None, "tool_calls": [call]})
    answered = b'{"role":"tool","tool_call_id":"c1","content":' + content + b"}"
    return head + b"," + asked + b"," + answered + b"]"


def _fill(piece: str, size: int) -> str:
    return piece * (size // len(piece.encode()))


def _words(size: int) -> str:
    return Writer(7).text(size).replace("\n", " ")


def _pool(characters: str, size: int) -> str:
    return "".join(random.Random(7).choices(characters, k=size // len(characters[0].encode())))


def _tiny(size: int) -> bytes:
    return (
        b"["
        + b",".join(b'{"role":"user","content":"%d"}' % (number % 10) for number in range(min(TINY, size // 40)))
        + b"]"
    )


_NESTED = 200
"""Levels of nesting; JSON parsers refuse about a thousand."""

MAKERS: Mapping[str, Callable[[int], bytes]] = {
    "one letter": lambda size: _result("a" * size),
    "spaces": lambda size: _result(" " * size),
    "newlines": lambda size: _result("\n" * (size // 2)),
    "tabs and spaces, mixed": lambda size: _result(_pool(" \t", size)),
    "base64": lambda size: _result(base64.b64encode(random.Random(7).randbytes(size * 3 // 4)).decode()),
    "CJK": lambda size: _result(_pool("提示词缓存裁剪原文检索工具結果漢字", size)),
    "emoji": lambda size: _result(_pool("🙂🚀👩🇩✅❌🎉", size)),
    "combining marks": lambda size: _result(_pool("\u0301\u0316\u0334\u0489", size)),
    "one line of words": lambda size: _result(_words(size)),
    "digits": lambda size: _result(_pool("0123456789", size)),
    "punctuation": lambda size: _result(_pool("!?.,;:-_=+*/#~|", size)),
    "quotes and backslashes": lambda size: _result(_pool('"\\', size // 2)),
    "unicode escapes": lambda size: _turn("{}", b'"' + b"\\u6f22" * (size // 6) + b'"'),
    "control characters": lambda size: _result(_pool("\x00\x01\x1b", size // 6)),
    "special tokens' text": lambda size: _result(_fill("<|endoftext|>", size)),
    "nested arrays in arguments": lambda size: _turn(
        "[" + ",".join(["[" * _NESTED + "]" * _NESTED] * (size // (2 * _NESTED + 1))) + "]", b'"done"'
    ),
    "an object of many keys in arguments": lambda size: _turn(
        orjson.dumps({f"{number:x}": number for number in range(size // 17)}).decode(), b'"done"'
    ),
    "arguments of words": lambda size: _turn(orjson.dumps({"content": _words(size)}).decode(), b'"done"'),
    "a user's words": lambda size: orjson.dumps([{"role": "user", "content": _words(size)}]),
    "many tiny messages": _tiny,
}


def bodies(size: int) -> Iterator[tuple[str, bytes]]:
    """Each hostile prompt by name."""
    for name, make in MAKERS.items():
        yield name, make(size)


def hostile(rounds: int, size: int = HOSTILE_SIZE) -> Section:
    """Tell what each costs, fresh, against the ordinary one of its round."""
    plain = _result(Writer(7).text(size))
    rows = []
    facts: dict[str, object] = {"bytes": size, "rounds": rounds}
    for name, body in (("ordinary", plain), *bodies(size)):
        own: list[float] = []
        factors: list[float] = []
        again: list[float] = []
        fetch: list[float] = []
        for _ in range(rounds):
            base = _fresh(plain)
            ours = _fresh(body)
            factors.append(ratio(ours[0], base[0]))
            own.append(ours[0])
            again.append(ours[1])
            fetch.append(ours[2])
        rows.append(
            [
                name,
                f"{len(body):,}",
                milliseconds(median(own)),
                times(median(factors), None if name == "ordinary" else HOSTILE_TARGET),
                milliseconds(median(again)),
                milliseconds(median(fetch)) if median(fetch) else "-",
            ]
        )
        facts[name] = {
            "bytes": len(body),
            "trim_ms": round(median(own) * 1e3, 2),
            "ratio": round(median(factors), 3),
            "again_ms": round(median(again) * 1e3, 3),
            "retrieve_ms": round(median(fetch) * 1e3, 2),
        }
    return Section(
        "hostile",
        f"Hostile prompts of about {size:,} bytes, never seen before, limit {LIMIT:,} tokens; {rounds} rounds",
        ["", "bytes", "Runs.trim, ms", "ratio to ordinary", "sent again, ms", "retrieve, ms"],
        rows,
        facts,
        [
            "times of the trim are processor time; sent again: the same prompt with one message more",
            "retrieve: the first page of the largest original and, in a second call, the lines around a pattern",
        ],
    )


def _fresh(body: bytes) -> tuple[float, float, float]:
    """Seconds of processor time to trim a prompt in a fresh process's state, of the next call, and wall to retrieve."""
    core = runs()
    answer, _, cpu = timed_trim(core, trim_call(RUN_ID, "openai_chat", body, LIMIT))
    longer = body[:-1] + b',{"role":"assistant","content":"I see."},{"role":"user","content":"Go on."}]'
    if answer.iteration and len(core) and body.count(b'{"role":') < TINY:
        _, _, next_cpu = timed_trim(core, trim_call(RUN_ID, "openai_chat", longer, LIMIT))
    else:
        next_cpu = 0.0
    return cpu, next_cpu, _retrieve(core, answer.trimmed.trims[0].stash_id if answer.trimmed.trims else "")


def _retrieve(core: Runs, stash_id: str) -> float:
    if not stash_id:
        return 0.0
    began = perf_counter()
    first = core.recalling.retrieve(RetrieveCall(CALLER, RUN_ID, stash_id))
    found = core.recalling.retrieve(
        RetrieveCall(CALLER, RUN_ID, stash_id, PatternMatch("(a|aa)+$", 2, ignore_case=True))
    )
    took = perf_counter() - began
    assert first.outcome is Outcome.HIT
    assert found.outcome is Outcome.HIT
    return took
