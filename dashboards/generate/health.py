"""How the sidecar itself does: calls, waiting, bounds, memory, the process, and telemetry's own losses."""

from __future__ import annotations

from typing import Final

from dashboards.generate import figures
from dashboards.generate.names import (
    PROCESS_CPU,
    PROCESS_FILES,
    PROCESS_MAX_FILES,
    PROCESS_START,
    RECORDS_EXPORTED,
    RECORDS_PROCESSED,
    SPANS_EXPORTED,
    SPANS_PROCESSED,
    Foreign,
)
from dashboards.generate.overview import IDLE, UNSEEN
from dashboards.generate.panels import BLUE, RED, YELLOW, Board, Look, Panel, Query, Row, Unit
from dashboards.generate.promql import PANEL, SPAN, Not, or_zero, short_methods
from dashboards.generate.providers import PROVIDERS
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import (
    BOUND_HITS,
    CALLS_ACTIVE,
    ENVOY_DURATION,
    ENVOY_MASKS_STAYED,
    ENVOY_REQUESTS,
    FINDINGS,
    FOREIGN_REQUESTS,
    GUARD_REFUSALS,
    GUARD_UNREAD,
    HANDLED,
    HTTP_HELD,
    HTTP_HIDDEN,
    HTTP_HIDDEN_LOSSES,
    HTTP_REQUESTS,
    HTTP_UPSTREAM,
    MASKS_LEFT,
    MEMORY_LIMIT,
    MEMORY_SIZE,
    QUEUE_WAIT,
    RECALL_OFFERS,
    RESTORED,
    RPC_DURATION,
    RUNS_ACTIVE,
    RUNS_FORGOTTEN,
    RUNS_STARTED,
    SCHEDULER_LAG,
    STASH_LIMIT,
    STASH_SIZE,
    STORE_COMMANDS,
    STORE_LAG,
    STORE_LOSSES,
    STORE_QUEUE,
    STORE_REACHABLE,
    TRIM_TIME,
    VAULT_LOSSES,
    VAULT_SIZE,
    VAULT_VALUES,
)

SUMMARY: Final = Row(
    "Summary",
    (
        Panel(
            "Calls a second",
            Look.STAT,
            Unit.CALLS_PER_SECOND,
            (Query(figures.calls(PANEL), ""),),
            "Calls of the sidecar's methods, health checks not counted, and requests through the HTTP door.",
            "0 while agents run: they do not reach the sidecar.",
            UNSEEN,
            width=4,
            height=4,
            base=BLUE,
            decimals=1,
            no_value="unseen",
        ),
        Panel(
            "Failed calls",
            Look.STAT,
            Unit.SHARE,
            (
                Query(figures.faults(SPAN), "by the sidecar", instant=True),
                Query(figures.failed_by_providers(SPAN), "by providers", instant=True),
            ),
            "Of all calls, and prompts through the HTTP door and Envoy, the part that failed by the sidecar's fault: "
            "an internal error, a deadline, not available. Apart from it, of the HTTP door's calls of providers, the "
            "part that failed there: an error of the provider's, a limit on the rate, half an answer, or none.",
            "“Failed calls by method” says which; each internal error has an id in the log. By providers: “Provider "
            "calls by outcome”.",
            IDLE,
            width=4,
            height=4,
            thresholds=((0.001, YELLOW), (0.01, RED)),
            decimals=2,
        ),
        Panel(
            "Time of a prompt (p99)",
            Look.STAT,
            Unit.SECONDS,
            (Query(figures.trim_time(SPAN, 0.99), "", instant=True),),
            "99 of 100 prompts are answered within this time.",
            "Compare with the waits next to it: are calls slow, or do they wait?",
            IDLE,
            width=4,
            height=4,
            thresholds=((0.1, YELLOW), (0.5, RED)),
        ),
        Panel(
            "Wait for a thread (p99)",
            Look.STAT,
            Unit.SECONDS,
            (Query(SPAN.quantile(0.99, QUEUE_WAIT), "", instant=True),),
            "99 of 100 calls began to run within this time of their arrival.",
            "More calls come than the interpreter can run: more sidecars help, more `server.workers` do not.",
            IDLE,
            width=4,
            height=4,
            thresholds=((0.01, YELLOW), (0.05, RED)),
        ),
        Panel(
            "Scheduler lag (p99)",
            Look.STAT,
            Unit.SECONDS,
            (Query(SPAN.quantile(0.99, SCHEDULER_LAG), "", instant=True),),
            "How late a timer woke up, 99 times of 100: how long a thread waits for the interpreter.",
            "The processor is short: check the container's CPU limit for throttling.",
            UNSEEN,
            width=4,
            height=4,
            thresholds=((0.05, YELLOW), (0.25, RED)),
            no_value="unseen",
        ),
        Panel(
            "Last start",
            Look.STAT,
            Unit.AGO,
            (Query(f"max({PANEL.each(PROCESS_START)}) * 1000", ""),),
            "When the youngest of these sidecars started.",
            "Just now, again and again: it is killed. Look for the container's memory limit and the exit status.",
            UNSEEN,
            width=4,
            height=4,
            base=BLUE,
            no_value="unseen",
        ),
    ),
)

