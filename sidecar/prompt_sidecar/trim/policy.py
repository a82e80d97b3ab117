"""The knobs of trimming: each with its default, its range, what it does, and the reason for its default.

A policy is a frozen value. A preset (`trim/presets.py`) names a set of values; configuration overrides fields of the
preset, and a request overrides fields of the configuration. Nothing else in the sidecar decides how to trim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from prompt_sidecar.errors import InvalidPolicy
from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.prompt.provider_edits import ProviderEdit
from prompt_sidecar.trim.entries import Ageing, Feedback
from prompt_sidecar.values import byte_count, choice, declared, number, setting, switch, texts, whole, whole_or


class FitStage(StrEnum):
    """What happens above the high-water mark."""

    OFF = "off"
    OLDEST_FIRST = "oldest_first"
    """Clip old items, oldest first, then elide the largest of the rest (`cache_first`)."""
    LARGEST_FIRST = "largest_first"
    """Elide the largest tool results, largest first, then clip old items (`fit_only`)."""


class AgeStage(StrEnum):
    """When items older than `age_keep_iterations` are clipped."""

    OFF = "off"
    PRESSURE = "pressure"
    """In batches, above the high-water mark."""
    ALWAYS = "always"
    """At every call (`lean`): the smallest prompt, and a prefix that is rewritten each time."""


class NotePlace(StrEnum):
    """Where the note is placed."""

    OFF = "off"
    TAIL = "tail"


class ReasoningBinding(StrEnum):
    """Whether the model binds its thinking to the prompt that it was produced under."""

    AUTO = "auto"
    """Decided by the model's name; see `prompt_sidecar.providers.claude`."""
    BOUND = "bound"
    UNBOUND = "unbound"


class Arguments(StrEnum):
    """What a tool call's arguments become when they are clipped."""

    LEAVES = "leaves"
    """Long strings in them become labels; short ones, such as paths, names and commands, stay."""
    EMPTY = "empty"


class Condense(StrEnum):
    """What may be removed from a tool result when it is first seen; each level includes those before it."""

    OFF = "off"
    EXACT = "exact"
    """What a terminal would not show either; identical lines in a row are counted."""
    SAFE = "safe"
    """Lines in another form from which they can be read back, and tests that passed, counted."""
    FULL = "full"
    """Padding before line numbers, the middle of long outputs, the markup of fetched pages."""


NO_CEILING: Final = 0
AUTO_CEILING: Final = -1
AUTO_FROM: Final = 200_000
"""Tokens: the smallest window with the ceiling `auto`."""
AUTO_TOKENS: Final = 150_000
"""Tokens of the ceiling `auto`: longer runs cost less with it, and show nearly all that their next actions refer to;
docs/when-to-cut.md has the figures."""

AS_GENERAL: Final = -1
"""For `age_keep_*`: the kind of item has no number of its own and uses the general one."""

_ITERATIONS: Final = whole(0, 1_000, "iterations")
_OWN_ITERATIONS: Final = whole(AS_GENERAL, 1_000, "iterations")
_OWN_WHY: Final = "-1, the general number, unless a kind of item is worth more or less to the agent than the others."
_SHARE: Final = number(0.0, 1.0)
_MARK: Final = number(0.01, 1.0)
_PREFIXES: Final = texts(16, 200)
"""An agent has one or two wordings of each kind of feedback."""
_PREFIXES_WHY: Final = (
    "Wordings that no person begins with by chance. Feedback that is worded otherwise is recognised by the prefixes "
    "set here or, more reliably, by annotations in the request."
)


def _keep_own(what: str, more: str = "") -> Any:
    """An `age_keep_` field of one kind of item."""
    words = f"The same for {what}{more}; -1: age_keep_iterations."
    return setting(AS_GENERAL, _OWN_ITERATIONS, words, _OWN_WHY, advanced=True)


