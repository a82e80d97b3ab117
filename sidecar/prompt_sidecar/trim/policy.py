"""The knobs of trimming: every one with its bounds, its default and the reason for it.

A policy is a frozen value. A preset names a set of values; configuration overrides fields of the preset, and a request
overrides fields of the configuration. Nothing else in the sidecar decides how to trim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final

from prompt_sidecar.errors import InvalidPolicy
from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.prompt.provider_edits import ProviderEdit
from prompt_sidecar.trim.entries import Ageing, Feedback


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
    """Where the note stands."""

    OFF = "off"
    TAIL = "tail"


class ReasoningBinding(StrEnum):
    """Whether the model binds its thinking to the prompt that it was produced under."""

    AUTO = "auto"
    """As its name says; see `prompt_sidecar.prompt.thinking`."""
    BOUND = "bound"
    UNBOUND = "unbound"


AS_GENERAL: Final = -1
PREFIXES: Final = 16
"""Prefixes of one kind of feedback: an agent has one or two wordings."""
PREFIX_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Policy:
    """How to trim. Shares are of the limit unless another whole is named; all bounds are inclusive."""

    fit_stage: FitStage = FitStage.OLDEST_FIRST
    cap_text_bytes: int = 51_200
    """Bytes of text in one tool result. 50 KiB is what the shells of three widely used coding agents cap at."""
    cap_media_bytes: int = 8_388_608
    """Bytes of encoded images in one tool result. 8 MiB lets an image viewer's real pictures through."""
    cap_head_share: float = 0.5
    """Share of a capped result's kept bytes that goes to its head; logs end with their verdict, so half is tail."""
    age_stage: AgeStage = AgeStage.PRESSURE
    age_keep_iterations: int = 3
    """Newest iterations whose items are not clipped, so that the model can refer to what it has just done."""
    age_keep_arguments: int = AS_GENERAL
    """As `age_keep_iterations`, for tool calls' arguments alone; -1: as that says. Likewise those that follow."""
    age_keep_text: int = AS_GENERAL
    age_keep_results: int = AS_GENERAL
    age_keep_snapshots: int = AS_GENERAL
    age_keep_images: int = AS_GENERAL
    age_keep_feedback: int = AS_GENERAL
    age_hard_cap_iterations: int = 0
    """Iterations that a prompt may hold; older ones are dropped whole. 0: any number. 10 is Pilo's."""
    age_repeats: bool = False
    """Whether a result that came again, unchanged, for the same call is clipped to a pointer to the newer one."""
    feedback_validation: tuple[str, ...] = ("Validation feedback:", "[validation feedback]")
    """How a user's text begins that rejects what the model took for done; no person's text begins so by chance."""
    feedback_error: tuple[str, ...] = ("Step error:", "[step error]")
    feedback_repetition: tuple[str, ...] = ("Repetition warning:", "[repetition warning]")
    fit_high: float = 0.99
    """High-water mark. The rest is for what an estimate may be wrong by: mostly below 0.7 %, once usage is reported."""
    fit_low: float = 0.45
    """Low-water mark: deeper costs less and keeps less text; see docs/when-to-cut.md."""
    fit_head_share: float = 0.5
    fit_residue_high: float = 0.04
    """What clipped iterations leave behind may take this share; a small window would fill with it otherwise."""
    fit_residue_low: float = 0.0
    fit_keep_oldest: float = 0.20
    """What the oldest iterations' results may take and stay whole, times the discount on cached input."""
    price_cached: float = 0.1
    """Price of an input token that the provider has cached, in plain input tokens."""
    price_written: float = 1.25
    """Price of one that it writes to the cache; both as in Anthropic's price list for the five-minute cache."""
    own_text_max_tokens: int = 1_200
    """Room for our own text, with 4 % of the limit as the other bound."""
    note_max_tokens: int = 150
    note_place: NotePlace = NotePlace.TAIL
    registry_share: float = 0.0075
    """Share of the limit that the registry may take; at 0.01 own text was 2.2 % of the longest recorded run's cost."""
    reasoning_binding: ReasoningBinding = ReasoningBinding.AUTO
    reasoning_drop_invalid: bool = False
    """Whether the returned body asks the provider to drop thinking that is not valid instead of refusing the prompt.
    Off: it would change what the agent asked for, and all that is not valid is removed anyway."""
    trim_beside_provider: bool = False
    """Whether a prompt is trimmed though its body asks the provider to do so too. Off: what is trimmed twice is trimmed
    by independent rules."""

    @property
    def oldest_share(self) -> float:
        """Share of the limit of what is held at the beginning: the less a cached token is favoured, the smaller."""
        return self.fit_keep_oldest * max(0.0, 1.0 - self.price_cached / self.price_written)

    def beside(self, edits: Collection[ProviderEdit]) -> Policy:
        """The policy for a prompt that the provider itself trims: only the cap, where more than thinking goes there."""
        if not set(edits) - {ProviderEdit.CLEAR_THINKING}:
            return self
        return replace(self, fit_stage=FitStage.OFF, age_stage=AgeStage.OFF)

    @staticmethod
    def reasoning_rule(rule: ReasoningRule, edits: Collection[ProviderEdit]) -> ReasoningRule:
        """When reasoning is removed: not where the provider does, but for what is bound to another prompt."""
        return ReasoningRule.KEPT if edits and rule is ReasoningRule.CLOSED_TURNS else rule

    def keep(self, ageing: Ageing | None) -> int:
        """Newest iterations of which entries of a queue are not clipped; None: feedback."""
        own: int = getattr(self, f"age_keep_{ageing or 'feedback'}")
        return self.age_keep_iterations if own == AS_GENERAL else own

    def feedback(self, text: str) -> Feedback | None:
        """What a user's text is as feedback, by how it begins; None if it is none."""
        for kind in Feedback:
            prefixes: tuple[str, ...] = getattr(self, f"feedback_{kind}")
            if text.startswith(prefixes):
                return kind
        return None

    def override(self, values: Mapping[str, object], *, field_prefix: str = "policy.") -> Policy:
        """Return this policy with `values` in place of its own.

        Raises:
            InvalidPolicy: a name is not a field, or a value is of the wrong type or out of its bounds.
        """
        for name in values:
            if name not in _NAMES:
                raise InvalidPolicy(
                    f"{name} is not a policy field; the fields are {', '.join(sorted(_NAMES))}",
                    field=field_prefix + name,
                )
        checked = {name: _check(name, value, field_prefix) for name, value in values.items()}
        policy = replace(self, **checked)  # type: ignore[arg-type]
        for low, high in (("fit_low", "fit_high"), ("fit_residue_low", "fit_residue_high")):
            if getattr(policy, low) > getattr(policy, high):
                raise InvalidPolicy(
                    f"{low} {getattr(policy, low)} is above {high} {getattr(policy, high)}; it may be at most that",
                    field=field_prefix + low,
                )
        return policy


