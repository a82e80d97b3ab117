"""docs/telemetry.md: prose by hand, and between marks what catalogue and settings know.

`python -m tests.telemetry.telemetry_page` writes what has changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prompt_sidecar.config.reference import sections
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import CATALOG, Metric
from tests.config.settings_page import rows
from tests.telemetry.backends import ALL, BACKENDS
from tests.telemetry.watched import scraped_name

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MOST_VALUES = 12
"""Of a label that a row lists; what has more is a list of its own."""


def remade(page: str) -> str:
    """The page with its generated blocks as they should be."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{chr(10).join(BLOCKS[found[2]]())}\n\n{found[3]}", page)


def _metrics() -> Iterator[str]:
    yield "| metric | kind | unit | labels | what |"
    yield "|---|---|---|---|---|"
    for metric in CATALOG:
        yield f"| `{scraped_name(metric)}` | {metric.kind} | {metric.unit} | {_labels(metric)} | {metric.description} |"


def _labels(metric: Metric) -> str:
    return "; ".join(_label(name, values) for name, values in metric.labels.items())


def _label(name: str, values: tuple[str, ...]) -> str:
    shown = f"`{name.replace('.', '_')}`"
    if not values or len(values) > MOST_VALUES:
        return shown
    return f"{shown}: {', '.join(values)}"


def _bounds() -> Iterator[str]:
    yield from (f"- `{name}`" for name in catalog.BOUNDS)


def _settings() -> Iterator[str]:
    return rows({f"telemetry.{key}": each for key, each in sections()["telemetry"].items()})


def _backends() -> Iterator[str]:
    yield "| it reads | for | on spans |"
    yield "|---|---|---|"
    for backend, read in BACKENDS.items():
        yield f"| **{backend}** | | |"
        for row in read:
            if row.on:
                kinds = "all" if row.on == ALL else ", ".join(f"`{kind}`" for kind in row.on)
                yield f"| `{row.attribute}` | {row.shows} | {kinds} |"
        for reason in dict.fromkeys(row.lacks for row in read if row.lacks):
            lacking = [row for row in read if row.lacks == reason]
            names = ", ".join(f"`{row.attribute}`" for row in lacking)
            shown = ", ".join(dict.fromkeys(row.shows for row in lacking))
            yield f"| {names} | {shown} | none: {reason} |"


BLOCKS: Mapping[str, Callable[[], Iterator[str]]] = {
    "metrics": _metrics,
    "bounds": _bounds,
    "settings": _settings,
    "backends": _backends,
}


if __name__ == "__main__":
    PAGE.write_text(remade(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
