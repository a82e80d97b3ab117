"""The sidecar's answers as frozen dataclasses, generated from `protos/` by `make protos`; do not edit.

Each has the fields of its message, under the same names. Enums are words in lower case (`elided`, `hit`), times are
aware datetimes, JSON stays text or bytes.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cache:
    """Effect on the provider's prompt cache."""

    first_changed_message: int = 0
    """Index in the returned prompt's messages of the first that differs from the prompt returned last; -1: what stands
    before the messages differs (system prompt, tools, directives), or there was no prompt before.
    """
    kept_prefix_tokens: int = 0
    """Tokens of the returned prompt that the last one begins with as well."""
    rewritten_tokens: int = 0
    """Tokens after them."""
    batch_point: bool = False
    """Whether messages of the prompt before were rewritten at this call.

    A result that is new to the run and trimmed at once rewrites nothing; nor does the first prompt.
    """
    batch_points: int = 0
    """Batch points of the run so far, counted as if there had been a call before each assistant message."""


@dataclass(frozen=True, slots=True)
class CeilingUse:
    """A configured ceiling and how much of it is used."""

    scope: str = "unspecified"
    """Whose use. One of run, caller."""
    kind: str = "unspecified"
    """Of what. One of input_tokens, cost, model_calls, repeated_calls."""
    action: str = "unspecified"
    """What happens when it is reached. One of observe, warn, refuse."""
    limit: float = 0.0
    """The ceiling."""
    used: float = 0.0
    """What is used, this prompt included."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What prompts cost as they were returned, next to never trimming.

    Prompts larger than the model's window untrimmed would have been refused and are on neither side.
    """

    prompts: int = 0
    """Prompts that are compared, those for recall included."""
    refused: int = 0
    """Prompts that would have been refused."""
    recalls: int = 0
    """Prompts that only bring answers of the sidecar's own tools; without the sidecar they would not have been sent."""
    returned: PromptBill | None = None
    """As they were returned."""
    untrimmed: PromptBill | None = None
    """Had nothing ever been trimmed, with the provider's cache as it would have been."""
    reported: int = 0
    """Of prompts, those that count by what the provider was reported to have counted; the others count by estimates."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The figures of the forgotten run. Ending a run that this process has not seen is not an error."""

    ended: bool = False
    """Whether the run was known."""
    run: RunFigures | None = None
    """Its last figures, if it was known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule of the guard found in one item. Never the text that it found."""

    rule: str = ""
    """The rule's name, as in the settings."""
    action: str = "unspecified"
    """What was done. One of observed, masked, defanged."""
    message_index: int = 0
    """Index of the message in the run's untrimmed history, leading system messages not counted; -1: outside the
    history, such as in the system prompt or a tool's schema.
    """
    item_index: int = 0
    """Index of the item in its message; -1 where the finding is in no item."""
    count: int = 0
    """How often the rule matched there."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search."""

    outcome: str = "unspecified"
    """Outcome of the search. One of found, nothing_found, run_unknown."""
    message: str = ""
    """One sentence on the outcome that a model can act on."""
    snippets: tuple[Snippet, ...] = ()
    """The snippets, best first; of equals the newest first.

    Items that stand whole in the prompt that TrimPrompt returned last come after all others, unless the query is or
    holds their id.
    """
    rendered: str = ""
    """The snippets as a text for the model, each fenced, under a line with its origin; then a line for each of
    `in_prompt`.
    """
    matching_items: int = 0
    """Items that match, shown or not. Items whose content expired or was evicted are not among them."""
    first_iteration: int = 0
    """First iteration that was searched. Of what is not indexed yet see `not_indexed_items`."""
    last_iteration: int = 0
    """Last iteration that was searched as a whole; less than `first_iteration`: none was."""
    gone_items: int = 0
    """Items that would have been shown, but have expired or were evicted."""
    terms_left_out: int = 0
    """Terms of the query that were left out, as it has more than count."""
    rendered_tokens: int = 0
    """Tokens of `rendered`."""
    in_prompt: tuple[InPrompt, ...] = ()
    """Items that would be among the snippets if they did not stand whole in the prompt that TrimPrompt returned last,
    best first: at most as many as snippets were requested, and as have room in a fifth of the tokens of `rendered`.
    """
    not_indexed_items: int = 0
    """Items within the filters that were not searched, or only in part, as they are not indexed yet: a search indexes
    for a quarter of the time until its deadline, half a second at most, and the rest is indexed between calls.

    Search again to have them searched, too; an exact id finds its item at once. 0: all was searched.
    """
    first_not_indexed_iteration: int = 0
    """First iteration that has one of them."""
    last_not_indexed_iteration: int = 0
    """Last iteration that has one of them."""


