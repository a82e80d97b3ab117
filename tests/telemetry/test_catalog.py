"""The catalogue against the code: every bound that is counted has a name there, and every name there is counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prompt_sidecar.telemetry import changes
from prompt_sidecar.telemetry.catalog import BOUND_HITS, BOUNDS, CATALOG, RPC_DURATION, InstrumentKind
from prompt_sidecar.telemetry.observer import counters

SIDECAR = Path(__file__).parents[2] / "sidecar" / "prompt_sidecar"
NAME = re.compile(r'"([a-z_]+\.[a-z_]+|accept_bytes)"')
COUNTED = re.compile(r"bound=|= Bounds\(|bounds\.add\(|bound\(")
REACHED = re.compile(r"reached\(\"|_cut_off\(\w+, \"|^(?:\w+_)?BOUND(?:: Final)? = \"")
"""Bounds of connections, where there is no call to tell them, and names that stand in a constant."""


def test_every_bound_is_counted_under_a_name_of_the_catalogue() -> None:
    """In the lines that count, and in the calls that they belong to."""
    found: set[str] = set()
    for path in SIDECAR.rglob("*.py"):
        if path.name == "catalog.py":
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if (
                COUNTED.search(line)
                or "BOUND_HITS, (" in line
                or REACHED.search(line)
                or re.match(r"\s+self\.[_a-z.]*bounds\.add\(", line)
            ):
                found.update(NAME.findall(line))
    assert set(BOUNDS) == found


@pytest.mark.parametrize("metric", CATALOG, ids=[metric.name for metric in CATALOG])
def test_names_are_as_openmetrics_wants_them(metric: object) -> None:
    """No unit and no `total` in a name, help for each, and boundaries that rise."""
    from prompt_sidecar.telemetry.catalog import Metric

    assert isinstance(metric, Metric)
    assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", metric.name)
    assert not re.search(r"total|seconds|bytes$|count$|ratio_", metric.name)
    assert metric.description.endswith(".")
    assert (metric.kind is InstrumentKind.HISTOGRAM) == bool(metric.boundaries)
    assert sorted(set(metric.boundaries)) == list(metric.boundaries)


def test_a_value_that_no_label_knows_costs_no_answer() -> None:
    """It would be a mistake of ours; it is counted as it is."""
    tallies = counters()
    tallies.add([changes.bound("made.up")])
    assert 1 == tallies.read(BOUND_HITS)["made.up",]


def test_calls_are_counted_as_the_conventions_have_it() -> None:
    """Names and labels of OpenTelemetry's conventions for RPC."""
    assert ("rpc.server.call.duration", "s") == (RPC_DURATION.name, RPC_DURATION.unit)
    assert {"rpc.system.name", "rpc.method", "rpc.response.status_code"} == RPC_DURATION.labels.keys()
