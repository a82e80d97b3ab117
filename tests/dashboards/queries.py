"""Queries taken apart by Prometheus's own grammar: which metrics they read, and with which matchers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    VectorSelector,
    parse_duration,
)
from promql_parser import parse as parse_promql

WINDOWS = {"$__rate_interval": "17m", "$__range": "23h"}
"""What stands for Grafana's windows while a query is parsed: no real window is so long."""
PRICES = {"${read_price}": "0.1", "${write_price}": "1.25"}
"""The same for the variables that are numbers; $job, $instance and $by stand in quotes, and parse as they are."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One matcher of a selector."""

    label: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector of a query."""

    metric: str
    matchers: tuple[Matcher, ...]

    def named(self, label: str) -> list[Matcher]:
        """Return the matchers of a label."""
        return [matcher for matcher in self.matchers if matcher.label == label]


@dataclass(frozen=True, slots=True)
class Query:
    """What a query reads, how it rolls up, which labels it groups by, and where it may say NaN."""

    selectors: tuple[Selector, ...]
    windows: tuple[tuple[str, str], ...]
    """Function over a window, and that window."""
    grouped: frozenset[str]
    unguarded: tuple[str, ...]
    """Divisions by what may be 0, and quantiles of what may be empty."""


def _walk(node: Any) -> list[Any]:
    """Return a node and all below it."""
    below = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "param", "vector_selector")]
    below += getattr(node, "args", None) or []
    return [node, *(deeper for each in below if isinstance(each, Expr) for deeper in _walk(each))]


def _bare(node: Any) -> Any:
    """Return what stands in the parentheses, if the node is such."""
    while isinstance(node, ParenExpr):
        node = node.expr
    return node


def _operator(node: BinaryExpr) -> str:
    return str(node.op)


def _never_zero(node: Any) -> bool:
    """Whether a divisor is compared with 0, which leaves out what is, or is a number."""
    if isinstance(node, NumberLiteral):
        return bool(node.val)
    return isinstance(node, BinaryExpr) and _operator(node) == ">" and _bare(node.rhs).prettify() == "0"


def _over_time(node: Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], MatrixSelector)


def _window(node: Call) -> tuple[str, str]:
    width: timedelta = node.args[0].range
    names = {parse_duration(value): name for name, value in WINDOWS.items()}
    return node.func.name, names.get(width, f"{width.total_seconds() / 60:g}m")


def _selector(node: VectorSelector) -> Selector:
    operators = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
    matchers = (
        Matcher(m.name, operators[str(m.op).rsplit(".", maxsplit=1)[-1]], m.value) for m in node.matchers.matchers
    )
    return Selector(str(node.name), tuple(matchers))


def parse(text: str) -> Query:
    """Return what a query is made of.

    Raises:
        ValueError: If Prometheus would not take it.
    """
    plain = text
    for name, value in (WINDOWS | PRICES).items():
        plain = plain.replace(name, value)
    nodes = _walk(parse_promql(plain))
    compared = {id(_bare(node.lhs)) for node in nodes if isinstance(node, BinaryExpr) and _operator(node) == ">="}
    # Kept in a list above, so that no two of them share an id.
    return Query(
        tuple(_selector(node) for node in nodes if isinstance(node, VectorSelector)),
        tuple(_window(node) for node in nodes if isinstance(node, Call) and _over_time(node)),
        frozenset(
            name
            for node in nodes
            if isinstance(node, AggregateExpr) and node.modifier is not None
            for name in node.modifier.labels
        ),
        tuple(
            node.prettify()
            for node in nodes
            if (isinstance(node, BinaryExpr) and _operator(node) == "/" and not _never_zero(_bare(node.rhs)))
            or (isinstance(node, Call) and node.func.name == "histogram_quantile" and id(node) not in compared)
        ),
    )