@dataclass(frozen=True, slots=True)
class HandledCount:
    """Requests about which the same was done."""

    outcome: str = ""
    """What was done: "trimmed", or the reason why not, of those in docs/untrimmed.md."""
    count: int = 0
    """How many."""


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """Figures of a run's recorded history and its searches."""

    items: int = 0
    """Items recorded."""
    passages: int = 0
    """Passages that are indexed."""
    index_bytes: int = 0
    """Bytes of the index, estimated."""
    waiting_bytes: int = 0
    """Bytes of originals that wait to be indexed; a search indexes them first, for half a second at most."""
    first_iteration: int = 0
    """First iteration that search covers; more than 1 where the index had no room for older ones."""
    searches: int = 0
    """Searches."""
    searches_found: int = 0
    """Searches that found something."""
    tool_calls: int = 0
    """Calls of the model's tools, CallTool."""


@dataclass(frozen=True, slots=True)
class HistorySize:
    """How large a run's history is. Tokens are estimates, in the same tokens as TokenFigures."""

    kinds: tuple[KindTokens, ...] = ()
    """Every kind, in the order of SizeKind. They add up to the totals."""
    messages: int = 0
    """Messages of the untrimmed history, leading system messages included."""
    messages_returned: int = 0
    """Messages of the returned prompt, the sidecar's own included."""
    tokens_sent: int = 0
    """Tokens of the untrimmed history with system prompt and tool schemas.

    An agent that goes on from trimmed prompts sends less: see TokenFigures.before.
    """
    tokens_returned: int = 0
    """Tokens of the returned prompt; the same as TokenFigures.after."""
    share_of_limit: float = 0.0
    """Share of the limit that the returned prompt takes; above 1 it does not fit."""


@dataclass(frozen=True, slots=True)
class InPrompt:
    """An item that matches, and that the model can read in its prompt. Its text is not repeated."""

    stash_id: str = ""
    """The item's id."""
    role: str = "unspecified"
    """Whose text it is. One of system, user, assistant, tool."""
    kind: str = "unspecified"
    """Kind of the item. One of text, arguments, result, image, opaque, snapshot, reasoning."""
    tool: str = ""
    """The tool's name, `other` if it is not a plain name, empty for text."""
    iteration: int = 0
    """The iteration that it belongs to."""
    first_line: int = 0
    """First line of its best passage, counted from 1."""
    last_line: int = 0
    """Last line of its best passage."""


