"""Messages that are made to be slow, against an ordinary message of the same size; and the way back from the stash."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from time import perf_counter

import orjson

from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.recall.selection import PatternMatch
from tests.lab.bench.inprocess import runs, timed_trim
from tests.lab.harness.figures import Section, milliseconds, ratio, times
from tests.lab.harness.prompts import CALLER, trim_call
from tests.lab.harness.synthetic import Writer

TARGET = 10.0
SIZE = 4_000_000
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


def _ordinary_tiny(size: int) -> bytes:
    return _result(Writer(7).text(size))


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


def hostile(rounds: int, size: int = SIZE) -> Section:
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
                times(median(factors), None if name == "ordinary" else TARGET),
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
    return cpu, next_cpu, _retrieve(core, answer.trims[0].stash_id if answer.trims else "")


def _retrieve(core: Runs, stash_id: str) -> float:
    if not stash_id:
        return 0.0
    began = perf_counter()
    first = core.retrieve(RetrieveCall(CALLER, RUN_ID, stash_id))
    found = core.retrieve(RetrieveCall(CALLER, RUN_ID, stash_id, PatternMatch("(a|aa)+$", 2, ignore_case=True)))
    took = perf_counter() - began
    assert first.outcome is Outcome.HIT
    assert found.outcome is Outcome.HIT
    return took