CALLS: Final = Row(
    "Calls",
    (
        Panel(
            "Calls by method",
            Look.STACKED,
            Unit.CALLS_PER_SECOND,
            (Query(short_methods(PANEL.rate(RPC_DURATION, by=("rpc_method",))), "{{rpc_method}}"),),
            "Calls a second, health checks and reflection included.",
            "`other` are methods that the sidecar does not serve: a client of another version, or of another service.",
            UNSEEN,
        ),
        Panel(
            "Calls that were not OK, by status",
            Look.BARS,
            Unit.CALLS_PER_SECOND,
            (
                Query(
                    PANEL.rate(
                        RPC_DURATION, by=("rpc_response_status_code",), where={"rpc_response_status_code": Not(("OK",))}
                    ),
                    "{{rpc_response_status_code}}",
                ),
            ),
            "Calls by every status but OK. INVALID_ARGUMENT and FAILED_PRECONDITION are the client's, "
            "RESOURCE_EXHAUSTED is a resource limit, INTERNAL is the sidecar's fault.",
            "The answer's ErrorInfo says the reason; an INTERNAL one holds the id of its line in the log.",
            "Every call so far was OK.",
            no_value="none",
        ),
        Panel(
            "Failed calls by method",
            Look.BARS,
            Unit.CALLS_PER_SECOND,
            (
                Query(
                    short_methods(
                        PANEL.rate(
                            RPC_DURATION,
                            by=("rpc_method",),
                            where={"rpc_response_status_code": (*figures.FAULTS, *figures.REFUSALS)},
                        )
                    ),
                    "{{rpc_method}}",
                ),
                Query(PANEL.rate(HTTP_REQUESTS, by=("route",), where={"outcome": "failed"}), "HTTP {{route}}"),
                Query(
                    PANEL.rate(HANDLED, by=("door",), where={"door": figures.HTTP_DOORS, "outcome": "internal"}),
                    "{{door}}, went on untrimmed",
                ),
                Query(PANEL.rate(ENVOY_REQUESTS, where={"outcome": "failed"}), "Envoy"),
            ),
            "Calls and prompts through every door that failed by the sidecar's fault, or were refused because a "
            "resource limit was reached.",
            "DEADLINE_EXCEEDED: the client's deadline is shorter than “Time by method (p99)”. RESOURCE_EXHAUSTED: see "
            "“Resource limits reached”. INTERNAL: report it, with the line of the log.",
            "No call has failed so far.",
            no_value="none",
        ),
        Panel(
            "Time by method (p99)",
            Look.LINES,
            Unit.SECONDS,
            (
                Query(
                    short_methods(
                        PANEL.quantile(0.99, RPC_DURATION, by=("rpc_method",), where={"rpc_method": figures.METHODS})
                    ),
                    "{{rpc_method}}",
                    exemplars=True,
                ),
            ),
            "99 of 100 calls of each method are answered within this time.",
            "A click opens the traces. TrimPrompt: see “Time of TrimPrompt by phase”.",
            IDLE,
            traces=True,
        ),
        Panel(
            "Time of a prompt",
            Look.LINES,
            Unit.SECONDS,
            tuple(
                Query(figures.trim_time(PANEL, quantile), name, exemplars=True)
                for quantile, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
            ),
            "How long prompts take, in the sidecar.",
            "A high p99 with a low p50 is a first prompt of a long run, or a batch point: both are rare by design.",
            IDLE,
            traces=True,
        ),
        Panel(
            "Time of TrimPrompt by phase",
            Look.STACKED,
            Unit.SHARE,
            (Query(PANEL.rate(TRIM_TIME, by=("phase",)), "{{phase}}"),),
            "Part of a thread's time that each phase takes: scan (reading the body), count (tokens), trim, encode.",
            "count: long new texts; the extra `fast` counts them ten times as fast. scan: large bodies; send only "
            "what is new with `base_revision`.",
            UNSEEN,
        ),
    ),
)

