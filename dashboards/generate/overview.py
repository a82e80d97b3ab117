"""The first dashboard: in ten seconds, what the sidecar saves, what it costs, and what is wrong."""

from __future__ import annotations

from typing import Final

from dashboards.generate import figures
from dashboards.generate.names import ALERTS, PROCESS_CPU, PROCESS_MEMORY, UP
from dashboards.generate.panels import BLUE, GREEN, RED, YELLOW, Board, Look, Panel, Query, Row, Unit
from dashboards.generate.promql import PANEL, SPAN, or_zero
from prompt_sidecar.telemetry.catalog import (
    BOUND_HITS,
    BUILD_INFO,
    CALLER_COST,
    CALLER_FINDINGS,
    CALLER_PROMPTS,
    CALLER_TOKENS,
    COMPARED_PROMPTS,
    CONDENSED_TOKENS,
    COST,
    COST_UNPRICED,
    CUT_TOKENS,
    CUTS,
    ENVOY_REQUESTS,
    HANDLED,
    HISTORY_TOKENS,
    HTTP_REQUESTS,
    RETRIEVALS,
    RPC_DURATION,
    RUNS_ACTIVE,
    STASH_LOSSES,
    TOOL_TOKENS,
    TRIMMED_TOKENS,
    UNFIT,
)

IDLE: Final = "No prompt came in during the time shown. If agents do run, they do not reach this sidecar."
UNUSED: Final = "No tool of an agent answered in the time shown, or its prompts do not reach this sidecar."
UNSEEN: Final = (
    "Prometheus scrapes no sidecar under this job and instance: see the row “Targets” of its own status page."
)

# At scrape time `up` has the target's labels only, so it is joined with what tells that the target is a sidecar.
_UP: Final = (
    f"sum({PANEL.select(UP)} * on (job, instance) "
    f"group by (job, instance) (last_over_time({PANEL.select(BUILD_INFO)}[1h])))"
)

_FIRING: Final = PANEL.value(ALERTS, by=("alertname", "severity"), where={"alertstate": "firing"})

