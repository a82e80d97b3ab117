"""What others wait at the HTTP door next to heavy requests and hostile providers.

Five processes: the sidecar, two providers, the heavy client, and this one, which is the other client. Its requests go
to a provider of their own (OpenAI's address), the heavy ones to a hostile provider (Anthropic's), so that none waits
for a provider that is busy with another. In turns with its requests it sends the same straight to its provider: what
these wait is the machine's load, not the sidecar's doing. `python -m tests.lab.bench.http_denial` is the hostile
provider, `... send` the heavy client.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import web

from prompt_sidecar.facts.tool_calls import RECALL
from tests.lab.bench.heavy_texts import EXPRESSION, quoting, searched, with_emoji
from tests.lab.bench.http import Client, serve
from tests.lab.bench.others import Others
from tests.lab.bench.servers import real
from tests.lab.harness.figures import milliseconds
from tests.lab.harness.prompts import run
from tests.lab.harness.servers import Server, environment

ANSWER: Final = "x-bench-answer"
"""Header of a request that says what the hostile provider should do."""
PATTERN: Final = "pattern"
WHOLE: Final = "whole"
DRIPS: Final = "drips"
HUGE: Final = "huge"
COMMENTS: Final = "comments"
ENDLESS: Final = "endless"
HELD: Final = "held"

PATTERNS_A_TURN: Final = 4
DRIP_SECONDS: Final = 0.005
HUGE_BYTES: Final = 30_000_000
HELD_SECONDS: Final = 1.0
LIMIT: Final = 20_000
PATIENCE: Final = 60


def _result(text: str) -> list[dict[str, Any]]:
    use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": text}
    return [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]


def _tiny(size: float) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"{number % 10}"} for number in range(int(99_990 * size))]


def _short(_: float) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "Look."}]


@dataclass(frozen=True, slots=True)
class Load:
    """What the heavy client sends, and what the hostile provider does about it."""

    callers: int
    messages: Callable[[float], list[dict[str, Any]]]
    answer: str
    shrinks: bool = False
    """Whether there are fewer callers at a smaller size."""
    begins: float = 3.0
    """Seconds after which it counts as begun, or before that when each caller has got something."""
    patience: float = 20.0
    """Seconds after which a caller gives a request up."""


LOADS: Final[Mapping[str, Load]] = {
    "16 callers' costliest pattern": Load(16, lambda size: _result(searched(size)), PATTERN),
    "a result of 30 MB that quotes JSON": Load(4, lambda size: _result(quoting(30 * size)), WHOLE),
    "a result of 10 MB with an emoji": Load(4, lambda size: _result(with_emoji(10 * size)), WHOLE),
    "100,000 tiny messages": Load(4, _tiny, WHOLE),
    "a provider that drips, byte by byte": Load(16, _short, DRIPS),
    "a provider that sends events of 30 MB": Load(4, _short, HUGE),
    "a provider that sends comments without end": Load(4, _short, COMMENTS),
    "a provider that sends one event without end": Load(4, _short, ENDLESS),
    "2,000 streams, as they begin": Load(2_000, _short, HELD, shrinks=True, begins=0.5, patience=300.0),
    "2,000 streams": Load(2_000, _short, HELD, shrinks=True, begins=60.0, patience=300.0),
}

_START: Final = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
    b'"model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
)


def _delta(text: bytes) -> bytes:
    delta = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"' + text + b'"}}'
    return b"event: content_block_delta\ndata: " + delta + b"\n\n"


def _message_answer(content: list[dict[str, Any]], stop: str) -> web.Response:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    return web.json_response(message | {"stop_reason": stop, "usage": usage})


_calls = count()


def _search_again(body: bytes) -> web.Response:
    """Call the sidecar's own tool, for as long as it may be called."""
    found = re.search(rb"id=([a-z0-9]{10})\b", body)
    if found is None or b'"type":"none"' in body:
        return _message_answer([{"type": "text", "text": "Done."}], "end_turn")
    given = {"id": found[1].decode(), "pattern": EXPRESSION}
    uses = [
        {"type": "tool_use", "id": f"toolu_{next(_calls)}", "name": RECALL, "input": given}
        for _ in range(PATTERNS_A_TURN)
    ]
    return _message_answer(uses, "tool_use")


def pieces(answer: str, size: float) -> Iterator[tuple[bytes, float]]:
    """What a hostile stream consists of, with the pause behind each piece."""
    while answer == DRIPS:
        for byte in _delta(b"some words "):
            yield bytes([byte]), DRIP_SECONDS
    while answer == HELD:
        yield _delta(b"some words "), HELD_SECONDS
    while answer == HUGE:
        yield _delta(b"a" * int(HUGE_BYTES * size)), 0.0
    comments = b": still there\n\n" * 4_000
    while answer == COMMENTS:
        yield comments, 0.0
    lines = b"data: more\n" * 5_000
    while answer == ENDLESS:
        yield lines, 0.0


