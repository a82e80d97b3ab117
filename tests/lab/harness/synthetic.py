"""Text and runs that look like what coding agents send: code, logs, listings, diffs, JSON. Seeded.

The same seed gives the same bytes on every machine, and another seed gives text that no cache has seen. Sizes of
results are log-normal, as in recorded runs; a run is grown to the bytes that are asked for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from tests.lab.harness.prompts import Prompts, prompts_of

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
    slices += turns(writer, iterations, size - sum(map(len, slices)))
    return prompts_of(f"synthetic run, {iterations} iterations", "openai_chat", slices)


def turns(writer: Writer, iterations: int, size: int) -> list[bytes]:
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