REQUESTS: Final = Row(
    "Requests of all doors",
    (
        Panel(
            "What was done about requests",
            Look.STACKED,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(HANDLED, by=("outcome",)), "{{outcome}}"),),
            "Requests that went on, by what was done about their prompt: trimmed, or the reason why not.",
            "no_need, no_prompt, counting, observing and bypassed are as they should be. `docs/untrimmed.md` says what "
            "to do about the others; “Requests the sidecar did nothing for” in Overview has them by door.",
            "No request has come.",
            width=12,
        ),
        Panel(
            "Recall offered",
            Look.STACKED,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(RECALL_OFFERS, by=("outcome",)), "{{outcome}}"),),
            "Prompts by whether the model was offered tools for recall, or why not.",
            "forced or several_answers: the run's first request left no room for further tools. unavailable: the agent "
            "or gateway gives the model none. `docs/untrimmed.md` has each.",
            "No prompt has come.",
            width=12,
        ),
    ),
)

HTTP: Final = Row(
    "HTTP door",
    (
        Panel(
            "Requests by outcome",
            Look.STACKED,
            Unit.CALLS_PER_SECOND,
            (Query(PANEL.rate(HTTP_REQUESTS, by=("outcome",)), "{{outcome}}"),),
            "Requests of agents that set the sidecar as their base URL, by outcome.",
            "failed_open: prompts went on untrimmed; the log has the reason, and the answer's header "
            "`x-prompt-sidecar-untrimmed`. upstream_failed: the provider, or the way to it. upstream_refused: the "
            "agent's request or key, or a rate limit.",
            "No request has come: `http.listen` is not set, or no agent uses it.",
            width=12,
        ),
        Panel(
            "Providers' answers by status",
            Look.BARS,
            Unit.CALLS_PER_SECOND,
            (
                Query(
                    PANEL.rate(HTTP_UPSTREAM, by=("status",), where={"status": Not(("2xx",))}),
                    "{{status}}",
                ),
            ),
            "Answers that were not 2xx, by class; none: the provider was not asked or did not answer.",
            "4xx: the agent's request or key, or a rate limit. 5xx: the provider; agents' SDKs try again.",
            "Every answer so far was 2xx.",
            width=12,
            no_value="none",
        ),
        Panel(
            "Hidden turns",
            Look.LINES,
            Unit.PER_MINUTE,
            (
                Query(PANEL.each_minute(HTTP_HIDDEN), "hidden turns"),
                Query(PANEL.each_minute(HTTP_HIDDEN_LOSSES, by=("cause",)), "lost: {{cause}}"),
            ),
            "Turns in which the model called the sidecar's tools alone, answered without the agent; and those that "
            "were not put back where they were, by cause.",
            "Many for each request: the model misses what was trimmed; see the board Recall. Lost as unmatched: an "
            "agent sends answers back so that nothing shows which they are.",
            "No model has called the sidecar's tools.",
            width=12,
        ),
        Panel(
            "Requests of other sites' web pages",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(
                    PANEL.each_minute(FOREIGN_REQUESTS, by=("listener", "header")),
                    "{{listener}}: {{header}}",
                ),
            ),
            "Requests to the HTTP door, /metrics or the pages of runs that were refused, as a web page of another site "
            "may have sent them, by the header that shows it.",
            "An agent or a gateway may be called by a name that nobody has listed: the log has the name, and "
            "`http.hosts`, `telemetry.hosts` or `admin.hosts` takes it. If not, look at what is open in browsers.",
            "No page of another site has asked.",
            width=12,
            no_value="none",
        ),
    ),
)

