"""What arrived of spans and metrics, held against the tables of `conventions.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.real.otlp import Point, Span
from tests.telemetry.conventions import NOT_WRITTEN, NOT_WRITTEN_HERE, OWN, SPANS, Attribute, Level

BESIDE: Final[Mapping[str, frozenset[str]]] = {
    # Attributes of other conventions' that may stand on any span of a request or of a tool's call.
    "http": frozenset({"gen_ai.conversation.id"}),
    "inference": frozenset({"http.response.status_code", "gen_ai.usage.cache_creation.input_tokens"}),
    "execute_tool": frozenset({"gen_ai.conversation.id"}),
    "search_memory": frozenset({"gen_ai.conversation.id"}),
}
"""What the spans have beyond their tables: names of the conventions all the same."""
OURS: Final = frozenset({"route"})
"""Labels of our own that have no prefix."""


def table_of(span: Span) -> str:
    """Which table a span belongs to; empty: none of them, as it follows no convention of its own."""
    if span.kind == "CLIENT" and "gen_ai.provider.name" in span.attributes:
        return "inference"
    if span.kind == "SERVER":
        return "mcp" if "mcp.method.name" in span.attributes else "http"
    operation = str(span.attributes.get("gen_ai.operation.name", ""))
    return operation if operation in SPANS else ""


def wrong(name: str, table: Mapping[str, Attribute], attributes: Mapping[str, Any]) -> list[str]:
    """What of attributes is against their table."""
    found = []
    for attribute, value in attributes.items():
        if attribute.startswith(OWN) or attribute in BESIDE.get(name, ()):
            continue
        row = table.get(attribute)
        if row is None:
            found.append(f"{name}: {attribute} is none of the conventions")
        elif not isinstance(value, row.type) or (isinstance(value, bool) and row.type is not bool):
            found.append(f"{name}: {attribute} is {value!r}, no {row.type.__name__}")
    missing = [each for each, row in table.items() if row.level is Level.REQUIRED and each not in attributes]
    return found + [f"{name}: {each} is required and not there" for each in missing]


def unwritten(
    name: str, table: Mapping[str, Attribute], seen: Sequence[Mapping[str, Any]]
) -> tuple[set[str], set[str]]:
    """Attributes of a table that were seen nowhere and have no reason for it; and those that have one and were seen."""
    written = {attribute for attributes in seen for attribute in attributes}
    excused = set(NOT_WRITTEN) | set(NOT_WRITTEN_HERE.get(name, ()))
    return set(table) - written - excused, written & excused & set(table)


def of_conventions(points: Sequence[Point]) -> dict[str, list[dict[str, Any]]]:
    """The attributes of the points of the conventions' metrics, without our own."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for point in points:
        if point.name.startswith(("gen_ai.", "http.", "mcp.")):
            found[point.name].append({name: value for name, value in point.attributes.items() if name not in OURS})
    return dict(found)