SAVES: Final = Row(
    "Summary",
    (
        Panel(
            "Input tokens saved",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.removed_share(SPAN), "", instant=True),),
            "Of all tokens that agents wanted to send, the part that no longer goes to the provider; for the time "
            "shown.",
            "Nothing is wrong with 0 %: prompts that fit are left alone. If prompts are large all the same, compare "
            "the window that agents ask for with the model's, and see the dashboard Trimming and cache.",
            IDLE,
            width=4,
            height=4,
            base=BLUE,
            decimals=1,
        ),
        Panel(
            "Tokens saved",
            Look.STAT,
            Unit.TOKENS,
            (Query(figures.removed(SPAN), "", instant=True),),
            "Tokens that agents wanted to send and that the sidecar left out, summed over all prompts of the time "
            "shown. An item that stays out of ten prompts counts ten times, as it would have been paid ten times.",
            "As for the share next to it.",
            IDLE,
            width=4,
            height=4,
            base=BLUE,
            decimals=1,
        ),
        Panel(
            "Price, of never trimming",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.price_share(SPAN), "", instant=True),),
            "Is it saving money? Below 100 % it is: what providers charge for input with the sidecar, as a part of "
            "what they would for the same prompts untrimmed, with the cache that these would have had: an estimate, at "
            "the two prices that are variables above, of all models alike; “Money” below has each model's own. Calls "
            "for recall are on the sidecar's side alone. Prompts larger than the model's window would have been "
            "refused and are on neither side.",
            "Above 100 % trimming costs more than it saves: cuts come too often for what they take out. Raise the "
            "limit, or see “Cache breaks” in Trimming and cache. Short runs cost a little more, long ones much less.",
            IDLE,
            width=4,
            height=4,
            thresholds=((0.9, YELLOW), (1.0, RED)),
            decimals=0,
        ),
        Panel(
            "Prompts too large",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.over_budget_share(SPAN), "", instant=True),),
            "Of all prompts answered, the part that is still over its limit (`fits` is false).",
            "The provider will refuse them. “What kept prompts too large”, below, says why: protected text is the "
            "agent's own system prompt, first message and newest call; policy is what the preset may not touch.",
            IDLE,
            width=4,
            height=4,
            thresholds=((0.001, YELLOW), (0.05, RED)),
            decimals=1,
            runs="unfit",
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
            "See “Failed calls by method” in Health, then the sidecar's log: each internal error has an id there. "
            "By providers: “Provider calls by outcome” in Health.",
            IDLE,
            width=4,
            height=4,
            thresholds=((0.001, YELLOW), (0.01, RED)),
            decimals=2,
        ),
        Panel(
            "Alerts firing",
            Look.STAT,
            Unit.COUNT,
            (Query(or_zero(PANEL.value(ALERTS, where={"alertstate": "firing"})), ""),),
            "Alerts of `dashboards/rules` that fire now.",
            "“Alerts” below names them; each has a page in `docs/runbooks`.",
            "Should not occur: without alerts it is 0. It is also 0 where Prometheus has not loaded the rules.",
            width=4,
            height=4,
            thresholds=((1, RED),),
            decimals=0,
        ),
        Panel(
            "Added time (p99)",
            Look.STAT,
            Unit.SECONDS,
            (Query(figures.trim_time(SPAN, 0.99), "", instant=True),),
            "99 of 100 prompts are answered within this time, measured in the sidecar.",
            "See the dashboard Health: whether calls wait for a thread, or which phase takes the time.",
            IDLE,
            width=4,
            height=4,
            thresholds=((0.1, YELLOW), (0.5, RED)),
        ),
        Panel(
            "Recalls that succeeded",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.hits_share(SPAN), "", instant=True),),
            "Of all originals that models and programs asked for by id, the part that was still there.",
            "Expired: raise the time to live. Evicted: raise the stash's budget. Not found: ids that the model made "
            "up. See the dashboard Recall.",
            "Nobody asked for an original in the time shown, which is common.",
            width=4,
            height=4,
            base=RED,
            thresholds=((0.8, YELLOW), (0.95, GREEN)),
            decimals=0,
            no_value="none asked",
            runs="failed",
        ),
        Panel(
            "Stash used",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.stash_used(PANEL), ""),),
            "The part of the stash's budget that originals take.",
            "At 100 % the oldest runs lose originals: raise `limits.stash_bytes`, or lower `limits.time_to_live`.",
            UNSEEN,
            width=4,
            height=4,
            thresholds=((0.8, YELLOW), (0.95, RED)),
            decimals=1,
            no_value="unseen",
        ),
        Panel(
            "Memory budget used",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.memory_used(PANEL), ""),),
            "How much of `limits.memory_bytes` is used: data that runs keep besides the stash.",
            "At 100 % idle runs drop data that their next prompt brings again: slower, not wrong. Raise it if the "
            "machine has the memory.",
            UNSEEN,
            width=4,
            height=4,
            thresholds=((0.8, YELLOW), (0.95, RED)),
            decimals=1,
            no_value="unseen",
        ),
        Panel(
            "Active runs",
            Look.STAT,
            Unit.COUNT,
            (Query(PANEL.value(RUNS_ACTIVE), ""),),
            "Runs of agents that the sidecar remembers.",
            "If it only grows, agents never call EndRun; the oldest go when `limits.runs` is reached.",
            UNSEEN,
            width=4,
            height=4,
            base=BLUE,
            decimals=0,
            no_value="unseen",
        ),
        Panel(
            "Sidecars running",
            Look.STAT,
            Unit.COUNT,
            (Query(_UP, ""),),
            "Sidecars that answered Prometheus's last scrape, of those seen in the last hour.",
            "If it falls, a sidecar has stopped or its `/metrics` port is closed to Prometheus.",
            UNSEEN,
            width=4,
            height=4,
            base=RED,
            thresholds=((1, GREEN),),
            decimals=0,
            no_value="unseen",
        ),
    ),
)

