"""Whether exports to the collector succeed: one log line when they begin to fail, and one when they recover.

OpenTelemetry's exporters log each export that fails and each try of it, thirty lines a minute and more. They give the
reason, so our line quotes the first of theirs, without a password that the address may contain; their own lines are
suppressed. Data lost meanwhile is counted by the SDK's own metrics, which the alert PromptSidecarTelemetryDrops
watches.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http._log_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)
"""OpenTelemetry's loggers that report each failed export, and its consequences."""
_MOST_CHARACTERS: Final = 300
"""Characters of an exporter's message that are quoted."""
_CREDENTIALS: Final = re.compile(r"(?<=//)[^/@\s]*@")
_RETRY: Final = re.compile(r",? retrying in [\d.]+ ?s\.?")

_log = logging.getLogger(__name__)


class _ExporterState(threading.local):
    """An exporter's first message in the current thread since its last export."""

    words = ""


class Collector:
    """Receives the result of each export. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost: set[str] = set()
        """Signals whose last export failed."""
        self._newest = _ExporterState()

    def heard(self, line: str) -> None:
        """Keep an exporter's message in the current thread, for the line that is logged if its export fails."""
        if not self._newest.words:
            self._newest.words = _CREDENTIALS.sub("", _RETRY.sub("", " ".join(line.split())))[:_MOST_CHARACTERS]

    def exported(self, signal: str, *, taken: bool) -> None:
        """Record the end of an export of a signal."""
        words, self._newest.words = self._newest.words, ""
        with self._lock:
            before = bool(self._lost)
            if taken:
                self._lost.discard(signal)
            else:
                self._lost.add(signal)
            after = bool(self._lost)
        if after and not before:
            _log.warning(
                "the collector does not take %s: %s; it is tried again, and what waits in vain is dropped and counted",
                signal,
                words or "no reason is known",
            )
        elif before and not after:
            _log.info("the collector takes %s again", signal)


class _Heard(logging.Filter):
    """Passes a library's log lines to a collector, and logs none of them."""

    def __init__(self, collector: Collector) -> None:
        super().__init__()
        self._collector = collector

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged."""
        if record.levelno < logging.WARNING:
            return True
        self._collector.heard(record.getMessage())
        return False


@contextmanager
def exporters_heard(collector: Collector) -> Iterator[None]:
    """Let a collector receive exporters' log lines, until the context ends."""
    heard = _Heard(collector)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(heard)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(heard)


class _Watched:
    """Reports each export to a collector; in a class's bases it is placed before the exporter's class."""

    collector: Collector
    signal: str

    def export(self, *data: Any, **more: Any) -> Any:
        """Export, as the exporter does."""
        taken = False
        try:
            result = super().export(*data, **more)  # type: ignore[misc]  # of what is mixed in
            taken = result.name == "SUCCESS"
        finally:
            self.collector.exported(self.signal, taken=taken)
        return result


def watched(exporter: type[T], signal: str, collector: Collector) -> type[T]:
    """Return an exporter's class that reports its exports to a collector, as those of a signal."""
    members = {"collector": collector, "signal": signal, "__module__": exporter.__module__}
    return cast("type[T]", type(exporter.__name__, (_Watched, exporter), members))
