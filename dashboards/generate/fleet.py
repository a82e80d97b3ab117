"""All sidecars next to each other: by pod, workload or namespace; whether the figures add up; what is running short."""

from __future__ import annotations

from typing import Final

from dashboards.generate import figures
from dashboards.generate.names import CLIENT_PROMPTS, PROCESS_CPU, PROCESS_FILES, PROCESS_MAX_FILES, PROCESS_START
from dashboards.generate.overview import IDLE, UNSEEN
from dashboards.generate.panels import BLUE, RED, YELLOW, Board, Look, Panel, Query, Row, Unit
from dashboards.generate.promql import FLEET, GROUP, PANEL, Not, Place, or_zero, ratio
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import (
    BUILD_INFO,
    CPU_LIMIT,
    CPU_THROTTLED,
    HISTORY_TOKENS,
    MEMORY_LIMIT,
    MEMORY_SIZE,
    OWN_TEXT_TOKENS,
    PROMPT_TOKENS,
    PROMPTS,
    PROMPTS_ASIDE,
    PROMPTS_RECEIVED,
    RUNS_ACTIVE,
    STASH_LIMIT,
    STASH_SIZE,
)

_LEGEND: Final = f"{{{{{GROUP}}}}}"
_CLIENTS: Final = Place((), "$__rate_interval")
"""Clients are scraped with their agents, under jobs of their own."""
_CLIENTS_SPAN: Final = Place((), "$__range")
_ASKED: Final = or_zero(_CLIENTS_SPAN.increase(CLIENT_PROMPTS))
_NO_CLIENTS: Final = (
    "No client exports its count: it does where the agent's program has loaded OpenTelemetry's metrics, and "
    "Prometheus gets them."
)
_SINGLE_RESULTS: Final = ("mcp_tool_result",)
"""Prompts of one tool's result have no kinds of content."""


UNFINISHED: Final = f"{PANEL.value(PROMPTS_RECEIVED)} - {PANEL.value(PROMPTS)} - {PANEL.value(PROMPTS_ASIDE)}"
"""Prompts without an outcome, to the last one: by the counters themselves, as rates are extrapolated."""
UNEXPLAINED: Final = (
    f"abs({PANEL.value(PROMPT_TOKENS, where={'state': 'after', 'format': Not(_SINGLE_RESULTS)})}"
    f" - {PANEL.value(HISTORY_TOKENS, where={'state': 'after'})})"
)
"""Tokens of returned prompts that differ from the sum of those by kind, which are counted apart. Those of sent prompts
may differ: where an agent goes on from a trimmed prompt, its kinds are those of the untrimmed history."""

SUMMARY: Final = Row(
    "Summary",
    (
        Panel(
            "Sidecars",
            Look.STAT,
            Unit.COUNT,
            (Query(PANEL.value(BUILD_INFO), ""),),
            "Sidecars that Prometheus scrapes.",
            "Fewer than pods: a pod without the label that its PodMonitor asks for, or a network policy.",
            UNSEEN,
            width=4,
            height=4,
            base=BLUE,
            decimals=0,
            no_value="unseen",
        ),
        Panel(
            "Versions running",
            Look.STAT,
            Unit.COUNT,
            (Query(f"count(count by (version) ({PANEL.select(BUILD_INFO)}))", ""),),
            "Different versions among them.",
            "2 for long: a roll-out that stands still. “Sidecars by version” says which.",
            UNSEEN,
            width=4,
            height=4,
            thresholds=((2, YELLOW),),
            decimals=0,
            no_value="unseen",
        ),
        Panel(
            "Started in the last hour",
            Look.STAT,
            Unit.COUNT,
            (Query(f"count(time() - {PANEL.each(PROCESS_START)} < 3600) or vector(0)", "", instant=True),),
            "Sidecars that started within the last hour.",
            "Without a roll-out: they are killed. Look for the container's memory limit and exit status.",
            UNSEEN,
            width=4,
            height=4,
            base=BLUE,
            decimals=0,
        ),
        Panel(
            "Prompts in flight",
            Look.STAT,
            Unit.WHOLE,
            (Query(UNFINISHED, ""),),
            "Prompts received, less those answered, refused, dry or aside, since the sidecars started: those in "
            "flight.",
            "Above “Calls in flight” of Health, and growing: report it.",
            UNSEEN,
            width=4,
            height=4,
            thresholds=((200, YELLOW),),
            decimals=0,
            no_value="unseen",
        ),
        Panel(
            "Tokens that do not add up",
            Look.STAT,
            Unit.WHOLE,
            (Query(UNEXPLAINED, ""),),
            "Tokens of all returned prompts, less the sums by kind of content, which are counted apart.",
            "Anything but 0 is a fault of the sidecar: report it.",
            UNSEEN,
            width=4,
            height=4,
            thresholds=((1, RED),),
            decimals=0,
            no_value="unseen",
        ),
        Panel(
            "Prompts without the sidecar",
            Look.STAT,
            Unit.SHARE,
            (
                Query(
                    ratio(
                        f"({or_zero(_CLIENTS_SPAN.increase(CLIENT_PROMPTS, where={'sent': Not(('trimmed',))}))})",
                        f"({_ASKED})",
                    ),
                    "",
                    instant=True,
                ),
            ),
            "Of all prompts for which clients asked a sidecar, the part that went to the model without it.",
            "“Prompts that clients sent” says how, and with which status.",
            _NO_CLIENTS,
            width=4,
            height=4,
            thresholds=((0.001, YELLOW), (0.01, RED)),
            decimals=2,
            no_value="untold",
        ),
    ),
)

