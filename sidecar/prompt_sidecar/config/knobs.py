"""The knobs of the policy as people meet them: what each does, and why its default is what it is.

The messages, the example file, `presets`, `check-config` and docs/policy.md all say it in these words. What a knob may
be stands in `sidecar/prompt_sidecar/trim/policy.py` alone; the readers here are made from that. A field of the policy
that is not told here can be set all the same, and fails a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from prompt_sidecar.config.readers import Reader, byte_count, choice, number, switch, texts, whole
from prompt_sidecar.trim.policy import BOUNDS, DEFAULT_PRESET, PREFIX_CHARACTERS, PREFIXES, PRESETS, Policy


@dataclass(frozen=True, slots=True)
class Knob:
    """One field of the policy."""

    what: str
    """One line: what it does; for a number, of what."""
    why: str
    """Why its default is what it is."""


_AS_GENERAL = "-1, the general number, unless a kind of item is worth more or less to the agent than the others."
_PREFIXES_WHY = (
    "Wordings that no person begins with by chance. Feedback in other words is told by these prefixes or, surer, by "
    "annotations in the request."
)

KNOBS: Final[Mapping[str, Knob]] = {
    "cap_text_bytes": Knob(
        "Text of one tool result before it is elided at first sight.",
        "50 KiB is what the shells of three widely used coding agents cap at.",
    ),
    "cap_media_bytes": Knob(
        "Encoded images in one tool result; those past it become a line of text.",
        "8 MiB lets an image viewer's real pictures through.",
    ),
    "cap_head_share": Knob(
        "Share of a capped result's kept bytes that goes to its head; the rest is its tail.",
        "Logs end with their verdict, files begin with what they are: half of each.",
    ),
    "age_stage": Knob(
        "When items older than age_keep_iterations are clipped: off, under pressure (above fit_high, in batches), or "
        "always (at every call).",
        "In batches: a clipped item rewrites the provider's prompt cache from its place on; so many go at once.",
    ),
    "age_keep_iterations": Knob(
        "Newest iterations that are not clipped.",
        "3: the model can still refer to what it has just done.",
    ),
    "age_keep_arguments": Knob("The same for tool calls' arguments; -1: age_keep_iterations.", _AS_GENERAL),
    "age_keep_text": Knob("The same for the model's text beside its calls; -1: age_keep_iterations.", _AS_GENERAL),
    "age_keep_results": Knob("The same for tool results; -1: age_keep_iterations.", _AS_GENERAL),
    "age_keep_snapshots": Knob("The same for page snapshots in users' text; -1: age_keep_iterations.", _AS_GENERAL),
    "age_keep_images": Knob("The same for images; -1: age_keep_iterations.", _AS_GENERAL),
    "age_keep_feedback": Knob(
        "The same for feedback, of which the newest of each kind stays in any case; -1: age_keep_iterations.",
        _AS_GENERAL,
    ),
    "age_hard_cap_iterations": Knob(
        "Iterations that a prompt may hold; older ones are dropped whole, but for one that counts them. 0: any.",
        "No number: what clipping leaves of an old iteration still tells the model that it took that step. "
        "10 suits browser agents, whose old steps tell nothing.",
    ),
    "age_repeats": Knob(
        "Whether a result that came again, unchanged, for the same call is clipped to a pointer to the newer one; "
        "only where age_stage is always.",
        "Not under pressure alone: the older of the two is clipped in a batch anyway, and needs no cut of its own.",
    ),
    "feedback_validation": Knob(
        "How a user's text begins that rejects what the model took for done.",
        _PREFIXES_WHY,
    ),
    "feedback_error": Knob("How a user's text begins that tells of an error in a step.", _PREFIXES_WHY),
    "feedback_repetition": Knob("How a user's text begins that warns of repetition.", _PREFIXES_WHY),
    "fit_stage": Knob(
        "What happens above the high-water mark: nothing (off), old items are clipped (oldest_first), or the largest "
        "results are elided (largest_first).",
        "What is old is needed least, and what comes after it moves only once in many calls.",
    ),
    "fit_high": Knob(
        "High-water mark, a share of the limit.",
        "A hundredth of the limit is left for what an estimate may be wrong by: once usage has been reported, 95 of "
        "100 were wrong by 0.7 % at most.",
    ),
    "fit_low": Knob(
        "Low-water mark, a share of the limit.",
        "Deeper costs less and keeps less text; beside this the oldest results stay. See docs/when-to-cut.md.",
    ),
    "fit_head_share": Knob(
        "As cap_head_share, for results elided to fit.",
        "As for cap_head_share: half of each.",
    ),
    "fit_residue_high": Knob(
        "Share of the limit that the remains of clipped iterations may take before the oldest are dropped.",
        "Placeholders take the room of text, and fill a small window; search finds what they stood for.",
    ),
    "fit_residue_low": Knob(
        "Share of the limit that dropping old iterations goes down to.",
        "All of it, so that drops are rare: what follows is written anew in any case.",
    ),
    "fit_keep_oldest": Knob(
        "Share of the limit that the oldest iterations' results may take and stay whole, times the discount on cached "
        "input (1 - price_cached / price_written); less where the newest need the room.",
        "The prefix up to there stays cached from cut to cut, and agents read first what the task is about. The least "
        "that paid on recorded runs: the rest goes to what is newest, and with 0 all of it.",
    ),
    "price_cached": Knob(
        "Price of an input token that the provider has cached, in plain input tokens.",
        "Anthropic's and most others' price for a cached token; 0.25 and 0.5 are met as well.",
    ),
    "price_written": Knob(
        "Price of an input token that is written to the provider's cache, in plain input tokens.",
        "Anthropic's five-minute cache; 1 where writing costs nothing extra.",
    ),
    "own_text_max_tokens": Knob(
        "Room for the sidecar's own text; 4 % of the limit is the other bound.",
        "Directives, registry and note have their say, and a large window is not taxed for it.",
    ),
    "note_max_tokens": Knob(
        "Tokens that the note may take.",
        "The note is new at every call and never cached; its cue alone takes 34, and open tasks fit into the rest.",
    ),
    "note_place": Knob(
        "Where the note stands: nowhere (off), or at the tail, in formats where a system message may stand there.",
        "At the tail it costs its own tokens only: whatever is ahead of it stays cached.",
    ),
    "registry_share": Knob(
        "Share of the limit that the registry may take.",
        "At 0.01 the sidecar's own text was 2.2 % of the longest recorded run's cost; this is a quarter less.",
    ),
    "reasoning_binding": Knob(
        "Whether the model binds its thinking to the prompt that it came of, which another prompt makes invalid: auto "
        "(as its name says), bound, unbound.",
        "Names of Claude models tell it; set it where a gateway gives them other names.",
    ),
    "reasoning_drop_invalid": Knob(
        "Whether the returned body asks the provider to drop thinking that is not valid instead of refusing the prompt "
        "(thinking.block_binding.prefix_mismatch_behavior).",
        "It would change what the agent asked for, and thinking that is not valid is removed anyway.",
    ),
    "trim_beside_provider": Knob(
        "Whether a prompt is trimmed though its body asks the provider to do so too (context_management, truncation).",
        "Two rules that do not know of each other trim the same text twice; such a prompt is only capped.",
    ),
}
"""Every knob by its field's name, grouped as the stages follow one another."""