@dataclass(frozen=True, slots=True)
class KindTokens:
    """One kind's share of a history."""

    kind: str = "unspecified"
    """The kind.

    One of system, tool_schemas, user, assistant_text, calls, results, media, own_text, other, reasoning.
    """
    tokens_sent: int = 0
    """Its tokens in the untrimmed history."""
    tokens_returned: int = 0
    """Its tokens in the returned prompt."""
    items: int = 0
    """Its items in the untrimmed history: texts, calls, results, images."""


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Cost of a run's reported model calls of one model, by what the provider counted and the model's own prices."""

    model: str = ""
    """The model that answered."""
    currency: str = ""
    """Currency of the prices, as in ISO 4217; `own`: the one of [prices], which the settings do not name."""
    calls: int = 0
    """Calls."""
    cost: float = 0.0
    """Their cost, input and answers."""
    estimated_saved: float = 0.0
    """An ESTIMATE of what trimming saved: what the same prompts untrimmed would have cost, less what they cost.

    It is no part of cost, and is negative where trimming cost more than it saved.
    """


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """Retrievals that came to one outcome."""

    outcome: str = ""
    """The outcome, by its name without the prefix: HIT, EXPIRED, EVICTED or NOT_FOUND."""
    count: int = 0
    """How many."""


@dataclass(frozen=True, slots=True)
class OwnText:
    """A piece of the sidecar's own text."""

    kind: str = "unspecified"
    """Its kind. One of directives, registry, note, dropped."""
    place: str = "unspecified"
    """Its position. One of system, history, tail, caller."""
    message_index: int = 0
    """Index of its message in the returned prompt; -1 where it is not a message."""
    text: str = ""
    """The text."""


@dataclass(frozen=True, slots=True)
class PromptBill:
    """What prompts count for."""

    kept_tokens: int = 0
    """Tokens that the prompt before began with as well, which a provider reads from its cache."""
    new_tokens: int = 0
    """Tokens that are new to the provider's cache."""
    cost: float = 0.0
    """In the currency of the configured prices, without the model's answers; 0 where the model has none."""


