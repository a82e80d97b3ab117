"""What is taken out of prompts and why, whether the provider's cache stays warm, and how good the estimates are."""

from __future__ import annotations

from typing import Final

from dashboards.generate import figures
from dashboards.generate.overview import IDLE, UNSEEN, UNUSED
from dashboards.generate.panels import BLUE, GREEN, RED, YELLOW, Board, Look, Panel, Query, Row, Unit
from dashboards.generate.promql import PANEL, SPAN, ratio
from prompt_sidecar.telemetry.catalog import (
    AMBIGUOUS_MESSAGES,
    CACHE_BREAKS,
    CALIBRATIONS,
    CEILINGS_PASSED,
    ESTIMATE_RATIO,
    HISTORY_TOKENS,
    OBSERVING,
    OWN_TEXT_TOKENS,
    PREFIX_TOKENS,
    PROMPT_SIZE,
    PROMPTS,
    PROMPTS_ASIDE,
    PROVIDER_CACHE,
    PROVIDER_REFUSALS,
    REPORTED_TOKENS,
    TOOL_RESULT_SIZE,
    TOOL_RESULTS,
    TOOL_TOKENS,
    TRIMMED_TOKENS,
    TRIMS,
    UNFIT,
    UNPRICED,
    USAGE_REPORTS,
    WINDOW_CROSSINGS,
    WINDOW_SHARE,
    WINDOWS_ASSUMED,
)

UNTOLD: Final = "No agent sent a report of usage (ReportUsage) in the time shown; trimming does not need one."

SUMMARY: Final = Row(
    "Summary",
    (
        Panel(
            "Input tokens saved",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.removed_share(SPAN), "", instant=True),),
            "Of all tokens that agents wanted to send, the part that no longer goes to the provider.",
            "0 % is right where prompts fit. Otherwise look at “Share of the limit used” below.",
            IDLE,
            width=4,
            height=4,
            base=BLUE,
            decimals=1,
        ),
        Panel(
            "Items trimmed",
            Look.STAT,
            Unit.WHOLE,
            (Query(SPAN.increase(TRIMS), "", instant=True),),
            "Items (results, calls' arguments, texts, images) that were newly trimmed, or trimmed further.",
            "Very many for few prompts: the preset may be `lean`, which trims at every call.",
            UNSEEN,
            width=4,
            height=4,
            base=BLUE,
            decimals=0,
            no_value="unseen",
        ),
        Panel(
            "Prefix kept",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.kept_share(SPAN), "", instant=True),),
            "Of the tokens of returned prompts, the part that stood in the prompt before, byte for byte: what a "
            "provider can read from its cache.",
            "Below 70 %: runs are very short, the preset is `lean`, or the agent rewrites its history. “Cache breaks” "
            "says which.",
            IDLE,
            width=4,
            height=4,
            base=RED,
            thresholds=((0.5, YELLOW), (0.7, GREEN)),
            decimals=1,
        ),
        Panel(
            "Cache broken",
            Look.STAT,
            Unit.SHARE,
            (Query(ratio(SPAN.rate(CACHE_BREAKS), SPAN.rate(PROMPTS)), "", instant=True),),
            "Of all prompts, the part whose beginning was not that of the prompt before.",
            "Every break is paid once at the price of new tokens. Above 10 % see “Cache breaks”.",
            IDLE,
            width=4,
            height=4,
            thresholds=((0.1, YELLOW), (0.3, RED)),
            decimals=1,
        ),
        Panel(
            "Cached tokens (reported)",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.cached_share(SPAN), "", instant=True),),
            "Of the input tokens that agents reported, the part that the provider read from its cache.",
            "Far below “Prefix kept”: the provider's cache expired between calls, or the agent changes something "
            "before the history (tools, system prompt), or caching is not switched on.",
            UNTOLD,
            width=4,
            height=4,
            base=RED,
            thresholds=((0.3, YELLOW), (0.6, GREEN)),
            decimals=1,
            no_value="no reports",
        ),
        Panel(
            "Estimates within 10 %",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.close_estimates(SPAN), "", instant=True),),
            "Of the estimates that a report could be compared with, the part that was within 10 % of the real count.",
            "Estimates learn from reports. If they stay off, see “Estimates against real counts” and “Reports used to "
            "correct estimates”.",
            UNTOLD,
            width=4,
            height=4,
            base=RED,
            thresholds=((0.5, YELLOW), (0.8, GREEN)),
            decimals=0,
            no_value="no reports",
        ),
    ),
)

