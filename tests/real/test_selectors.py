"""What a query names is found wherever it stands in the query."""

from __future__ import annotations

from tests.real.selectors import Selector, selectors


def found(query: str, legend: str = "") -> list[tuple[str, str, list[str]]]:
    """Selectors, as plain values."""
    return [(each.metric, each.text, sorted(each.labels)) for each in selectors(query, legend)]


def test_a_selector_with_what_it_is_grouped_and_matched_by() -> None:
    """Labels of matchers and of the aggregation around belong to it; those outside of that do not."""
    query = 'sum by (job) (rate(calls{code!="OK"}[5m])) / on (job) group_left () limit > 0'

    assert [("calls", 'calls{code!="OK"}', ["code", "job"]), ("limit", "limit{}", ["job"])] == found(query)


def test_a_quantile_needs_no_bucket_label_beyond_it() -> None:
    """`le` is gone after histogram_quantile, and a legend's label must be there."""
    query = "histogram_quantile(0.99, sum by (le, method) (rate(time_bucket[5m])))"

    assert [("time_bucket", "time_bucket{}", ["le", "method"])] == found(query, "{{method}}")


def test_a_legend_names_labels_of_a_bare_selector() -> None:
    """Nothing is dropped on the way to it."""
    assert [Selector("up", "up{}", frozenset({"instance"}))] == selectors("up", "{{instance}}")
