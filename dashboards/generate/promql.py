"""Queries, written from rows of the catalogue.

A label that the metric does not have, or a value that the label cannot have, is an error here, not an empty panel
later. The same functions write panels and rules: what differs (which matchers every selector carries, the window of a
rate, the labels that stay) is a `Place`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dashboards.generate.names import TARGET_INFO, Foreign, family, labels, series
from prompt_sidecar.telemetry.catalog import BUILD_INFO, InstrumentKind, Metric


@dataclass(frozen=True, slots=True)
class Not:
    """None of these values; the empty value means a label that is not there."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """Values that a regular expression describes; for open sets only."""

    pattern: str


Match = str | tuple[str, ...] | Not | Like
"""One value, one of some values, none of some values, or a pattern."""
Where = Mapping[str, Match]


def _matcher(metric: Metric | Foreign, name: str, match: Match) -> str:
    known = labels(metric)
    if name not in known:
        raise ValueError(f"{metric.name} has no label {name}, only {sorted(known)}")
    if isinstance(match, Like):
        if known[name]:
            raise ValueError(f"{metric.name}: {name} is a closed set, name its values")
        return f'{name}=~"{match.pattern}"'
    values = (match,) if isinstance(match, str) else match if isinstance(match, tuple) else match.values
    strange = set(values) - set(known[name]) if known[name] else set()
    if strange:
        raise ValueError(f"{metric.name}: {name} is never {sorted(strange)}")
    negated = isinstance(match, Not)
    if len(values) == 1:
        return f'{name}{"!=" if negated else "="}"{values[0]}"'
    # A dot of a value means itself; within PromQL's quotes a backslash is written twice.
    escaped = "|".join(re.escape(value).replace("\\", "\\\\") for value in values)
    return f'{name}{"!~" if negated else "=~"}"{escaped}"'


@dataclass(frozen=True, slots=True)
class Place:
    """Where queries stand: what is common to all of them."""

    matchers: tuple[str, ...]
    """In every selector."""
    window: str
    """Of every rate."""
    keep: tuple[str, ...] = ()
    """Labels that every sum keeps."""
    joined: str = ""
    """What each series is multiplied by, to give it labels; empty: nothing."""
    sidecars: str = ""
    """What has the job and instance of each sidecar, to leave out other programs' series; empty: matchers do that."""

    def select(self, metric: Metric | Foreign, where: Where | None = None, suffix: str = "", le: str = "") -> str:
        """Return the selector of a metric's series; `suffix` and `le` name a part of a histogram."""
        name = family(metric) + suffix
        if name not in series(metric):
            raise ValueError(f"{name} does not exist, only {series(metric)}")
        matchers = [*self.matchers, *(_matcher(metric, key, match) for key, match in (where or {}).items())]
        if le:
            matchers.append(f'le="{le}"')
        return f"{name}{{{', '.join(matchers)}}}" if matchers else name

    def each(self, metric: Foreign) -> str:
        """Return a metric's series of sidecars, one for each."""
        return self._of_sidecars(self.select(metric), metric)

    def _of_sidecars(self, query: str, metric: Metric | Foreign) -> str:
        any_program = isinstance(metric, Foreign) and metric.of_any_program
        return f"({query} and on (job, instance) {self.sidecars})" if any_program and self.sidecars else query

    def _sum(self, inner: str, metric: Metric | Foreign, by: tuple[str, ...]) -> str:
        strange = set(by) - set(labels(metric)) - {"le", "job", "instance"}
        if strange:
            raise ValueError(f"{metric.name} has no label {sorted(strange)}")
        inner = self._of_sidecars(inner, metric)
        inner = f"{inner} * {self.joined}" if self.joined else inner
        kept = (*self.keep, *by)
        return f"sum by ({', '.join(kept)}) ({inner})" if kept else f"sum({inner})"

    def value(self, metric: Metric | Foreign, *, by: tuple[str, ...] = (), where: Where | None = None) -> str:
        """Return what a gauge says."""
        return self._sum(self.select(metric, where), metric, by)

    def rate(self, metric: Metric | Foreign, *, by: tuple[str, ...] = (), where: Where | None = None) -> str:
        """Return a counter's growth a second; of a histogram, that of the number of its observations."""
        return self._grown("rate", metric, by, where)

    def rate_of_all(self, *parts: tuple[Metric, Where]) -> str:
        """Return the growth a second of several counters or histograms together; one that is missing counts nothing.

        Their series must differ in more than their names, which a rate drops.
        """
        rates = []
        for metric, where in parts:
            counted = "_count" if metric.kind is InstrumentKind.HISTOGRAM else ""
            rates.append(f"rate({self.select(metric, where, counted)}[{self.window}])")
        return self._sum(f"({' or '.join(rates)})", parts[0][0], ())

    def each_minute(self, metric: Metric | Foreign, *, by: tuple[str, ...] = (), where: Where | None = None) -> str:
        """Return a counter's growth a minute."""
        return f"60 * {self.rate(metric, by=by, where=where)}"

    def each_hour(self, metric: Metric | Foreign, *, by: tuple[str, ...] = (), where: Where | None = None) -> str:
        """Return a counter's growth an hour."""
        return f"3600 * {self.rate(metric, by=by, where=where)}"

    def increase(self, metric: Metric | Foreign, *, by: tuple[str, ...] = (), where: Where | None = None) -> str:
        """Return a counter's growth over the window; of a histogram, that of the number of its observations."""
        return self._grown("increase", metric, by, where)

    def _grown(self, function: str, metric: Metric | Foreign, by: tuple[str, ...], where: Where | None) -> str:
        if isinstance(metric, Metric) and metric.kind is InstrumentKind.GAUGE:
            raise ValueError(f"{metric.name} is a gauge: it has no rate")
        counted = isinstance(metric, Metric) and metric.kind is InstrumentKind.HISTOGRAM
        selector = self.select(metric, where, "_count" if counted else "")
        return self._sum(f"{function}({selector}[{self.window}])", metric, by)

    def quantile(self, quantile: float, metric: Metric, *, by: tuple[str, ...] = (), where: Where | None = None) -> str:
        """Return a quantile of a histogram; nothing, rather than NaN, where nothing was observed."""
        buckets = self._sum(f"rate({self.select(metric, where, '_bucket')}[{self.window}])", metric, (*by, "le"))
        # Any comparison is false for NaN, and no histogram takes a value below 0.
        return f"histogram_quantile({quantile:g}, {buckets}) >= 0"

    def within(self, metric: Metric, low: float, high: float, *, by: tuple[str, ...] = ()) -> str:
        """Return the part of a histogram's observations above `low` and up to `high`; both are boundaries."""
        if not {low, high} <= set(metric.boundaries):
            raise ValueError(f"{metric.name} has the boundaries {metric.boundaries}")

        def up_to(bound: float) -> str:
            return self._sum(
                f"rate({self.select(metric, None, '_bucket', le=str(float(bound)))}[{self.window}])", metric, by
            )

        return ratio(f"({up_to(high)} - {up_to(low)})", self.rate(metric, by=by))

    def up_to(self, metric: Metric, bound: float, *, by: tuple[str, ...] = ()) -> str:
        """Return the part of a histogram's observations up to a bound, which is a boundary."""
        if bound not in metric.boundaries:
            raise ValueError(f"{metric.name} has the boundaries {metric.boundaries}")
        inner = f"rate({self.select(metric, None, '_bucket', le=str(bound))}[{self.window}])"
        return ratio(self._sum(inner, metric, by), self.rate(metric, by=by))