TOKENS: Final = Row(
    "Prompts",
    (
        Panel(
            "Tokens before and after",
            Look.LINES,
            Unit.TOKENS_PER_SECOND,
            (Query(figures.before(PANEL), "before"), Query(figures.after(PANEL), "after")),
            "Estimated tokens of all prompts, a second, as agents sent them and as they were answered.",
            "Equal lines mean that nothing is trimmed.",
            IDLE,
        ),
        Panel(
            "Size of a prompt",
            Look.LINES,
            Unit.TOKENS,
            tuple(
                Query(PANEL.quantile(quantile, PROMPT_SIZE, where={"state": state}), f"{name} {state}", exemplars=True)
                for state in ("before", "after")
                for quantile, name in ((0.5, "p50"), (0.95, "p95"))
            ),
            "How large prompts are, before and after trimming.",
            "p95 before that grows without end is a run that never ends: its after should stay level.",
            IDLE,
            traces=True,
        ),
        Panel(
            "Share of the limit used",
            Look.LINES,
            Unit.SHARE,
            tuple(
                Query(PANEL.quantile(quantile, WINDOW_SHARE), name, exemplars=True)
                for quantile, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
            ),
            "How much of its limit a returned prompt takes. `cache_first` lets it rise to 95 % and then trims to 44 %.",
            "Above 100 % prompts do not fit: see “What kept prompts too large”.",
            IDLE,
            thresholds=((1.0, RED),),
            traces=True,
        ),
        Panel(
            "Outcomes",
            Look.STACKED,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(PROMPTS, by=("outcome",)), "{{outcome}}"),),
            "Prompts a minute: trimmed, condensed (at first sight alone), untouched, over_budget (answered, but too "
            "large still), refused with an error.",
            "refused: the log and the status of the calls say why. over_budget: see “What kept prompts too large”.",
            UNSEEN,
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
        ),
        Panel(
            "Runs near their limit",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(WINDOW_CROSSINGS, by=("mark",)), "{{mark}} %"),),
            "Runs whose prompts reached 50, 80 or 95 % of their limit for the first time.",
            "Many at 95 % under `lean` or `fit_only`: limits are small for what the agents do.",
            UNSEEN,
        ),
        Panel(
            "Tokens by kind, before",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (Query(PANEL.rate(HISTORY_TOKENS, by=("kind",), where={"state": "before"}), "{{kind}}"),),
            "Tokens of prompts as agents sent them, by kind.",
            "A large band of tool_schemas or system cannot be trimmed: make it smaller in the agent.",
            IDLE,
            width=12,
        ),
        Panel(
            "Tokens by kind, after",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (Query(PANEL.rate(HISTORY_TOKENS, by=("kind",), where={"state": "after"}), "{{kind}}"),),
            "Tokens of the answered prompts, by kind; own_text is the sidecar's.",
            "own_text above 4 % of the rest should not be: report it.",
            IDLE,
            width=12,
        ),
    ),
)

TRIMMED: Final = Row(
    "Trims",
    (
        Panel(
            "Items trimmed, by reason",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(TRIMS, by=("reason",)), "{{reason}}"),),
            "Newly trimmed items. condense: a result made smaller at first sight. cap: one too large by itself. "
            "fit: the prompt was near its limit. age: older "
            "than the policy keeps. residue: what trimming had left was dropped. feedback and repeated: superseded.",
            "cap at every prompt: a tool returns very much; make it page, or raise `policy.cap_text_bytes`.",
            UNSEEN,
        ),
        Panel(
            "Items trimmed, by kind",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(TRIMS, by=("kind",)), "{{kind}}"),),
            "Newly trimmed items by what they were.",
            "Mostly results and arguments is usual. Many images: the agent keeps screenshots.",
            UNSEEN,
        ),
        Panel(
            "Tokens taken out, by action",
            Look.BARS,
            Unit.TOKENS_PER_SECOND,
            (Query(PANEL.rate(TRIMMED_TOKENS, by=("action",)), "{{action}}"),),
            "Tokens that new trims took out, once each: condensed (made smaller at first sight), elided (head and "
            "tail stay), clipped (a placeholder stays), "
            "collapsed (feedback became one line), dropped (whole old iterations).",
            "Much dropped: limits are so small that even placeholders do not fit.",
            UNSEEN,
        ),
    ),
)


