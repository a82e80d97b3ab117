"""`/metrics` of a real server: all of the catalogue, at zero, and nothing that the catalogue does not know."""

from __future__ import annotations

import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import CATALOG, InstrumentKind, Metric
from tests.doors.grpc.serving import PATIENCE
from tests.telemetry.watched import OPENMETRICS, Figures, Watched, prompt, scraped_name, watched

FOREIGN = re.compile(r"process_|python_|otel_|target_info")
IDS = [metric.name for metric in CATALOG]


@pytest.fixture(scope="module")
def fresh() -> Figures:
    """What is scraped before the first call."""
    with watched() as server:
        return server.scrape()


@pytest.mark.parametrize("metric", CATALOG, ids=IDS)
def test_every_series_is_there_before_the_first_call(fresh: Figures, metric: Metric) -> None:
    """A rate over a series that begins at 1 would miss its first event."""
    suffix = "_bucket" if metric.kind is InstrumentKind.HISTOGRAM else ""
    name = scraped_name(metric) + suffix
    found = [
        {label: value for label, value in sample.labels.items() if label != "le"}
        for sample in fresh.samples
        if sample.name == name
    ]
    assert found
    open_labels = (catalog.RPC_DURATION, catalog.BUILD_INFO, catalog.HTTP_SERVER_DURATION, *catalog.GENAI)
    if metric not in open_labels:
        for labels in metric.series():
            assert labels in found


def test_nothing_has_happened_before_the_first_call(fresh: Figures) -> None:
    """Counters are at zero; so nothing that only a start does is taken for a call's."""
    counters = {scraped_name(metric) for metric in CATALOG if metric.kind is InstrumentKind.COUNTER}
    assert {} == {sample.name: sample.value for sample in fresh.samples if sample.name in counters and sample.value}


def test_nothing_else_is_exposed() -> None:
    """Every series belongs to a row of the catalogue, with its labels and their values, or to the process."""
    with watched() as server:
        for iterations in range(1, 20):
            server.served.stub.TrimPrompt(prompt(iterations, model="gpt-4o"))
        figures = server.scrape()
    rows = {scraped_name(metric): metric for metric in CATALOG}
    for sample in figures.samples:
        if FOREIGN.match(sample.name):
            continue
        metric = rows.get(sample.name) or rows[re.sub(r"_(bucket|count|sum)$", "", sample.name)]
        labels = {name.replace(".", "_"): values for name, values in metric.labels.items()}
        assert labels.keys() == sample.labels.keys() - {"le"}
        for name, values in labels.items():
            assert not values or sample.labels[name] in values


def test_buckets_are_the_catalogues(fresh: Figures) -> None:
    """Also where the series was put there at zero."""
    for metric in CATALOG:
        if metric.kind is InstrumentKind.HISTOGRAM:
            name = scraped_name(metric) + "_bucket"
            bounds = {sample.labels["le"] for sample in fresh.samples if sample.name == name}
            assert {*map(str, metric.boundaries), "+Inf"} == bounds


def test_series_at_zero_are_those_of_the_reader() -> None:
    """A histogram keeps its series, names and buckets when its first value comes."""

    def shape(figures: Figures) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        closed = [metric for metric in CATALOG if metric is not catalog.TOOL_RESULT_SIZE]  # no tool is known before
        names = tuple(scraped_name(metric) for metric in closed if metric.kind is InstrumentKind.HISTOGRAM)
        return {(each.name, frozenset(each.labels.items())) for each in figures.samples if each.name.startswith(names)}

    with watched() as server:
        before = shape(server.scrape())
        server.served.stub.TrimPrompt(prompt(3))
        assert before == shape(server.scrape())


def test_buckets_lead_to_traces() -> None:
    """The exemplar of a bucket names the span in which it was recorded, and lies within the bucket."""
    with watched() as server:
        server.served.stub.TrimPrompt(prompt(3))
        figures = server.scrape()
        (span,) = server.spans()["prompt_sidecar.v1.SidecarService/TrimPrompt"]
    name = scraped_name(catalog.RPC_DURATION) + "_bucket"
    (sample,) = [sample for sample in figures.samples if sample.name == name and sample.exemplar is not None]
    assert sample.exemplar is not None
    found = span.get_span_context()
    assert found is not None
    assert {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"} == sample.exemplar.labels
    assert sample.exemplar.value <= float(sample.labels["le"])


@pytest.mark.parametrize(("accept", "content"), [(OPENMETRICS, OPENMETRICS), ("text/plain", "text/plain")])
def test_the_scraper_chooses_the_form(accept: str, content: str) -> None:
    """OpenMetrics where it is asked for, else the older text."""
    with watched() as server:
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            assert response.headers["Content-Type"].startswith(content.partition(";")[0])
            assert b"prompt_sidecar_prompts_total" in response.read()


def test_scrapes_at_the_same_time() -> None:
    """Each tells every series once."""
    with watched() as server, ThreadPoolExecutor(8) as pool:
        texts = [_names(figures) for figures in pool.map(lambda _: server.scrape(), range(16))]
    for names in texts:
        assert len(set(names)) == len(names)


def _names(figures: Figures) -> list[tuple[str, frozenset[tuple[str, str]]]]:
    return [(sample.name, frozenset(sample.labels.items())) for sample in figures.samples]


def test_build_info_tells_what_runs(fresh: Figures) -> None:
    """One series, at 1."""
    (info,) = [sample for sample in fresh.samples if sample.name == scraped_name(catalog.BUILD_INFO)]
    assert (1, {"version", "python"}) == (info.value, set(info.labels))


def test_active_calls_are_counted() -> None:
    """A call that is held is one that is active, and it is none when it was answered."""
    with watched() as server:
        gate = server.served.gate
        gate.shut()
        pending = server.served.stub.TrimPrompt.future(prompt(1))
        gate.wait_reached()
        assert 1 == _active(server)
        gate.open()
        pending.result()
        assert 1 == server.scrape().of(catalog.PROMPTS)


def _active(server: Watched) -> float:
    """Totals of the core are read from the same scrape, and its clock is not asked for them."""
    return server.scrape().of(catalog.CALLS_ACTIVE)
