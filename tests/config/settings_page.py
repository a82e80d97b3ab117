"""docs/settings.md: an introduction by hand, and between marks every setting from its declaration.

`python -m tests.config.settings_page` writes what has changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prompt_sidecar.config.reference import sections
from prompt_sidecar.config.settings import TABLES
from prompt_sidecar.values import Setting

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
TITLES = {
    "": "General",
    "server": "Server",
    "http": "HTTP door",
    "envoy": "Envoy",
    "log": "Log",
    "tokens": "Tokens",
    "limits": "Limits",
    "recall": "Recall",
    "search": "Search",
    "guard": "Guard",
    "store": "Store",
    "telemetry": "Telemetry",
    "admin": "Pages of runs",
    "ceilings": "Ceilings",
    "policy": "Policy",
}
ELSEWHERE = "policy"
"""The policy's knobs have a page of their own, docs/policy.md."""


def remade(page: str, blocks: Mapping[str, Callable[[], Iterator[str]]]) -> str:
    """A page with its generated blocks as they should be."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{chr(10).join(blocks[found[2]]())}\n\n{found[3]}", page)


def rows(settings: Mapping[str, Setting]) -> Iterator[str]:
    """A table of settings by their shown names, the advanced ones last and apart."""
    advanced = {name: each for name, each in settings.items() if each.advanced}
    plain = {name: each for name, each in settings.items() if not each.advanced}
    if plain:
        yield from _table(plain)
    if advanced:
        yield from (["", "Advanced; the defaults suit nearly everybody:", ""] if plain else ["Advanced:", ""])
        yield from _table(advanced)


def _table(settings: Mapping[str, Setting]) -> Iterator[str]:
    yield "| name | what | default | accepted | why that default |"
    yield "|---|---|---|---|---|"
    for name, each in settings.items():
        accepted = each.kind.accepted.replace("|", r"\|")
        default = "" if each.required else f"`{each.shown_default}`"
        yield f"| `{name}` | {each.what} | {default} | {accepted} | {each.why} |"


def _settings() -> Iterator[str]:
    for table, settings in sections().items():
        if table != ELSEWHERE:
            yield from (["", f"## {TITLES[table]}", ""] if table else [f"## {TITLES[table]}", ""])
            yield from rows({f"{table}.{key}" if table else key: each for key, each in settings.items()})


def _several() -> Iterator[str]:
    for place, several in enumerate(TABLES.values()):
        yield from ([""] if place else [])
        yield f"## {several.example.splitlines()[0]}"
        yield from ("", several.what, "")
        if not several.made_of_others:
            yield from (*rows(several.settings), "")
        yield from ("```toml", *several.example.splitlines(), "```")


BLOCKS: Mapping[str, Callable[[], Iterator[str]]] = {"settings": _settings, "several": _several}


if __name__ == "__main__":
    PAGE.write_text(remade(PAGE.read_text(encoding="utf-8"), BLOCKS), encoding="utf-8")
