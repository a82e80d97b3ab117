"""Small tasks for an agent, made from a seed, with an end that a program can check.

Each takes 20 to 60 tool calls whose results together are larger than the window of the trial. Four kinds: a chain of
files of which each names the next; the number of errors in logs; the record with the greatest amount; a function that
differs from its description. No tool searches, so the files have to be read. Nothing in them was taken from anybody.

The functions of the last kind are arithmetic on whole numbers, and are evaluated here, by `evaluated`: nothing that a
model writes is run as a program.
"""

from __future__ import annotations

import ast
import json
import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

SYSTEM: Final = (
    "You work on a folder of files with the tools that you have. Read what you need, file by file, and do not guess. "
    "Whole results of earlier calls may leave your sight: write down in your messages what you will need. End with a "
    "message without tool calls, whose last line is ANSWER: and the answer."
)
_WORDS: Final = re.findall(
    r"\w+",
    "amber basin cedar delta ember fjord glade harbor island juniper kelp lagoon meadow nectar orchard prairie quartz "
    "ridge spruce tundra upland valley willow yarrow zephyr",
)
_ANSWER: Final = re.compile(r"ANSWER:\s*\**\s*`?([\w-]+)")
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MOST: Final = 10**15
"""Numbers on the way may be as large, so that what a model writes takes no time."""
INPUTS: Final = range(1, 41)
"""What the tests of a task `fix` put in."""


class Kind(StrEnum):
    """Kinds of tasks."""

    CHAIN = "chain"
    COUNT = "count"
    VALUE = "value"
    FIX = "fix"


@dataclass(frozen=True, slots=True)
class Size:
    """How large tasks are."""

    files: int = 30
    """That have to be read, of a task `fix` nearly as many."""
    lines: int = 90
    """Of each file."""


QUICK: Final = Size(files=14, lines=45)


