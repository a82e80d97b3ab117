"""The presets: what each is for, when to choose it, and how and why its policy differs from that of `cache_first`.

A preset is a whole policy. `cache_first` has the default of every knob; each of the others states the few values that
differ, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from prompt_sidecar.errors import InvalidPolicy
from prompt_sidecar.trim.policy import KNOBS, AgeStage, Arguments, Condense, FitStage, Policy


@dataclass(frozen=True, slots=True)
class Preset:
    """A policy with a name and its explanations."""

    purpose: str
    choose: str
    beware: str
    policy: Policy
    reasons: Mapping[str, str]
    """Why a field differs from `cache_first`, for each that does."""

    def reason(self, field: str) -> str:
        """Return why a field has its value in this preset."""
        return self.reasons.get(field) or KNOBS[field].why

    def shown(self, field: str) -> str:
        """Return the value of a field as a settings file writes it."""
        return KNOBS[field].kind.show(getattr(self.policy, field))


def _made(purpose: str, choose: str, beware: str, **changes: tuple[Any, str]) -> Preset:
    policy = replace(Policy(), **{field: value for field, (value, _) in changes.items()})
    return Preset(purpose, choose, beware, policy, {field: why for field, (_, why) in changes.items()})


_AS_WRITTEN: Final = "This preset is a rule of others, as they wrote it: results come whole, or capped."
_RARE_DROPS: Final = "Low enough for drops to be rare: each rewrites what follows."

EXPLAINED: Final[Mapping[str, Preset]] = {
    "cache_first": _made(
        "keeps the provider's prompt cache warm: what was trimmed keeps its bytes, and old items go in batches.",
        "for most agents, and for long runs with a provider that bills cached input at less than new input.",
        "a prompt is anywhere between nine twentieths of its limit and nineteen; lean sends smaller ones. Of what it "
        "shows, the oldest results take up to a tenth of the limit (fit_keep_oldest).",
    ),
    "lean": _made(
        "sends the smallest prompt: whatever is older than the newest iterations is clipped at every call.",
        "where nothing is cached (no prompt cache, or calls further apart than it lives), or where old observations "
        "mislead the model: browser agents, of whose pages only the last is true.",
        "every call changes the prompt where an item has just grown old, so the provider reads everything after it "
        "again. If a model binds its thinking to its prompt, none of it is kept from call to call.",
        condense=(Condense.OFF, _AS_WRITTEN),
        age_stage=(AgeStage.ALWAYS, "Old observations go as soon as they are old: that is what this preset is for."),
        age_arguments=(Arguments.EMPTY, "The smallest prompt: the name of the tool stays."),
        age_repeats=(
            True,
            "The prefix changes at every call anyway; a pointer to the newer of two equal results costs nothing more.",
        ),
        registry_share=(
            0.0,
            (
                "A registry would change at every call and, in formats where it stands ahead of all messages, leave "
                "nothing cached. Markers keep their ids, and search finds the rest."
            ),
        ),
        fit_residue_high=(0.10, "What is left of old steps is all that the model has of them: more of it stays."),
        fit_residue_low=(0.02, _RARE_DROPS),
    ),
    "cap_only": _made(
        "elides what is huge in a tool result when it is first seen, and touches nothing after that.",
        "for short runs, and for agents that manage their window themselves and want recall and search.",
        "nothing makes a prompt fit: one that has grown past its limit comes back with fits=false.",
        condense=(Condense.OFF, _AS_WRITTEN),
        fit_stage=(
            FitStage.OFF,
            "The agent makes the prompt fit; two that trim one history undo each other's cache.",
        ),
        age_stage=(AgeStage.OFF, "What the model has seen stays as it has seen it."),
    ),
    "fit_only": _made(
        "leaves everything as it is up to the high-water mark; above it the largest tool results are elided, largest "
        "first.",
        "where a few huge results are what fills the window, and old steps must stay word for word.",
        "a run that stays at its limit is trimmed at nearly every call, each time at another place of the prefix. If a "
        "model binds its thinking to its prompt, hardly any of it is then kept.",
        condense=(Condense.OFF, _AS_WRITTEN),
        fit_stage=(
            FitStage.LARGEST_FIRST,
            "The largest results give most for one edit, and no step vanishes while results can give.",
        ),
        fit_high=(0.90, "It trims at every call at its limit: a tenth is left, as in the rule that it follows."),
        fit_low=(0.90, "No further down than needed: as much as possible stays verbatim."),
        fit_keep_oldest=(0.0, "Results are elided by size, wherever they stand."),
        fit_keep_light=(0.0, "Results have given what they can before arguments and text are clipped."),
        fit_residue_high=(0.10, "Iterations are dropped late: large results have given before them."),
        fit_residue_low=(0.02, _RARE_DROPS),
    ),
}
"""Every preset with its reasons, in the order in which documents show them."""

PRESETS: Final[Mapping[str, Policy]] = {name: explained.policy for name, explained in EXPLAINED.items()}
DEFAULT_PRESET: Final = "cache_first"


def preset(name: str, *, field: str = "policy.preset") -> Policy:
    """Return the policy that a preset names.

    Raises:
        InvalidPolicy: no preset has that name.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise InvalidPolicy(f"{name} is not a preset; the presets are {', '.join(PRESETS)}", field=field) from None