@dataclass(frozen=True, slots=True)
class RepeatedCall:
    """A call that was made before with the same arguments and had the same result."""

    tool: str = ""
    """The tool, `other` if it is not a plain name."""
    iteration: int = 0
    """The iteration that the newer result belongs to."""
    first_iteration: int = 0
    """The iteration that the first such result belongs to."""
    times: int = 0
    """How often the call has had this result, this time included."""
    tokens: int = 0
    """Tokens of the newer result, untrimmed."""
    message_index: int = 0
    """Index of the newer result's message in the run's untrimmed history, leading system messages not counted."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The result of a retrieval."""

    outcome: str = "unspecified"
    """Outcome of the retrieval. One of hit, expired, evicted, not_found, run_unknown."""
    message: str = ""
    """One sentence on the outcome that a model can act on."""
    content: bytes = b""
    """The content shown. For a pattern: the matching stretches, in order."""
    content_type: str = ""
    """Media type of the original: text/plain or application/json."""
    total_bytes: int = 0
    """Bytes of the whole original."""
    total_lines: int = 0
    """Lines of the whole original."""
    stretches: tuple[Stretch, ...] = ()
    """The stretches shown, in order; `content` is their bytes one after another."""
    more: bool = False
    """Whether more of the selection follows."""
    next_offset: int = 0
    """Where it follows."""
    matching_lines: int = 0
    """For a pattern: matching lines in the whole original."""
    content_tokens: int = 0
    """Tokens of `content`."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A run's figures."""

    run_id: str = ""
    """The run."""
    started: dt.datetime | None = None
    """When it was first seen."""
    last_seen: dt.datetime | None = None
    """When it was last seen."""
    calls: int = 0
    """TrimPrompt calls that changed it."""
    iteration: int = 0
    """The iteration of the last prompt."""
    messages: int = 0
    """Messages of the untrimmed history, leading system messages not counted."""
    tokens: Tokens | None = None
    """Token figures of the last prompt."""
    cache: Cache | None = None
    """Cache figures of the last prompt."""
    tokens_sent_total: int = 0
    """Tokens of all prompts as they were sent.

    A prompt that is sent again before there is a report on it counts once, here and in what follows: as far as is known
    the provider did not answer it.
    """
    tokens_returned_total: int = 0
    """Tokens of all prompts as they were returned."""
    trimmed_items: int = 0
    """Items elided, clipped and dropped in the last prompt."""
    stash: StashFigures | None = None
    """The stash."""
    unfinished_tasks: tuple[Task, ...] = ()
    """Tasks that are pending or in progress."""
    history: HistoryFigures | None = None
    """The recorded history and its index."""
    history_size: HistorySize | None = None
    """The size of the last prompt's history, by kind."""
    repeated_calls: int = 0
    """Results in the history that were the same as an earlier one of the same call."""
    repeated_tokens: int = 0
    """Their tokens, untrimmed."""
    usage: UsageFigures | None = None
    """The provider's reported figures."""
    ceilings: tuple[CeilingUse, ...] = ()
    """The ceilings that hold for the run and its caller, and what is used of them."""
    cost: float | None = None
    """Price of the run's prompts and answers as ceilings on cost count it: by estimates until there is a report.

    Not set where no model has a price. What the provider's counts cost is in model_costs.
    """
    observed_only: bool = False
    """The sidecar is set to observe: the run's prompts were returned as they were sent, and the figures say what would
    have been done.
    """
    comparison: Comparison | None = None
    """What the run's prompts cost, next to what they would have cost had nothing ever been trimmed."""
    store: StoreFigures | None = None
    """The run in the shared store; not set where the sidecar has none."""
    handled: tuple[HandledCount, ...] = ()
    """Requests of the run that went on, through whichever door, by what was done about their prompt.

    Dry runs, side calls and requests that only count tokens are not counted.
    """
    untrimmed: str = ""
    """Why the last of them was not trimmed: one of the reasons in docs/untrimmed.md.

    Empty: it was trimmed, or there was none.
    """
    recall: str = ""
    """Whether the model was offered tools for recall with the last of them, "offered", or why not: as the answer's
    header x-prompt-sidecar-recall of the HTTP door.

    Empty: there was none.
    """
    model_costs: tuple[ModelCost, ...] = ()
    """What the run's reported model calls cost, by the model that answered, in no certain order.

    Eight models are distinguished; the rest is under `other`.
    """
    unpriced_calls: int = 0
    """Reported model calls that are not in model_costs: their model has no price, they were served in a tier without a
    known price, not all of their input tokens were reported, or their prompt is none of the last eight.
    """
    condensed_items: int = 0
    """Results that the last prompt shows condensed; `trimmed_items` does not count them."""
    condensed_tokens: int = 0
    """Tokens that they take less there."""
    ceiling_cuts: int = 0
    """Cuts that the policy's ceiling_tokens made, and not the limit."""
    protected_text_leaves: int | None = None
    """Of the last prompt: TrimPromptResponse.protected_text_leaves."""
    failed_calls: int = 0
    """Prompts whose provider failed, as it was reported or as the HTTP and Envoy doors have seen.

    They are not in comparison.
    """


@dataclass(frozen=True, slots=True)
class Snippet:
    """A stretch of one item of the history, verbatim."""

    stash_id: str = ""
    """The item's id: fetch the whole by it, whether or not it was trimmed."""
    role: str = "unspecified"
    """Whose text it is. One of system, user, assistant, tool."""
    kind: str = "unspecified"
    """Kind of the item. One of text, arguments, result, image, opaque, snapshot, reasoning."""
    tool: str = ""
    """The tool's name, `other` if it is not a plain name, empty for text."""
    call_id: str = ""
    """The id of the call that it belongs to, as the provider gave it; empty for text."""
    iteration: int = 0
    """The iteration that it belongs to."""
    start_byte: int = 0
    """First byte of the snippet in the original, counted from 0."""
    end_byte: int = 0
    """The byte after the last."""
    first_line: int = 0
    """First line of the snippet, counted from 1."""
    last_line: int = 0
    """Last line."""
    total_bytes: int = 0
    """Bytes of the whole original."""
    total_lines: int = 0
    """Lines of the whole original."""
    content_type: str = ""
    """Media type of the original: text/plain or application/json."""
    text: str = ""
    """The text."""
    score: float = 0.0
    """The BM25 score of its best passage; 0 where an exact id found it, or a message next to it."""
    tokens: int = 0
    """Tokens of `text`."""
    repeats: int = 0
    """Older items with the same text at the same place, which are not shown."""


