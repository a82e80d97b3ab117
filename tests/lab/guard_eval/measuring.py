"""What is found in texts: by the guard's rules as they mask by default, and by detect-secrets as it comes."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, Protocol

from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import RuleAction, default_rules
from tests.lab.harness.environments import environment

_HERE: Final = Path(__file__).parent

Span = tuple[int, int, str]
"""Where a value was found, in characters, and by which rule."""


class Finder(Protocol):
    """Finds secrets in texts."""

    name: str
    by_line: bool
    """Whether it tells lines; masks need the places of values."""

    def find(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """The finds of each text."""


class Guard:
    """The rules that mask by default once masking is on."""

    name = "guard"
    by_line = False

    def __init__(self) -> None:
        self._rules = default_rules(GuardOptions(ENFORCE))

    def find(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """The finds of each text."""
        return [
            [(find.start, find.end, find.rule.name) for find in finds if find.rule.action is RuleAction.MASK]
            for finds in self._rules.scan(texts)
        ]


class DetectSecrets:
    """detect-secrets with its default plugins and filters, in an environment of its own.

    Raises `Unavailable` if it cannot be installed.
    """

    name = "detect-secrets"
    by_line = True

    def __init__(self) -> None:
        self._python = environment("detect-secrets", requirements=_HERE / "requirements").python

    def find(self, texts: Sequence[str]) -> Sequence[Sequence[Span]]:
        """The lines that it reports."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "texts.json", Path(folder) / "found.json"
            source.write_text(json.dumps(list(texts)), encoding="utf-8")
            script = _HERE / "with_detect_secrets.py"
            subprocess.run([str(self._python), "-I", str(script), str(source), str(target)], check=True, env={})
            found = json.loads(target.read_text(encoding="utf-8"))
        spans: list[list[Span]] = []
        for text, reported in zip(texts, found, strict=True):
            lines = text.splitlines(keepends=True)
            starts = [0, *accumulate(map(len, lines))]
            spans.append([(starts[number - 1], starts[number], kind) for number, kind in reported])
        return spans