MONEY: Final = Row(
    "What it saves",
    (
        Panel(
            "Tokens sent by agents, and after trimming",
            Look.LINES,
            Unit.TOKENS_PER_SECOND,
            (Query(figures.before(PANEL), "sent by agents"), Query(figures.after(PANEL), "after trimming")),
            "Estimated tokens of all prompts, a second, before and after.",
            "Two equal lines mean that nothing is trimmed: prompts fit, or the limit is not the one that you expect.",
            IDLE,
            width=6,
        ),
        Panel(
            "Input price, in uncached tokens",
            Look.LINES,
            Unit.TOKENS_PER_SECOND,
            (
                Query(figures.price(PANEL, "returned"), "with the sidecar"),
                Query(figures.price(PANEL, "untrimmed"), "never trimming"),
            ),
            "What providers charge for input a second, as a number of uncached input tokens: with the sidecar, and "
            "for the same prompts untrimmed, with the cache that these would have had. By what providers counted "
            "where agents report it, else by estimates. At the two prices above, of all models alike; no money.",
            "If “with the sidecar” is above “never trimming”, see “Price, of never trimming” at the top.",
            IDLE,
            width=6,
        ),
        Panel(
            "Prompts compared with never trimming",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(COMPARED_PROMPTS, by=("how",)), "{{how}}"),),
            "compared: on both sides of the comparison. recall: calls that only the sidecar's own tools caused. "
            "refused: untrimmed they are larger than the model's window, so without the sidecar the run had ended.",
            "refused is what no price shows: these prompts were answered thanks to trimming.",
            IDLE,
            width=6,
        ),
        Panel(
            "Prompts priced by reports",
            Look.LINES,
            Unit.SHARE,
            (Query(f"clamp_max({figures.measured_share(PANEL)}, 1)", "by reports"),),
            "Of the prompts whose price is compared, those of which the provider's counts were reported. “with the "
            "sidecar” is measured for these, estimated for others.",
            "If it is low, let agents report (`ReportUsage`), or see “Reports and refusals” in Trimming and cache. A "
            "report is of use until eight later prompts of its run have come.",
            "No prompt came in during the time shown.",
            width=6,
            most=1,
        ),
        Panel(
            "Tokens taken out, by way of saving (estimate)",
            Look.BARS,
            Unit.TOKENS_PER_SECOND,
            (
                Query(PANEL.rate(TRIMMED_TOKENS, where={"reason": ("condense",)}), "condensed"),
                Query(PANEL.rate(TRIMMED_TOKENS, where={"reason": ("cap",)}), "capped"),
                Query(PANEL.rate(CUT_TOKENS, where={"aim": "ceiling"}), "cut for a ceiling"),
                Query(PANEL.rate(CUT_TOKENS, where={"aim": "window"}), "cut for the window"),
            ),
            "ESTIMATE: tokens that trims took out, once each, by the sidecar's count. condensed: results made smaller "
            "when they were first seen, their exact originals in reach. capped: results too large by themselves. cut: "
            "what had to go later, near `policy.ceiling_tokens` where that is below the limit, else near the limit or "
            "for its age. What is condensed or capped is paid at no call.",
            "Nothing condensed: `policy.condense` is off, or results hold nothing that it takes out.",
            IDLE,
            width=8,
        ),
        Panel(
            "Cuts, for the window and for a ceiling",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(CUTS, by=("aim",)), "{{aim}}"),),
            "Prompts in which old items went in a batch. window: it had come near its limit. ceiling: it had come near "
            "`policy.ceiling_tokens`, although its window had room; that is done to save, and hides text.",
            "Many for a ceiling: is it near the text that is never trimmed? `prompt-sidecar replay` says what ceilings "
            "save and hide in your own sessions.",
            "Nothing was cut in the time shown.",
            width=8,
        ),
        Panel(
            "Tokens condensed, by what was taken out",
            Look.BARS,
            Unit.TOKENS_PER_SECOND,
            (Query(PANEL.rate(CONDENSED_TOKENS, by=("reduction",)), "{{reduction}}"),),
            "Tokens that condensing took out of new results, once each, by reduction: codes of colours, lines that "
            "were overwritten, rows of JSON, paths of a search, and so on.",
            "`prompt-sidecar condense FILE` shows what one result becomes, and what of it cannot be read back.",
            "No result was condensed in the time shown.",
            width=8,
        ),
    ),
)