TOOLS: Final = Row(
    "Tools of agents",
    (
        Panel(
            "Tokens brought in, by tool",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (Query(figures.largest(PANEL.rate(TOOL_TOKENS, by=("tool",), where={"flow": "brought"})), "{{tool}}"),),
            "Tokens of new results, untrimmed, of the ten tools that bring in most. Each result counts once, and is "
            "paid again with each later prompt that holds it. `other`: tools that `telemetry.tools` does not name, "
            "or, where that is empty, all but the 32 largest.",
            "A tool with a wide band makes prompts large: have it answer less (fewer lines, a filter, pages).",
            UNUSED,
        ),
        Panel(
            "Tokens trimmed of results, by tool",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (Query(figures.largest(PANEL.rate(TOOL_TOKENS, by=("tool",), where={"flow": "trimmed"})), "{{tool}}"),),
            "Tokens that trims took out of results for the first time, of the ten tools with most.",
            "As much as the tool brings in: nobody needs its results for long. Have it answer less.",
            "No result was trimmed in the time shown.",
        ),
        Panel(
            "Tokens recalled, by tool",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (Query(figures.largest(PANEL.rate(TOOL_TOKENS, by=("tool",), where={"flow": "recalled"})), "{{tool}}"),),
            "Tokens of originals that models and programs had back, by the tool that they came from; `other` too "
            "where that is not known.",
            "Much of what is trimmed of one tool comes back: put it into `policy.never_trim_tools`.",
            "Nobody had an original back in the time shown, which is common.",
        ),
        Panel(
            "Size of a result (p95), by tool",
            Look.LINES,
            Unit.WHOLE,
            (Query(figures.largest(PANEL.quantile(0.95, TOOL_RESULT_SIZE, by=("tool",))), "{{tool}}"),),
            "Tokens that 95 of 100 new results of a tool do not exceed, estimated from buckets; the ten largest.",
            "A few large results fill a window faster than many small ones: have the tool answer in pages.",
            UNUSED,
        ),
        Panel(
            "Results, by tool",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(figures.largest(PANEL.each_minute(TOOL_RESULTS, by=("tool",))), "{{tool}}"),),
            "New results of the ten tools that are called most.",
            "A tool that is called ever more often: the agent polls, or goes in circles.",
            UNUSED,
        ),
        Panel(
            "Results seen before, by tool",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(
                    figures.largest(PANEL.each_minute(TOOL_RESULTS, by=("tool",), where={"seen": "repeated"})),
                    "{{tool}}",
                ),
            ),
            "Results of calls that were made before, with the same arguments and the same result.",
            "The agent pays twice for one text: a status that it polls, a file that it reads again.",
            "No call was repeated in the time shown.",
        ),
    ),
)

CACHE: Final = Row(
    "The provider's cache",
    (
        Panel(
            "Prefix kept and rewritten",
            Look.STACKED,
            Unit.TOKENS_PER_SECOND,
            (Query(PANEL.rate(PREFIX_TOKENS, by=("state",)), "{{state}}"),),
            "Tokens of returned prompts: kept since the prompt before, or rewritten (new text, and what follows a "
            "cut).",
            "Peaks of rewritten at batch points are the price of a cut; a wide band means that the cache is never "
            "warm.",
            IDLE,
        ),
        Panel(
            "Cache breaks",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(CACHE_BREAKS, by=("cause",)), "{{cause}}"),),
            "Prompts whose beginning is not that of the prompt before. batch_point: the sidecar cut. agent: the agent "
            "changed what it had sent.",
            "agent: look for timestamps or counters in the system prompt, for reordered tools, for edited messages. "
            "batch_point often: raise the limit, or lower `policy.fit_low`.",
            UNSEEN,
        ),
        Panel(
            "Input price, in uncached tokens",
            Look.LINES,
            Unit.TOKENS_PER_SECOND,
            (
                Query(figures.price(PANEL, "returned"), "with the sidecar"),
                Query(figures.price(PANEL, "untrimmed"), "never trimming"),
            ),
            "What providers charge for input a second, as a number of uncached input tokens, next to the same prompts "
            "untrimmed with the cache that these would have had. Prices are variables above, of all models alike: no "
            "money. By what providers counted where agents report it, else by estimates.",
            "Above “never trimming” the cache does not stay warm: see the panels next to this one.",
            IDLE,
        ),
        Panel(
            "Provider cache: expected and found",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(PROVIDER_CACHE, by=("outcome",)), "{{outcome}}"),),
            "Usage reports, by whether the provider read the kept prefix from its cache.",
            "break_suspected: something before the history changes, or the cache's time ran out. never_used: caching "
            "is off; Anthropic needs cache_control marks.",
            UNTOLD,
            width=12,
        ),
        Panel(
            "Cached tokens: expected and reported",
            Look.LINES,
            Unit.TOKENS_PER_SECOND,
            (
                Query(PANEL.rate(REPORTED_TOKENS, where={"kind": "cache_expected"}), "expected"),
                Query(PANEL.rate(REPORTED_TOKENS, where={"kind": "cached"}), "reported"),
                Query(PANEL.rate(REPORTED_TOKENS, where={"kind": "input"}), "all input"),
            ),
            "Tokens of the kept prefix, which the provider should have cached; tokens reported as cached; all input.",
            "Reported below expected is money: see “Provider cache: expected and found”.",
            UNTOLD,
            width=12,
        ),
    ),
)

