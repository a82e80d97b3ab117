"""Recording rules: the figures that alerts watch, one value for each sidecar.

They are named as Prometheus advises, level:metric:operations; the level is `instance`, since job and instance stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dashboards.generate import figures
from dashboards.generate.promql import Place
from prompt_sidecar.telemetry.catalog import QUEUE_WAIT

SHORT: Final = Place((), "5m", ("job", "instance"))
"""For what must be told soon."""
LONG: Final = Place((), "30m", ("job", "instance"))
"""For what is rare for each call, so that a few calls do not make a ratio."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recording rule."""

    name: str
    expression: str


FAULTS: Final = Recorded("instance:prompt_sidecar_call_faults:ratio_rate5m", figures.faults(SHORT))
PROVIDER_FAULTS: Final = Recorded(
    "instance:prompt_sidecar_provider_faults:ratio_rate5m", figures.failed_by_providers(SHORT)
)
TRIM_P99: Final = Recorded("instance:prompt_sidecar_trim_seconds:p99_rate5m", figures.trim_time(SHORT, 0.99))
QUEUE_P99: Final = Recorded("instance:prompt_sidecar_queue_wait_seconds:p99_rate5m", SHORT.quantile(0.99, QUEUE_WAIT))
REMOVED: Final = Recorded("instance:prompt_sidecar_tokens_removed:ratio_rate5m", figures.removed_share(SHORT))
KEPT: Final = Recorded("instance:prompt_sidecar_prefix_kept:ratio_rate5m", figures.kept_share(SHORT))
OVER_BUDGET: Final = Recorded("instance:prompt_sidecar_over_budget:ratio_rate30m", figures.over_budget_share(LONG))
AGENT_BREAKS: Final = Recorded("instance:prompt_sidecar_agent_breaks:ratio_rate30m", figures.agent_breaks_share(LONG))
PROVIDER_BREAKS: Final = Recorded(
    "instance:prompt_sidecar_provider_breaks:ratio_rate30m", figures.provider_breaks_share(LONG)
)
CLOSE_ESTIMATES: Final = Recorded(
    "instance:prompt_sidecar_close_estimates:ratio_rate30m", figures.close_estimates(LONG)
)
RECALL_GONE: Final = Recorded("instance:prompt_sidecar_recall_gone:ratio_rate30m", figures.gone_share(LONG))
MISSED: Final = Recorded("instance:prompt_sidecar_missed:ratio_rate30m", figures.missed_share(LONG))
STASH_USED: Final = Recorded("instance:prompt_sidecar_stash_used:ratio", figures.stash_used(SHORT))
MEMORY_USED: Final = Recorded("instance:prompt_sidecar_memory_used:ratio", figures.memory_used(SHORT))
PROCESS_MEMORY_USED: Final = Recorded(
    "instance:prompt_sidecar_process_memory_used:ratio", figures.process_memory_used(SHORT)
)

RECORDED: Final = (
    FAULTS,
    PROVIDER_FAULTS,
    TRIM_P99,
    QUEUE_P99,
    REMOVED,
    KEPT,
    OVER_BUDGET,
    AGENT_BREAKS,
    PROVIDER_BREAKS,
    CLOSE_ESTIMATES,
    RECALL_GONE,
    MISSED,
    STASH_USED,
    MEMORY_USED,
    PROCESS_MEMORY_USED,
)
