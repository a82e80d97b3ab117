"""docs/windows.md: prose by hand, and between marks the table of known windows. Run as a program, writes it again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.providers.catalogue import find

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "windows.md"
SHOWN: Final = (
    "gpt-4o", "gpt-4.1", "gpt-5", "gpt-5.3-codex", "gpt-5.4", "gpt-5.5", "gpt-6-sol", "gpt-6.2-sol", "o3",
    "claude-sonnet-4-5", "claude-opus-4-6", "claude-haiku-5-5", "claude-sonnet-5-5", "claude-fable-5-2",
    "gemini-2.5-pro", "gemini-3.8-flash", "gemini-4-argon", "grok-4.7", "deepseek-v4-pro", "kimi-k3", "glm-5.3",
    "qwen3-coder",
)  # fmt: skip
"""Models of the page's table: a few of thousands."""
_BLOCK: Final = re.compile(r"(<!-- generated: windows -->\n).*?(<!-- end -->)", re.DOTALL)


def remade(page: str) -> str:
    """The page with its table as it should be."""
    table = "\n".join(_table())
    return _BLOCK.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", page)


def _table() -> Iterator[str]:
    yield "| model | window | most input | most output |"
    yield "|---|---|---|---|"
    for name in SHOWN:
        model = find(name)
        if model is None:
            raise LookupError(name)
        sizes = (f"{size:,}" if size else "" for size in (model.window, model.most_input, model.most_output))
        yield f"| `{name}` | {' | '.join(sizes)} |"
    yield f"| any that is unknown, and none | {Limits().default_window:,}, assumed (`limits.default_window`) | | |"


if __name__ == "__main__":
    PAGE.write_text(remade(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