def ratio(part: str, whole: str) -> str:
    """Return part / whole; nothing, rather than NaN, where the whole is 0."""
    return f"{part} / ({whole} > 0)"


def short_methods(query: str) -> str:
    """Return the query with methods by their own names, as legends have no room for their service's."""
    return f'label_replace({query}, "rpc_method", "$1", "rpc_method", ".*/(.*)")'


def or_zero(query: str) -> str:
    """Return the query, or one 0 where it finds nothing: for series that begin with the first event."""
    return f"({query}) or vector(0)"


_CHOSEN: Final = ('job=~"$job"', 'instance=~"$instance"')
_SIDECARS: Final = Place(_CHOSEN, "").select(BUILD_INFO)
PANEL: Final = Place(_CHOSEN, "$__rate_interval", sidecars=_SIDECARS)
"""A panel over time."""
SPAN: Final = Place(_CHOSEN, "$__range", sidecars=_SIDECARS)
"""A panel of one figure for the whole time that is shown."""

GROUP: Final = "group"
"""The label by which a fleet is shown: what the variable `by` names."""


def _grouped() -> str:
    """Give series the label `group`: an attribute of the sidecar's resource, or its instance where that is not set."""
    every = PANEL.each(TARGET_INFO)
    attribute = (
        f'label_replace(label_replace({every}, "{GROUP}", "$1", "instance", "(.*)"), "{GROUP}", "$1", "$by", "(.+)")'
    )
    return f"on (job, instance) group_left ({GROUP}) group by (job, instance, {GROUP}) ({attribute})"


FLEET: Final = Place(_CHOSEN, "$__rate_interval", (GROUP,), _grouped(), _SIDECARS)
"""A panel over time with a series for each group."""
