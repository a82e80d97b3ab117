"""What telemetry takes of a warm TrimPrompt: the same calls with it and without, taking turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter, thread_time
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from prompt_sidecar.calls.use_cases import UseCases
from prompt_sidecar.doors.grpc.callers import CALLER as CALLED_BY
from prompt_sidecar.doors.grpc.servicer import SERVICE, Servicer
from prompt_sidecar.telemetry.observer import Observer
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import Running, assemble, partial_processor
from prompt_sidecar.telemetry.pushed import WithOurs
from tests.lab.bench.inprocess import runs
from tests.lab.harness.figures import Section, best_of, milliseconds, ratio
from tests.lab.harness.prompts import ACCEPT_BYTES, CALLER, Prompts, request

TARGET = 0.10
"""Of the processor time of a call."""
METHOD = f"{SERVICE}/TrimPrompt"
METADATA = (("user-agent", "bench"), ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))


class _Pushed(WithOurs, InMemoryMetricReader):
    """Takes metrics as an exporter does."""


class _Nowhere(SpanExporter):
    """Takes spans and forgets them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - it forgets them
        return SpanExportResult.SUCCESS


class _Context:
    """A call that nobody gives up, as far as the servicer asks."""

    @staticmethod
    def is_active() -> bool:
        return True

    @staticmethod
    def time_remaining() -> None:
        return None


def _metrics(*more: MetricReader, spans: bool = False) -> Running:
    return assemble(
        TelemetryOptions(),
        resource=Resource.get_empty(),
        readers=more,
        processor=partial_processor(lambda _: _Nowhere()) if spans else None,
    )


CONTENDERS: dict[str, Callable[[], Running]] = {
    "none": Running,
    "/metrics": _metrics,
    "/metrics, OTLP metrics, every call traced": lambda: _metrics(_Pushed(), spans=True),
}


class _Contender:
    """A servicer and whom it tells."""

    def __init__(self, running: Running) -> None:
        self.observer: Observer = running.observer
        self.core = runs()
        self.servicer = Servicer(UseCases(self.core, observer=self.observer), ACCEPT_BYTES)
        self.context: Any = _Context()

    def call(self, raw: bytes) -> float:
        """Serve a call as the guard does; its processor time."""
        began = thread_time()
        called = self.observer.begun(METHOD, perf_counter(), lambda: METADATA, traced=True)
        self.observer.waited(0.0001)
        self.servicer.trim_prompt(raw, self.context)
        self.observer.ended(called, "OK")
        return thread_time() - began


@contextmanager
def _contenders() -> Iterator[dict[str, _Contender]]:
    running = {name: make() for name, make in CONTENDERS.items()}
    try:
        yield {name: _Contender(each) for name, each in running.items()}
    finally:
        for each in running.values():
            each.stop()


def telemetry(prompts: Prompts, limit: int, rounds: int) -> Section:
    """Tell what telemetry takes; of each call the best of its rounds, and the first round only warms up."""
    CALLED_BY.set(CALLER)
    found: dict[str, list[list[float]]] = {name: [] for name in CONTENDERS}
    with _contenders() as contenders:
        for number in range(rounds + 1):
            costs: dict[str, list[float]] = {name: [] for name in CONTENDERS}
            for turn, body in enumerate(prompts.bodies()):
                raw = request(f"telemetry-{number}", prompts.format, body, limit)
                names = list(contenders)
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    costs[name].append(contenders[name].call(raw))
            for name, spent in costs.items():
                if number:
                    found[name].append(spent)
    best = {name: best_of(each) for name, each in found.items()}
    without = best.pop("none")
    rows = [["none", milliseconds(median(without)), "", ""]]
    facts: dict[str, object] = {"rounds": rounds, "none": {"p50_us": round(median(without) * 1e6, 1)}}
    for name, spent in best.items():
        added = median(one - other for one, other in zip(spent, without, strict=True))
        share = ratio(added, median(spent))
        verdict = "within" if share <= TARGET else "MISSES"
        rows.append([name, milliseconds(median(spent)), milliseconds(added), f"{share:.1%} ({verdict} {TARGET:.0%})"])
        facts[name] = {
            "p50_us": round(median(spent) * 1e6, 1),
            "added_us": round(added * 1e6, 1),
            "share": round(share, 4),
        }
    return Section(
        "telemetry",
        f"Telemetry's share of a warm TrimPrompt: {prompts.name}, limit {limit:,} tokens, {rounds} rounds",
        ["ms of processor time, medians", "whole call", "added", "share"],
        rows,
        facts,
        ["The call without gRPC, whose own work would only make the share smaller; the export itself is not in it."],
    )
