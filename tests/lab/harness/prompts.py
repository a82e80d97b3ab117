"""A run as the prompts that an agent sends, its whole history again at each call: recorded runs, and synthetic ones.

Synthetic text looks like what coding agents send: code, logs, listings, diffs, JSON. The same seed gives the same bytes
on every machine, and another seed gives text that no cache has seen. Sizes of results are log-normal, as in recorded
runs; a run is grown to the bytes that are asked for.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson

from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.tokens.count import CACHE_FROM_CHARS
from prompt_sidecar.v1 import trim_pb2
from tests.lab.harness.figures import in_turns
from tests.oracle.runs import turns

FORMATS = {
    "openai_chat": trim_pb2.FORMAT_OPENAI_CHAT,
    "anthropic_messages": trim_pb2.FORMAT_ANTHROPIC_MESSAGES,
}
_SPELLINGS = {"anthropic": "anthropic_messages"}
_HEADS = {
    "openai_chat": b'{"stream":true,"messages":[',
    "anthropic_messages": b'{"max_tokens":1024,"system":"You are a careful engineer.","messages":[',
}
ACCEPT_BYTES = 64 * 1024 * 1024
"""What the bench can receive: as much as the server sends, so that no answer is weighed for being too large."""
Call = Callable[[str, bytes], bytes]
Raced = dict[str, list[list[float]]]
CALLER = "local"
"""The caller whom a server on loopback sees."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """A run's messages, and how many of them each call sends."""

    name: str
    format: str
    slices: Sequence[bytes]
    lengths: Sequence[int]

    def bodies(self) -> Iterator[bytes]:
        """The request body of each call, in order. Bytes of its own each, as a server receives them."""
        body = bytearray(_HEADS[self.format])
        at = 0
        for length in self.lengths:
            for part in self.slices[at:length]:
                body += part
                body += b","
            at = length
            yield bytes(memoryview(body)[:-1]) + b"]}"

    def salted(self, number: int) -> Prompts:
        """The same run in size, but with long texts that no count cache has seen under another number."""
        slices = [orjson.dumps(_salt(orjson.loads(part), f"{number:04}")) for part in self.slices]
        return replace(self, slices=slices)

    @property
    def size(self) -> int:
        """Bytes of the last body."""
        return len(_HEADS[self.format]) + sum(len(part) + 1 for part in self.slices[: self.lengths[-1]]) + 1

    def __len__(self) -> int:
        """Calls."""
        return len(self.lengths)


