"""The counter changes that each answer of the core causes. Pure functions; names are those of the catalogue.

The numbers are those of the answer to the agent, so that the sums agree with what agents saw. Dry runs and side calls
change nothing and are only counted as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prompt_sidecar.errors import CeilingReached, GuardRefused, SidecarError
from prompt_sidecar.facts.comparison import Comparability, Compared, Recount
from prompt_sidecar.facts.guard_calls import Finding, RestoredArguments
from prompt_sidecar.facts.money import Spent
from prompt_sidecar.facts.recall_calls import RetrieveAnswer
from prompt_sidecar.facts.tool_calls import RECALL, SEARCH, TOOL_NAMES, ToolAnswer, ToolOutcome
from prompt_sidecar.facts.trim_calls import ToolNews, TrimAnswer, TrimCall
from prompt_sidecar.facts.untrimmed import Handled
from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall, UsageOutcome
from prompt_sidecar.guard.ceilings import CeilingAction
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.recall.found import SearchResult
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import OTHER
from prompt_sidecar.telemetry.tallies import Change
from prompt_sidecar.trim.entries import AT_FIRST_SIGHT

RPC = "rpc"
TOOL = "tool"


def aside(call: TrimCall) -> str:
    """Return the mode of a prompt that changes nothing; empty for an ordinary one."""
    return "dry_run" if call.dry_run else "side_call" if call.side_call else ""


def outcome(answer: TrimAnswer) -> str:
    """Return the outcome of a prompt, as a label."""
    if not answer.fits:
        return "over_budget"
    if answer.trimmed.cuts:
        return "trimmed"
    return "condensed" if answer.trimmed.trims else "untouched"


def prompt(call: TrimCall, answer: TrimAnswer, model: str) -> list[Change]:
    """Return the changes for an answered prompt; `model` is the label of its model."""
    mode = aside(call)
    if mode:
        return [(catalog.PROMPTS_ASIDE, (mode,), 1)]
    tokens, phases = answer.tokens, answer.phases
    changes: list[Change] = [
        (catalog.PROMPTS, (outcome(answer), call.format, model), 1),
        (catalog.TRIM_TIME, ("scan",), phases.scan),
        (catalog.TRIM_TIME, ("count",), phases.count),
        (catalog.TRIM_TIME, ("trim",), phases.trim),
        (catalog.TRIM_TIME, ("encode",), phases.encode),
    ]
    if tokens.window_assumed:
        changes.append((catalog.WINDOWS_ASSUMED, (call.format,), 1))
    if answer.no_fit is not None:
        changes.append((catalog.UNFIT, (answer.no_fit.value,), 1))
    if not answer.savings.sent_again:
        changes += _tokens(call, answer, model)
    if answer.savings.compared is not None:
        changes += _comparison(answer.savings.compared)
    if answer.savings.recount is not None:
        changes += _recount(answer.savings.recount)
    changes += findings(answer.guard.findings)
    if not answer.guard.priced:
        changes.append((catalog.UNPRICED, (), 1))
    changes += [ceiling(use.scope, use.kind, use.action) for use in answer.guard.ceilings if use.over]
    changes += [(catalog.WINDOW_CROSSINGS, (str(mark),), 1) for mark in answer.news.crossed]
    return changes + _news(answer)


def findings(found: Sequence[Finding]) -> list[Change]:
    """Return the changes for the finds of the guard's rules."""
    return [(catalog.FINDINGS, (rule_label(each.rule), each.action.value), each.count) for each in found]


def _tokens(call: TrimCall, answer: TrimAnswer, model: str) -> list[Change]:
    """Return the changes for a prompt's tokens, as it was sent and as it is returned."""
    tokens = answer.tokens
    changes: list[Change] = [
        (catalog.PROMPT_TOKENS, ("before", call.format, model), tokens.before),
        (catalog.PROMPT_TOKENS, ("after", call.format, model), tokens.after),
    ]
    if answer.size is not None:  # None for a single result, which has no prefix and none of our text
        changes += [
            (catalog.OWN_TEXT_TOKENS, (), tokens.own_text),
            (catalog.PREFIX_TOKENS, ("kept",), answer.cache.kept),
            (catalog.PREFIX_TOKENS, ("rewritten",), answer.cache.rewritten),
        ]
        for kind, size in answer.size.by_kind.items():
            if size.tokens_sent or size.tokens_returned:
                of_kind = kind.value  # a property, and a slow one
                changes.append((catalog.HISTORY_TOKENS, ("before", of_kind), size.tokens_sent))
                changes.append((catalog.HISTORY_TOKENS, ("after", of_kind), size.tokens_returned))
    return changes


