"""What a call tells about its result: worked out at most once, and small enough to be kept.

Few results are long enough to be condensed, so a call with short arguments is kept as it was sent (`UnreadCall`) until
a result answers it. A call with longer arguments is read at once, so that its arguments need not be kept.

What is read does not depend on how the agent spells the arguments: they are decoded, and taken in the order of their
names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson
import re2

ARGUMENT_CHARACTERS: Final = 16_384
"""Characters of an argument that are looked at. A longer command usually contains the text of a file."""
KEPT_CHARACTERS: Final = 1_024
"""Characters of arguments that are kept until a result needs the call: about as many as `SourceCall.words` takes. 87 %
of the calls of four recorded runs have no more."""
MOST_WORDS: Final = 24
"""Words of the arguments that are kept: a call for single tests names few."""
_COMMANDS: Final = ("command", "cmd", "script", "chars", "input", "")
"""Names of the argument that holds a command, or what is typed into one; free text has no name."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_FINDS: Final = frozenset({"find", "glob", "grep", "list", "ls", "search"})
"""Words of a tool's name that show that it reads no file, whatever other words the name has."""
_READS: Final = frozenset(
    {
        *("cat", "content", "contents", "document", "file", "files", "notebook", "open", "read", "source", "view"),
        *("apply", "create", "diff", "edit", "editor", "insert", "multiedit", "patch", "replace", "write"),
    }
)
"""Words of a tool's name that show that it reads files, or prints what it did to them."""
_SHELLS: Final = frozenset(
    {"bash", "command", "exec", "powershell", "run", "shell", "stdin", "terminal", "test", "tests"}
)
_NO_READS: Final = _FINDS | _SHELLS

_READ: Final[Any] = re2.compile(
    r"(?i)(?:^|[;&\n({`]|\|\||-l?c\s+[\"']|-command\s+[\"']?|-exec\s|\b(?:do|then|else|sudo|time|xargs)\s)[ \t]*"
    r"(?:\w+=\S*[ \t]+)*(?:[\w./~-]+/)?"
    r"(?:awk|bat|batcat|cat|gc|get-content|head|hexdump|jq|less|more|nl|od|sed|strings|tail|type|xxd)(?:\.exe)?(?:\s|$)"
)
"""A program that reads files, where a command begins, but not behind a pipe: there it reads another program's output.
"""
_DIFFS: Final[Any] = re2.compile(
    r"\b(?:git|gh|jj|hg|svn)\s(?:[^;&|\n]*\s)?(?:diff|show|blame|annotate)\b|(?:^|[;&\n]\s*)diff\s"
)
_STAT: Final = re.compile(r"--(?:stat|shortstat|name-only|name-status)\b")
_RUNS: Final[Any] = re2.compile(
    r"\b(?:tests?|pytest|jest|vitest|mocha|unittest|build|install|lint|vet|tsc|make|mise|cargo|golangci-lint|eslint"
    r"|ruff|mypy|lake|docker|pnpm|npm|npx|yarn|bun|gradle|gradlew|mvn|dotnet|xcodebuild|swift|ninja|cmake|bazel)\b"
)
_REPOSITORY: Final[Any] = re2.compile(r"(?:^|[;&\n]\s{0,9})(?:git|gh|echo)\s")
"""Programs that work on a repository, whatever its files are called; but they may start tests."""
_SEARCHES: Final[Any] = re2.compile(r"(?:^|[;&\n]\s{0,9})(?:ls|find|fd|tree|rg|grep|ag|ack)\s")
_WORD: Final = re.compile(r"\w{4,80}")


class SourceCall(NamedTuple):
    """A tool call, as far as it indicates what its result holds. A tuple: one is made for each call of a run."""

    tool: str
    reads: bool = False
    """Whether it may have read a file, or shows what it did to one."""
    shell: bool = False
    """Whether it ran a program."""
    runs: bool = False
    """Whether that program tests or builds something."""
    searches: bool = False
    """Whether it looks for files, or in them."""
    words: tuple[str, ...] = ()
    """Words of the arguments, where it ran a program: they may name tests."""


class UnreadCall(NamedTuple):
    """A tool call whose arguments were not read yet."""

    tool: str
    arguments: str

    def read(self) -> SourceCall:
        """Return what it indicates about its result."""
        return call_of(self.tool, self.arguments)


def kept_call(tool: str, arguments: str) -> SourceCall | UnreadCall:
    """Return a call as it is kept until its result arrives: unread, unless its arguments are long."""
    if len(arguments) > KEPT_CHARACTERS:
        return call_of(tool, arguments)
    return UnreadCall(tool, arguments)


def call_of(tool: str, arguments: str) -> SourceCall:
    """Return the call of a tool with these arguments, in JSON or as free text."""
    named = _named(arguments)
    command = next((text for name, text in named if name in _COMMANDS), "")
    raw = command.encode(errors="replace")  # RE2 is five times as fast on bytes, and takes no lone surrogate in a text
    of_name = _name_words(tool)
    shell = bool(command or of_name & _SHELLS)
    return SourceCall(
        tool=tool,
        reads=bool(of_name & _READS and not of_name & _NO_READS) or (command != "" and _shows_files(command, raw)),
        shell=shell,
        runs=command != "" and bool(_RUNS.search(raw)) and not _REPOSITORY.search(raw),
        searches=command != "" and bool(_SEARCHES.search(raw)),
        words=_words(named) if shell else (),
    )


def _words(named: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The first words of the arguments, each once."""
    found: dict[str, None] = {}
    for _, text in named:
        for word in _WORD.finditer(text):
            found[word[0]] = None
            if len(found) == MOST_WORDS:
                return tuple(found)
    return tuple(found)


def _named(arguments: str) -> Sequence[tuple[str, str]]:
    """The arguments that are strings or lists of strings, by name, in the order of their names."""
    try:
        decoded: Any = orjson.loads(arguments or "{}")
    except ValueError:
        decoded = _decoded(arguments)
    if isinstance(decoded, str):
        return [("", decoded[:ARGUMENT_CHARACTERS])]
    if not isinstance(decoded, dict):
        return []
    named = ((name, _text(value)) for name, value in sorted(decoded.items()))
    return [(name, text[:ARGUMENT_CHARACTERS]) for name, text in named if text]


def _decoded(arguments: str) -> Any:
    """Decode arguments, also those that are not strict JSON, as models write too; free text stays as it is."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return value if isinstance(value, str) else ""


def _shows_files(command: str, raw: bytes) -> bool:
    return bool(_READ.search(raw)) or (bool(_DIFFS.search(raw)) and not _STAT.search(command))


@lru_cache(256)
def _name_words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(name[:128]))