@dataclass(frozen=True, slots=True)
class StashEntry:
    """An entry of the registry."""

    stash_id: str = ""
    """The id."""
    kind: str = "unspecified"
    """Its kind. One of text, arguments, result, image, opaque, snapshot, reasoning."""
    tool: str = ""
    """The tool's name, `other` if it is not a plain name, empty for text."""
    arguments_summary: str = ""
    """The start of the call's arguments, JSON-escaped, at most 80 characters."""
    iteration: int = 0
    """The iteration that it belongs to."""
    original_bytes: int = 0
    """Bytes of the original."""


@dataclass(frozen=True, slots=True)
class StashFigures:
    """Figures of a run's originals in the stash."""

    entries: int = 0
    """Originals held."""
    held_bytes: int = 0
    """Their bytes, as held."""
    original_bytes: int = 0
    """Their bytes, as they were."""
    expired: int = 0
    """Originals whose time to live ended."""
    evicted: int = 0
    """Originals evicted."""
    retrievals: tuple[OutcomeCount, ...] = ()
    """Retrievals by outcome."""


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """A run in the shared store, as this process sees it."""

    reachable: bool = False
    """Whether the store answered when it was last asked."""
    waiting_calls: int = 0
    """Calls whose changes are not in the store yet: another replica does not have them."""
    detached: bool = False
    """The store takes no more of the run from this process, as the run was ended by another, or could not be looked
    for.
    """


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the original."""

    start_byte: int = 0
    """First byte, counted from 0."""
    end_byte: int = 0
    """The byte after the last."""
    first_line: int = 0
    """First line, counted from 1."""
    last_line: int = 0
    """Last line."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a run."""

    id: int = 0
    """Its number in the run.

    They begin at 1; those of tasks that are created while the shared store cannot be asked begin somewhere from 100 on,
    so that two replicas do not give the same one.
    """
    text: str = ""
    """Text of the task: at most 200 characters."""
    status: str = "unspecified"
    """Its status. One of pending, in_progress, completed."""


@dataclass(frozen=True, slots=True)
class TaskList:
    """The run's tasks."""

    tasks: tuple[Task, ...] = ()
    """All tasks."""
    not_shared: bool = False
    """With a shared store: whether other replicas may show other tasks, because the store could not be asked for their
    changes, or does not have all of these tasks yet.

    What each replica knows is merged when the store answers. False without a store.
    """


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token figures of a prompt."""

    before: int = 0
    """As it was sent."""
    after: int = 0
    """As it is returned, own text included."""
    limit: int = 0
    """The limit."""
    encoding: str = ""
    """The vocabulary that counted."""
    exact: bool = False
    """Whether the model's own vocabulary counted every part; false: an estimate."""
    calibration_factor: float = 0.0
    """The factor that the counts were multiplied with."""
    own_text: int = 0
    """Of `after`: our own text."""
    window_assumed: bool = False
    """Whether the window was assumed: the request has none and the model is unknown or not named.

    The limit then follows from the setting limits.default_window; set context_window, or name the model.
    """
    ceiling: int = 0
    """What the prompt is trimmed to though its limit is higher, by the policy's ceiling_tokens: marks and shares are of
    it. 0: there is no such ceiling, and they are of the limit.
    """


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool that a model can be given."""

    name: str = ""
    """Its name: what CallTool is called with."""
    description: str = ""
    """Description for the model."""
    parameters_json: str = ""
    """Its parameters: a JSON Schema, as JSON text."""
    definition_json: bytes = b""
    """The whole definition in the format asked for, as JSON."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer for the model."""

    outcome: str = "unspecified"
    """Outcome of the call. One of ok, invalid_arguments, unknown_tool, run_unknown, repeated."""
    content: str = ""
    """The text to hand to the model as the tool's result, unchanged: it carries a tag by which it is recognised later.
    """
    is_error: bool = False
    """Whether to mark the result as an error, where the format can."""
    content_tokens: int = 0
    """Tokens of `content`."""
    recalled: Retrieved | None = None
    """Of recall_elided_content."""
    found: Found | None = None
    """Of search_conversation_history."""
    tasks: TaskList | None = None
    """Of the task tools."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools."""

    tools: tuple[Tool, ...] = ()
    """The tools, in an order that does not change."""
    tools_json: bytes = b""
    """All definitions as one JSON array in the format asked for, ready for the body's `tools`."""