def requested(route: str, outcome: str, status: int, hidden: int) -> list[Change]:
    """Return the changes for a finished request through the HTTP door; `status` is the provider's, 0 if none."""
    of_class = f"{status // 100}xx" if status else "none"
    changes: list[Change] = [
        (catalog.HTTP_REQUESTS, (route, outcome), 1),
        (catalog.HTTP_UPSTREAM, (route, of_class), 1),
    ]
    return [*changes, (catalog.HTTP_HIDDEN, (), hidden)] if hidden else changes


def handled(request: Handled) -> list[Change]:
    """Return the changes for a request that was forwarded, trimmed or not."""
    size = "large" if request.is_large else "small"
    changes: list[Change] = [(catalog.HANDLED, (request.through.value, request.outcome, size), 1)]
    if request.recall is not None:
        changes.append((catalog.RECALL_OFFERS, (request.through.value, request.recall.value), 1))
    return changes


def foreign(listener: str, header: str) -> Change:
    """Return the change for a refused request that a web page of another site may have sent."""
    return catalog.FOREIGN_REQUESTS, (listener, header), 1


def failed(error: SidecarError) -> list[Change]:
    """Return the changes for an error, whatever the door."""
    changes: list[Change] = [bound(error.bound)] if error.bound else []
    if isinstance(error, GuardRefused):
        changes.append((catalog.GUARD_REFUSALS, (), 1))
    if isinstance(error, CeilingReached):
        changes.append(ceiling(error.scope, error.kind))
    return changes


def ceiling(scope: str, kind: str, action: str = CeilingAction.REFUSE) -> Change:
    """Return the change for a ceiling that was passed."""
    return catalog.CEILINGS_PASSED, (str(scope), str(kind), str(action)), 1


def _comparison(compared: Compared) -> list[Change]:
    """Return the changes for a prompt's cost, next to never trimming."""
    how: Change = (catalog.COMPARED_PROMPTS, (compared.how.value,), 1)
    if compared.how is Comparability.REFUSED:
        return [how]
    returned, untrimmed = compared.returned, compared.untrimmed
    return [
        how,
        (catalog.COMPARED_TOKENS, ("returned", "kept"), returned.kept),
        (catalog.COMPARED_TOKENS, ("returned", "new"), returned.new),
        (catalog.COMPARED_TOKENS, ("untrimmed", "kept"), untrimmed.kept),
        (catalog.COMPARED_TOKENS, ("untrimmed", "new"), untrimmed.new),
    ]


def _recount(recount: Recount) -> list[Change]:
    """Return how a report changes the comparison; counters only increase, so replaced amounts have counters too."""
    changes: list[Change] = []
    if recount.counted:
        changes.append((catalog.RECOUNTED_PROMPTS, (recount.reported.how.value,), 1))
    for by, compared in (("estimate", recount.estimated), ("report", recount.reported)):
        for prompts, bill in zip(("returned", "untrimmed"), compared.sides, strict=True):
            changes.append((catalog.RECOUNTED_TOKENS, (prompts, "kept", by), bill.kept))
            changes.append((catalog.RECOUNTED_TOKENS, (prompts, "new", by), bill.new))
    return changes


