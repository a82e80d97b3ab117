"""One fact of a provider, one place: code outside the providers' folders names no provider and no format."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from prompt_sidecar.providers.table import MESSAGES, PROVIDERS

PACKAGE = Path(__file__).parents[2] / "sidecar" / "prompt_sidecar"
NAMES = frozenset(MESSAGES) | frozenset(map(str, PROVIDERS))
FOLDERS = ("providers", "prompt", "answers", "v1", "doors/envoy/v1")
"""Folders in which providers and formats may be named."""
EXCEPTIONS = {
    "integrations/calls.py": "frameworks' names of providers",
    "integrations/litellm.py": "LiteLLM's own names of its calls",
}
"""Modules that name them for a reason of their own."""


def named(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare with, branch on, or tabulate a provider or a format."""
    for node in ast.walk(tree):
        values: list[ast.AST | None] = []
        if isinstance(node, ast.Compare):
            values = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            values = [*node.keys]
        elif isinstance(node, ast.MatchValue):
            values = [node.value]
        elif isinstance(node, ast.Subscript):
            values = [node.slice]
        elif isinstance(node, ast.Set | ast.Tuple | ast.List):
            values = [*node.elts]
        for value in values:
            if isinstance(value, ast.Constant) and value.value in NAMES:
                yield value.lineno
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (node.lineno for each in _imported(node) if each.rpartition(".")[2] in NAMES)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules of ours that a statement imports from, what it imports of them, and that as a text."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names if each.name.startswith("prompt_sidecar")]
    module = node.module or ""
    if not module.startswith("prompt_sidecar"):
        return []
    names = [each.name for each in node.names]
    return [module, *names, *(str(getattr(import_module(module), name, "")) for name in names if name.isupper())]


MODULES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*.py")
    if not path.relative_to(PACKAGE).as_posix().startswith(tuple(f"{folder}/" for folder in FOLDERS))
)


@pytest.mark.parametrize("module", [each for each in MODULES if each not in EXCEPTIONS])
def test_a_module_names_no_provider(module: str) -> None:
    """It asks the table of providers instead."""
    assert [] == list(named(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))))


@pytest.mark.parametrize("module", EXCEPTIONS)
def test_an_exception_is_still_needed(module: str) -> None:
    """A module that names no provider any more is no exception."""
    assert [] != list(named(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "code",
    [
        'if format == "openai_chat": pass',
        'TABLE = {"openai_chat": 1}',
        'TABLE["gemini_contents"]',
        'if format in ("anthropic_messages", "bedrock_converse"): pass',
        'match format:\n    case "openai_responses": pass',
        "from prompt_sidecar.providers.bedrock_converse import BEDROCK",
        "from prompt_sidecar.prompt.likeness import CHAT",
        "from prompt_sidecar.answers import openai_responses",
        "from prompt_sidecar.providers.gemini_contents import GeminiContents",
    ],
)
def test_every_way_to_name_one_is_found(code: str) -> None:
    """Comparisons, tables, branches and constants."""
    assert [] != list(named(ast.parse(code)))