async def _answer(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    answer, _, size = request.headers[ANSWER].partition(" ")
    if answer == PATTERN:
        return _search_again(body)
    if answer == WHOLE:
        return _message_answer([{"type": "text", "text": "Done."}], "end_turn")
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(_START)
    for piece, pause in pieces(answer, float(size)):
        await response.write(piece)
        await asyncio.sleep(pause)
    return response


async def keep_sending(url: str, name: str, size: float) -> None:
    """Send heavy requests until stdin ends; a line on stdout says that they have begun, the last what came of them."""
    load, outcomes = LOADS[name], Counter[str]()
    callers = int(load.callers * size) if load.shrinks else load.callers
    began = [asyncio.Event() for _ in range(callers)]
    body = orjson.dumps(
        {
            "model": "m",
            "max_tokens": 100,
            "stream": load.answer not in {PATTERN, WHOLE},
            "tools": [{"name": "read", "input_schema": {"type": "object"}}],
            "messages": load.messages(size),
        }
    )

    async def one(session: aiohttp.ClientSession, caller: int) -> None:
        for number in count():
            headers = {ANSWER: f"{load.answer} {size}", "x-api-key": "heavy", "content-type": "application/json"}
            headers["x-prompt-sidecar-run"] = f"heavy-{caller}-{number % 8}"
            headers["x-prompt-sidecar-context-window"] = "100000"
            outcome = "left"
            with suppress(TimeoutError):
                try:
                    async with session.post(f"{url}/v1/messages", data=body, headers=headers) as answer:
                        outcome = f"{answer.status}"
                        began[caller].set()
                        async for _ in answer.content.iter_any():
                            pass
                except aiohttp.ClientError:
                    outcome += " cut"
            outcomes[outcome] += 1
            began[caller].set()

    patience = aiohttp.ClientTimeout(total=load.patience)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=patience) as session:
        tasks = [asyncio.create_task(one(session, caller)) for caller in range(callers)]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(each.wait() for each in began)), load.begins)
        print(sum(each.is_set() for each in began), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(", ".join(f"{outcome} {number}x" for outcome, number in sorted(outcomes.items())), flush=True)


@dataclass(frozen=True, slots=True)
class Row:
    """What was found next to one load."""

    name: str
    begun: int
    """Callers whose first request was answered, or given up, before the measure began."""
    outcome: str
    """Of the heavy requests that ended."""
    others: Others
    straight: Others
    """The other client's requests straight to its provider."""

    @property
    def direct(self) -> str:
        """What the machine's load adds to a request without the sidecar, as a cell."""
        added = self.straight.added
        return f"{'-' if added < 0 else '+'}{milliseconds(abs(added))}"

    def facts(self) -> Mapping[str, object]:
        """For the JSON file."""
        return {
            "begun": self.begun,
            "outcome": self.outcome,
            **self.others.facts(),
            "straight_to_the_provider": self.straight.facts(),
        }


def by_http(size: float, calls: int) -> Iterator[Row]:
    """Measure each load, at `size` times what its name says, with so many requests of the other client."""
    for name in LOADS:
        yield measure(name, size, calls)


def measure(name: str, size: float, calls: int) -> Row:
    """What another client waits next to one load."""
    bodies = [b'{"model":"m",' + body[1:] for body in run(5, 40, 100_000).bodies()]
    with ExitStack() as stack:

        def provider(module: str) -> str:
            return stack.enter_context(Server("-m", module, variables=environment({}))).address

        own, hostile = provider("tests.lab.bench.http"), provider("tests.lab.bench.http_denial")
        settings = {
            "HTTP__LISTEN": "127.0.0.1:0",
            "HTTP__OPENAI_UPSTREAM": f"http://{own}",
            "HTTP__ANTHROPIC_UPSTREAM": f"http://{hostile}",
            "HTTP__CALLER_BY": "credential",
            "HTTP__MAX_REQUESTS": "4000",
            "SERVER__MAX_CONNECTIONS": "5000",
        }
        address = stack.enter_context(real(listen="", **settings)).address.removeprefix("http://")
        through, straight = Client(address), Client(own)

        def send(run_id: str) -> tuple[list[float], list[float]]:
            times: tuple[list[float], list[float]] = ([], [])
            for number in range(calls):
                body, named = bodies[number % len(bodies)], f"{run_id}-{number // len(bodies)}"
                for client, into in zip((through, straight), times, strict=True):
                    into.append(client.post(body, LIMIT, named)[1])
            return times

        send("warm")
        quiet = send("quiet")
        command = [sys.executable, "-m", "tests.lab.bench.http_denial", "send", f"http://{address}", name, str(size)]
        pipe = subprocess.PIPE
        heavy = subprocess.Popen(command, env=environment({}), stdin=pipe, stdout=pipe)
        stack.callback(_end, heavy)
        assert heavy.stdout is not None
        begun = int(heavy.stdout.readline() or 0)
        under = send("under")
        output, _ = heavy.communicate(timeout=PATIENCE)
        both = [Others(one, other) for one, other in zip(quiet, under, strict=True)]
        return Row(name, begun, output.decode().strip() or "going on", *both)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(PATIENCE)


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"]:
        asyncio.run(keep_sending(sys.argv[2], sys.argv[3], float(sys.argv[4])))
    else:
        asyncio.run(serve(_answer, 2_048))