@dataclass(frozen=True, slots=True)
class Policy:
    """How to trim. Shares are of the limit unless another whole is named; all bounds are inclusive.

    Each field is a knob: it declares its default, its range, what it does and why its default is what it is.
    """

    fit_stage: FitStage = setting(
        FitStage.OLDEST_FIRST,
        choice(*FitStage),
        "What happens above the high-water mark: nothing (off), old items are clipped (oldest_first), or the largest "
        "results are elided (largest_first).",
        "Old items are needed least, and what follows them moves only once in many calls.",
    )
    condense: Condense = setting(
        Condense.EXACT,
        choice(*Condense),
        "What is taken out of a tool result when it is first seen: nothing (off), what a terminal would not show, "
        "lines that repeat the one above, and, where the result becomes half as long, paths and beginnings that lines "
        "share and names in JSON (exact), also the latter wherever that saves something, and tests that passed "
        "(safe), also padding, the middle of long outputs and the markup of pages (full). "
        "The exact original stays in reach of recall and search.",
        "What was never sent rewrites no cache, and exact hides nothing and mostly leaves lines whole, as agents quote "
        "them and search for them. No live model has judged a result without its passed tests yet.",
    )
    condense_skip_tools: tuple[str, ...] = setting(
        (),
        texts(100, 64),
        "Tools whose results are never condensed.",
        "What a call may have read of a file is left alone in any case, and so are diffs.",
    )
    condense_fetch_tools: tuple[str, ...] = setting(
        (),
        texts(100, 64),
        "Tools that fetch pages, whose HTML becomes text where condense is full.",
        "Nothing in a page says whether its markup is what was asked for; only an agent knows its tools.",
    )
    cap_text_bytes: int = setting(
        51_200,
        byte_count(1_024, 8_388_608),
        "Bytes of text that one tool result may have before it is elided at first sight.",
        "50 KiB is what the shells of three widely used coding agents cap at.",
    )
    cap_media_bytes: int = setting(
        8_388_608,
        byte_count(0, 268_435_456),
        "Bytes of encoded images in one tool result; images beyond it become a line of text.",
        "8 MiB lets an image viewer's real pictures through.",
    )
    cap_head_share: float = setting(
        0.5,
        _SHARE,
        "Share of a capped result's kept bytes that goes to its head; the rest is its tail.",
        "Logs end with their verdict, files begin with what they are: half of each.",
        advanced=True,
    )
    age_stage: AgeStage = setting(
        AgeStage.PRESSURE,
        choice(*AgeStage),
        "When items older than age_keep_iterations are clipped: off, under pressure (above fit_high, in batches), or "
        "always (at every call).",
        "A clipped item rewrites the provider's prompt cache from its place on, so many are clipped at once.",
    )
    age_keep_iterations: int = setting(
        3,
        _ITERATIONS,
        "Newest iterations that are not clipped; under pressure fewer, at least two, where they do not fit below "
        "fit_low next to what is never trimmed.",
        "The model can still refer to what it has just done. In a small window three iterations are most of a prompt: "
        "with all of them kept a cut frees little, and the next one follows soon.",
    )
    age_keep_arguments: int = _keep_own("tool calls' arguments")
    age_keep_text: int = _keep_own("the model's text next to its calls")
    age_keep_results: int = _keep_own("tool results")
    age_keep_snapshots: int = _keep_own("page snapshots in users' text")
    age_keep_images: int = _keep_own("images")
    age_keep_feedback: int = _keep_own("feedback", ", of which the newest of each kind stays in any case")
    age_hard_cap_iterations: int = setting(
        0,
        whole(0, 100_000, "iterations"),
        "Iterations that a prompt may hold; older ones are dropped whole, but for one that counts them. 0: any number.",
        "What clipping leaves of an old iteration still tells the model that it took that step. 10 suits browser "
        "agents, whose old steps tell nothing.",
    )
    age_arguments: Arguments = setting(
        Arguments.LEAVES,
        choice(*Arguments),
        "What a tool call's arguments become when they are clipped: the same with a label in place of each string of "
        "more than 120 characters (leaves), or empty.",
        "Paths, names and commands are short, and the model's next actions refer to them; what makes arguments large "
        "is the text of files.",
    )
    age_repeats: bool = setting(
        False,
        switch(),
        "Whether a result that came again, unchanged, for the same call is clipped to a pointer to the newer one; only "
        "where age_stage is always.",
        "Under pressure the older of the two is clipped in a batch anyway, and needs no cut of its own.",
    )
    feedback_validation: tuple[str, ...] = setting(
        ("Validation feedback:", "[validation feedback]"),
        _PREFIXES,
        "How a user's text begins that rejects what the model took to be done.",
        _PREFIXES_WHY,
    )
    feedback_error: tuple[str, ...] = setting(
        ("Step error:", "[step error]"),
        _PREFIXES,
        "How a user's text begins that reports an error in a step.",
        _PREFIXES_WHY,
    )
    feedback_repetition: tuple[str, ...] = setting(
        ("Repetition warning:", "[repetition warning]"),
        _PREFIXES,
        "How a user's text begins that warns of repetition.",
        _PREFIXES_WHY,
    )
    reminder_tags: tuple[str, ...] = setting(
        ("system-reminder",),
        _PREFIXES,
        "Names of the tags that an agent's framework encloses its reminders in, in a user's message. A text that is "
        "nothing but such elements is no user's words: it is clipped when it is old, as a page snapshot is.",
        "Claude Code puts such reminders next to tool results; as a user's words they would keep their iterations from "
        "being dropped.",
    )
    pin_tags: tuple[str, ...] = setting(
        (),
        _PREFIXES,
        "Names of tags by which a user's text or a system message pins the message that it stands in: one with such an "
        "element, as in <keep>Never touch payments.</keep> for keep, is neither trimmed nor dropped, from when it is "
        "first seen until the run ends. Tags in tool results and in what the model says count for nothing. As other "
        "pinned messages do, too many of them leave no prompt that fits.",
        "Only an agent knows how it marks what must outlive every cut. Where it pastes files or pages into a user's "
        "text, their tags pin, too.",
    )
    cache_marks: bool = setting(
        False,
        switch(),
        "Whether prompts are marked where their provider caches them, at most four times: the end of the system "
        "prompt, where the last cut begins, the end of the prompt before, and the newest message, never behind the "
        "sidecar's note. For Anthropic's Messages (cache_control), for models on Bedrock's Converse that cache "
        "(cachePoint), and for OpenAI's from GPT-5.6 on (prompt_cache_breakpoint; the newest message it marks itself). "
        "A request with a mark of the agent's own gets none. Not in answers of edits.",
        "Most agents mark their prompts themselves, or their provider does. Without a mark Anthropic and Bedrock "
        "cache nothing, and with one they charge 1.25 times the input for what they write.",
    )
    cache_key: bool = setting(
        False,
        switch(),
        "Whether a request for a model of OpenAI's, in chat completions or responses, gets a prompt_cache_key of its "
        "run, where the agent sends none: a digest from which neither the run's id nor its caller can be derived. It "
        "is the same for all of the run's requests, also after a restart where `key` is set. Not in answers of edits.",
        "OpenAI's servers find what a run has cached more surely by it, but other servers may refuse it.",
    )
    never_trim_tools: tuple[str, ...] = setting(
        (),
        texts(100, 64),
        "Tools whose results are neither elided, clipped nor dropped, whatever room there is. As pinned messages do, "
        "too many of them leave no prompt that fits.",
        "Every result that stays takes room from newer ones; only an agent knows which it needs whole.",
    )
    fit_high: float = setting(
        0.95,
        _MARK,
        "High-water mark, a share of the limit: trimming starts above it.",
        "It was chosen together with fit_low: prompts are smaller than with a higher mark, and as much of what is "
        "needed next stands. A twentieth of the limit is left besides for errors of the estimate: once usage has been "
        "reported, 95 of 100 were wrong by at most 0.7 %.",
    )
    fit_low: float = setting(
        0.44,
        _MARK,
        "Low-water mark, a share of the limit: trimming goes down to it.",
        "A lower mark costs less and keeps less text; the oldest results stay besides. See docs/when-to-cut.md.",
    )
    fit_head_share: float = setting(
        0.5,
        _SHARE,
        "As cap_head_share, for results elided to fit.",
        "As for cap_head_share: half of each.",
        advanced=True,
    )
    fit_residue_high: float = setting(
        0.04,
        _SHARE,
        "Share of the limit that the remains of clipped iterations may take before the oldest are dropped.",
        "Placeholders take the room of text, and fill a small window; search finds what they stood for.",
        advanced=True,
    )
    fit_residue_low: float = setting(
        0.0,
        _SHARE,
        "Share of the limit that dropping old iterations goes down to.",
        "All of them, so that drops are rare: what follows is written again in any case.",
        advanced=True,
    )
    fit_keep_oldest: float = setting(
        0.10,
        _SHARE,
        "Share of the limit that the oldest iterations' results may take and stay whole, times the discount on cached "
        "input (1 - price_cached / price_written); less where the newest need the room.",
        "The prefix up to there stays cached from cut to cut, and agents read first what the task is about. Twice as "
        "much costs a little less, and shows less of what came later; with 0 the newest results get all of it.",
    )
    fit_keep_light: float = setting(
        0.09,
        _SHARE,
        "Share of the limit that the newest arguments and text of the model may take and stay whole, however old their "
        "iterations are.",
        "What the model did and said is referred to longer than results of the same age, and is smaller. More shows "
        "more of it and less of the newest results; see docs/when-to-cut.md.",
    )
    ceiling_tokens: int = setting(
        NO_CEILING,
        whole_or({"off": NO_CEILING, "auto": AUTO_CEILING}, 1_000, 100_000_000, "tokens"),
        "Tokens of a prompt to which it is trimmed although its window has room: marks and shares are of this instead "
        "of the limit, if it is lower. auto: 150,000 for windows of 200,000 and more. It is never below the text that "
        "is not trimmed and three tenths of that besides. Only where old items go in batches, oldest first, as in "
        "cache_first. fits, refusals and alerts go by the window.",
        "It takes text away for which there is room. Smaller prompts cost less at each call; docs/when-to-cut.md says "
        "how much, and what they hide.",
    )
    price_cached: float = setting(
        0.1,
        number(0.0, 100.0),
        "Price of an input token that the provider has cached, in plain input tokens.",
        "The price of a cached token at Anthropic and most others; 0.25 and 0.5 occur as well.",
    )
    price_written: float = setting(
        1.25,
        number(0.01, 100.0),
        "Price of an input token that is written to the provider's cache, in plain input tokens.",
        "Anthropic's five-minute cache; 1 where writing costs nothing extra.",
    )
    own_text_max_tokens: int = setting(
        1_200,
        whole(0, 8_000, "tokens"),
        "Room for the sidecar's own text; 4 % of the limit is the other bound.",
        "It has room for directives, registry and note, and takes little of a large window.",
        advanced=True,
    )
    note_max_tokens: int = setting(
        150,
        whole(0, 1_000, "tokens"),
        "Tokens that the note may take.",
        "The note is new at every call and never cached. Its cue alone takes 34 tokens; open tasks fit into the rest.",
        advanced=True,
    )
    note_place: NotePlace = setting(
        NotePlace.TAIL,
        choice(*NotePlace),
        "Where the note stands: nowhere (off), or at the tail, in formats where a system message may stand there.",
        "At the tail it costs its own tokens only: everything ahead of it stays cached.",
    )
    registry_share: float = setting(
        0.0075,
        number(0.0, 0.02),
        "Share of the limit that the registry may take, names of what is hidden included; and as much for names in a "
        "label, where a cut leaves the registry as it is.",
        "At 0.01 the sidecar's own text was 2.2 % of the longest recorded run's cost; this is a quarter less.",
        advanced=True,
    )
    reasoning_binding: ReasoningBinding = setting(
        ReasoningBinding.AUTO,
        choice(*ReasoningBinding),
        "Whether the model binds its thinking to the prompt that it was produced under, so that another prompt makes "
        "it invalid: auto (by the model's name), bound, unbound.",
        "The names of Claude models decide it; set it where a gateway gives them other names.",
    )
    reasoning_drop_invalid: bool = setting(
        False,
        switch(),
        "Whether the returned body asks the provider to drop thinking that is not valid instead of refusing the prompt "
        "(thinking.block_binding.prefix_mismatch_behavior).",
        "It would change what the agent asked for, and invalid thinking is removed anyway.",
        advanced=True,
    )
    trim_beside_provider: bool = setting(
        False,
        switch(),
        "Whether a prompt is trimmed although its body asks the provider to trim it (context_management, truncation).",
        "Two rules that ignore each other would trim the same text twice; such a prompt is only capped.",
    )

    @property
    def oldest_share(self) -> float:
        """The share of the limit that is held at the beginning: smaller where cached tokens are less favoured."""
        return self.fit_keep_oldest * max(0.0, 1.0 - self.price_cached / self.price_written)

    @property
    def cuts_in_batches(self) -> bool:
        """Whether old items are trimmed in batches, oldest first, under pressure alone: the purpose of a ceiling."""
        return self.fit_stage is FitStage.OLDEST_FIRST and self.age_stage is AgeStage.PRESSURE

    def ceiling(self, window: int) -> int:
        """Return the ceiling for a prompt to a model with this window, in the provider's tokens; 0 if there is none."""
        if not self.cuts_in_batches:
            return 0
        if self.ceiling_tokens == AUTO_CEILING:
            return AUTO_TOKENS if window >= AUTO_FROM else 0
        return self.ceiling_tokens

    def beside(self, edits: Collection[ProviderEdit]) -> Policy:
        """Return the policy for a prompt that the provider trims: only the cap, if more than thinking is removed."""
        if not set(edits) - {ProviderEdit.CLEAR_THINKING}:
            return self
        return replace(self, fit_stage=FitStage.OFF, age_stage=AgeStage.OFF)

    @staticmethod
    def reasoning_rule(rule: ReasoningRule, edits: Collection[ProviderEdit]) -> ReasoningRule:
        """Return when reasoning is removed: not where the provider does, except reasoning bound to another prompt."""
        return ReasoningRule.KEPT if edits and rule is ReasoningRule.CLOSED_TURNS else rule

    def keep(self, ageing: Ageing | None) -> int:
        """Return how many of the newest iterations a queue's entries are not clipped in; None: feedback."""
        own: int = getattr(self, f"age_keep_{ageing or 'feedback'}")
        return self.age_keep_iterations if own == AS_GENERAL else own

    def feedback(self, text: str) -> Feedback | None:
        """Return which feedback a user's text is, by how it begins; None if it is not feedback."""
        for kind in Feedback:
            prefixes: tuple[str, ...] = getattr(self, f"feedback_{kind}")
            if text.startswith(prefixes):
                return kind
        return None

    def is_reminder(self, text: str) -> bool:
        """Whether a user's text consists of reminders of the agent's framework: of elements in `reminder_tags` only.

        Takes linear time. With a user's words before, between or after them it is the user's text.
        """
        at = _after_space(text, 0)
        empty = at == len(text)
        while at < len(text):
            tag = next((tag for tag in self.reminder_tags if text.startswith(f"<{tag}>", at)), "")
            end = text.find(f"</{tag}>", at) if tag else -1
            if end < 0:
                return False
            at = _after_space(text, text.index(">", end) + 1)
        return not empty

    def pins(self, text: str) -> bool:
        """Whether a text has an element of `pin_tags`: a start tag and, anywhere behind it, the end tag.

        Takes linear time, however many tags there are.
        """
        for tag in self.pin_tags:
            start = text.find(f"<{tag}>")
            if start >= 0 and text.find(f"</{tag}>", start) >= 0:
                return True
        return False

    def override(self, values: Mapping[str, object], *, field_prefix: str = "policy.") -> Policy:
        """Return this policy with `values` in place of its own.

        Raises:
            InvalidPolicy: a name is not a field, or a value is of the wrong type or out of its bounds.
        """
        checked = {name: _checked(name, value, field_prefix) for name, value in values.items()}
        policy = replace(self, **checked)
        for low, high in (("fit_low", "fit_high"), ("fit_residue_low", "fit_residue_high")):
            if getattr(policy, low) > getattr(policy, high):
                raise InvalidPolicy(
                    f"{low} {getattr(policy, low)} is above {high} {getattr(policy, high)}; it may be at most that",
                    field=field_prefix + low,
                )
        return policy


KNOBS: Final = declared(Policy)
"""Every field's declaration."""
BOUNDS: Final = {name: knob.kind.bounds for name, knob in KNOBS.items() if knob.kind.bounds}
"""The least and the greatest value of each number."""


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _checked(name: str, value: object, prefix: str) -> Any:
    if name not in KNOBS:
        raise InvalidPolicy(
            f"{name} is not a policy field; the fields are {', '.join(sorted(KNOBS))}", field=prefix + name
        )
    kind = KNOBS[name].kind
    try:
        return kind.check(value)
    except ValueError:
        # Only a number or a choice's name is shown: these are short, and not text of a prompt.
        shown = (kind.bounds and isinstance(value, (int, float))) or isinstance(KNOBS[name].default, StrEnum)
        problem = f"is {value}; it may be" if shown else "must be"
        raise InvalidPolicy(f"{name} {problem} {kind.accepted}", field=prefix + name) from None
