"""What finds secrets in texts: the guard's rules, and other programs as their packages install them."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import RuleAction, default_rules

Span = tuple[int, int, str]
"""Where a value was found, in characters, and by which rule."""
_WHOLE: Final = (0, 1 << 60, "decoded")


class Finder(Protocol):
    """Finds secrets in texts."""

    name: str

    def find(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return the finds of each text."""


class Guard:
    """The rules that mask by default once masking is on."""

    name = "guard"

    def __init__(self) -> None:
        self._rules = default_rules(GuardOptions(ENFORCE))

    def find(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return the finds of each text."""
        return [
            [(find.start, find.end, find.rule.name) for find in finds if find.rule.action is RuleAction.MASK]
            for finds in self._rules.scan(texts)
        ]


class Program:
    """A program that scans a folder and writes JSON: betterleaks, kingfisher or detect-secrets, from a `bin` folder.

    A find that is nowhere in the text, as the program has decoded it, counts for the whole text.
    """

    def __init__(self, name: str, programs: Path) -> None:
        self.name = name
        self._program = str((programs / name).absolute())

    def find(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """Return the finds of each text."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "texts"
            folder.mkdir()
            for number, text in enumerate(texts):
                (folder / f"{number}.txt").write_text(text, encoding="utf-8", newline="")
            found: list[list[Span]] = [[] for _ in texts]
            for file, rule, value, line in self._reported(folder, Path(scratch) / "report.json"):
                number = int(Path(file).stem)
                found[number] += _places(texts[number], value, line, rule)
            return found

    def _reported(self, folder: Path, report: Path) -> Iterator[tuple[str, str, str | None, int]]:
        """Yield file, rule, value and line of each find; None for a value: only the line is told."""
        if self.name == "betterleaks":
            reports = [
                "-o",
                str(report),
                "--no-banner",
                "--exit-code",
                "0",
                "--confidence",
                "low",
                "--max-target-megabytes",
                "9",
            ]
            self._run([str(folder), *reports])
            for each in json.loads(report.read_text())["findings"]:
                yield each["location"]["path"], each["rule_id"], each["match"]["value"], each["location"]["start_line"]
        elif self.name == "kingfisher":
            reports = [
                "--format",
                "jsonl",
                "--no-validate",
                "--confidence",
                "low",
                "--no-update-check",
                "--output",
                str(report),
            ]
            self._run(["scan", str(folder), *reports, "--no-dedup"])
            for line in report.read_text().splitlines():
                record: dict[str, Any] = json.loads(line)
                if "finding" in record:
                    of = record["finding"]
                    yield of["path"], record["rule"]["id"], of["snippet"], of["line"]
        else:
            output = self._run(["scan", "--all-files", "--no-verify", folder.name], folder.parent)
            for file, finds in json.loads(output)["results"].items():
                for each in finds:
                    yield file, each["type"], None, each["line_number"]

    def _run(self, words: Sequence[str], folder: Path | None = None) -> str:
        done = subprocess.run([self._program, *words], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode not in {0, 1, 200, 205}:
            raise RuntimeError(done.stderr[-2000:])
        return done.stdout


def _places(text: str, value: str | None, line: int, rule: str) -> Iterator[Span]:
    if value is None:
        starts = [0, *(found.end() for found in re.finditer("\n", text)), len(text)]
        yield starts[line - 1], starts[min(line, len(starts) - 1)], rule
        return
    if value not in text:
        yield (*_WHOLE[:2], rule)
        return
    for found in re.finditer(re.escape(value), text):
        yield found.start(), found.end(), rule
