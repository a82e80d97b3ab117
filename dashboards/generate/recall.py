"""Whether models find back what was taken out: the whole funnel, search, and the stash that stands behind them."""

from __future__ import annotations

from typing import Final

from dashboards.generate import figures
from dashboards.generate.overview import UNSEEN
from dashboards.generate.panels import BLUE, GREEN, RED, YELLOW, Board, Look, Panel, Query, Row, Unit
from dashboards.generate.promql import PANEL, SPAN, ratio
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.telemetry.catalog import (
    ADVERTISED,
    HISTORY_SIZE,
    INDEX_SIZE,
    INDEX_WAITING,
    REPEATED_CALLS,
    RETRIEVALS,
    SEARCH_DURATION,
    SEARCH_SNIPPETS,
    SEARCHES,
    STASH_ENTRIES,
    STASH_LIMIT,
    STASH_LOSSES,
    STASH_SIZE,
    TASKS,
    TOOL_CALLS,
    UNFINISHED_TASKS,
)

UNASKED: Final = (
    "Nobody asked for an original in the time shown, which is common: most of what is trimmed is not needed again."
)
UNSEARCHED: Final = "Nobody searched in the time shown."

SUMMARY: Final = Row(
    "Summary",
    (
        Panel(
            "Ids shown to models",
            Look.STAT,
            Unit.WHOLE,
            (Query(SPAN.increase(ADVERTISED), "", instant=True),),
            "Ids of originals that were newly shown in markers and registry.",
            "0 with items trimmed: agents set `recall_unavailable`, so models are shown no ids.",
            UNSEEN,
            width=4,
            height=4,
            base=BLUE,
            decimals=0,
            no_value="unseen",
        ),
        Panel(
            "Recalls",
            Look.STAT,
            Unit.WHOLE,
            (Query(SPAN.increase(RETRIEVALS), "", instant=True),),
            "Originals that models and programs asked for by id.",
            "Nearly as many as ids shown: too much is trimmed that is still needed; raise the limit or "
            "`policy.age_keep_iterations`.",
            UNSEEN,
            width=4,
            height=4,
            base=BLUE,
            decimals=0,
            no_value="unseen",
        ),
        Panel(
            "Hits",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.hits_share(SPAN), "", instant=True),),
            "Of the originals asked for, the part that was there.",
            "The funnel shows the outcome of the rest.",
            UNASKED,
            width=4,
            height=4,
            base=RED,
            thresholds=((0.8, YELLOW), (0.95, GREEN)),
            decimals=0,
            no_value="none asked",
        ),
        Panel(
            "Expired or evicted",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.gone_share(SPAN), "", instant=True),),
            "Of the originals asked for, the part that the stash had already lost.",
            "Expired: raise `limits.time_to_live`. Evicted: raise `limits.stash_bytes` or `limits.run_stash_bytes`.",
            UNASKED,
            width=4,
            height=4,
            thresholds=((0.02, YELLOW), (0.1, RED)),
            decimals=1,
            no_value="none asked",
        ),
        Panel(
            "Searches with results",
            Look.STAT,
            Unit.SHARE,
            (Query(figures.found_share(SPAN), "", instant=True),),
            "Of all searches, the part that returned a snippet.",
            "Low: models search for words that never occurred in the run, or the originals have expired.",
            UNSEARCHED,
            width=4,
            height=4,
            base=RED,
            thresholds=((0.5, YELLOW), (0.8, GREEN)),
            decimals=0,
            no_value="none asked",
        ),
        Panel(
            "Same tool called again",
            Look.STAT,
            Unit.WHOLE,
            (Query(SPAN.increase(REPEATED_CALLS, where={"older": "trimmed"}), "", instant=True),),
            "Tool calls that repeat one whose result had been trimmed: the model did the work again rather than "
            "recall it.",
            "Are the sidecar's tools offered to the model (ListTools)? Does the agent route their calls to CallTool?",
            UNSEEN,
            width=4,
            height=4,
            thresholds=((10, YELLOW), (100, RED)),
            decimals=0,
            no_value="unseen",
        ),
    ),
)

_STEPS: Final = (
    ("ids shown", SPAN.increase(ADVERTISED)),
    ("recalls", SPAN.increase(RETRIEVALS)),
    *(
        (f"→ {outcome.value.replace('_', ' ')}", SPAN.increase(RETRIEVALS, where={"outcome": outcome.value}))
        for outcome in Outcome
    ),
    ("same tool called again", SPAN.increase(REPEATED_CALLS, where={"older": "trimmed"})),
)