ENVOY: Final = Row(
    "Envoy",
    (
        Panel(
            "Requests through Envoy",
            Look.STACKED,
            Unit.CALLS_PER_SECOND,
            (Query(PANEL.rate(ENVOY_REQUESTS, by=("outcome",)), "{{outcome}}"),),
            "HTTP requests that Envoy showed to the external processor, by outcome.",
            "All but answered, refused and not_a_prompt are prompts that went on untrimmed: unreadable ones are "
            "compressed, signed or not buffered; invalid ones are not of their path's format; late ones took longer "
            "than Envoy waits; busy ones reached a limit of `[envoy]`.",
            "No Envoy asks these sidecars: envoy.listen is empty, or the filter leads elsewhere.",
            width=8,
        ),
        Panel(
            "Time that Envoy waited",
            Look.LINES,
            Unit.SECONDS,
            tuple(
                Query(PANEL.quantile(quantile, ENVOY_DURATION), name)
                for quantile, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
            ),
            "From the arrival of a prompt's whole body to the answer, in the sidecar.",
            "Near Envoy's message_timeout prompts go on untrimmed: more sidecars, or more of a processor.",
            IDLE,
            width=8,
        ),
        Panel(
            "Responses that kept their masks",
            Look.STACKED,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(ENVOY_MASKS_STAYED, by=("reason",)), "{{reason}}"),),
            "Responses through Envoy, in runs with masks, in which the sidecar could not put values back, by reason.",
            "Tools of these agents get masks. Encoded: the provider compresses though it was asked not to; "
            "unchangeable: Envoy needs allow_mode_override, and a response_body_mode of STREAMED; too_long: see "
            "envoy.answer_bytes.",
            "Values were put back in every response that was searched.",
            width=8,
        ),
    ),
)

