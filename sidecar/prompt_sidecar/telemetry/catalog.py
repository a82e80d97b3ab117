"""Every instrument as a row: description, unit, labels and the values of each label.

Metric names are defined here only. The instruments are made from it, the dashboards and rules are generated from it,
and tests compare both with what a running sidecar exposes.

Label sets are closed: each label lists all of its values, so that every series exists from the start (a rate over a
series that begins at 1 misses its first event) and no request can add one. Open labels are the model (names of an
allow-list and families of known models, otherwise `other`), the caller (names that operators give, otherwise `other`)
and the currency, which the settings name.

Names follow OpenTelemetry's rules: no unit and no `total` in a name, but a separate unit (`s`, `By`, `{token}`).
Prometheus shows `prompt_sidecar.prompt.tokens` as `prompt_sidecar_prompt_tokens_total`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Final

from prompt_sidecar.facts.archived import StoreCommand, StoreLoss, StoreReply
from prompt_sidecar.facts.envoy_calls import EnvoyOutcome, MasksStay
from prompt_sidecar.facts.guard_calls import UNANSWERED_CALL, FindingAction, SendingDoor, Unread, UnreadOutcome
from prompt_sidecar.facts.history_size import SizeKind
from prompt_sidecar.facts.http_calls import CallOutcome
from prompt_sidecar.facts.money import Unpriced
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.tool_calls import TOOL_NAMES, ToolOutcome
from prompt_sidecar.facts.trim_calls import NoFit
from prompt_sidecar.facts.untrimmed import LARGE_BYTES, OUTCOMES, Through
from prompt_sidecar.facts.usage_calls import CacheUse, Calibrated, UsageOutcome
from prompt_sidecar.guard.ceilings import CeilingAction, CeilingKind, CeilingScope
from prompt_sidecar.guard.rules import RULES as RULES_BY_NAME
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.recall.found import SearchOutcome
from prompt_sidecar.recall.holding import Cause
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.trim.condense.condensing import REDUCTIONS
from prompt_sidecar.trim.entries import Action, Reason

OTHER: Final = "other"
"""Label value for everything outside a closed set."""


class InstrumentKind(StrEnum):
    """Kind of instrument. A COUNTER only increases; a GAUGE is read at each collection."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument."""

    name: str
    kind: InstrumentKind
    unit: str
    """The UCUM unit, as OpenTelemetry writes it."""
    description: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """All values of each label. An empty tuple: an open set, limited elsewhere (`model`)."""
    boundaries: tuple[float, ...] = ()
    """Bucket boundaries of a histogram."""

    def series(self) -> list[dict[str, str]]:
        """Return every combination of label values that exists from the start, with `other` for open labels."""
        names = list(self.labels)
        return [
            dict(zip(names, values, strict=True)) for values in product(*(v or (OTHER,) for v in self.labels.values()))
        ]


_SECONDS: Final = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""From half a warm call to the longest usual deadline."""
_PROVIDER_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""From a small model's first word to the longest answers that SDKs wait for."""
_TOKENS: Final = (1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 96e3, 128e3, 200e3, 400e3, 1e6, 2e6)
"""Windows of common models, and values in between."""
_RESULT_TOKENS: Final = (50.0, 100.0, 250.0, 500.0, 1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 128e3)
"""From a line to a whole window; results are smaller than prompts."""
_SHARES: Final = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.5, 2.0, 4.0)
"""Shares of a limit, including the marks that are reported."""
_AROUND_ONE: Final = (0.5, 0.75, 0.9, 0.95, 0.97, 0.99, 1.0, 1.01, 1.03, 1.05, 1.1, 1.25, 1.5, 2.0)
"""Ratios of estimate to real tokens; after five reports they should be within 3 %. A ratio, as histograms cannot take
negative values."""

_FORMATS: Final = tuple(FORMATS)
_MODEL: Final = {"model": ()}
_VIA: Final = ("rpc", "tool")
_TOOLS: Final = (*TOOL_NAMES, OTHER)
CUSTOM: Final = "custom"
"""The label of all rules that users add, and of the kinds of value that only these rules find."""
RULES: Final = (*RULES_BY_NAME, UNANSWERED_CALL, CUSTOM)
KINDS: Final = (*sorted({rule.kind for rule in RULES_BY_NAME.values()}), CUSTOM)

