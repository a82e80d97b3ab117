"""Alerts, each with how bad it is, what to read first, and a page in docs/runbooks that says what to do.

Severities: `page` wakes somebody, since agents are without the sidecar or get errors; `ticket` waits for the morning,
since money or recall is lost; `info` is only shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dashboards.generate import figures, recorded
from dashboards.generate.figures import MISSED_LARGE
from dashboards.generate.names import (
    PROCESS_START,
    RECORDS_EXPORTED,
    RECORDS_PROCESSED,
    SPANS_EXPORTED,
    SPANS_PROCESSED,
    UP,
    Foreign,
)
from dashboards.generate.promql import Not, Place
from dashboards.generate.recorded import LONG, SHORT, Recorded
from prompt_sidecar.telemetry.catalog import (
    BOUND_HITS,
    CEILINGS_PASSED,
    CPU_THROTTLED,
    ESTIMATE_RATIO,
    GUARD_REFUSALS,
    GUARD_UNREAD,
    HANDLED,
    PROMPTS,
    PROVIDER_CACHE,
    PROVIDER_CALLS,
    RETRIEVALS,
    STASH_LOSSES,
    STORE_COMMANDS,
    STORE_LAG,
    VAULT_LOSSES,
)

JOB: Final = "prompt-sidecar"
"""What the scrape job is called. `up` has no label that tells a sidecar from anything else, so here the name counts."""
QUARTER: Final = Place((), "15m", ("job", "instance"))
SOFT_BOUNDS: Final = (
    "http.beginning_requests",
    "http.max_conversations",
    "http.websocket_idle",
    "http.websocket_time",
    "envoy.max_conversations",
    "limits.tombstones",
    "own_text.names",
    "own_text.recognised",
    "own_text.registry",
    "recall.answers",
    "recall.contents",
    "recall.ranges",
    "recall.pages",
    "recall.repeats",
    "search.query_terms",
    "search.total_tokens",
    "server.answer_parts",
)
"""Bounds that are reached in ordinary work, and cost little: no reason to call anybody."""
STORE_FAULTS: Final = ("unreachable", "slow", "tls", "denied", "full", "failed", "skipped")
"""Outcomes of commands to the shared store that are faults of it."""
STORE_BEHIND: Final = 5.0
"""Seconds that writes to the shared store may wait: as long as a sidecar leaves a store alone that does not answer."""
FEW: Final = 20
"""Events in half an hour below which a ratio says nothing."""
FEW_MISSED: Final = 5
"""Large prompts in half an hour, untrimmed, up to which nobody is told: an agent that gets nothing done sends more."""
FEW_CALLS: Final = 10
"""Calls of a provider in half an hour up to which nobody is told: one agent's first try and its retries."""