SPENT: Final = Row(
    "Money",
    (
        Panel(
            "Cost an hour, by model",
            Look.STACKED,
            Unit.COUNT,
            (Query(PANEL.each_hour(COST, by=("model", "currency")), "{{model}}, {{currency}}"),),
            "What the model calls cost an hour, input and answer, by the model that answered: by what providers "
            "counted, at the prices of `[prices]`, else at the catalogue's list prices with their tiers. Calls that no "
            "report came of are not in it.",
            "The dearest model stands out. A step without more calls: see whether prompts have grown past the size "
            "from which input costs double, or whether a cache went cold (“Provider cache: expected and found” in "
            "Trimming and cache).",
            "No call was reported that has a price: see “Calls that no price counts”.",
            decimals=2,
            runs="cost",
        ),
        Panel(
            "Saved an hour, by model (estimate)",
            Look.LINES,
            Unit.COUNT,
            (Query(figures.saved_an_hour(PANEL), "{{model}}, {{currency}}"),),
            "ESTIMATE: what the input of the same calls would have cost an hour untrimmed, with the cache that it "
            "would have had, less what it cost. Nobody was charged for untrimmed prompts, so it is no part of the cost "
            "next to it. Calls that failed, or that no report came of, save nothing here.",
            "Below 0 trimming costs more than it saves there: cuts come too often for what they take out. See “Cache "
            "breaks” in Trimming and cache.",
            "No call was reported that has a price and is compared with never trimming.",
            decimals=2,
            runs="saved",
        ),
        Panel(
            "Calls that no price counts",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(COST_UNPRICED, by=("why", "model")), "{{why}}, {{model}}"),),
            "Calls that providers have counted and that are not in the cost. model: it has no price. service_tier: it "
            "was served by priority, batch or the like, whose prices are not known. no_count: not all of the input "
            "was reported. prompt_unknown: the report came too late, or to another replica.",
            'model: add a table `[prices."MODEL"]`, or `[models."NAME"]` with `like`; `prompt-sidecar models NAME` '
            "says what is known.",
            UNSEEN,
        ),
    ),
)

CALLERS: Final = Row(
    "Who",
    (
        Panel(
            "Cost an hour, by caller",
            Look.STACKED,
            Unit.COUNT,
            (Query(PANEL.each_hour(CALLER_COST, by=("caller", "currency")), "{{caller}}, {{currency}}"),),
            "What “Cost an hour, by model” has, by caller: those that the settings or a token of the sidecar name, "
            "local and unix; `other`: all others. A click on a line leads to the caller's runs, the dearest first.",
            "The dearest caller stands out: click on it. Ceilings bound what one may cost (`[callers]`).",
            "No call was reported that has a price: see “Calls that no price counts”.",
            width=6,
            decimals=2,
            runs="cost",
        ),
        Panel(
            "Tokens sent, by caller",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (Query(PANEL.rate(CALLER_TOKENS, by=("caller",), where={"state": "before"}), "{{caller}}"),),
            "Estimated tokens of prompts, a second, before trimming, by caller.",
            "A caller whose line rises without more work has prompts that grow: see its runs.",
            IDLE,
            width=6,
            runs="sent",
        ),
        Panel(
            "Prompts too large or refused, by caller",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(
                    PANEL.each_minute(
                        CALLER_PROMPTS, by=("caller", "outcome"), where={"outcome": ("over_budget", "refused")}
                    ),
                    "{{caller}}, {{outcome}}",
                ),
            ),
            "Prompts that are over their limit after trimming, and those that were refused with an error.",
            "A click leads to the caller's runs, those with most refusals first; their pages have the reasons.",
            "None.",
            width=6,
            no_value="none",
            runs="refused",
        ),
        Panel(
            "Findings of the guard, by caller",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(CALLER_FINDINGS, by=("caller", "action")), "{{caller}}, {{action}}"),),
            "What the guard's rules found in new text of prompts: secrets, personal data, look-alikes; masked, "
            "defanged, or only observed.",
            "“Findings by rule” in Health says of which rules. A click leads to the caller's runs.",
            "The guard found nothing.",
            width=6,
            no_value="none",
            runs="findings",
        ),
    ),
)