BOUNDS: Mapping[str, tuple[float, float]] = {
    "cap_text_bytes": (1_024, 8_388_608),
    "cap_media_bytes": (0, 268_435_456),
    "cap_head_share": (0.0, 1.0),
    "age_keep_iterations": (0, 1_000),
    "age_keep_arguments": (-1, 1_000),
    "age_keep_text": (-1, 1_000),
    "age_keep_results": (-1, 1_000),
    "age_keep_snapshots": (-1, 1_000),
    "age_keep_images": (-1, 1_000),
    "age_keep_feedback": (-1, 1_000),
    "age_hard_cap_iterations": (0, 100_000),
    "fit_high": (0.01, 1.0),
    "fit_low": (0.01, 1.0),
    "fit_head_share": (0.0, 1.0),
    "fit_residue_high": (0.0, 1.0),
    "fit_residue_low": (0.0, 1.0),
    "fit_keep_oldest": (0.0, 1.0),
    "price_cached": (0.0, 100.0),
    "price_written": (0.01, 100.0),
    "own_text_max_tokens": (0, 8_000),
    "note_max_tokens": (0, 1_000),
    "registry_share": (0.0, 0.02),
}

_NAMES = frozenset(field.name for field in fields(Policy))
_INTEGERS = frozenset(name for name, (low, _) in BOUNDS.items() if isinstance(low, int))
_ENUMS: Mapping[str, type[StrEnum]] = {
    "fit_stage": FitStage,
    "age_stage": AgeStage,
    "note_place": NotePlace,
    "reasoning_binding": ReasoningBinding,
}
_SWITCHES = frozenset({"age_repeats", "reasoning_drop_invalid", "trim_beside_provider"})
PREFIX_LISTS = frozenset(f"feedback_{kind}" for kind in Feedback)
"""Fields that are lists of prefixes."""