@dataclass(frozen=True, slots=True)
class Trim:
    """One item that is trimmed in this prompt."""

    message_index: int = 0
    """Index of its message in the run's untrimmed history, leading system messages not counted."""
    item_index: int = 0
    """Index of the item in its message."""
    kind: str = "unspecified"
    """Its kind. One of text, arguments, result, image, opaque, snapshot, reasoning."""
    action: str = "unspecified"
    """How it was trimmed. One of elided, clipped, dropped, collapsed, condensed."""
    reason: str = "unspecified"
    """Why. One of cap, fit, residue, age, feedback, repeated, reasoning, condense, superseded."""
    tokens_saved: int = 0
    """Tokens that it takes less, by the estimate before any correction."""
    stash_id: str = ""
    """The id of its original."""
    decided_iteration: int = 0
    """Iteration of the prompt in which this was decided."""


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """The provider's figures for a run's prompts."""

    reports: int = 0
    """Reports."""
    refusals: int = 0
    """Of them, prompts that were refused as too long."""
    input_tokens: int = 0
    """Input tokens, cached ones included."""
    cached_tokens: int = 0
    """Input tokens read from the provider's cache."""
    cache_write_tokens: int = 0
    """Input tokens written to it."""
    output_tokens: int = 0
    """Output tokens."""
    cache_breaks: int = 0
    """Reports after which less was cached than the kept prefix, by more than the providers' blocks explain."""
    learned_limit: int = 0
    """The limit that refusals taught; 0: none."""


@dataclass(frozen=True, slots=True)
class UsageLearned:
    """The effect of the report. A run that this process has not seen is NOT_FOUND with the reason RUN_UNKNOWN."""

    outcome: str = "unspecified"
    """Outcome of the report. One of recorded, repeated, prompt_unknown, failed."""
    estimated_tokens: int = 0
    """Estimated tokens that the sidecar returned for the prompt."""
    real_tokens: int = 0
    """Its real tokens, including cached ones; 0: not reported."""
    error_percent: float = 0.0
    """By how many per cent the estimate was too high; negative: too low."""
    factor_before: float = 0.0
    """The factor of this caller, model and format before the report."""
    factor_after: float = 0.0
    """And after it. Counts of later prompts are multiplied with it."""
    calibration_use: str = "unspecified"
    """Whether the report corrected the factor. One of used, no_count, media, implausible, cache_untold."""
    learned_limit: int = 0
    """Tokens that refusals in this run have left for a prompt, the answer's taken off; 0: none named a limit."""
    next_limit: int = 0
    """The limit that the same prompt would have now."""
    cache_use: str = "unspecified"
    """Use of the cache for the kept prefix. One of nothing_expected, as_expected, break_suspected, never_used."""
    cached_tokens_expected: int = 0
    """Cached tokens that were expected: the kept prefix.

    Providers cache in blocks of 128 to 1,024 tokens, from 1,024 on.
    """
    cached_tokens: int = 0
    """Cached tokens that were read."""
    cache_hit_share: float = 0.0
    """The share of the real tokens that was read from the cache, 0 to 1."""
    comparison: Comparison | None = None
    """What the run's prompts cost so far, next to what they would have cost had nothing ever been trimmed.

    The reported prompt counts by the report, if its counts can be true.
    """
