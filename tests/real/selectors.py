"""What a query names: each selector in it, and the labels by which what it selects is grouped, joined or shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser as promql

_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric that a query reads."""

    metric: str
    text: str
    """As PromQL, without range."""
    labels: frozenset[str]
    """Every label that the query or a legend names for it."""


def selectors(query: str, legend: str = "") -> list[Selector]:
    """Every selector of a query."""
    return list(_of(promql.parse(query), frozenset(_LEGEND.findall(legend))))


def _of(node: promql.Expr, named: frozenset[str]) -> Iterator[Selector]:
    match node:
        case promql.VectorSelector():
            matchers = node.matchers.matchers
            metric = node.name or next(each.value for each in matchers if each.name == "__name__")
            # `error_type=""` asks for series that do not have the label.
            asked = [each for each in matchers if each.value or str(each.op) != "MatchOp.Equal"]
            own = frozenset(each.name for each in asked) - {"__name__"}
            yield Selector(metric, _text(node), own | named)
        case promql.MatrixSelector():
            yield from _of(node.vector_selector, named)
        case promql.AggregateExpr():
            grouped = node.modifier.labels if node.modifier else []
            # What an aggregation drops cannot be named outside of it, and what it keeps must be there inside.
            yield from _of(node.expr, frozenset(grouped))
        case promql.BinaryExpr():
            joined = node.modifier.matching.labels if node.modifier and node.modifier.matching else []
            yield from _of(node.lhs, named | frozenset(joined))
            yield from _of(node.rhs, frozenset(joined))
        case promql.Call():
            for argument in node.args:
                yield from _of(argument, named - {"le"} if node.func.name == "histogram_quantile" else named)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from _of(node.expr, named)
        case _:
            return


def _text(node: promql.VectorSelector) -> str:
    matchers = ", ".join(
        f"{each.name}{_OPERATORS[str(each.op)]}{_quoted(each.value)}" for each in node.matchers.matchers
    )
    return f"{node.name or ''}{{{matchers}}}"


_OPERATORS = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
