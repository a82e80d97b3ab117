"""Parsing `/metrics`: for commands that report what a sidecar did, or what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Self

from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from prompt_sidecar.telemetry.catalog import Metric
from prompt_sidecar.telemetry.exposition import family


class MetricFamilies:
    """Families of counters and gauges, found by their metric or their name; a missing one is empty."""

    def __init__(self, families: Iterable[Family] = ()) -> None:
        """`families`: as exposed."""
        self._samples = {each.name: list(each.samples) for each in families}

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Parse the text of `/metrics`. Raises ValueError if it is anything else."""
        return cls(text_string_to_metric_families(text))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._samples)

    def __contains__(self, metric: Metric | str) -> bool:
        return _name(metric) in self._samples

    def by(self, metric: Metric | str, label: str) -> Counter[str]:
        """Sum up a family by the values of a label, as whole numbers."""
        found: Counter[str] = Counter()
        for sample in self._samples.get(_name(metric), []):
            if label in sample.labels:
                found[sample.labels[label]] += int(sample.value)
        return found

    def total(self, metric: Metric | str, **labels: str) -> float:
        """Sum up the series with these labels."""
        samples = self._samples.get(_name(metric), [])
        return sum(each.value for each in samples if labels.items() <= each.labels.items())


def _name(metric: Metric | str) -> str:
    return metric if isinstance(metric, str) else family(metric)