def leaves(value: object) -> Iterator[str]:
    """The strings of a JSON value, keys not included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, Mapping)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(inner)


def _salt(value: Any, salt: str) -> Any:
    """The value with the first characters of its long texts replaced; arguments excepted, which are JSON."""
    if isinstance(value, dict):
        return {name: member if name == "arguments" else _salt(member, salt) for name, member in value.items()}
    if isinstance(value, list):
        return [_salt(member, salt) for member in value]
    return salt + value[len(salt) :] if isinstance(value, str) and len(value) >= CACHE_FROM_CHARS else value


def prompts_of(name: str, format: str, slices: Sequence[bytes]) -> Prompts:
    """The prompts of a run: before each assistant message what stands before it, at the end everything."""
    return Prompts(name, format, slices, turns([orjson.loads(part) for part in slices]))


def recorded(path: Path) -> Prompts:
    """A recorded run: a file that holds {"format", "messages"}, gzipped or not.

    Raises:
        ValueError: the file holds something else.
    """
    content = path.read_bytes()
    loaded: Any = orjson.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    if not isinstance(loaded, dict) or not isinstance(loaded.get("messages"), list) or not loaded["messages"]:
        raise ValueError(f'{path} does not hold {{"format": ..., "messages": [...]}}')
    format = _SPELLINGS.get(loaded.get("format", ""), loaded.get("format", ""))
    if format not in FORMATS:
        raise ValueError(f"{path} has the format {format!r}; it may be one of {', '.join(FORMATS)}")
    return prompts_of(path.name.split(".")[0], format, [orjson.dumps(message) for message in loaded["messages"]])


def raced(ways: Mapping[str, Callable[[bytes], object]], prompts: Prompts, rounds: int, call: Call) -> Raced:
    """Send a run each way, `rounds` times after one that warms up; at each call the ways take turns.

    Every round is a fresh run, and its texts are new. `call` makes what is sent, of a run's id and a body. Returns for
    each way the seconds of each call, by round.
    """
    found: Raced = {name: [] for name in ways}
    for number in range(rounds + 1):
        took: dict[str, list[float]] = {name: [] for name in ways}
        for index, body in enumerate(prompts.salted(number).bodies()):
            sent = call(f"{number:04}", body)
            for name in in_turns(list(ways), index + number):
                began = perf_counter()
                ways[name](sent)
                took[name].append(perf_counter() - began)
        for name, seconds in took.items() if number else ():
            found[name].append(seconds)
    return found


def trim_call(run_id: str, format: str, body: bytes, limit: int) -> TrimCall:
    """A prompt as the core gets it; `limit` is tokens."""
    return TrimCall(
        caller=CALLER,
        run_id=run_id,
        format=format,
        body=body,
        context_window=limit,
        output_reserve=0,
        preset="cache_first",
        accept_bytes=ACCEPT_BYTES,
    )


def asked(run_id: str, format: str, body: bytes, limit: int = 0, **more: Any) -> trim_pb2.TrimPromptRequest:
    """A prompt as an agent sends it: without a reserve, unless it names one; limit 0: what is known of the model."""
    sent = trim_pb2.JsonPrompt(format=trim_pb2.Format.Value(f"FORMAT_{format.upper()}"), body=body)
    window = {"context_window": limit, "output_reserve": 0} if limit else {}
    return trim_pb2.TrimPromptRequest(run_id=run_id, json=sent, **window | more)


def request(run_id: str, format: str, body: bytes, limit: int) -> bytes:
    """The same prompt as it goes over the wire."""
    return asked(run_id, format, body, limit, accept_bytes=ACCEPT_BYTES).SerializeToString()


SPREAD = 0.8
"""Standard deviation of the logarithm of a result's size: recorded runs have 0.7 to 1.3."""

_VOCABULARY = """
account archive batch branch buffer builder cache channel check client cluster column commit config connection context
counter cursor decode default deploy digest encode entry error event failure fetch field filter format frame handler
header history index input invoice iteration job kernel ledger limit listener loader lookup matrix member merge
message method module network node number object offset order output packet parser patch payload policy prefix process
profile prompt queue reader record region registry release render request reserve result retry rollback router schema
segment server session shard signal snapshot socket source stash state status stream string summary table target task
tenant thread token trace update upload validate value vector version window worker writer
"""
_WORDS = _VOCABULARY.split()
_KINDS = ("code", "code", "log", "log", "listing", "diff", "json", "prose")
_LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARNING", "ERROR")
_TOOLS = ("read_file", "run_command", "grep", "list_files", "read_file")