GROUPS: Final = Row(
    "By pod, workload or namespace",
    (
        Panel(
            "Prompts",
            Look.STACKED,
            Unit.PER_MINUTE,
            (Query(FLEET.each_minute(PROMPTS), _LEGEND),),
            "Prompts a minute of each group; the variable By above chooses what a group is. Sidecars without that "
            "attribute are shown as instances.",
            "One group with far more than the others: its agents should be spread, or it needs more sidecars.",
            IDLE,
        ),
        Panel(
            "Tokens left out",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (Query(f"{figures.before(FLEET)} - {figures.after(FLEET)}", _LEGEND),),
            "Tokens that agents wanted to send and that no longer go to the provider.",
            "None in a group with large prompts: its agents ask for too large a window.",
            IDLE,
        ),
        Panel(
            "Price, of never trimming, by group",
            Look.LINES,
            Unit.SHARE,
            (Query(figures.price_share(FLEET), _LEGEND),),
            "What providers charge for input, as a part of what they would for the same prompts untrimmed.",
            "Above 100 % trimming costs more than it saves there: see “Cache breaks” in Trimming and cache.",
            IDLE,
            thresholds=((1, RED),),
        ),
        Panel(
            "Prompts over their limit",
            Look.LINES,
            Unit.SHARE,
            (
                Query(
                    figures.share(FLEET.rate(PROMPTS, where={"outcome": "over_budget"}), FLEET.rate(PROMPTS)), _LEGEND
                ),
            ),
            "The part of prompts that do not fit even after trimming.",
            "What cannot be trimmed is too large there: the system prompt, tools, or a user's text.",
            IDLE,
        ),
        Panel(
            "Failed calls, by group",
            Look.LINES,
            Unit.SHARE,
            (
                Query(figures.faults(FLEET), f"{_LEGEND}: by the sidecar"),
                Query(figures.failed_by_providers(FLEET), f"{_LEGEND}: by providers"),
            ),
            "The part of calls that failed by the sidecar's fault; and of calls of providers, that failed there.",
            "One group: look at its pods, or its providers. All: see Health.",
            IDLE,
        ),
        Panel(
            "Time of a prompt (p99), by group",
            Look.LINES,
            Unit.SECONDS,
            (Query(figures.trim_time(FLEET, 0.99), _LEGEND),),
            "99 of 100 prompts are answered within this time.",
            "Together with “Processor time denied”: the CPU limit is too low.",
            IDLE,
        ),
        Panel(
            "Runs",
            Look.STACKED,
            Unit.COUNT,
            (Query(FLEET.value(RUNS_ACTIVE), _LEGEND),),
            "Runs that the sidecars of each group remember.",
            "Uneven behind a load balancer: it does not route by run (docs/scale.md).",
            UNSEEN,
        ),
        Panel(
            "Originals gone before they were recalled",
            Look.LINES,
            Unit.SHARE,
            (Query(figures.gone_share(FLEET), _LEGEND),),
            "The part of recalls whose original had expired or been evicted.",
            "Give these sidecars more memory (`limits.stash_bytes`), or keep originals longer.",
            "Nobody has recalled anything, which is common.",
        ),
        Panel(
            "Memory of each group",
            Look.LINES,
            Unit.SHARE,
            (
                Query(
                    ratio(
                        FLEET.value(catalog.PROCESS_MEMORY, where={"state": "resident"}),
                        f"({FLEET.value(catalog.PROCESS_MEMORY, where={'state': 'limit'})})",
                    ),
                    _LEGEND,
                ),
            ),
            "Resident memory as a part of the limit: the configured, else the container's.",
            "From 90 % on originals are given up, then prompts refused: raise the limit or run more sidecars.",
            "The sidecars have no limit.",
            thresholds=((0.9, RED),),
        ),
    ),
)