class Severity(StrEnum):
    """Who is told, and when."""

    PAGE = "page"
    TICKET = "ticket"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. `{value}` in its description is the value that made it fire."""

    name: str
    severity: Severity
    expression: str
    lasts: str
    """How long it must hold."""
    summary: str
    description: str
    value: str = "{{ $value | humanizePercentage }}"
    """How the value is written."""
    runs: str = ""
    """How the pages of runs are sorted so that the runs concerned come first; empty: it concerns none in particular."""


def _above(rule: Recorded, bound: float, enough: str = "") -> str:
    return f"{rule.name} > {bound:g}{f' and {enough}' if enough else ''}"


def _at_least(query: str) -> str:
    return f"{query} > {FEW}"


_DURATION: Final = "{{ $value | humanizeDuration }}"
_TIMES: Final = '{{ printf "%.0f" $value }}'
"""Of something counted, whose increase Prometheus estimates with a fraction."""
_A_SECOND: Final = '{{ if lt $value 1.0 }}{{ printf "%.2g" $value }}{{ else }}{{ $value | humanize }}{{ end }}'
"""`humanize` writes 0.79 as 790m."""


_SIDECAR: Final = f'job="{JOB}"'
_JOB: Final = Place((_SIDECAR,), "5m", ("job", "instance"))


def _present(metric: Foreign) -> str:
    return _JOB.select(metric)


_CALLED: Final = f"{LONG.increase(PROVIDER_CALLS, by=('route',))} > {FEW_CALLS}"
"""By route, as the figures of providers are."""


ALERTS: Final = (
    Alert(
        "PromptSidecarDown",
        Severity.PAGE,
        f"{_present(UP)} == 0",
        "2m",
        "A sidecar does not answer Prometheus",
        "{{ $labels.instance }} has not answered a scrape for two minutes. Agents that lose it go on without trimming.",
    ),
    Alert(
        "PromptSidecarAbsent",
        Severity.PAGE,
        f"absent({_present(UP)})",
        "5m",
        "Prometheus knows no sidecar",
        f"No target of the job {JOB} has been there for five minutes: the scrape configuration lost it.",
    ),
    Alert(
        "PromptSidecarFailing",
        Severity.PAGE,
        _above(recorded.FAULTS, 0.01),
        "5m",
        "Calls fail by the sidecar's fault",
        "{value} of the calls and requests of {{ $labels.instance }} fail (internal error, deadline, unavailable).",
    ),
    Alert(
        "PromptSidecarSlow",
        Severity.TICKET,
        _above(recorded.TRIM_P99, 0.5),
        "10m",
        "Prompts are answered slowly",
        "One prompt in a hundred takes {{ $labels.instance }} longer than {value}.",
        _DURATION,
    ),
    Alert(
        "PromptSidecarOverBudget",
        Severity.TICKET,
        _above(recorded.OVER_BUDGET, 0.05, _at_least(LONG.increase(PROMPTS))),
        "15m",
        "Prompts do not fit after trimming",
        "{value} of the prompts of {{ $labels.instance }} are over their limit after trimming; providers refuse them.",
        runs="unfit",
    ),
    Alert(
        "PromptSidecarUntrimmed",
        Severity.TICKET,
        _above(recorded.MISSED, 0.1, f"{LONG.increase(HANDLED, where=MISSED_LARGE)} > {FEW_MISSED}"),
        "10m",
        "Large prompts go on untrimmed that should be trimmed",
        "{value} of the large prompts through {{ $labels.instance }} go on as they came: the sidecar does not know "
        "their path, cannot read them, or has not their history.",
        runs="missed",
    ),
    Alert(
        "PromptSidecarAgentBreaksCache",
        Severity.TICKET,
        _above(recorded.AGENT_BREAKS, 0.1, _at_least(LONG.increase(PROMPTS))),
        "15m",
        "Agents rewrite what they had sent, and so break the provider's cache",
        "In {value} of the prompts of {{ $labels.instance }} the agent had changed an earlier part of its history.",
        runs="breaks",
    ),
    Alert(
        "PromptSidecarProviderCacheBreaks",
        Severity.TICKET,
        _above(
            recorded.PROVIDER_BREAKS,
            0.2,
            _at_least(LONG.increase(PROVIDER_CACHE, where={"outcome": ("as_expected", "break_suspected")})),
        ),
        "15m",
        "Providers do not read the kept prefix from their cache",
        "{value} of the reports to {{ $labels.instance }} tell of fewer cached tokens than the kept prefix promised.",
        runs="breaks",
    ),
    Alert(
        "PromptSidecarEstimatesOff",
        Severity.INFO,
        f"{recorded.CLOSE_ESTIMATES.name} < 0.5 and {_at_least(LONG.increase(ESTIMATE_RATIO))}",
        "30m",
        "Token estimates are off",
        "Only {value} of the estimates of {{ $labels.instance }} are within 10 % of what providers counted.",
    ),
    Alert(
        "PromptSidecarStashEvicts",
        Severity.TICKET,
        f"{QUARTER.increase(STASH_LOSSES, by=('cause',), where={'cause': ('run_budget', 'total_budget')})} > 0",
        "15m",
        "Originals are evicted before their time",
        "{{ $labels.instance }} evicted {value} originals in 15 minutes ({{ $labels.cause }}). Models cannot recall "
        "them.",
        _TIMES,
        runs="failed",
    ),
    Alert(
        "PromptSidecarRecallMisses",
        Severity.TICKET,
        _above(recorded.RECALL_GONE, 0.1, _at_least(LONG.increase(RETRIEVALS))),
        "15m",
        "Models ask for originals that have expired or were evicted",
        "{value} of the originals that {{ $labels.instance }} was asked for had expired or been evicted.",
        runs="failed",
    ),
    Alert(
        "PromptSidecarGuardRefuses",
        Severity.TICKET,
        f"{QUARTER.increase(GUARD_REFUSALS)} > 0",
        "5m",
        "The guard refuses prompts",
        "{{ $labels.instance }} refused {value} prompts in 15 minutes, as they hold what a rule refuses. Their agents "
        "stand still.",
        _TIMES,
        runs="refused",
    ),
    Alert(
        "PromptSidecarGuardUnread",
        Severity.TICKET,
        f"{QUARTER.increase(GUARD_UNREAD, by=('door', 'reason', 'outcome'))} > 0",
        "5m",
        "The guard cannot read requests",
        "{{ $labels.instance }} could not read {value} requests in 15 minutes ({{ $labels.door }}, "
        "{{ $labels.reason }}); they were {{ $labels.outcome }}.",
        _TIMES,
    ),
    Alert(
        "PromptSidecarVaultLoses",
        Severity.TICKET,
        f"{QUARTER.increase(VAULT_LOSSES, by=('cause',))} > 0",
        "5m",
        "Values behind masks are lost",
        "{{ $labels.instance }} lost {value} values in 15 minutes ({{ $labels.cause }}). Tools get their masks.",
        _TIMES,
        runs="findings",
    ),
    Alert(
        "PromptSidecarCeilingRefuses",
        Severity.TICKET,
        f"{QUARTER.increase(CEILINGS_PASSED, by=('scope', 'kind'), where={'action': 'refuse'})} > 0",
        "1m",
        "A ceiling refuses prompts",
        "{{ $labels.instance }} refused {value} prompts in 15 minutes: a {{ $labels.scope }} passed its ceiling on {{ "
        "$labels.kind }}.",
        _TIMES,
        runs="refused",
    ),
    Alert(
        "PromptSidecarBoundHit",
        Severity.INFO,
        f"{QUARTER.increase(BOUND_HITS, by=('bound',), where={'bound': Not(SOFT_BOUNDS)})} > 0",
        "5m",
        "A resource limit of the sidecar is reached",
        "{{ $labels.bound }} of {{ $labels.instance }} was reached {value} times in 15 minutes.",
        _TIMES,
    ),
    Alert(
        "PromptSidecarStashNearLimit",
        Severity.TICKET,
        _above(recorded.STASH_USED, 0.9),
        "15m",
        "The stash is nearly full",
        "Originals take {value} of the stash of {{ $labels.instance }}. When it is full the oldest runs lose theirs.",
    ),
    Alert(
        "PromptSidecarMemoryNearLimit",
        Severity.TICKET,
        _above(recorded.MEMORY_USED, 0.9),
        "15m",
        "The memory for runs is nearly full",
        "Runs take {value} of limits.memory_bytes of {{ $labels.instance }}. When it is full idle runs are read "
        "again, which is slow.",
    ),
    Alert(
        "PromptSidecarProcessNearLimit",
        Severity.TICKET,
        _above(recorded.PROCESS_MEMORY_USED, 0.9),
        "5m",
        "A sidecar is near its container's memory",
        "{value} of the memory that {{ $labels.instance }} may have is resident. It gives originals up and refuses "
        "large prompts; at the limit the kernel ends it, and what it stashed is lost.",
    ),
    Alert(
        "PromptSidecarCallsWait",
        Severity.TICKET,
        _above(recorded.QUEUE_P99, 0.1),
        "10m",
        "Calls wait for a thread",
        "One call in a hundred waits longer than {value} before {{ $labels.instance }} begins with it.",
        _DURATION,
    ),
    Alert(
        "PromptSidecarThrottled",
        Severity.TICKET,
        f"{SHORT.rate(CPU_THROTTLED)} > 0.05",
        "10m",
        "The CPU limit stops a sidecar again and again",
        "{{ $labels.instance }} was stopped for {value} of the time, as its container had used up its CPU limit. Each "
        "time prompts are delayed by up to a tenth of a second.",
    ),
    Alert(
        "PromptSidecarTelemetryDrops",
        Severity.INFO,
        " or ".join(
            f"({SHORT.rate(metric, where={'error_type': Not(('',))})} > 0)"
            for metric in (SPANS_PROCESSED, SPANS_EXPORTED, RECORDS_PROCESSED, RECORDS_EXPORTED)
        ),
        "10m",
        "Spans or events are lost",
        "{{ $labels.instance }} loses {value} spans or events a second: the collector is down or slow.",
        _A_SECOND,
    ),
    Alert(
        "PromptSidecarStoreFails",
        Severity.TICKET,
        f"{SHORT.rate(STORE_COMMANDS, by=('outcome',), where={'outcome': STORE_FAULTS})} > 0",
        "5m",
        "The shared store fails",
        "{value} commands a second of {{ $labels.instance }} to the shared store are {{ $labels.outcome }}. Prompts "
        "are answered, but no other replica could take over its runs.",
        _A_SECOND,
    ),
    Alert(
        "PromptSidecarStoreBehind",
        Severity.TICKET,
        f"{SHORT.value(STORE_LAG)} > {STORE_BEHIND:g}",
        "5m",
        "The shared store is behind",
        "What {{ $labels.instance }} has to write to the shared store has waited for {value}. Should it be killed "
        "now, no other replica has what its prompts trimmed since then, until the agents send it again.",
        _DURATION,
    ),
    Alert(
        "PromptSidecarProviderFails",
        Severity.TICKET,
        f"{figures.provider_faults(SHORT)} > 0.1 and {_CALLED}",
        "5m",
        "A provider fails",
        "{value} of the calls of a provider by {{ $labels.instance }} ({{ $labels.route }}) get an error of its own, a "
        "limit on their rate, half an answer, or none.",
    ),
    Alert(
        "PromptSidecarProviderSlow",
        Severity.TICKET,
        f"{figures.slow_providers(SHORT)} > 0.1 and {_CALLED}",
        "10m",
        "A provider is slow",
        "{value} of the calls of a provider by {{ $labels.instance }} ({{ $labels.route }}) have waited for more than "
        "a minute for the first bytes of their answer.",
    ),
    Alert(
        "PromptSidecarRestarts",
        Severity.TICKET,
        f"changes({_present(PROCESS_START)}[1h]) > 2",
        "1m",
        "A sidecar restarts again and again",
        "{{ $labels.instance }} started {value} times in an hour. Tasks and calibration are lost each time.",
        _TIMES,
    ),
)
