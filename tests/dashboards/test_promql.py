"""A query that names what does not exist cannot be written."""

from __future__ import annotations

import pytest

from dashboards.generate.figures import share
from dashboards.generate.promql import PANEL, Like, Not, Place, Where, or_zero, ratio
from prompt_sidecar.telemetry.catalog import (
    BOUND_HITS,
    CACHE_BREAKS,
    ESTIMATE_RATIO,
    PROMPTS,
    RUNS_ACTIVE,
    SEARCH_DURATION,
)
from tests.dashboards.queries import parse

RULE = Place((), "5m", ("job", "instance"))


def test_a_panel_carries_job_and_instance() -> None:
    """Whoever chooses one instance sees that one only."""
    expected = (
        'sum by (cause) (rate(prompt_sidecar_cache_breaks_total{job=~"$job", instance=~"$instance"}[$__rate_interval]))'
    )

    assert expected == PANEL.rate(CACHE_BREAKS, by=("cause",))


def test_a_rule_keeps_job_and_instance() -> None:
    """An alert says which sidecar it is about."""
    expected = 'sum by (job, instance) (increase(prompt_sidecar_cache_breaks_total{cause="agent"}[5m]))'

    assert expected == RULE.increase(CACHE_BREAKS, where={"cause": "agent"})


@pytest.mark.parametrize(
    "where",
    [
        {"reason": "agent"},
        {"cause": "agents"},
        {"cause": ("agent", "nobody")},
        {"cause": Not(("nobody",))},
        {"cause": Like("a.*")},
    ],
    ids=["label", "value", "one of some", "negated", "pattern"],
)
def test_what_a_metric_cannot_say_is_refused(where: Where) -> None:
    """A typing error is no empty panel."""
    with pytest.raises(ValueError, match=r"prompt_sidecar\.cache\.breaks"):
        PANEL.rate(CACHE_BREAKS, where=where)


def test_grouping_by_a_strange_label_is_refused() -> None:
    """It would make one series without a name."""
    with pytest.raises(ValueError, match="has no label"):
        PANEL.rate(CACHE_BREAKS, by=("reason",))


def test_a_gauge_has_no_rate() -> None:
    """Prometheus would answer something all the same."""
    with pytest.raises(ValueError, match="is a gauge"):
        PANEL.rate(RUNS_ACTIVE)


def test_a_share_lies_between_boundaries() -> None:
    """Between two of them nobody knows how many there are."""
    with pytest.raises(ValueError, match="has the boundaries"):
        PANEL.within(ESTIMATE_RATIO, 0.93, 1.07)


def test_values_are_escaped_where_they_stand_in_a_pattern() -> None:
    """The dot of a setting's name is no wildcard, and the query still parses to the same pattern."""
    query = RULE.rate(BOUND_HITS, where={"bound": ("limits.runs", "tasks.count")})

    assert [r"limits\.runs|tasks\.count"] == [m.value for m in parse(query).selectors[0].named("bound")]


def test_rates_of_histograms_count_observations() -> None:
    """Their sum is another question."""
    expected = "sum by (job, instance) (rate(prompt_sidecar_search_duration_seconds_count[5m]))"

    assert expected == RULE.rate(SEARCH_DURATION)


def test_a_negated_single_value_uses_inequality() -> None:
    """The empty value then means: the label is there."""
    assert '{outcome!="refused"}' in RULE.rate(PROMPTS, where={"outcome": Not(("refused",))})


@pytest.mark.parametrize("query", [ratio("a", "b"), share("a", "b"), or_zero("a"), f"1 - {ratio('a', 'b')}"])
def test_what_is_put_together_parses(query: str) -> None:
    """Parentheses stand where they must."""
    assert {"a", "b"} >= {selector.metric for selector in parse(query).selectors} > set()