WAITING: Final = Row(
    "Waiting and bounds",
    (
        Panel(
            "Wait for a thread",
            Look.LINES,
            Unit.SECONDS,
            tuple(
                Query(PANEL.quantile(quantile, QUEUE_WAIT), name, exemplars=True)
                for quantile, name in ((0.5, "p50"), (0.99, "p99"))
            ),
            "How long calls waited before they began to run.",
            "See “Calls in flight”: more sidecars help, or fewer calls at once.",
            IDLE,
            width=5,
            traces=True,
        ),
        Panel(
            "Scheduler lag",
            Look.LINES,
            Unit.SECONDS,
            tuple(
                Query(PANEL.quantile(quantile, SCHEDULER_LAG), name) for quantile, name in ((0.5, "p50"), (0.99, "p99"))
            ),
            "How late a timer of the sidecar woke up: how long a thread waits for the interpreter.",
            "High while CPU is near 1: the interpreter is busy. High while CPU is low: the container is throttled.",
            UNSEEN,
            width=5,
        ),
        Panel(
            "Calls in flight",
            Look.LINES,
            Unit.COUNT,
            (Query(PANEL.value(CALLS_ACTIVE, by=("instance",)), "{{instance}}"),),
            "Calls that wait, run or are being answered, at the moment of the scrape.",
            "At `server.max_calls` (128) further calls are refused.",
            UNSEEN,
            width=5,
        ),
        Panel(
            "Resource limits reached",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(f"{PANEL.each_minute(BOUND_HITS, by=('bound',))} > 0", "{{bound}}"),),
            "How often a resource limit of the sidecar was reached, by name (label `bound`).",
            "Raise the setting of that name, or ask why agents reach it; `docs/runbooks/PromptSidecarBoundHit.md` "
            "lists them.",
            "No resource limit was reached.",
            width=5,
            no_value="none",
        ),
        Panel(
            "Held connections",
            Look.LINES,
            Unit.COUNT,
            (
                Query(
                    f"max({PANEL.select(HTTP_HELD, where={'state': 'waiting'})})", "waiting (highest of all sidecars)"
                ),
                Query(f"max({PANEL.select(HTTP_HELD, where={'state': 'at_start'})})", "at a start (highest)"),
                Query(f"min({PANEL.select(HTTP_HELD, where={'state': 'limit'})})", "limit"),
            ),
            "Connections that wait until the HTTP door accepts them: at the scrape, and when the door began to.",
            "At the limit further ones wait for their client's next try: raise `http.held_connections`.",
            UNSEEN,
            width=4,
        ),
    ),
)

MEMORY: Final = Row(
    "Memory and runs",
    (
        Panel(
            "Stash",
            Look.LINES,
            Unit.BYTES,
            (
                Query(PANEL.value(STASH_SIZE, where={"state": "held"}), "held"),
                Query(PANEL.value(STASH_LIMIT), "limit"),
            ),
            "What originals take of their budget.",
            "At the limit the oldest runs lose originals: raise `limits.stash_bytes` or lower `limits.time_to_live`.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Memory of runs",
            Look.LINES,
            Unit.BYTES,
            (Query(PANEL.value(MEMORY_SIZE), "kept"), Query(PANEL.value(MEMORY_LIMIT), "limit")),
            "Estimated bytes of bodies, records and indexes of all runs, without the originals.",
            "At the limit idle runs drop data that their next prompt brings again: slower, not wrong.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Active runs",
            Look.LINES,
            Unit.COUNT,
            (Query(PANEL.value(RUNS_ACTIVE, by=("instance",)), "{{instance}}"),),
            "Runs that each sidecar remembers.",
            "Only growing: agents never call EndRun.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Runs started and forgotten",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(PANEL.each_minute(RUNS_STARTED), "started"),
                Query(PANEL.each_minute(RUNS_FORGOTTEN, by=("cause",)), "forgotten: {{cause}}"),
            ),
            "Runs first seen, and runs that the sidecar forgot: ended by the agent, idle, or too many.",
            "too_many: `limits.runs` was reached, and a run that may still be wanted was forgotten.",
            UNSEEN,
            width=6,
        ),
    ),
)

