"""What others wrote to test their own scanners: texts with a secret, and texts that resemble one.

They are read from a checkout, never copied. detect-secrets has them as parameters of its tests (`tests/plugins`, in
Python), gitleaks beside each rule (`cmd/generate/config/rules`, in Go: the lists `tps` and `fps`); texts that these
programs put together while they run are left out, as are kinds of values that no rule here is for.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NOT_CLAIMED: Final = frozenset(
    {
        *("ibm_cloud_iam", "ibm_cos_hmac", "softlayer", "cloudant", "ip_public", "high_entropy_strings", "base"),
        *("db2", "box", "gh", "gh_enterprise"),
    }
)
"""Tests of detect-secrets for kinds that no rule here is for: keys without a form of their own, and addresses."""
_GO_LIST: Final = re.compile(
    r"\b(tps|fps)\s*(?::=|=)\s*(?:append\((?:tps|fps),|\[\]string\{)[ \t]*(?://[^\n]*)?\n(.*?)\n\s*(?:\}|\))\n",
    re.DOTALL,
)
_GO_TEXT: Final = re.compile(r'^\s*(?:"((?:[^"\\]|\\.)*)"|`([^`]*)`),\s*(?://.*)?$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fixture:
    """One text of a test set."""

    source: str
    kind: str
    """The file that it stands in."""
    text: str
    secret: bool
    """Whether its authors want something found."""

    @property
    def held_out(self) -> bool:
        """Whether it is in the half that rules are not tuned on."""
        return bool(hashlib.sha256(self.text.encode(errors="replace")).digest()[0] & 1)


def detect_secrets(checkout: Path) -> Sequence[Fixture]:
    """The parameters of detect-secrets' tests of its plugins."""
    found: dict[str, Fixture] = {}
    for path in sorted((checkout / "tests" / "plugins").glob("*_test.py")):
        kind = path.name.removesuffix("_test.py")
        if kind in _NOT_CLAIMED:
            continue
        for text, secret in _pairs(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(text, Fixture("detect-secrets", kind, text, secret))
    return list(found.values())


def _pairs(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Each tuple of a text and a truth value in parameters of tests."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) >= 2:
            try:
                text, secret = ast.literal_eval(node.elts[0]), ast.literal_eval(node.elts[1])
            except ValueError:
                continue
            if isinstance(text, str) and isinstance(secret, bool):
                yield text, secret


def gitleaks(checkout: Path) -> Sequence[Fixture]:
    """The texts beside gitleaks' rules that stand there whole."""
    found: dict[str, Fixture] = {}
    for path in sorted((checkout / "cmd" / "generate" / "config" / "rules").glob("*.go")):
        if path.name.endswith("_test.go"):
            continue
        for name, body in _GO_LIST.findall(path.read_text(encoding="utf-8")):
            for quoted, raw in _GO_TEXT.findall(body):
                try:
                    text = raw or ast.literal_eval(f'"{quoted}"')
                except (SyntaxError, ValueError):
                    continue
                found.setdefault(text, Fixture("gitleaks", path.stem, text, name == "tps"))
    return list(found.values())
