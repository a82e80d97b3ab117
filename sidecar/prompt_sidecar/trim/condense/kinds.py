"""What a tool result holds, as far as reductions differ by it; told by the call first, and by the text.

Files that were read, diffs and source stay as they are, byte for byte: an edit must quote them. So where a call may
have read a file, it is taken to have read one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, Final

import re2

from prompt_sidecar.trim.condense.output import Call, Output


class Kind(Enum):
    """What a result holds."""

    SOURCE = "source"
    """A file, a diff, the confirmation of an edit: nothing is changed but the padding before numbers of lines."""
    PAGE = "page"
    """A page that a tool fetched."""
    OTHER = "other"


_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_FINDS: Final = frozenset({"find", "glob", "grep", "list", "ls", "search"})
"""Words of a tool's name that say that it reads no file, whatever else the name says."""
_READS: Final = frozenset(
    {
        *("cat", "content", "contents", "document", "file", "files", "notebook", "open", "read", "source", "view"),
        *("apply", "create", "diff", "edit", "editor", "insert", "multiedit", "patch", "replace", "write"),
    }
)
"""Words of a tool's name that say that it reads files, or shows what it did to them."""
_SHELLS: Final = frozenset(
    {"bash", "command", "exec", "powershell", "run", "shell", "stdin", "terminal", "test", "tests"}
)

_READ: Final[Any] = re2.compile(
    r"(?i)(?:^|[;&\n({`]|\|\||-l?c\s+[\"']|-command\s+[\"']?|-exec\s|\b(?:do|then|else|sudo|time|xargs)\s)[ \t]*"
    r"(?:\w+=\S*[ \t]+)*(?:[\w./~-]+/)?"
    r"(?:awk|bat|batcat|cat|gc|get-content|head|hexdump|jq|less|more|nl|od|sed|strings|tail|type|xxd)(?:\.exe)?(?:\s|$)"
)
"""A program that reads files where a command begins, but not behind a pipe: there it reads what another one wrote."""
_DIFFS: Final[Any] = re2.compile(
    r"\b(?:git|gh|jj|hg|svn)\s(?:[^;&|\n]*\s)?(?:diff|show|blame|annotate)\b|(?:^|[;&\n]\s*)diff\s"
)
_STAT: Final = re.compile(r"--(?:stat|shortstat|name-only|name-status)\b")
_RUNS: Final = re.compile(
    r"\b(?:tests?|pytest|jest|vitest|mocha|unittest|build|install|lint|vet|tsc|make|mise|cargo|golangci-lint|eslint"
    r"|ruff|mypy|lake|docker|pnpm|npm|npx|yarn|bun|gradle|gradlew|mvn|dotnet|xcodebuild|swift|ninja|cmake|bazel)\b"
)
_REPOSITORY: Final = re.compile(r"(?:^|[;&\n]\s{0,9})(?:git|gh|echo)\s")
"""What works on a repository, whatever the names there are; but what it starts may be tests."""
_SEARCHES: Final = re.compile(r"(?:^|[;&\n]\s{0,9})(?:ls|find|fd|tree|rg|grep|ag|ack)\s")
_TEST: Final[Any] = re2.compile(
    r"--- (?:PASS|FAIL): |=== RUN|[✓✔✗✕] |\((?:pass|fail)\) | (?:PASSED|FAILED)|\nFAIL\t|\nok  \t|Test Files | passed"
    r"| \.\.\. ok\n"
)
"""What programs that test write."""
_TIME: Final = re.compile(r"\D?\d{4}-\d\d-\d\d|.{0,40}\d\d:\d\d:\d\d")
_NUMBER: Final = re.compile(r"\s{0,8}(\d{1,7})(?:→|\t)")
_HEAD_LINES: Final = 12
"""Lines by which a text is told."""


def kind_of(output: Output, fetch_tools: Collection[str]) -> Kind:
    """What a result holds. `fetch_tools`: names of the tools that fetch pages."""
    call = output.call
    if call is not None and call.tool in fetch_tools:
        return Kind.PAGE
    if (call is not None and reads(call)) or "@@ -" in output.text or is_numbered(output.text):
        return Kind.SOURCE
    return Kind.OTHER


def reads(call: Call) -> bool:
    """Whether a call may have read a file, or shows what it did to one."""
    words = _words(call.tool)
    if words & _READS and not words & (_FINDS | _SHELLS):
        return True
    command = call.command.encode(errors="replace")
    if not command:
        return False
    return bool(_READ.search(command)) or (bool(_DIFFS.search(command)) and not _STAT.search(call.command))


def is_shell(call: Call | None) -> bool:
    """Whether a call ran a program."""
    return call is not None and bool(call.command or _words(call.tool) & _SHELLS)


def is_run(output: Output) -> bool:
    """Whether a result is what tests, a build or a service wrote."""
    call = output.call
    if call is None or not is_shell(call) or _SEARCHES.search(call.command):
        return False
    if _RUNS.search(call.command) and not _REPOSITORY.search(call.command):
        return True
    if sum(1 for _ in islice(_TEST.finditer(output.raw), 2)) > 1:
        return True
    lines = _first_lines(output.text)
    return sum(bool(_TIME.match(line)) for line in lines) > len(lines) / 2


@lru_cache(256)
def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(name[:128]))


def _first_lines(text: str) -> list[str]:
    """The first lines that are not blank, cut to what tells their kind."""
    lines = (line for line in text[:2_048].split("\n") if line and not line.isspace())
    return [line[:80] for line in islice(lines, _HEAD_LINES)]


def is_numbered(text: str) -> bool:
    """Whether most lines begin with a number and its separator, each with the next number."""
    if "→" not in text[:1_024] and "\t" not in text[:1_024]:
        return False
    lines = _first_lines(text)
    numbers = [int(found[1]) for line in lines if (found := _NUMBER.match(line))]
    steps = sum(after == before + 1 for before, after in pairwise(numbers))
    return len(numbers) > 2 and len(numbers) > 0.6 * len(lines) and steps > 0.6 * len(numbers)