STORE: Final = Row(
    "Shared store",
    (
        Panel(
            "Sidecars that reach their store",
            Look.LINES,
            Unit.COUNT,
            (Query(PANEL.value(STORE_REACHABLE), "reach it"), Query(f"count({PANEL.select(STORE_REACHABLE)})", "all")),
            "Sidecars whose store answered the last commands; those without a store count as well.",
            "Fewer than all: prompts are answered as before, but no replica can take over a run. Look at the store.",
            UNSEEN,
            width=5,
        ),
        Panel(
            "Commands to the store",
            Look.BARS,
            Unit.CALLS_PER_SECOND,
            (Query(PANEL.rate(STORE_COMMANDS, by=("command", "outcome")), "{{command}}: {{outcome}}"),),
            "Commands by outcome. A prompt takes one write, a run's first prompt one read.",
            "`unreachable`, `full`, `failed`: the store's log says why. `outdated`: runs ended elsewhere or evicted.",
            "No store is set, or it is not used.",
            width=5,
            no_value="none",
        ),
        Panel(
            "Waiting to be stored",
            Look.LINES,
            Unit.BYTES,
            (
                Query(PANEL.value(STORE_QUEUE, where={"state": "waiting"}), "waiting"),
                Query(PANEL.value(STORE_QUEUE, where={"state": "limit"}), "limit"),
            ),
            "Bytes of originals that are not in the store yet; with a killed sidecar they are lost to the others.",
            "At the limit runs are written again from the stash, later. The store is slow, full or down.",
            UNSEEN,
            width=5,
        ),
        Panel(
            "Behind the answers",
            Look.LINES,
            Unit.SECONDS,
            (Query(PANEL.value(STORE_LAG), "oldest"),),
            "How long the oldest of what waits to be stored has waited. With `store.durability` `acknowledged` no "
            "answer with new edits is ahead of the store.",
            "Seconds: the store does not answer within `store.timeout`, or the sidecar has too little processor time.",
            UNSEEN,
            width=5,
        ),
        Panel(
            "Missing in the store",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(STORE_LOSSES, by=("cause",)), "{{cause}}"),),
            "Values that the store lacks or cannot give, by cause.",
            "`unreadable`: replicas have different keys, or somebody changes the store. `too_old`: an outage lasted.",
            "Nothing is missing.",
            width=4,
            no_value="none",
        ),
    ),
)


def _lost(spans: Foreign, records: Foreign) -> str:
    """Of both, a minute, those with an error."""
    lost = {"error_type": Not(("",))}
    return " + ".join(f"({or_zero(PANEL.each_minute(metric, where=lost))})" for metric in (spans, records))


PROCESS: Final = Row(
    "Process and telemetry",
    (
        Panel(
            "CPU",
            Look.LINES,
            Unit.CORES,
            (Query(PANEL.rate(PROCESS_CPU, by=("instance",)), "{{instance}}"),),
            "Processor cores that each sidecar uses.",
            "Near 1 the interpreter is busy all the time and calls wait: run more sidecars.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Memory of the process",
            Look.LINES,
            Unit.BYTES,
            (
                Query(PANEL.value(catalog.PROCESS_MEMORY, where={"state": "resident"}), "resident"),
                Query(figures.kept(PANEL), "baseline + stash + runs"),
                Query(figures.explained(PANEL), "and free blocks, at most"),
                Query(PANEL.value(catalog.PROCESS_MEMORY, where={"state": "limit"}), "limit (0: none)"),
            ),
            "Resident memory of all sidecars, compared with their size at the start plus stash and runs, then with "
            "the blocks that the C library keeps free for what comes next, too.",
            "It follows the two budgets above; lower them if it comes near the container's limit.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Open files",
            Look.LINES,
            Unit.COUNT,
            (
                Query(f"max({PANEL.each(PROCESS_FILES)})", "open (highest of all sidecars)"),
                Query(f"min({PANEL.each(PROCESS_MAX_FILES)})", "limit"),
            ),
            "File descriptors, connections among them.",
            "Near the limit connections are refused: clients should share one channel.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Spans and events",
            Look.LINES,
            Unit.PER_MINUTE,
            (
                Query(or_zero(PANEL.each_minute(SPANS_EXPORTED, where={"error_type": ""})), "spans sent"),
                Query(or_zero(PANEL.each_minute(RECORDS_EXPORTED, where={"error_type": ""})), "events sent"),
                Query(_lost(SPANS_EXPORTED, RECORDS_EXPORTED), "rejected by the collector"),
                Query(_lost(SPANS_PROCESSED, RECORDS_PROCESSED), "queue full"),
            ),
            "Spans and events (log records) that were sent to the collector, and those of both that it rejected, or "
            "that were dropped because their queue was full.",
            "The collector is down or slow, or takes no logs (set OTEL_LOGS_EXPORTER=none then). Calls are not "
            "delayed by it; traces and events are missing.",
            "Should not occur: where no collector is configured all are 0.",
            width=6,
        ),
    ),
)