class Writer:
    """Writes text from one source of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._lines: dict[str, Callable[[], str]] = {
            "code": self._code,
            "log": self._log,
            "listing": self._listing,
            "diff": self._diff,
            "json": self._json,
            "prose": self._prose,
        }

    def text(self, size: int, kind: str = "") -> str:
        """ASCII text of `size` characters, of one kind (empty: any)."""
        line = self._lines[kind or self.chance.choice(_KINDS)]
        pieces: list[str] = []
        written = 0
        while written < size:
            piece = line()
            pieces.append(piece)
            written += len(piece)
        return "".join(pieces)[:size]

    def size(self, median: float, most: int) -> int:
        """A size from a log-normal distribution."""
        return min(int(median * self.chance.lognormvariate(0, SPREAD)), most)

    def path(self) -> str:
        """A source file's path."""
        return f"src/{self._word()}/{self._word()}_{self._word()}.py"

    def _word(self) -> str:
        return self.chance.choice(_WORDS)

    def _name(self) -> str:
        return f"{self._word()}_{self._word()}"

    def _code(self) -> str:
        chance = self.chance.random()
        if chance < 0.15:
            return f"\n    def {self._name()}(self, {self._word()}: {self._word().title()}) -> None:\n"
        if chance < 0.3:
            return f'        """{self._prose().strip()}"""\n'
        if chance < 0.5:
            return f"        if {self._word()}.{self._name()} > {self.chance.randrange(4096)}:\n"
        if chance < 0.6:
            return f'            raise {self._word().title()}Error("the {self._word()} is not {self._word()}")\n'
        return f"        self._{self._name()} = {self._word()}.{self._name()}({self._word()}, {self._word()}=True)\n"

    def _log(self) -> str:
        clock = self.chance.randrange(86_400)
        return (
            f"2026-03-{1 + clock % 28:02}T{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}."
            f"{self.chance.randrange(1000):03}Z {self.chance.choice(_LEVELS)} "
            f"[{self._word()}-{self.chance.randrange(64)}] "
            f"{self._name()}: {self._word()} {self._word()} id={self.chance.getrandbits(48):012x} "
            f"took {self.chance.randrange(5000)} ms\n"
        )

    def _listing(self) -> str:
        return f"{self.path()}:{self.chance.randrange(1200)}:    {self._word()} = {self._name()}({self._word()})\n"

    def _diff(self) -> str:
        return f"{self.chance.choice(' +-')}        {self._name()} = {self._word()}[{self.chance.randrange(99)}]\n"

    def _json(self) -> str:
        return (
            f'{{"{self._word()}": "{self._name()}", "{self._word()}": {self.chance.random():.6f}, '
            f'"id": "{self.chance.getrandbits(64):016x}"}}\n'
        )

    def _prose(self) -> str:
        return (
            f"The {self._word()} of the {self._word()} {self._word()}s every {self._word()} before its {self._word()}. "
        )


def run(seed: int, iterations: int, size: int) -> Prompts:
    """A run of so many iterations that grows to about `size` bytes of JSON, in OpenAI's chat format."""
    writer = Writer(seed)
    opening: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful engineer. " + writer.text(3_000, "prose")},
        {"role": "user", "content": "Find out why the nightly job fails. " + writer.text(1_000, "prose")},
    ]
    slices = [orjson.dumps(message) for message in opening]
    slices += iterations_of(writer, iterations, size - sum(map(len, slices)))
    return prompts_of(f"synthetic run, {iterations} iterations", "openai_chat", slices)


def iterations_of(writer: Writer, iterations: int, size: int) -> list[bytes]:
    """Messages of so many iterations, together about `size` bytes of JSON."""
    slices: list[bytes] = []
    written = 0
    for number in range(iterations):
        # Each aims at an equal share of what is left, so that the sum comes out whatever chance does.
        share = (size - written) / (iterations - number)
        median = max(share * 0.66, 200)  # the mean of the distribution is 1.38 times its median; escapes add 5 %
        for message in _iteration(writer, number, median):
            slices.append(orjson.dumps(message))
            written += len(slices[-1]) + 1
    return slices


def _iteration(writer: Writer, number: int, median: float) -> Iterator[dict[str, Any]]:
    chance = writer.chance
    call_id = f"call_{chance.getrandbits(64):016x}"
    name = chance.choice(_TOOLS)
    arguments: dict[str, Any] = {"path": writer.path(), "line": chance.randrange(900)}
    if chance.random() < 0.1:
        name, arguments = (
            "write_file",
            {"path": writer.path(), "content": writer.text(writer.size(median / 4, 8_000), "code")},
        )
    function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
    yield {
        "role": "assistant",
        "content": writer.text(chance.randrange(80, 400), "prose"),
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    yield {"role": "tool", "tool_call_id": call_id, "content": writer.text(writer.size(median, 120_000))}
    if number % 25 == 24:
        yield {"role": "user", "content": writer.text(200, "prose")}
