"""The agent's tools: list, grep and read files under one root, and run the Python interpreter there.

What they answer is real and recorded nowhere else. Files outside the root cannot be reached, also not by a link or by
`..`; commands are the investigation's own, and only the interpreter is started.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GREP_LINES = 120
"""Matches shown; more would not help a reader, who narrows the search instead."""
COMMAND_SECONDS = 20.0
"""A command of the investigation takes a tenth of a second; on a starved machine perhaps a hundred times that."""


class ToolError(Exception):
    """The tool cannot do what was asked; the message goes to the agent as the tool's answer."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Tools over the files under `root`."""

    root: Path

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool and return its answer; what goes wrong is an answer as well."""
        tools: Mapping[str, Callable[..., str]] = {
            "list_dir": self.list_dir,
            "grep": self.grep,
            "read_file": self.read_file,
            "run_python": self.run_python,
        }
        if name not in tools:
            return f"error: there is no tool {name}"
        try:
            return tools[name](**arguments)
        except ToolError as error:
            return f"error: {error}"
        except OSError as error:
            return f"error: {arguments.get('path', name)}: {error.strerror}"

    def list_dir(self, path: str) -> str:
        """Names and sizes of what a folder holds."""
        entries = sorted(self._inside(path).iterdir())
        return "\n".join(
            f"{entry.name}/" if entry.is_dir() else f"{entry.name}  {entry.stat().st_size:,}"
            for entry in entries
            if entry.name != "__pycache__" and entry.exists()
        )

    def grep(self, pattern: str, path: str) -> str:
        """Lines that match a pattern, with file and number; empty if none does."""
        found = list(self._matches(re.compile(pattern), self._inside(path)))
        rest = [f"… {len(found) - GREP_LINES} more"] if len(found) > GREP_LINES else []
        return "\n".join([*found[:GREP_LINES], *rest])

    def read_file(self, path: str, first: int = 1, last: int | None = None) -> str:
        """A file's lines with their numbers, all or those from `first` to `last`."""
        text = self._inside(path).read_text(encoding="utf-8", errors="replace")
        lines = text.split("\n")[first - 1 : last]
        if not lines:
            raise ToolError(f"{path} has no line {first}")
        return "".join(f"{number:>5}  {line}\n" for number, line in enumerate(lines, first))

    def run_python(self, arguments: list[str]) -> str:
        """What the interpreter prints, given these arguments."""
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL") if name in os.environ}
        try:
            # -I: without the user's own packages and settings; -B: leaves no files behind; UTF-8 whatever the locale.
            done = subprocess.run(
                [sys.executable, "-I", "-B", "-X", "utf8", *arguments],
                cwd=self.root,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"the command took more than {COMMAND_SECONDS:g} seconds") from None
        return f"{done.stdout.decode(errors='replace')}[exit code {done.returncode}]"

    def _inside(self, path: str) -> Path:
        wanted = (self.root / path).resolve()
        if not wanted.is_relative_to(self.root.resolve()):
            raise ToolError(f"{path} lies outside the source tree")
        return wanted

    def _matches(self, pattern: re.Pattern[str], top: Path) -> Iterator[str]:
        for file in [top] if top.is_file() else sorted(top.rglob("*.py")):
            name = file.relative_to(self.root.resolve())
            for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                if pattern.search(line):
                    yield f"{name}:{number}:{line}"


def schemas() -> list[dict[str, Any]]:
    """The tools as a request body offers them to a model; the sidecar's stand beside them."""
    text, whole = {"type": "string"}, {"type": "integer"}
    return [
        _schema("list_dir", "List a folder.", {"path": text}, ["path"]),
        _schema("grep", "Search files for a pattern.", {"pattern": text, "path": text}, ["pattern", "path"]),
        _schema("read_file", "Read a file, or some lines.", {"path": text, "first": whole, "last": whole}, ["path"]),
        _schema(
            "run_python", "Run Python with arguments.", {"arguments": {"type": "array", "items": text}}, ["arguments"]
        ),
    ]


def summary(name: str, arguments: Mapping[str, Any]) -> str:
    """A call in a few words, for the table."""
    match name:
        case "run_python":
            return f"python {' '.join(arguments['arguments'])}"
        case "recall_elided_content":
            return f"recall {arguments['id']}"
        case "search_conversation_history":
            return f"search: {arguments['query']}"
        case "create_tasks":
            return f"create {len(arguments['tasks'])} tasks"
        case "update_task":
            return f"task {arguments['id']} {arguments['status']}"
        case _:
            verb = {"list_dir": "list", "read_file": "read"}.get(name, name)
            return f"{verb} {arguments['path']}"


def _schema(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