LARGE: Final = Row(
    "What makes prompts large",
    (
        Panel(
            "Tools whose results are largest",
            Look.FUNNEL,
            Unit.TOKENS,
            (
                Query(
                    figures.largest(SPAN.increase(TOOL_TOKENS, by=("tool",), where={"flow": "brought"})),
                    "{{tool}}",
                    instant=True,
                ),
            ),
            "Tokens of new results, untrimmed, by the tool of the agent that gave them, for the time shown: the ten "
            "with most. Each result counts once, and is paid again with each later prompt that holds it. `other`: "
            "tools that `telemetry.tools` does not name, or, where that is empty, all but the 32 largest.",
            "Have the first tool answer less: fewer lines, a filter, pages. “Tools of agents” in Trimming and cache "
            "has what was trimmed and recalled of each, and how large a result is.",
            UNUSED,
            width=12,
        ),
        Panel(
            "Tokens of prompts after trimming, by kind",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (Query(PANEL.rate(HISTORY_TOKENS, by=("kind",), where={"state": "after"}), "{{kind}}"),),
            "Tokens a second that go to the provider, by what they are; own_text is the sidecar's.",
            "Much `system` or `tool_schemas`: shorten them, no trimming can. Much of another kind: see Trimming and "
            "cache.",
            IDLE,
            width=12,
        ),
    ),
)

COSTS: Final = Row(
    "What it costs",
    (
        Panel(
            "Time of a prompt",
            Look.LINES,
            Unit.SECONDS,
            tuple(
                Query(figures.trim_time(PANEL, quantile), name, exemplars=True)
                for quantile, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
            ),
            "How long prompts take, in the sidecar. Dots are single calls; a click opens their trace.",
            "See the dashboard Health: whether calls wait for a thread, or which phase takes the time.",
            IDLE,
            traces=True,
        ),
        Panel(
            "CPU",
            Look.LINES,
            Unit.CORES,
            (Query(PANEL.rate(PROCESS_CPU, by=("instance",)), "{{instance}}"),),
            "Processor cores that each sidecar uses.",
            "Near 1 the interpreter is busy all the time and calls wait: run more sidecars, or install the extra "
            "`fast`.",
            UNSEEN,
        ),
        Panel(
            "Memory of the process",
            Look.LINES,
            Unit.BYTES,
            (Query(PANEL.value(PROCESS_MEMORY, by=("instance",)), "{{instance}}"),),
            "Resident memory of each sidecar.",
            "It follows `limits.stash_bytes` and `limits.memory_bytes`; lower them if it comes near the container's "
            "limit.",
            UNSEEN,
        ),
    ),
)