SUMS: Final = Row(
    "Does it add up?",
    (
        Panel(
            "Prompts: answered, refused, aside",
            Look.STACKED,
            Unit.PER_MINUTE,
            (
                Query(
                    PANEL.each_minute(PROMPTS, where={"outcome": ("trimmed", "condensed", "untouched", "over_budget")}),
                    "answered",
                ),
                Query(PANEL.each_minute(PROMPTS, where={"outcome": "refused"}), "refused"),
                Query(PANEL.each_minute(PROMPTS_ASIDE), "dry runs and side calls"),
            ),
            "Outcomes of prompts. Stacked they are as high as the line of “Prompts received”.",
            "Many refused: the status of the calls is in Health, the reason in the log.",
            UNSEEN,
        ),
        Panel(
            "Prompts received",
            Look.LINES,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(PROMPTS_RECEIVED), "received"),),
            "Prompts whose handling began, through all doors.",
            "Higher than their outcomes for long: prompts take very long, or never end.",
            UNSEEN,
        ),
        Panel(
            "Tokens sent: kept and trimmed",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (
                Query(f"{figures.after(PANEL)} - {PANEL.rate(OWN_TEXT_TOKENS)}", "kept"),
                Query(f"{figures.before(PANEL)} - {figures.after(PANEL)} + {PANEL.rate(OWN_TEXT_TOKENS)}", "trimmed"),
            ),
            "All tokens that agents sent: those that are still in the prompts, and those that were taken out. Text of "
            "the sidecar's own is in neither.",
            "Nothing is bad by itself; see Trimming and cache.",
            IDLE,
        ),
    ),
)

SATURATION: Final = Row(
    "What is running short",
    (
        Panel(
            "Processor",
            Look.LINES,
            Unit.CORES,
            (
                Query(FLEET.rate(PROCESS_CPU), _LEGEND),
                Query(f"min({PANEL.select(CPU_LIMIT)})", "lowest limit of a sidecar (0: none)"),
            ),
            "Processor cores that the sidecars of each group use, and the lowest limit of one of them.",
            "Near the limit, or near 1 for each sidecar, calls wait: raise the limit to 1 core, then run more "
            "sidecars. No limit at all is best for latency.",
            UNSEEN,
        ),
        Panel(
            "Processor time denied",
            Look.LINES,
            Unit.SHARE,
            (Query(FLEET.rate(CPU_THROTTLED), _LEGEND),),
            "Part of the time for which the kernel stopped the container, as it had used up its CPU limit "
            "(throttling).",
            "Above 1 % prompts are delayed by up to a tenth of a second each time: raise the CPU limit, or remove it.",
            UNSEEN,
            thresholds=((0.01, RED),),
        ),
        Panel(
            "Budgets",
            Look.LINES,
            Unit.SHARE,
            (
                Query(ratio(PANEL.value(STASH_SIZE, where={"state": "held"}), PANEL.value(STASH_LIMIT)), "originals"),
                Query(ratio(PANEL.value(MEMORY_SIZE), PANEL.value(MEMORY_LIMIT)), "runs"),
                Query(
                    f"max({ratio(PANEL.each(PROCESS_FILES), PANEL.each(PROCESS_MAX_FILES))})",
                    "open files (highest of all sidecars)",
                ),
            ),
            "What is taken of the budgets for originals and for runs, and of the open files that a process may have.",
            "At 100 % the oldest originals are evicted, idle runs drop what their next prompt brings again, "
            "connections are refused.",
            UNSEEN,
            thresholds=((0.9, RED),),
            most=1,
        ),
    ),
)

VERSIONS: Final = Row(
    "Versions and clients",
    (
        Panel(
            "Sidecars by version",
            Look.STACKED,
            Unit.COUNT,
            (Query(PANEL.value(BUILD_INFO, by=("version", "python")), "{{version}} on Python {{python}}"),),
            "Sidecars by the version that runs.",
            "Two versions for long: a roll-out that stands still. They may trim differently: finish it.",
            UNSEEN,
            width=12,
            decimals=0,
        ),
        Panel(
            "Prompts that clients sent",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(
                    _CLIENTS.each_minute(CLIENT_PROMPTS, by=("sent", "code")),
                    "{{sent}}, {{code}}",
                ),
            ),
            "By the clients' own count: trimmed; or without the sidecar, as the last trimmed prompt and what came "
            "since (last_prompt), with old iterations left out (left_out), or as they were (as_given); and the status "
            "of the call.",
            "UNAVAILABLE and DEADLINE_EXCEEDED: the sidecar is down, slow, or not reached. Others: the agent's "
            "request.",
            _NO_CLIENTS,
            width=12,
            no_value="untold",
        ),
    ),
)

FLEET_BOARD: Final = Board(
    "prompt-sidecar-fleet",
    "Prompt Sidecar / Fleet",
    "All sidecars next to each other: by pod, workload or namespace; whether the figures add up; what is running "
    "short.",
    (SUMMARY, GROUPS, SUMS, SATURATION, VERSIONS),
    prices=True,
    grouped=True,
    name="fleet",
)