FUNNEL: Final = Row(
    "Funnel",
    (
        Panel(
            "Recall funnel",
            Look.FUNNEL,
            Unit.WHOLE,
            tuple(Query(query, name, instant=True) for name, query in _STEPS),
            "How many ids models were shown in this time, how many originals were asked for, with which outcome, and "
            "how often a tool was called again though its trimmed result could have been recalled.",
            "expired: time to live too short. evicted: stash too small. not found: ids that the model made up, or of "
            "another run. run unknown: the sidecar was restarted, or another replica was asked before it saw a prompt "
            "of the run.",
            UNSEEN,
            width=12,
            height=10,
            decimals=0,
            least=0,
            no_value="0",
        ),
        Panel(
            "Recalls by outcome",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(RETRIEVALS, by=("outcome",)), "{{outcome}}"),),
            "Originals that were asked for by id, a minute, by outcome.",
            "As for the funnel.",
            UNSEEN,
            width=12,
            height=10,
        ),
        Panel(
            "Recalls and searches, of models and programs",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(PANEL.each_minute(RETRIEVALS, by=("via",)), "original, {{via}}"),
                Query(PANEL.each_minute(SEARCHES, by=("via",)), "search, {{via}}"),
            ),
            "Retrievals and searches: tool is the model, through CallTool; rpc is a program.",
            "Ids shown and never a tool: the agent does not offer the sidecar's tools to its model.",
            UNSEEN,
        ),
        Panel(
            "Recalls for each id shown",
            Look.LINES,
            Unit.SHARE,
            (Query(ratio(PANEL.rate(RETRIEVALS), PANEL.rate(ADVERTISED)), "asked / shown"),),
            "Originals asked for against ids shown in the same time.",
            "Towards 1 too much is trimmed that is still needed. Near 0 is usual.",
            "No id was shown in the time of a point: trims come in batches.",
        ),
        Panel(
            "Calls that repeat an earlier one",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(REPEATED_CALLS, by=("older",)), "older result {{older}}"),),
            "Tool calls that repeat an earlier one, result included, by whether that result was still in the prompt.",
            "whole: the model repeats itself, whatever the sidecar does. trimmed: it could have recalled the result.",
            UNSEEN,
        ),
    ),
)

SEARCH: Final = Row(
    "Search",
    (
        Panel(
            "Searches",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(SEARCHES, by=("outcome",)), "{{outcome}}"),),
            "Searches of histories, by outcome.",
            "run_unknown: the sidecar was restarted, or the agent names another run.",
            UNSEEN,
        ),
        Panel(
            "Time of a search",
            Look.LINES,
            Unit.SECONDS,
            tuple(
                Query(PANEL.quantile(quantile, SEARCH_DURATION), name, exemplars=True)
                for quantile, name in ((0.5, "p50"), (0.99, "p99"))
            ),
            "How long searches take, indexing of what waited included.",
            "High with much waiting to be indexed: the sidecar has no idle moments; run more of them.",
            UNSEARCHED,
            traces=True,
        ),
        Panel(
            "Snippets a search",
            Look.LINES,
            Unit.COUNT,
            (Query(ratio(PANEL.rate(SEARCH_SNIPPETS), PANEL.rate(SEARCHES)), "snippets"),),
            "Snippets that a search returns on average.",
            "Always the most that it may: the answer is cut off; raise `search.max_snippets`.",
            UNSEARCHED,
        ),
    ),
)

STASH: Final = Row(
    "The stash",
    (
        Panel(
            "Bytes",
            Look.LINES,
            Unit.BYTES,
            (
                Query(PANEL.value(STASH_SIZE, where={"state": "held"}), "held"),
                Query(PANEL.value(STASH_SIZE, where={"state": "original"}), "before compression"),
                Query(PANEL.value(STASH_LIMIT), "limit"),
            ),
            "What originals take, what they were before compression, and what they may take.",
            "held at the limit: the oldest runs lose originals. Raise `limits.stash_bytes` or lower "
            "`limits.time_to_live`.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Originals held",
            Look.LINES,
            Unit.COUNT,
            (Query(PANEL.value(STASH_ENTRIES, by=("instance",)), "{{instance}}"),),
            "Originals in the stash of each sidecar.",
            "A fall to 0 is a restart: originals come back with each run's next prompt.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "Originals lost",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(STASH_LOSSES, by=("cause",)), "{{cause}}"),),
            "Originals that expired, or were evicted by the budget of a run or of all runs.",
            "run_budget: one run is very large. total_budget: too many runs for `limits.stash_bytes`.",
            UNSEEN,
            width=6,
        ),
        Panel(
            "History and index",
            Look.LINES,
            Unit.BYTES,
            (
                Query(PANEL.value(HISTORY_SIZE), "originals in histories"),
                Query(PANEL.value(INDEX_SIZE), "index"),
                Query(PANEL.value(INDEX_WAITING), "waits to be indexed"),
            ),
            "Bytes of originals in all histories, of the indexes for search, and of what is not indexed yet.",
            "Waiting that only grows: the next search will be slow. The sidecar has no idle moments.",
            UNSEEN,
            width=6,
        ),
    ),
)

TOOLS: Final = Row(
    "Tools and tasks",
    (
        Panel(
            "Tool calls",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(TOOL_CALLS, by=("tool",)), "{{tool}}"),),
            "Calls that models made of the sidecar's tools.",
            "other: the agent routes tools to the sidecar that are not the sidecar's.",
            UNSEEN,
        ),
        Panel(
            "Tool calls, by outcome",
            Look.BARS,
            Unit.PER_MINUTE,
            (Query(PANEL.each_minute(TOOL_CALLS, by=("outcome",)), "{{outcome}}"),),
            "Their outcomes. repeated: the model asked again for what it was shown before, and was reminded of it.",
            "invalid_arguments often: the model is given another schema than ListTools returns.",
            UNSEEN,
        ),
        Panel(
            "Tasks",
            Look.BARS,
            Unit.PER_MINUTE,
            (
                Query(PANEL.each_minute(TASKS, by=("event",)), "{{event}}"),
                Query(PANEL.each_minute(UNFINISHED_TASKS), "unfinished at the run's end"),
            ),
            "Tasks created and completed, and those that were open when their run ended.",
            "Many unfinished: agents end runs too early; EndRun names the open ones.",
            UNSEEN,
        ),
    ),
)

RECALL: Final = Board(
    "prompt-sidecar-recall",
    "Prompt Sidecar / Recall",
    "Whether models find back what was taken out: the funnel, search, the stash, tools and tasks.",
    (SUMMARY, FUNNEL, SEARCH, STASH, TOOLS),
    name="recall",
)