UNTOLD: Final = Knob("Not explained yet.", "Not explained yet.")
"""Stands in for a knob that is not told; a test lets none pass."""

_GROUPS: Final[Sequence[tuple[str, str, tuple[str, ...]]]] = (
    ("Cap", "one tool result, when it is first seen", ("cap_",)),
    ("Age", "items of old iterations", ("age_",)),
    ("Feedback", "what the agent tells the model about its last step; old feedback collapses", ("feedback_",)),
    ("Fit", "the whole prompt, near its limit", ("fit_", "trim_")),
    ("Prices", "what the provider's cache is worth", ("price_",)),
    ("Own text", "what the sidecar adds", ("own_text_", "note_", "registry_")),
    ("Reasoning", "what the model thought before it answered", ("reasoning_",)),
    ("Further knobs", "", ("",)),
)


@dataclass(frozen=True, slots=True)
class Group:
    """Knobs that belong to one stage."""

    name: str
    about: str
    knobs: tuple[str, ...]


def groups() -> Sequence[Group]:
    """All knobs by stage, in the order in which a prompt meets them; within a stage as the policy lists them."""
    found: dict[str, list[str]] = {name: [] for name, _, _ in _GROUPS}
    for field in fields(Policy):
        found[next(name for name, _, prefixes in _GROUPS if field.name.startswith(prefixes))].append(field.name)
    return [Group(name, about, tuple(found[name])) for name, about, _ in _GROUPS if found[name]]


def knob(name: str) -> Knob:
    """What there is to say about a field of the policy."""
    return KNOBS.get(name, UNTOLD)


def reader(name: str) -> Reader:
    """The reader of a field of the policy, with the policy's own bounds."""
    default = getattr(PRESETS[DEFAULT_PRESET], name)
    if isinstance(default, bool):
        return switch()
    if isinstance(default, StrEnum):
        return choice(*type(default))
    if isinstance(default, tuple):
        return texts(PREFIXES, PREFIX_CHARACTERS)
    low, high = BOUNDS[name]
    if name.endswith("_bytes"):
        return byte_count(int(low), int(high))
    return whole(low, int(high)) if isinstance(low, int) else number(low, high)