def _news(answer: TrimAnswer) -> list[Change]:
    """Return the changes for events that no earlier answer reported."""
    news = answer.news
    changes: list[Change] = []
    for trim in news.trims:
        action, reason = trim.action.value, trim.reason.value
        changes.append((catalog.TRIMS, (action, reason, trim.kind.value), 1))
        changes.append((catalog.TRIMMED_TOKENS, (action, reason), trim.tokens_saved))
    aim = "ceiling" if answer.tokens.ceiling else "window"
    if answer.cache.batch_point:
        changes.append((catalog.CUTS, (aim,), 1))
    if cut := sum(trim.tokens_saved for trim in news.trims if trim.reason not in AT_FIRST_SIGHT):
        changes.append((catalog.CUT_TOKENS, (aim,), cut))
    changes += [(catalog.CONDENSED_TOKENS, (name,), tokens) for name, tokens in news.condensed.items()]
    if news.advertised:
        changes.append((catalog.ADVERTISED, (), news.advertised))
    if news.cache_break is not None:
        changes.append((catalog.CACHE_BREAKS, (news.cache_break.value,), 1))
    if news.repeated_whole:
        changes.append((catalog.REPEATED_CALLS, ("whole",), news.repeated_whole))
    if news.repeated_trimmed:
        changes.append((catalog.REPEATED_CALLS, ("trimmed",), news.repeated_trimmed))
    if news.ambiguous:
        changes.append((catalog.AMBIGUOUS_MESSAGES, (), news.ambiguous))
    if news.registry_cut:
        changes.append(bound("own_text.registry"))
    if news.names_cut:
        changes.append((catalog.BOUND_HITS, ("own_text.names",), news.names_cut))
    if news.texts_forgotten:
        changes.append((catalog.BOUND_HITS, ("own_text.recognised",), news.texts_forgotten))
    return changes


def of_caller(call: TrimCall, answer: TrimAnswer, caller: str) -> list[Change]:
    """Return the changes by caller for an answered prompt; `caller` is the label of its caller."""
    if aside(call):
        return []
    changes: list[Change] = [(catalog.CALLER_PROMPTS, (caller, outcome(answer)), 1)]
    if not answer.savings.sent_again:
        changes += [
            (catalog.CALLER_TOKENS, (caller, "before"), answer.tokens.before),
            (catalog.CALLER_TOKENS, (caller, "after"), answer.tokens.after),
        ]
    changes += [(catalog.CALLER_FINDINGS, (caller, each.action.value), each.count) for each in answer.guard.findings]
    return changes


def refused_caller(call: TrimCall, caller: str) -> list[Change]:
    """Return the changes by caller for a prompt that got an error."""
    return [] if aside(call) else [(catalog.CALLER_PROMPTS, (caller, "refused"), 1)]


def refused(call: TrimCall | None, model: str) -> list[Change]:
    """Return the changes for a prompt that got an error; None: it was not a valid request."""
    mode = aside(call) if call is not None else ""
    if mode:
        return [(catalog.PROMPTS_ASIDE, (mode,), 1)]
    format_ = call.format if call is not None and call.format in FORMATS else OTHER
    return [(catalog.PROMPTS, ("refused", format_, model), 1)]


def retrieval(answer: RetrieveAnswer, via: str) -> list[Change]:
    """Return the changes for a requested original."""
    return [(catalog.RETRIEVALS, (answer.outcome.value, via), 1)]


def search(found: SearchResult, via: str) -> list[Change]:
    """Return the changes for a search."""
    changes: list[Change] = [
        (catalog.SEARCHES, (found.outcome.value, via), 1),
        (catalog.SEARCH_SNIPPETS, (via,), len(found.snippets)),
    ]
    if found.terms_left_out:
        changes.append(bound("search.query_terms"))
    if found.shortened:
        changes.append(bound("search.total_tokens"))
    return changes


def tool_label(name: str) -> str:
    """Return the label of one of our tools, or `other`, as a model may ask for any tool."""
    return name if name in TOOL_NAMES else OTHER