WRONG: Final = Row(
    "What is wrong",
    (
        Panel(
            "Alerts",
            Look.BARS,
            Unit.COUNT,
            (
                Query(
                    f"({_FIRING}) or "
                    '(label_replace(label_replace(vector(0), "alertname", "none", "", ""), "severity", "ok", "", "") '
                    f"unless on () ({_FIRING}))",
                    "{{alertname}} ({{severity}})",
                ),
            ),
            "Alerts that fire, by name. Each has a page in `docs/runbooks` that says what to do.",
            "Open the page of the alert.",
            "Should not occur: without alerts there is a line “none” at 0.",
            decimals=0,
        ),
        Panel(
            "What kept prompts too large",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(UNFIT, by=("reason",)), "{{reason}}"),),
            "Prompts that stayed over their limit, by reason.",
            "protected_text: the agent's own system prompt, first message, newest call or pinned messages exceed the "
            "limit. policy: the preset may not touch the rest. not_stashable: originals found no room, so nothing was "
            "taken out.",
            UNSEEN,
            runs="unfit",
        ),
        Panel(
            "Failed and refused calls",
            Look.BARS,
            Unit.CALLS_PER_SECOND,
            (
                Query(
                    or_zero(
                        PANEL.rate(
                            RPC_DURATION,
                            where={
                                "rpc_method": figures.METHODS,
                                "rpc_response_status_code": (*figures.FAULTS, *figures.REFUSALS),
                            },
                        )
                    ),
                    "failed or refused",
                ),
                Query(
                    PANEL.rate(HTTP_REQUESTS, by=("outcome",), where={"outcome": ("failed", "failed_open", "refused")}),
                    "HTTP: {{outcome}}",
                ),
                Query(
                    PANEL.rate(ENVOY_REQUESTS, by=("outcome",), where={"outcome": ("failed", "refused")}),
                    "Envoy: {{outcome}}",
                ),
            ),
            "Calls that failed by the sidecar's fault, or were refused because a resource limit was reached; and "
            "requests through the HTTP door that failed, were refused, or went on untrimmed (failed_open); and prompts "
            "through Envoy that failed (they went on untrimmed) or were refused.",
            "See “Failed calls by method” and “Resource limits reached” in Health; failed_open has its reason in the "
            "log and in the answer's header `x-prompt-sidecar-untrimmed`.",
            "Should not occur: without failures it is 0.",
        ),
        Panel(
            "Originals lost",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(STASH_LOSSES, by=("cause",)), "{{cause}}"),),
            "Originals that left the stash: their time to live ended, or a budget evicted them.",
            "Expiry is ordinary. run_budget or total_budget: raise `limits.run_stash_bytes` or `limits.stash_bytes`.",
            UNSEEN,
            runs="failed",
        ),
        Panel(
            "Failed recalls",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(
                    PANEL.each_minute(
                        RETRIEVALS,
                        by=("outcome",),
                        where={"outcome": ("expired", "evicted", "not_found", "run_unknown")},
                    ),
                    "{{outcome}}",
                ),
            ),
            "Originals that were asked for and not found: expired, evicted, or an unknown id or run.",
            "See the funnel in Recall.",
            UNSEEN,
            runs="failed",
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
            no_value="none",
        ),
        Panel(
            "Requests the sidecar did nothing for",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(
                    PANEL.each_minute(HANDLED, by=("door", "outcome", "size"), where={"outcome": figures.MISSED}),
                    "{{outcome}} ({{door}}, {{size}})",
                ),
            ),
            "Requests that went on untrimmed and should have been trimmed, by reason and door; large ones have 65,536 "
            "bytes of body or more, or their history is at the provider. Those that need no trimming, or hold no "
            "prompt, are in “What was done about requests” in Health.",
            "`docs/untrimmed.md` says what to do about each reason; the log names the path of one a minute.",
            "Nothing was missed.",
            width=24,
            no_value="none",
            runs="missed",
        ),
    ),
)

OVERVIEW: Final = Board(
    "prompt-sidecar-overview",
    "Prompt Sidecar / Overview",
    "What the sidecar saves, what it costs, and what is wrong. The other dashboards are linked above.",
    (SAVES, SPENT, CALLERS, MONEY, LARGE, COSTS, WRONG),
    prices=True,
    name="overview",
)