ESTIMATES: Final = Row(
    "Estimates and reports",
    (
        Panel(
            "Estimates against real counts",
            Look.LINES,
            Unit.SHARE,
            tuple(
                Query(PANEL.quantile(quantile, ESTIMATE_RATIO), name)
                for quantile, name in ((0.1, "p10"), (0.5, "p50"), (0.9, "p90"))
            ),
            "Estimated tokens as a part of the real ones: above 100 % the sidecar counts too many and trims early.",
            "Below 90 % prompts may be refused by the provider; it should come back within five reports of a model.",
            UNTOLD,
        ),
        Panel(
            "Reports used to correct estimates",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(CALIBRATIONS, by=("outcome",)), "{{outcome}}"),),
            "Reports by whether they corrected the estimate, and if not, why.",
            "implausible: the count is not of this prompt; does the agent report the right revision? cache_untold: "
            "report cached tokens too.",
            UNTOLD,
        ),
        Panel(
            "Reports and refusals",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(PANEL.each_minute(USAGE_REPORTS, by=("outcome",)), "{{outcome}}"),
                Query(PANEL.each_minute(PROVIDER_REFUSALS, by=("limit",)), "refused, limit {{limit}}"),
            ),
            "Reports of model calls, and those that tell of a prompt refused as too long.",
            "A refusal is a limit that was not known: the sidecar learns it for that run. State the model's window.",
            UNTOLD,
        ),
    ),
)

REST: Final = Row(
    "By model and format",
    (
        Panel(
            "Prompts by model",
            Look.STACKED,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(PROMPTS, by=("model",)), "{{model}}"),),
            "Prompts a minute by model; those that are not on the list are `other`.",
            "Much `other`: name your models in the setting `telemetry.models`.",
            IDLE,
            width=6,
        ),
        Panel(
            "Prompts by format",
            Look.STACKED,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(PROMPTS, by=("format",)), "{{format}}"),),
            "Prompts a minute by the format in which they came.",
            "No value is bad by itself.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Dry runs and side calls",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(PROMPTS_ASIDE, by=("mode",)), "{{mode}}"),),
            "Prompts that changed nothing; no other panel counts them.",
            "Only dry runs and nothing else: the agent forgot to switch `dry_run` off.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Own text",
            Look.LINES,
            Unit.SHARE,
            (Query(ratio(PANEL.rate(OWN_TEXT_TOKENS), figures.after(PANEL)), "own text"),),
            "The part of all answered tokens that the sidecar wrote: directives, registry, note.",
            "Above 4 % limits are very small, or something is wrong: report it. `recall_unavailable` switches it off.",
            IDLE,
            width=6,
        ),
        Panel(
            "Assumed windows and ambiguous messages",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(PANEL.each_minute(WINDOWS_ASSUMED, by=("format",)), "window assumed, {{format}}"),
                Query(PANEL.each_minute(AMBIGUOUS_MESSAGES), "ambiguous message"),
            ),
            "Prompts without a known window; messages that two parsers may read differently (not trimmed).",
            "Windows: have agents send `context_window`, or name the model. Messages: an agent cuts texts inside a "
            "character, or repeats a key.",
            UNSEEN,
            width=24,
        ),
    ),
)

CEILINGS: Final = Row(
    "Ceilings",
    (
        Panel(
            "Only observing",
            Look.LINES,
            Unit.WHOLE,
            (Query(PANEL.value(OBSERVING), "sidecars"),),
            "Sidecars that are set to observe: they return prompts as they were sent, and report what they would do.",
            'More than 0 where prompts should be trimmed: set `mode = "active"`.',
            UNSEEN,
        ),
        Panel(
            "Ceilings passed",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(
                    PANEL.each_minute(CEILINGS_PASSED, by=("scope", "kind", "action")), "{{scope}} {{kind}}, {{action}}"
                ),
            ),
            "Prompts with which a run or a caller passes a ceiling, by what it bounds and what is done about it.",
            "refuse: these prompts were not answered, and their agents stopped. The error names the ceiling.",
            UNSEEN,
        ),
        Panel(
            "Prompts without a price",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(UNPRICED), "no price"),),
            "Prompts for models that have no price, although there are prices or ceilings on cost, which do not count "
            "them.",
            'Add a table `[prices."MODEL"]` for them, or `[prices."*"]` for all others.',
            UNSEEN,
        ),
    ),
)

TRIMMING_AND_CACHE: Final = Board(
    "prompt-sidecar-trimming",
    "Prompt Sidecar / Trimming and cache",
    "What is taken out of prompts and why, whether the provider's cache stays warm, and how good the estimates are.",
    (SUMMARY, TOKENS, TRIMMED, TOOLS, CACHE, ESTIMATES, CEILINGS, REST),
    prices=True,
    name="trimming-and-cache",
)