def tool_call(name: str, answer: ToolAnswer) -> list[Change]:
    """Return the changes for a model's call of one of our tools."""
    changes: list[Change] = [(catalog.TOOL_CALLS, (tool_label(name), answer.outcome.value), 1)]
    if answer.recalled is not None:
        changes += retrieval(answer.recalled, TOOL)
    if answer.found is not None:
        changes += search(answer.found, TOOL)
    if answer.outcome is ToolOutcome.RUN_UNKNOWN and name == RECALL:
        changes.append((catalog.RETRIEVALS, (ToolOutcome.RUN_UNKNOWN.value, TOOL), 1))
    if answer.outcome is ToolOutcome.RUN_UNKNOWN and name == SEARCH:
        changes.append((catalog.SEARCHES, (ToolOutcome.RUN_UNKNOWN.value, TOOL), 1))
    if answer.outcome is ToolOutcome.REPEATED:
        changes.append(bound("recall.repeats"))
    if answer.bound:
        changes.append(bound(answer.bound))
    return changes


def report(call: UsageCall, answer: UsageAnswer) -> list[Change]:
    """Return the changes for a report on a model call.

    Only recorded reports add figures; a rejected prompt used no tokens.
    """
    changes: list[Change] = [(catalog.USAGE_REPORTS, (answer.outcome.value,), 1)]
    if answer.recount is not None and answer.outcome in {UsageOutcome.RECORDED, UsageOutcome.FAILED}:
        changes += _recount(answer.recount)
    if answer.outcome is not UsageOutcome.RECORDED:
        return changes
    if answer.limit_named is not None:
        return [*changes, (catalog.PROVIDER_REFUSALS, ("named" if answer.limit_named else "unnamed",), 1)]
    return [
        *changes,
        (catalog.CALIBRATIONS, (answer.calibrated.value,), 1),
        (catalog.PROVIDER_CACHE, (answer.cache.value,), 1),
        (catalog.REPORTED_TOKENS, ("input",), answer.real_tokens),
        (catalog.REPORTED_TOKENS, ("cached",), answer.cached_tokens),
        (catalog.REPORTED_TOKENS, ("cache_expected",), answer.cached_expected),
        (catalog.REPORTED_TOKENS, ("output",), call.output_tokens or 0),
    ]


def spent(spent: Spent, model: str) -> list[Change]:
    """Return the changes for the cost of a reported call; `model` is the label of the model that answered."""
    if spent.unpriced is not None:
        return [(catalog.COST_UNPRICED, (spent.unpriced.value, model), 1)]
    made: list[Change] = [(catalog.COST, (model, spent.currency), spent.cost)]
    if spent.returned or spent.untrimmed:
        made += [
            (catalog.COST_COMPARED, ("returned", model, spent.currency), spent.returned),
            (catalog.COST_COMPARED, ("untrimmed", model, spent.currency), spent.untrimmed),
        ]
    return made


def tools(labelled: Iterable[tuple[str, ToolNews]]) -> list[Change]:
    """Return the changes for tools' results; `labelled`: labels of tools, which may repeat, with the news of each."""
    changes: list[Change] = []
    for tool, news in labelled:
        changes += [
            (catalog.TOOL_RESULTS, (tool, "first"), news.results - news.repeats),
            (catalog.TOOL_RESULTS, (tool, "repeated"), news.repeats),
            (catalog.TOOL_TOKENS, (tool, "brought"), news.brought),
            (catalog.TOOL_TOKENS, (tool, "trimmed"), news.trimmed),
        ]
    return changes


def restored(tools: Sequence[str], calls: Sequence[RestoredArguments]) -> list[Change]:
    """Return the changes for masks in calls' arguments; `tools` are the labels of the calls' tools."""
    changes: list[Change] = []
    for tool, call in zip(tools, calls, strict=True):
        for kind, times in call.kinds.items():
            changes.append((catalog.RESTORED, (tool, kind if kind in catalog.KINDS else catalog.CUSTOM), times))
        changes += [(catalog.MASKS_LEFT, ("not_allowed",), call.not_allowed)] if call.not_allowed else []
        changes += [(catalog.MASKS_LEFT, ("unknown",), call.unknown)] if call.unknown else []
    return changes


def rule_label(name: str) -> str:
    """Return the label of a rule: its name, if it is one of the sidecar's own."""
    return name if name in catalog.RULES else catalog.CUSTOM


def bound(name: str) -> Change:
    """Return the change for a resource limit that was reached."""
    return (catalog.BOUND_HITS, (name,), 1)