BOUNDS: Final = (
    "server.max_calls",
    "server.side_calls",
    "server.held_refusals",
    "server.slow_messages",
    "server.max_connections",
    "server.handshake_timeout",
    "server.message_timeout",
    "server.answer_timeout",
    "server.untaken_bytes",
    "server.answer_parts",
    "server.probes",
    "server.probe_timeout",
    "http.held_connections",
    "http.max_requests",
    "http.max_body_bytes",
    "http.beginning_requests",
    "http.stream_rate",
    "http.body_bytes",
    "http.max_conversations",
    "http.run_hidden_bytes",
    "http.hidden_bytes",
    "http.chain_bytes",
    "http.caller_websockets",
    "http.websocket_idle",
    "http.websocket_time",
    "http.tool_calls",
    "envoy.max_exchanges",
    "envoy.max_conversations",
    "envoy.max_prompts",
    "envoy.waiting_bytes",
    "envoy.answer_bytes",
    "envoy.exchange_age",
    "admin.connections",
    "admin.timeout",
    "admin.run_entries",
    "log.waiting_lines",
    "telemetry.scrapes",
    "telemetry.scrape_timeout",
    "accept_bytes",
    "limits.run_messages",
    "limits.run_items",
    "limits.runs",
    "limits.stash_bytes",
    "limits.run_stash_bytes",
    "limits.run_entries",
    "limits.total_entries",
    "limits.tombstones",
    "limits.recorded_items",
    "limits.process_bytes",
    "limits.memory_bytes",
    "limits.revision_bytes",
    "limits.taught_windows",
    "guard.run_vault_bytes",
    "guard.scan_seconds",
    "guard.vault_bytes",
    "store.queue_bytes",
    "store.item_bytes",
    "store.vault_values",
    "store.vault_bytes",
    "store.acknowledge_timeout",
    "json.decoded_bytes",
    "json.member_name",
    "json.members",
    "message.parts",
    "request.annotations",
    "request.bytes",
    "run.drafts",
    "run.models",
    "calibration.factors",
    "ceilings.callers",
    "run.model_costs",
    "own_text.names",
    "own_text.recognised",
    "own_text.registry",
    "recall.repeats",
    "recall.ranges",
    "recall.pages",
    "recall.contents",
    "recall.answers",
    "recall.pattern_work",
    "search.index_bytes",
    "search.query_bytes",
    "search.query_terms",
    "search.total_tokens",
    "tasks.count",
    "tasks.characters",
)
"""Every resource limit of the program, by the name that its error or its setting has."""

RPC_DURATION: Final = Metric(
    "rpc.server.call.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time from the arrival of a call to its answer, by method and status.",
    {"rpc.system.name": ("grpc",), "rpc.method": (), "rpc.response.status_code": ()},
    _SECONDS,
)
CALLS_ACTIVE: Final = Metric(
    "prompt_sidecar.calls.active",
    InstrumentKind.GAUGE,
    "{call}",
    "Calls of the service that wait, run or are being answered.",
)
QUEUE_WAIT: Final = Metric(
    "prompt_sidecar.queue.wait", InstrumentKind.HISTOGRAM, "s", "Time that a call waited for a thread.", {}, _SECONDS
)
SCHEDULER_LAG: Final = Metric(
    "prompt_sidecar.scheduler.lag",
    InstrumentKind.HISTOGRAM,
    "s",
    "How late a timer of the sidecar woke up: how long a thread waits for the interpreter.",
    {},
    _SECONDS,
)
BOUND_HITS: Final = Metric(
    "prompt_sidecar.bound.hits",
    InstrumentKind.COUNTER,
    "{hit}",
    "How often a resource limit of the sidecar was reached.",
    {"bound": BOUNDS},
)

HTTP_ROUTES: Final = (
    "chat_completions",
    "responses",
    "messages",
    "count_tokens",
    "generate_content",
    "converse",
    "compress",
    "retrieve",
    "guardrail",
    "passed_through",
)
"""Kinds of requests through the HTTP door, by the API of their path; gateways send compress, retrieve and guardrail."""
HTTP_REQUESTS: Final = Metric(
    "prompt_sidecar.http.requests",
    InstrumentKind.COUNTER,
    "{request}",
    "Requests through the HTTP door: answered by the provider; failed_open (answered, but the prompt went on "
    "untrimmed); sent_to_http (a WebSocket for prompts, whose agent was told to use HTTP); opened (such a WebSocket, "
    "whose requests count by themselves); refused by the sidecar; "
    "upstream_failed (the provider could not be reached, said 5xx, or broke its answer off); upstream_refused (it said "
    "4xx); cancelled by the agent; failed by the sidecar's fault.",
    {
        "route": HTTP_ROUTES,
        "outcome": (
            "answered",
            "failed_open",
            "sent_to_http",
            "opened",
            "refused",
            "upstream_failed",
            "upstream_refused",
            "cancelled",
            "failed",
        ),
    },
)
HTTP_HELD: Final = Metric(
    "prompt_sidecar.http.held_connections",
    InstrumentKind.GAUGE,
    "{connection}",
    "Connections that the system holds until the HTTP door accepts them, as while its process starts: waiting now; "
    "at_start, which waited when the door began to accept them; limit, which may wait (http.held_connections, or what "
    "the system allows of it). Zero where there is no HTTP door; beyond Linux none are known to wait.",
    {"state": ("waiting", "at_start", "limit")},
)
HANDLED: Final = Metric(
    "prompt_sidecar.handled",
    InstrumentKind.COUNTER,
    "{request}",
    "Requests that went on, by what was done about their prompt: trimmed, or why it was not (docs/untrimmed.md). "
    f"large: with {LARGE_BYTES:,} bytes of body or more, or stored_by_provider. Each counts once, whatever its hidden "
    "turns; dry runs and side calls do not.",
    {"door": tuple(door.value for door in Through), "outcome": OUTCOMES, "size": ("small", "large")},
)
RECALL_OFFERS: Final = Metric(
    "prompt_sidecar.recall.offers",
    InstrumentKind.COUNTER,
    "{request}",
    "Prompts that went on, by whether the model was offered tools for recall, by the sidecar, its agent or its "
    "gateway, or why not.",
    {"door": tuple(door.value for door in Through), "outcome": tuple(offer.value for offer in RecallOffer)},
)
FOREIGN_REQUESTS: Final = Metric(
    "prompt_sidecar.foreign.requests",
    InstrumentKind.COUNTER,
    "{request}",
    "Requests that were refused as a web page of another site may have sent them, by listener and by the header that "
    "shows it.",
    {"listener": ("http", "metrics", "admin"), "header": ("host", "origin")},
)
HTTP_UPSTREAM: Final = Metric(
    "prompt_sidecar.http.upstream.answers",
    InstrumentKind.COUNTER,
    "{answer}",
    "Last answers of providers to requests through the HTTP door, by class of their status; none: there was none.",
    {"route": HTTP_ROUTES, "status": ("1xx", "2xx", "3xx", "4xx", "5xx", "none")},
)
HTTP_HIDDEN: Final = Metric(
    "prompt_sidecar.http.hidden.turns",
    InstrumentKind.COUNTER,
    "{turn}",
    "Turns of the model that called the sidecar's tools alone and that the HTTP door answered.",
)
HTTP_HIDDEN_LOSSES: Final = Metric(
    "prompt_sidecar.http.hidden.losses",
    InstrumentKind.COUNTER,
    "{turn}",
    "Hidden turns that are not put back where they were: unmatched (the agent has sent back nothing that shows where: "
    "call and answer are at the end of that request, and there in later ones), rewritten (the agent has changed its "
    "history there since), evicted (a budget of bytes was full), expired (the run was not used for its time to live), "
    "ended (the run was ended before the answer was), failed (by the sidecar's fault).",
    {"cause": ("unmatched", "rewritten", "evicted", "expired", "ended", "failed")},
)