PRESETS: Mapping[str, Policy] = {
    "cache_first": Policy(),
    "lean": Policy(
        age_stage=AgeStage.ALWAYS,
        age_repeats=True,
        registry_share=0.0,
        fit_residue_high=0.10,
        fit_residue_low=0.02,
    ),
    "cap_only": Policy(fit_stage=FitStage.OFF, age_stage=AgeStage.OFF),
    "fit_only": Policy(
        fit_stage=FitStage.LARGEST_FIRST,
        fit_high=0.90,
        fit_low=0.90,
        fit_keep_oldest=0.0,
        fit_residue_high=0.10,
        fit_residue_low=0.02,
    ),
}
"""`cache_first` keeps the provider's prompt cache warm, `lean` the prompt small; `cap_only` and `fit_only` are the two
plain rules. `lean` has no registry: it would change at every call, and precedes all messages in some formats."""

DEFAULT_PRESET = "cache_first"


def preset(name: str, *, field: str = "policy.preset") -> Policy:
    """Return the policy that a preset names.

    Raises:
        InvalidPolicy: no preset has that name.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise InvalidPolicy(f"{name} is not a preset; the presets are {', '.join(PRESETS)}", field=field) from None


def _check(name: str, value: object, prefix: str) -> object:
    if name in _ENUMS:
        try:
            return _ENUMS[name](str(value))
        except ValueError:
            accepted = ", ".join(_ENUMS[name])
            raise InvalidPolicy(f"{name} is {value}; it may be one of {accepted}", field=prefix + name) from None
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise InvalidPolicy(f"{name} must be true or false", field=prefix + name)
        return value
    if name in PREFIX_LISTS:
        return _check_prefixes(name, value, prefix)
    low, high = BOUNDS[name]
    integer = name in _INTEGERS
    if isinstance(value, bool) or not isinstance(value, int if integer else (int, float)):
        kind = "a whole number" if integer else "a number"
        raise InvalidPolicy(f"{name} must be {kind} from {low} to {high}", field=prefix + name)
    if not low <= value <= high:
        raise InvalidPolicy(f"{name} is {value}; it may be from {low} to {high}", field=prefix + name)
    return value if integer else float(value)


def _check_prefixes(name: str, value: object, prefix: str) -> tuple[str, ...]:
    prefixes = tuple(value) if isinstance(value, (list, tuple)) else None
    if prefixes is None or not all(isinstance(each, str) and 1 <= len(each) <= PREFIX_CHARACTERS for each in prefixes):
        raise InvalidPolicy(
            f"{name} must be a list of texts, each of 1 to {PREFIX_CHARACTERS} characters", field=prefix + name
        )
    if len(prefixes) > PREFIXES:
        raise InvalidPolicy(f"{name} has {len(prefixes)} prefixes; it may have {PREFIXES}", field=prefix + name)
    return prefixes