GUARD: Final = Row(
    "What the guard saw",
    (
        Panel(
            "Findings by rule",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(f"{PANEL.each_minute(FINDINGS, by=('rule',))} > 0", "{{rule}}"),),
            "What the guard's rules found in new text; rules of your own count as custom.",
            "Many of one rule at once: look with `prompt-sidecar guard` at what the agents read. Wrong ones: set the "
            "rule to off in `guard.actions`.",
            "Nothing was found.",
            width=6,
            no_value="none",
        ),
        Panel(
            "Findings by action",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(FINDINGS, by=("action",)), "{{action}}"),),
            "Observed: counted only. Masked: replaced by a label. Defanged: the text was broken.",
            "All observed, and masks wanted: `guard.mode` is audit.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Prompts refused by the guard",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(GUARD_REFUSALS), "refused"),),
            "Prompts that hold what a rule refuses that you have set to refuse; their agents got an error.",
            "docs/runbooks/PromptSidecarGuardRefuses.md says what to do.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Requests that the guard could not read",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(
                    f"{PANEL.each_minute(GUARD_UNREAD, by=('door', 'reason', 'outcome'))} > 0",
                    "{{door}}: {{reason}}, {{outcome}}",
                ),
            ),
            "What doors were to send on and the guard could not read, under `guard.mode` enforce: refused, or passed "
            "as it came (`guard.unread`).",
            "docs/runbooks/PromptSidecarGuardUnread.md says what to do.",
            "All could be read.",
            width=6,
            no_value="none",
        ),
        Panel(
            "Values given back",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(f"{PANEL.each_minute(RESTORED, by=('tool', 'kind'))} > 0", "{{tool}}: {{kind}}"),),
            "Masks in calls' arguments that became values again, by tool and kind.",
            "A tool that you do not expect: take it off the list `guard.restore`.",
            "Nothing was given back.",
            width=6,
            no_value="none",
        ),
        Panel(
            "Masks that stayed",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(MASKS_LEFT, by=("reason",)), "{{reason}}"),),
            "Masks in calls' arguments that stayed: the tool is not on the list, or the value is not known here.",
            "not_allowed: a tool needs a value and is not on the list `guard.restore`, or text that a tool returned "
            "asks the model to send one away. unknown: the sidecar was restarted; it ends with the next prompt.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Values in the vault",
            Look.LINES,
            Unit.COUNT,
            (Query(PANEL.value(VAULT_VALUES), "values"),),
            "Values behind the masks of all runs.",
            "Only growing: agents never call EndRun.",
            UNSEEN,
            width=4,
        ),
        Panel(
            "Vault",
            Look.LINES,
            Unit.BYTES,
            (Query(PANEL.value(VAULT_SIZE), "values"),),
            "Estimated bytes of these values.",
            "Near `guard.vault_bytes` idle runs lose theirs: raise it.",
            UNSEEN,
            width=4,
        ),
        Panel(
            "Values lost",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(VAULT_LOSSES, by=("cause",)), "{{cause}}"),),
            "Values that gave way to others', or for which there was no room.",
            "docs/runbooks/PromptSidecarVaultLoses.md says what to do.",
            UNSEEN,
            width=4,
        ),
    ),
)

HEALTH: Final = Board(
    "prompt-sidecar-health",
    "Prompt Sidecar / Health",
    "How the sidecar itself does: calls, waiting, bounds, the guard, memory, the process, and telemetry's own losses.",
    (SUMMARY, CALLS, REQUESTS, HTTP, PROVIDERS, ENVOY, WAITING, GUARD, MEMORY, STORE, PROCESS),
    name="health",
)