ROUTES_OF_PROVIDERS: Final = tuple(
    route for route in HTTP_ROUTES if route not in {"compress", "retrieve", "guardrail", "passed_through"}
)
"""Routes whose requests become calls of a provider that the sidecar makes."""
_TURNS: Final = ("shown", "hidden")
"""Whether the agent gets the answer, or the sidecar answers its calls in a hidden turn."""
PROVIDER_CALLS: Final = Metric(
    "prompt_sidecar.provider.calls",
    InstrumentKind.COUNTER,
    "{call}",
    "Calls of providers that the HTTP door has made, hidden turns too, by how they ended: answered; refused (4xx); "
    "rate_limited (429); failed (5xx); unreachable (no answer); broken_off (an answer without its end, or one that "
    "could not be read); abandoned (the agent left before anything of an answer had come); cancelled (it left later).",
    {"route": ROUTES_OF_PROVIDERS, "outcome": tuple(CallOutcome), "turn": _TURNS},
)
PROVIDER_FIRST_BYTE: Final = Metric(
    "prompt_sidecar.provider.first_byte",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time from a call of a provider to its answer's headers, in a stream to the first bytes of its body. Where the "
    "agent left before: the time that it waited. Calls that failed without an answer are left out.",
    {"route": ROUTES_OF_PROVIDERS, "turn": _TURNS},
    _PROVIDER_SECONDS,
)
PROVIDER_DURATION: Final = Metric(
    "prompt_sidecar.provider.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time from a call of a provider to the end of its answer, of calls that were answered with 2xx or 3xx.",
    {"route": ROUTES_OF_PROVIDERS, "turn": _TURNS},
    _PROVIDER_SECONDS,
)