@dataclass(frozen=True, slots=True)
class Task:
    """What an agent is asked to do."""

    kind: Kind
    number: int
    prompt: str
    files: Mapping[str, str]
    answer: str
    """What it has to answer; of a task `fix`: empty, as the tests decide."""
    calls: int
    """Tool calls that it takes at least."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind}-{self.number}"

    @property
    def chars(self) -> int:
        """Of all files."""
        return sum(map(len, self.files.values()))


def tasks(seed: int, count: int, size: Size) -> list[Task]:
    """So many tasks, the kinds in turns. The same seed makes the same."""
    makers = {Kind.CHAIN: _chain, Kind.COUNT: _count, Kind.VALUE: _value, Kind.FIX: _fix}
    kinds = list(Kind)
    made = []
    for place in range(count):
        kind, number = kinds[place % len(kinds)], place // len(kinds) + 1
        made.append(makers[kind](number, random.Random(f"{seed} {kind} {number}"), size))
    return made


def _filler(chance: random.Random, lines: int) -> list[str]:
    return [f"{number:>3}  {' '.join(chance.choices(_WORDS, k=11))}." for number in range(1, lines + 1)]


def _with(chance: random.Random, lines: Sequence[str], *more: str) -> str:
    """The lines with others at places drawn by chance."""
    text = list(lines)
    for line in more:
        text.insert(chance.randrange(len(text) // 4, len(text)), line)
    return "\n".join(text) + "\n"


def _chain(number: int, chance: random.Random, size: Size) -> Task:
    names = [f"notes/{chance.getrandbits(32):08x}.txt" for _ in range(size.files)]
    salt, end = chance.randrange(1_000, 10_000), chance.randrange(1_000, 10_000)
    files = {}
    for place, name in enumerate(names):
        more = [f"end: {end}" if place == size.files - 1 else f"next: {names[place + 1]}"]
        more += [f"salt: {salt}"] if place == size.files // 3 else []
        files[name] = _with(chance, _filler(chance, size.lines), *more)
    prompt = (
        f"Follow the chain that begins at {names[0]}. Each file has a line `next: PATH`; the last one has a line "
        "`end: NUMBER` instead. One file on the way has a line `salt: NUMBER` too. "
        "Answer the number at the end and the salt, as END-SALT."
    )
    return Task(Kind.CHAIN, number, prompt, files, f"{end}-{salt}", size.files)


def _names(folder: str, stem: str, ending: str, count: int) -> list[str]:
    return [f"{folder}/{stem}{place:02}.{ending}" for place in range(count)]


def _count(number: int, chance: random.Random, size: Size) -> Task:
    service, total, files = chance.choice(("billing", "search", "mail")), 0, {}
    names = _names("logs", "day", "log", size.files)
    for name in names:
        lines = []
        for place in range(size.lines):
            who, level = chance.choice(("billing", "search", "mail", "web")), "INFO"
            if chance.random() < 0.06:
                level = chance.choice(("ERROR", "WARN"))
            total += (who, level) == (service, "ERROR")
            clock = f"{place // 4 % 24:02}:{place % 4 * 15:02}:{chance.randrange(60):02}"
            lines.append(f"{clock} {level} {who} request {chance.getrandbits(48):012x} {chance.choice(_WORDS)} done")
        files[name] = "\n".join(lines) + "\n"
    prompt = (
        f"In the files {names[0]} to {names[-1]}, each line has a time, a level, and a service. How many lines have "
        f"the level ERROR and the service {service}, in all files together? Answer the number."
    )
    return Task(Kind.COUNT, number, prompt, files, str(total), size.files)


def _value(number: int, chance: random.Random, size: Size) -> Task:
    names = _names("ledger", "page", "txt", size.files)
    amounts = chance.sample(range(10_000, 99_999), size.files * size.lines)
    lines = [
        f"record R{chance.getrandbits(40):010x} amount {each} for {' '.join(chance.choices(_WORDS, k=6))}"
        for each in amounts
    ]
    best = lines[amounts.index(max(amounts))].split()[1]
    files = {name: "\n".join(lines[at :: size.files]) + "\n" for at, name in enumerate(names)}
    prompt = (
        f"The files {names[0]} to {names[-1]} hold records, one a line. Which record has the greatest amount of all "
        "files? Answer its name, which begins with R."
    )
    return Task(Kind.VALUE, number, prompt, files, best, size.files)


def _fix(number: int, chance: random.Random, size: Size) -> Task:
    count = size.files // 2
    wrong = chance.randrange(2 * count // 3, count)
    files = {}
    for place in range(count):
        factor, more = chance.randrange(2, 90), chance.randrange(2, 900)
        formula = f"(x * {factor} + {more}) % 9973"
        stands = f"(x * {factor} - {more}) % 9973" if place == wrong else formula
        text = _with(chance, _filler(chance, size.lines), f"The result is {formula}.")
        notes = [f"# {line}" for line in _filler(chance, size.lines)]
        files[f"specs/stage{place:02}.md"] = text
        files[f"stages/stage{place:02}.py"] = "\n".join(
            [*notes, f"def stage{place:02}(x):", f"    return {stands}", ""]
        )
    prompt = (
        f"The files stages/stage00.py to stages/stage{count - 1:02}.py hold the functions of a pipeline, and the files "
        f"specs/stage00.md to specs/stage{count - 1:02}.md say what each has to return. One function differs from its "
        "description, so the tests fail (run_tests). Correct it with replace_text, so that they pass. Answer the "
        "function's name."
    )
    return Task(Kind.FIX, number, prompt, files, "", 2 * (wrong + 1) + 2)


def evaluated(source: str, name: str, value: int) -> int:
    """What the function of a file returns, by arithmetic alone.

    Raises:
        ValueError: the file has no such function, or it is more than arithmetic on `x`.
    """
    try:
        parts = [part for part in ast.parse(source).body if isinstance(part, ast.FunctionDef) and part.name == name]
        (returned,) = parts[0].body
        return _value_of(returned.value if isinstance(returned, ast.Return) else None, value)
    except (ValueError, LookupError, SyntaxError, ZeroDivisionError, RecursionError):
        raise ValueError(f"{name} must be one line `return` with + - * // % on whole numbers and x") from None


def _value_of(node: ast.AST | None, x: int) -> int:
    match node:
        case ast.BinOp() if type(node.op) in _OPERATORS:
            made = _OPERATORS[type(node.op)](_value_of(node.left, x), _value_of(node.right, x))
            if abs(made) <= _MOST:
                return made
        case ast.UnaryOp(op=ast.USub()):
            return -_value_of(node.operand, x)
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id="x"):
            return x
    raise ValueError


@dataclass(slots=True)
class Workspace:
    """A task's files while an agent works on them, and its tools. No call changes anything outside of it."""

    task: Task
    files: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the task's files."""
        self.files = dict(self.task.files)

    def call(self, name: str, arguments: str) -> str:
        """Run a tool; what is wrong with a call is its result."""
        try:
            given = json.loads(arguments or "{}")
            match name:
                case "list_files":
                    return "\n".join(sorted(self.files))
                case "read_file":
                    return self.files[given["path"]]
                case "replace_text":
                    return self._replace(given["path"], given["old"], given["new"])
                case "run_tests":
                    return self.tested()[1]
        except KeyError as error:
            return f"error: there is no file or argument {error}"
        except (ValueError, TypeError, AttributeError):
            return "error: the arguments must be a JSON object as the tool's schema says"
        return f"error: there is no tool {name}"

    def _replace(self, path: str, old: str, new: str) -> str:
        text = self.files[path]
        if text.count(old) != 1:
            return f"error: the old text stands {text.count(old)} times in {path}; it must be there once"
        self.files[path] = text.replace(old, new)
        return f"{path} is changed"

    def tested(self) -> tuple[bool, str]:
        """Whether the tests pass, and what they print."""
        count = sum(path.startswith("stages/") for path in self.files)
        if not count:
            return False, "no tests were found"
        lines, passed = [], True
        for start in INPUTS:
            has, wants = start, start
            try:
                for place in range(count):
                    name = f"stage{place:02}"
                    has = evaluated(self.files[f"stages/{name}.py"], name, has)
                    specified = re.search(r"The result is (.+)\.", self.task.files[f"specs/{name}.md"])
                    assert specified
                    wants = evaluated(f"def {name}(x):\n    return {specified[1]}", name, wants)
            except ValueError as error:
                return False, f"error: {error}"
            passed &= has == wants
            what = "PASSED" if has == wants else f"FAILED: got {has}, expected {wants}"
            lines.append(f"tests/test_pipeline.py::test_pipeline[{start}] {what}")
        return passed, "\n".join([*lines, "all tests passed" if passed else "tests failed"])

    def solved(self, reply: str) -> bool:
        """Whether the task is done, by the agent's last message and the files."""
        if self.task.kind is Kind.FIX:
            return self.tested()[0]
        answers = _ANSWER.findall(reply)
        return bool(answers) and str(answers[-1]) == self.task.answer


def tools() -> list[dict[str, Any]]:
    """The agent's tools, for the request body."""
    path = {"path": {"type": "string"}}
    described: list[tuple[str, str, dict[str, Any]]] = [
        ("list_files", "List all files.", {}),
        ("read_file", "Read a whole file.", path),
        (
            "replace_text",
            "Replace a text that stands once in a file.",
            path | {"old": {"type": "string"}, "new": {"type": "string"}},
        ),
        ("run_tests", "Run the tests of the stages.", {}),
    ]
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": about,
                "parameters": {"type": "object", "properties": members, "required": list(members)},
            },
        }
        for name, about, members in described
    ]


NAMES: Final = frozenset(tool["function"]["name"] for tool in tools())
"""Of the agent's tools; a model that calls another one calls the sidecar's, or makes a mistake."""