HTTP_SERVER_DURATION: Final = Metric(
    "http.server.request.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time from the arrival of a request at the HTTP door to the end of its answer; WebSockets are left out.",
    {
        "http.request.method": (),
        "url.scheme": (),
        "http.response.status_code": (),
        "error.type": (),
        "route": (),
    },
    (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
_GENAI: Final[Mapping[str, tuple[str, ...]]] = {
    "gen_ai.operation.name": (),
    "gen_ai.provider.name": (),
    "gen_ai.request.model": (),
}
"""Labels of the conventions for generative AI. Operations and providers are those of `providers/table.py`."""
_GENAI_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""As the conventions recommend, like the other boundaries of the metrics that they name."""
GENAI_TOKENS: Final = Metric(
    "gen_ai.client.token.usage",
    InstrumentKind.HISTOGRAM,
    "{token}",
    "Tokens of calls of providers through the HTTP door, as the provider has counted them; cached ones are input.",
    {**_GENAI, "gen_ai.response.model": (), "gen_ai.token.type": ("input", "output")},
    tuple(4.0**power for power in range(14)),
)
GENAI_DURATION: Final = Metric(
    "gen_ai.client.operation.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time of calls of providers through the HTTP door, to the end of their answers; error_type of those that failed: "
    "the status, or a kind of error.",
    {**_GENAI, "gen_ai.response.model": (), "error.type": ()},
    _GENAI_SECONDS,
)
GENAI_FIRST_CHUNK: Final = Metric(
    "gen_ai.client.operation.time_to_first_chunk",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time from a call of a provider through the HTTP door to the first bytes of its answer, of streams alone.",
    {**_GENAI, "gen_ai.response.model": ()},
    _GENAI_SECONDS,
)
GENAI_OUTPUT_CHUNK: Final = Metric(
    "gen_ai.client.operation.time_per_output_chunk",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time between two pieces of a provider's stream as they come through the HTTP door; a piece may hold many events.",
    _GENAI,
    _GENAI_SECONDS,
)
GENAI: Final = (GENAI_TOKENS, GENAI_DURATION, GENAI_FIRST_CHUNK, GENAI_OUTPUT_CHUNK)
"""Metrics of OpenTelemetry's conventions for generative AI."""

PROMPTS: Final = Metric(
    "prompt_sidecar.prompts",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts taken: trimmed, condensed (results were made smaller at first sight, and nothing was cut), untouched, "
    "over_budget (answered, but too large still) or refused with an error.",
    {
        "outcome": ("trimmed", "condensed", "untouched", "over_budget", "refused"),
        "format": (*_FORMATS, OTHER),
        **_MODEL,
    },
)
PROMPTS_RECEIVED: Final = Metric(
    "prompt_sidecar.prompts.received",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts whose handling began, dry runs and side calls included; those in flight have no outcome yet.",
)
PROMPTS_ASIDE: Final = Metric(
    "prompt_sidecar.prompts.aside",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts that changed nothing: dry runs and side calls. No other metric counts them.",
    {"mode": ("dry_run", "side_call")},
)
PROMPT_TOKENS: Final = Metric(
    "prompt_sidecar.prompt.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Estimated tokens of all prompts, before trimming and after. One that is sent again before there is a report on "
    "it counts once, here and in all that sums tokens up: the provider did not answer it, as far as is known.",
    {"state": ("before", "after"), "format": _FORMATS, **_MODEL},
)
PROMPT_SIZE: Final = Metric(
    "prompt_sidecar.prompt.size",
    InstrumentKind.HISTOGRAM,
    "{token}",
    "Estimated tokens of a prompt, before trimming and after.",
    {"state": ("before", "after")},
    _TOKENS,
)
HISTORY_TOKENS: Final = Metric(
    "prompt_sidecar.history.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Estimated tokens of all prompts by kind of content, before trimming and after.",
    {"state": ("before", "after"), "kind": tuple(kind.value for kind in SizeKind)},
)
WINDOW_SHARE: Final = Metric(
    "prompt_sidecar.window.share",
    InstrumentKind.HISTOGRAM,
    "1",
    "Part of its limit that a returned prompt takes; above 1 it does not fit.",
    {},
    _SHARES,
)
WINDOW_CROSSINGS: Final = Metric(
    "prompt_sidecar.window.crossings",
    InstrumentKind.COUNTER,
    "{crossing}",
    "Runs whose prompts reached this per cent of their limit for the first time.",
    {"mark": ("50", "80", "95")},
)
TRIMS: Final = Metric(
    "prompt_sidecar.trims",
    InstrumentKind.COUNTER,
    "{item}",
    "Items newly trimmed, or trimmed further.",
    {
        "action": tuple(action.value for action in Action),
        "reason": tuple(reason.value for reason in Reason),
        "kind": tuple(kind.value for kind in ItemKind),
    },
)
TRIMMED_TOKENS: Final = Metric(
    "prompt_sidecar.trimmed.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Estimated tokens that new trims took out, once each: later prompts without them are not counted again.",
    {"action": tuple(action.value for action in Action), "reason": tuple(reason.value for reason in Reason)},
)
CONDENSED_TOKENS: Final = Metric(
    "prompt_sidecar.condensed.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Estimated tokens that condensing results at first sight took out, once each, by what was taken out.",
    {"reduction": tuple(reduction.name for reduction in REDUCTIONS)},
)
AIMS: Final = ("window", "ceiling")
"""What cuts aim at: the limit, which follows from the window, or `policy.ceiling_tokens` below it."""
CUTS: Final = Metric(
    "prompt_sidecar.cuts",
    InstrumentKind.COUNTER,
    "{cut}",
    "Cuts: prompts in which old items went in a batch, by what they were too large for: the limit, which is of the "
    "window, or a ceiling below it (policy.ceiling_tokens).",
    {"aim": AIMS},
)
CUT_TOKENS: Final = Metric(
    "prompt_sidecar.cut.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Estimated tokens that trims took out, once each, but for what was condensed or capped at first sight: by what the "
    "prompt was trimmed to then, the limit or a ceiling below it.",
    {"aim": AIMS},
)
UNFIT: Final = Metric(
    "prompt_sidecar.unfit",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts that stayed over their limit, by reason.",
    {"reason": tuple(reason.value for reason in NoFit)},
)
OWN_TEXT_TOKENS: Final = Metric(
    "prompt_sidecar.own_text.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Tokens of the sidecar's own text in all prompts.",
)
PREFIX_TOKENS: Final = Metric(
    "prompt_sidecar.prefix.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Tokens of returned prompts: kept since the prompt before, which a provider reads from its cache, or rewritten.",
    {"state": ("kept", "rewritten")},
)
COMPARED_TOKENS: Final = Metric(
    "prompt_sidecar.comparison.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Tokens of the prompts that untrimmed would fit the model's window, as they were returned and untrimmed: "
    "what the prompt before began with as well, and what is new to the provider's cache. Calls for recall alone are "
    "counted as returned, and not as untrimmed.",
    {"prompts": ("returned", "untrimmed"), "state": ("kept", "new")},
)
COMPARED_PROMPTS: Final = Metric(
    "prompt_sidecar.comparison.prompts",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts by how their cost is compared with never trimming: compared; recall, which only the sidecar causes; or "
    "refused, as untrimmed they are larger than the model's window and on neither side.",
    {"how": ("compared", "recall", "refused")},
)
RECOUNTED_TOKENS: Final = Metric(
    "prompt_sidecar.comparison.recounted.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Tokens of the prompts whose counts by the provider were reported, on both sides of the comparison: as estimated, "
    "which comparison.tokens has of them, and by the report, which belongs in their place.",
    {"prompts": ("returned", "untrimmed"), "state": ("kept", "new"), "by": ("estimate", "report")},
)
RECOUNTED_PROMPTS: Final = Metric(
    "prompt_sidecar.comparison.recounted.prompts",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts whose counts by the provider were reported, by how their cost is compared with never trimming since then; "
    "refused by the provider, or untrimmed larger than the window by its measure; failed, as there was no answer.",
    {"how": ("compared", "recall", "refused", "failed")},
)
TOOL_RESULT_SIZE: Final = Metric(
    "prompt_sidecar.tool.result.size",
    InstrumentKind.HISTOGRAM,
    "{token}",
    "Estimated tokens of each new result of an agent's tool, untrimmed, by tool: those of the setting telemetry.tools, "
    "or the largest.",
    {"tool": ()},
    _RESULT_TOKENS,
)
TOOL_RESULTS: Final = Metric(
    "prompt_sidecar.tool.results",
    InstrumentKind.COUNTER,
    "{result}",
    "New results of agents' tools, by tool: first ones, or repeated, which a call that was made before had too.",
    {"tool": (), "seen": ("first", "repeated")},
)
TOOL_TOKENS: Final = Metric(
    "prompt_sidecar.tool.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Estimated tokens by tool, each once: brought in by new results, trimmed of results, and recalled.",
    {"tool": (), "flow": ("brought", "trimmed", "recalled")},
)
CACHE_BREAKS: Final = Metric(
    "prompt_sidecar.cache.breaks",
    InstrumentKind.COUNTER,
    "{break}",
    "Prompts whose beginning is not that of the prompt before: the sidecar cut a batch, or the agent changed its "
    "history.",
    {"cause": ("batch_point", "agent")},
)
WINDOWS_ASSUMED: Final = Metric(
    "prompt_sidecar.windows.assumed",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts without a known window: the request has none and the model is unknown, so limits.default_window was used.",
    {"format": _FORMATS},
)
AMBIGUOUS_MESSAGES: Final = Metric(
    "prompt_sidecar.messages.ambiguous",
    InstrumentKind.COUNTER,
    "{message}",
    "New messages that two parsers may read differently: with an unpaired surrogate, which are trimmed like others; or "
    "with a repeated key or a number too large, which are never edited, only dropped whole.",
)
TRIM_DURATION: Final = Metric(
    "prompt_sidecar.trim.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time that the sidecar took to answer a prompt, through whichever door it came; waiting for a thread aside.",
    {},
    _SECONDS,
)
TRIM_TIME: Final = Metric(
    "prompt_sidecar.trim.time",
    InstrumentKind.COUNTER,
    "s",
    "Time spent in the phases of TrimPrompt.",
    {"phase": ("scan", "count", "trim", "encode")},
)
REPEATED_CALLS: Final = Metric(
    "prompt_sidecar.repeated_calls",
    InstrumentKind.COUNTER,
    "{call}",
    "Tool calls that repeat an earlier one, result included, by whether that result was still in the prompt.",
    {"older": ("whole", "trimmed")},
)

CEILINGS_PASSED: Final = Metric(
    "prompt_sidecar.ceilings.passed",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts with which a ceiling is passed, by whose use it bounds, of what, and what is done: those of refuse are "
    "refused with RUN_CEILING or CALLER_CEILING, unless the sidecar only observes.",
    {
        "scope": tuple(scope.value for scope in CeilingScope),
        "kind": tuple(kind.value for kind in CeilingKind),
        "action": tuple(action.value for action in CeilingAction),
    },
)
UNPRICED: Final = Metric(
    "prompt_sidecar.prompts.unpriced",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts for models without a price although there are prices or ceilings on cost, which do not count them.",
)
COST: Final = Metric(
    "prompt_sidecar.cost",
    InstrumentKind.COUNTER,
    "{currency_unit}",
    "Cost of the model calls that providers have answered and counted, input and answer, by the model that answered: "
    "the prices of [prices], else the catalogue's list prices. What has no price is in cost.unpriced instead.",
    {"model": (), "currency": ()},
)
COST_COMPARED: Final = Metric(
    "prompt_sidecar.cost.estimate",
    InstrumentKind.COUNTER,
    "{currency_unit}",
    "ESTIMATE of what trimming saved: of calls that are in cost, the input as returned, and what the same prompts "
    "untrimmed would have cost. Nobody was charged for these: the difference is an estimate, and no part of cost.",
    {"prompts": ("returned", "untrimmed"), "model": (), "currency": ()},
)
CALLER_PROMPTS: Final = Metric(
    "prompt_sidecar.caller.prompts",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts taken, by caller and outcome. caller: those that the settings or a token of the sidecar name, local and "
    "unix, 32 at most; others are `other`.",
    {"caller": (), "outcome": ("trimmed", "condensed", "untouched", "over_budget", "refused")},
)
CALLER_TOKENS: Final = Metric(
    "prompt_sidecar.caller.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Estimated tokens of all prompts, before trimming and after, by caller; counted as those of prompt.tokens.",
    {"caller": (), "state": ("before", "after")},
)
CALLER_COST: Final = Metric(
    "prompt_sidecar.caller.cost",
    InstrumentKind.COUNTER,
    "{currency_unit}",
    "What is in cost, by caller.",
    {"caller": (), "currency": ()},
)
CALLER_FINDINGS: Final = Metric(
    "prompt_sidecar.caller.findings",
    InstrumentKind.COUNTER,
    "{finding}",
    "What the guard's rules found in new text of prompts, by caller and by what was done about it.",
    {"caller": (), "action": tuple(action.value for action in FindingAction)},
)
COST_UNPRICED: Final = Metric(
    "prompt_sidecar.cost.unpriced",
    InstrumentKind.COUNTER,
    "{call}",
    "Model calls that providers have answered and counted, and cost does not hold: their model has no price, they were "
    "served in a tier without a known price, not all of their input tokens were reported, or the report was too late.",
    {"why": tuple(why.value for why in Unpriced), "model": ()},
)
OBSERVING: Final = Metric(
    "prompt_sidecar.observing",
    InstrumentKind.GAUGE,
    "1",
    "1 where the sidecar only observes (mode = observe): prompts are returned as they were sent, and figures say what "
    "would have been done.",
)

ADVERTISED: Final = Metric(
    "prompt_sidecar.recall.advertised",
    InstrumentKind.COUNTER,
    "{id}",
    "Stash ids newly shown to models in markers and registry: the start of the recall funnel.",
)
RETRIEVALS: Final = Metric(
    "prompt_sidecar.retrievals",
    InstrumentKind.COUNTER,
    "{retrieval}",
    "Originals asked for by id, by outcome.",
    {"outcome": tuple(outcome.value for outcome in Outcome), "via": _VIA},
)
SEARCHES: Final = Metric(
    "prompt_sidecar.searches",
    InstrumentKind.COUNTER,
    "{search}",
    "Searches of histories, by outcome.",
    {"outcome": tuple(outcome.value for outcome in SearchOutcome), "via": _VIA},
)
SEARCH_DURATION: Final = Metric(
    "prompt_sidecar.search.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time of a search, including the indexing of waiting items.",
    {},
    _SECONDS,
)
SEARCH_SNIPPETS: Final = Metric(
    "prompt_sidecar.search.snippets",
    InstrumentKind.COUNTER,
    "{snippet}",
    "Snippets that searches returned.",
    {"via": _VIA},
)
TOOL_CALLS: Final = Metric(
    "prompt_sidecar.tool_calls",
    InstrumentKind.COUNTER,
    "{call}",
    "Calls that models made of the sidecar's tools.",
    {"tool": _TOOLS, "outcome": tuple(outcome.value for outcome in ToolOutcome)},
)
TASKS: Final = Metric(
    "prompt_sidecar.tasks",
    InstrumentKind.COUNTER,
    "{task}",
    "Tasks created and completed.",
    {"event": ("created", "completed")},
)

USAGE_REPORTS: Final = Metric(
    "prompt_sidecar.usage.reports",
    InstrumentKind.COUNTER,
    "{report}",
    "Reports of what a model call used, by outcome.",
    {"outcome": tuple(outcome.value for outcome in UsageOutcome)},
)
CALIBRATIONS: Final = Metric(
    "prompt_sidecar.calibrations",
    InstrumentKind.COUNTER,
    "{report}",
    "Reports by whether they corrected the estimate.",
    {"outcome": tuple(outcome.value for outcome in Calibrated)},
)
ESTIMATE_RATIO: Final = Metric(
    "prompt_sidecar.estimate.ratio",
    InstrumentKind.HISTOGRAM,
    "1",
    "Ratio of estimated tokens to real ones.",
    _MODEL,
    _AROUND_ONE,
)
REPORTED_TOKENS: Final = Metric(
    "prompt_sidecar.reported.tokens",
    InstrumentKind.COUNTER,
    "{token}",
    "Tokens that agents reported: input (cached ones included), cached, cache_expected (tokens of the kept "
    "prefix), output.",
    {"kind": ("input", "cached", "cache_expected", "output")},
)
PROVIDER_CACHE: Final = Metric(
    "prompt_sidecar.provider_cache",
    InstrumentKind.COUNTER,
    "{report}",
    "Reports by whether the provider read the kept prefix from its cache.",
    {"outcome": tuple(use.value for use in CacheUse)},
)
PROVIDER_REFUSALS: Final = Metric(
    "prompt_sidecar.provider.refusals",
    InstrumentKind.COUNTER,
    "{refusal}",
    "Prompts that a provider rejected as too long, by whether its message had the limit.",
    {"limit": ("named", "unnamed")},
)

FINDINGS: Final = Metric(
    "prompt_sidecar.guard.findings",
    InstrumentKind.COUNTER,
    "{finding}",
    "What the guard's rules found in new text, by rule and by what was done about it; unanswered_call: calls without "
    "results in a history that goes on.",
    {"rule": RULES, "action": tuple(action.value for action in FindingAction)},
)
RESTORED: Final = Metric(
    "prompt_sidecar.guard.restored",
    InstrumentKind.COUNTER,
    "{value}",
    "Masks in the arguments of tools' calls that became values again, by tool and kind of value.",
    {"tool": (), "kind": KINDS},
)
MASKS_LEFT: Final = Metric(
    "prompt_sidecar.guard.masks.left",
    InstrumentKind.COUNTER,
    "{mask}",
    "Masks in the arguments of tools' calls that stayed masks: guard.restore does not allow them (not_allowed), or "
    "their value is not known (unknown).",
    {"reason": ("not_allowed", "unknown")},
)
GUARD_REFUSALS: Final = Metric(
    "prompt_sidecar.guard.refusals",
    InstrumentKind.COUNTER,
    "{prompt}",
    "Prompts that the guard refused: they hold what a rule refuses that a user has set to refuse.",
)
GUARD_UNREAD: Final = Metric(
    "prompt_sidecar.guard.unread",
    InstrumentKind.COUNTER,
    "{request}",
    "Requests, and messages of WebSockets, that a door was to send on and that the guard could not read, by door and "
    "reason: refused, or passed as they came (guard.unread).",
    {
        "door": tuple(door.value for door in SendingDoor),
        "reason": tuple(why.value for why in Unread),
        "outcome": tuple(outcome.value for outcome in UnreadOutcome),
    },
)
VAULT_VALUES: Final = Metric(
    "prompt_sidecar.vault.values", InstrumentKind.GAUGE, "{value}", "Values that masks stand for, of all runs."
)
VAULT_SIZE: Final = Metric(
    "prompt_sidecar.vault.size", InstrumentKind.GAUGE, "By", "Bytes, estimated, of these values."
)
VAULT_LOSSES: Final = Metric(
    "prompt_sidecar.vault.losses",
    InstrumentKind.COUNTER,
    "{value}",
    "Values that the vault gave up for others' (evicted), or had no room for (refused).",
    {"cause": ("evicted", "refused")},
)
ENVOY_REQUESTS: Final = Metric(
    "prompt_sidecar.envoy.requests",
    InstrumentKind.COUNTER,
    "{request}",
    "HTTP requests that Envoy showed to the sidecar, by outcome: all but answered and refused went on as they came.",
    {"outcome": tuple(outcome.value for outcome in EnvoyOutcome)},
)
ENVOY_MASKS_STAYED: Final = Metric(
    "prompt_sidecar.envoy.masks.stayed",
    InstrumentKind.COUNTER,
    "{response}",
    "Responses through Envoy, in runs with masks that may be restored, that went on with the masks that they, or the "
    "rest of them, may hold, by reason.",
    {"reason": tuple(reason.value for reason in MasksStay)},
)
ENVOY_DURATION: Final = Metric(
    "prompt_sidecar.envoy.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "Time that Envoy waited for the answer to a prompt, from the arrival of its whole body.",
    {},
    _SECONDS,
)

STASH_ENTRIES: Final = Metric(
    "prompt_sidecar.stash.entries", InstrumentKind.GAUGE, "{entry}", "Originals in the stash."
)
STASH_SIZE: Final = Metric(
    "prompt_sidecar.stash.size",
    InstrumentKind.GAUGE,
    "By",
    "Bytes of the originals: held, as the budget counts them, and original, before compression.",
    {"state": ("held", "original")},
)
STASH_LIMIT: Final = Metric("prompt_sidecar.stash.limit", InstrumentKind.GAUGE, "By", "Bytes that the stash may hold.")
STASH_LOSSES: Final = Metric(
    "prompt_sidecar.stash.losses",
    InstrumentKind.COUNTER,
    "{entry}",
    "Originals that the stash lost: their time to live ended, or a budget evicted them.",
    {"cause": tuple(cause.value for cause in Cause)},
)
RUNS_ACTIVE: Final = Metric(
    "prompt_sidecar.runs.active", InstrumentKind.GAUGE, "{run}", "Runs that the sidecar remembers."
)
RUNS_STARTED: Final = Metric("prompt_sidecar.runs.started", InstrumentKind.COUNTER, "{run}", "Runs first seen.")
RUNS_FORGOTTEN: Final = Metric(
    "prompt_sidecar.runs.forgotten",
    InstrumentKind.COUNTER,
    "{run}",
    "Runs that the sidecar forgot: ended by the agent, idle, or too many.",
    {"cause": ("ended", "idle", "too_many")},
)
UNFINISHED_TASKS: Final = Metric(
    "prompt_sidecar.tasks.unfinished",
    InstrumentKind.COUNTER,
    "{task}",
    "Tasks that were unfinished when their run ended.",
)
MEMORY_SIZE: Final = Metric(
    "prompt_sidecar.memory.size",
    InstrumentKind.GAUGE,
    "By",
    "Bytes, estimated, that runs keep besides their originals: last prompts, ledgers, indexes, records of histories, "
    "and what the HTTP and Envoy doors keep of them, such as hidden turns.",
)
BUFFERS_SIZE: Final = Metric(
    "prompt_sidecar.buffers.size",
    InstrumentKind.GAUGE,
    "By",
    "Bytes, estimated, that are kept for a while besides runs, each kind within a bound of its own: drafts of prompts "
    "whose calls had to end, answers that their callers have yet to take, encoded parts of answers, calibration "
    "factors.",
    {"buffer": ("drafts", "untaken_answers", "answer_parts", "calibration")},
)
PROCESS_MEMORY: Final = Metric(
    "prompt_sidecar.process.memory",
    InstrumentKind.GAUGE,
    "By",
    "Bytes of the process: resident now; baseline, resident when it was ready, before any run; limit, what it may take "
    "(0: there is no limit); free, blocks that the C library keeps for what comes next, at most: pages that it has "
    "given back are among them. Baseline, stash (held), memory, buffers and free explain what is resident.",
    {"state": ("resident", "baseline", "limit", "free")},
)
CPU_LIMIT: Final = Metric(
    "prompt_sidecar.process.cpu.limit",
    InstrumentKind.GAUGE,
    "{core}",
    "Processor cores that the process's control group (its container, or its service) may use; 0: there is no limit.",
)
CPU_THROTTLED: Final = Metric(
    "prompt_sidecar.process.cpu.throttled",
    InstrumentKind.COUNTER,
    "s",
    "Time for which the process's control group was stopped, as it had used up its limit on processor time.",
)
MEMORY_LIMIT: Final = Metric(
    "prompt_sidecar.memory.limit", InstrumentKind.GAUGE, "By", "Bytes that runs may keep besides their originals."
)
HISTORY_SIZE: Final = Metric(
    "prompt_sidecar.history.size",
    InstrumentKind.GAUGE,
    "By",
    "Bytes of originals recorded in all histories, before compression.",
)
INDEX_SIZE: Final = Metric("prompt_sidecar.index.size", InstrumentKind.GAUGE, "By", "Bytes, estimated, of all indexes.")
INDEX_WAITING: Final = Metric(
    "prompt_sidecar.index.waiting", InstrumentKind.GAUGE, "By", "Bytes of originals that wait to be indexed."
)
STORE_COMMANDS: Final = Metric(
    "prompt_sidecar.store.commands",
    InstrumentKind.COUNTER,
    "{command}",
    "Commands to the shared store by outcome; outdated: of a run that was ended, or that the store has lost; skipped: "
    "not asked, as the last commands had no answer. Zero where there is no store.",
    {
        "command": tuple(command.value for command in StoreCommand),
        "outcome": tuple(reply.value for reply in StoreReply),
    },
)
STORE_LOSSES: Final = Metric(
    "prompt_sidecar.store.losses",
    InstrumentKind.COUNTER,
    "{value}",
    "Values that the shared store lacks or cannot give: the queue was full (written later, while the stash has them), "
    "they waited too long, they are too large, their run was ended elsewhere, it is uncertain whether it was, "
    "what the store has cannot be read, or the run has as many values behind masks there as it may.",
    {"cause": tuple(loss.value for loss in StoreLoss)},
)
STORE_QUEUE: Final = Metric(
    "prompt_sidecar.store.queue",
    InstrumentKind.GAUGE,
    "By",
    "Bytes that wait to be written to the shared store, before compression, and those that may wait.",
    {"state": ("waiting", "limit")},
)
STORE_LAG: Final = Metric(
    "prompt_sidecar.store.lag",
    InstrumentKind.GAUGE,
    "s",
    "How long the oldest of what waits to be written to the shared store has waited: what a killed process loses to "
    "the others. 0 where nothing waits.",
)
STORE_REACHABLE: Final = Metric(
    "prompt_sidecar.store.reachable",
    InstrumentKind.GAUGE,
    "{store}",
    "Whether the shared store answered its last commands: 1; 0: it did not, and is asked now and then only. 1 where "
    "there is none.",
)
BUILD_INFO: Final = Metric(
    "prompt_sidecar.build.info",
    InstrumentKind.GAUGE,
    "",
    "Always 1; its labels are the running versions.",
    {"version": (), "python": ()},
)

CATALOG: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics, in the order of this file."""
