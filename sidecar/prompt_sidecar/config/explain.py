"""Describes what a policy does to a prompt, which of its fields have no effect, and which combinations make no sense.

`check-config` prints all three for the policy in force. The sentences depend on the policy alone, as the stages do;
tests compare them with the stages.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Final

from prompt_sidecar.config.settings import Settings
from prompt_sidecar.providers import catalogue
from prompt_sidecar.trim import own_text
from prompt_sidecar.trim.condense.condensing import LEAST_BYTES, LEAST_TOKENS
from prompt_sidecar.trim.entries import HEAVY, LARGE, SMALL, Ageing, Feedback
from prompt_sidecar.trim.oldest import FEWEST_NEWEST
from prompt_sidecar.trim.policy import (
    AS_GENERAL,
    AUTO_CEILING,
    AUTO_FROM,
    AUTO_TOKENS,
    KNOBS,
    NO_CEILING,
    AgeStage,
    Condense,
    FitStage,
    NotePlace,
    Policy,
)
from prompt_sidecar.trim.presets import preset

NARROW: Final = 0.2
"""Distance of the marks below which a warning is given: on recorded runs, marks 0.2 apart cost a fifth more than marks
0.4 apart."""
NO_MARGIN: Final = 0.99
"""High-water mark above which a warning is given: 95 of 100 corrected estimates err by at most 0.7 %."""
BYTES_PER_TOKEN: Final = 4
"""Typical for English text; used for a warning, not for a count."""
SHORT_PREFIX: Final = 4
"""Length of a prefix, in characters, below which a warning is given, since users' texts may begin with it too."""
_WIDTH: Final = 116
_NO_SHARE: Final = "fit_keep_oldest is 0"
_NO_DISCOUNT: Final = "cached input has no discount"

_KINDS: Final[Mapping[Ageing | None, str]] = {
    Ageing.ARGUMENTS: "tool calls' arguments",
    Ageing.TEXT: "the text next to them",
    Ageing.RESULTS: "tool results",
    Ageing.SNAPSHOTS: "page snapshots",
    Ageing.IMAGES: "images",
    None: "feedback",
}


def ages(policy: Policy) -> str:
    """Return when old items are clipped: "at every call", "at batch points", or the empty text for never."""
    if policy.age_stage is AgeStage.ALWAYS:
        return "at every call"
    if policy.age_stage is AgeStage.PRESSURE and policy.fit_stage is not FitStage.OFF:
        return "at batch points"
    return ""


def sentences(policy: Policy, limit: int) -> Sequence[str]:
    """Return what happens to a prompt, in the order in which it happens.

    Args:
        policy: the policy in force.
        limit: tokens, for the figures in the sentences.
    """
    return [*_condense(policy), *_cap(policy), *_age(policy), *_fit(policy, limit), *_own_text(policy, limit)]


_TAKEN_OUT: Final = {
    Condense.EXACT: "what a terminal would not show, what repeats the line above, and, where it makes half of the "
    "result, what else can be read back from the text",
    Condense.SAFE: "what a terminal would not show, what can be read back from the text, and tests that passed",
    Condense.FULL: "what a terminal would not show, what can be read back from the text, tests that passed, padding, "
    "the middle of long outputs, and the markup of pages",
}


def _condense(policy: Policy) -> Iterator[str]:
    if policy.condense is Condense.OFF:
        yield "No tool result is condensed."
        return
    but = f", but for those of {', '.join(policy.condense_skip_tools)}" if policy.condense_skip_tools else ""
    yield (
        f"A tool result of {LEAST_BYTES:,} bytes and more{but} is condensed when it is first seen: "
        f"{_TAKEN_OUT[policy.condense]} is taken out, where that saves {LEAST_TOKENS} tokens and more. Files, diffs "
        "and source stay as they are."
    )
    if policy.condense is Condense.FULL and policy.condense_fetch_tools:
        yield f"Pages that {', '.join(policy.condense_fetch_tools)} fetched become text."


def _cap(policy: Policy) -> Iterator[str]:
    yield (
        f"A tool result of more than {_bytes('cap_text_bytes', policy)} of text is elided when it is first seen; "
        f"{_share(policy.cap_head_share)} of what is kept is its head, the rest its tail. Images past "
        f"{_bytes('cap_media_bytes', policy)} in one result become a line of text."
    )


def _age(policy: Policy) -> Iterator[str]:
    when = ages(policy)
    if not when:
        yield "Nothing is clipped for its age."
        return
    newest = f"older than the newest {_iterations(policy.age_keep_iterations)}"
    kept = [
        f"{_KINDS[kind]} {_iterations(policy.keep(kind))}"
        for kind in _KINDS
        if policy.keep(kind) != policy.age_keep_iterations
    ]
    but = f"; of {', '.join(kept)} stay" if kept else ""
    if policy.age_stage is AgeStage.ALWAYS:
        yield (
            f"At every call, whatever room there is, what is {newest} is clipped to a placeholder: tool calls' "
            f"arguments, the text next to them, tool results, page snapshots, images{but}."
        )
        if policy.age_repeats:
            yield "A result that comes again, unchanged, for the same call leaves of the older one a pointer to it."
    else:
        fewer = ""
        if policy.fit_stage is FitStage.OLDEST_FIRST and max(map(policy.keep, Ageing)) > FEWEST_NEWEST:
            fewer = (
                f" Where these do not fit below {_share(policy.fit_low)} of the limit, as many as fit are kept, "
                f"{FEWEST_NEWEST} in any case."
            )
        yield f"Old is what is {newest}{but}.{fewer} Nothing is clipped for its age while the prompt is small."
    feedback = any(getattr(policy, f"feedback_{kind}") for kind in Feedback)
    how = "recognised by its first words or by annotations" if feedback else "recognised by annotations"
    yield (
        f"Feedback to the model, {how}, collapses {when} to one counting placeholder once it is old; the newest of "
        "each kind stays whole."
    )
    if policy.age_hard_cap_iterations:
        yield (
            f"Iterations older than the newest {policy.age_hard_cap_iterations:,} are dropped whole {when}, but for "
            "one, clipped, that counts them."
        )


def _fit(policy: Policy, limit: int) -> Iterator[str]:
    if policy.fit_stage is FitStage.OFF:
        yield "No prompt is made to fit: one above its limit comes back with fits=false."
        return
    high, low = _of_limit(policy.fit_high, limit), _of_limit(policy.fit_low, limit)
    yield f"Up to {high} nothing is trimmed to make room. Above that, this is done in turn, down to {low}:"
    steps = []
    if policy.age_stage is not AgeStage.OFF:
        large = ""
        if policy.fit_stage is FitStage.OLDEST_FIRST and policy.age_stage is AgeStage.PRESSURE:
            large = (
                f", and of results those of more than {LARGE:,} tokens before smaller ones, while those of up to "
                f"{SMALL} stay with their iteration"
            )
        steps.append(
            f"old items are clipped, oldest first, arguments and text before results{large}; a result that holds more "
            "than must go is elided"
        )
        if not _no_oldest(policy):
            steps[-1] += (
                f". The results of the oldest iterations stay, up to {_share(policy.oldest_share)} of the limit, as "
                "their prefix is cached, unless more than the middle of both marks would be left"
            )
        if policy.age_stage is AgeStage.PRESSURE and policy.fit_keep_light:
            steps[-1] += (
                f". The newest arguments and text stay, up to {_share(policy.fit_keep_light)} of the limit, unless "
                "more than the middle of both marks would be left"
            )
        steps.append(
            f"if what clipping has left takes more than {_share(policy.fit_residue_high)} of the limit, the oldest "
            f"iterations are dropped whole, until it takes {_share(policy.fit_residue_low)}; one stays that counts them"
        )
    elide = f"the largest tool results are elided, {_share(policy.fit_head_share)} of what is kept being head"
    if policy.fit_stage is FitStage.OLDEST_FIRST and policy.age_stage is AgeStage.PRESSURE:
        elide += ", only down to the middle of both marks, as they are new"
    if policy.fit_stage is FitStage.OLDEST_FIRST:
        elide += "; those of the newest iteration, which the model has not seen yet, only if there is no room for them"
    steps.insert(0 if policy.fit_stage is FitStage.LARGEST_FIRST else len(steps), elide)
    for number, step in enumerate(steps, 1):
        yield f"  {number}. {step}{';' if number < len(steps) else '.'}"
    yield (
        f"If that leaves more than {_share(policy.fit_high)}, all but the newest iteration is clipped, then dropped, "
        "then the newest results are elided as far as needed, then clipped. Users' own text stays, with two "
        "exceptions: where it takes more than a quarter of the limit, the longest texts are elided; where the prompt "
        "would still exceed the limit, the oldest texts are dropped. What no step may touch (the system prompt, the "
        "opening, the newest assistant message, the newest text of a user, pinned messages) can still be too much: "
        "fits=false says so."
    )
    if policy.cuts_in_batches and policy.ceiling_tokens != NO_CEILING:
        auto = f"{AUTO_TOKENS:,} tokens where the window has {AUTO_FROM:,} and more"
        ceiling = auto if policy.ceiling_tokens == AUTO_CEILING else f"{policy.ceiling_tokens:,} tokens"
        yield (
            f"Marks and shares are of {ceiling} (ceiling_tokens) where the limit is higher, but of no less than the "
            "text that no step may touch and three tenths of that besides. Whether a prompt fits is a question of its "
            "limit alone."
        )


def _own_text(policy: Policy, limit: int) -> Iterator[str]:
    room = own_text.room(
        limit,
        policy.own_text_max_tokens,
        policy.note_max_tokens,
        policy.registry_share,
        lambda text: len(text) // BYTES_PER_TOKEN,
    )
    # These are upper bounds: a registry has as many lines as there are entries.
    note = room.note if policy.note_place is not NotePlace.OFF else 0
    parts = [
        "directives that never change" if room.directives else "no directives",
        f"a registry of up to {room.registry:,} tokens, rewritten at batch points" if room.registry else "no registry",
        f"a note of up to {note:,} tokens at each call's tail" if note else "no note",
    ]
    if room.directives or room.registry or note:
        yield f"The sidecar's own text takes at most {room.total:,} tokens: {'; '.join(parts)}."
    else:
        yield "The sidecar adds no text of its own but placeholders that count; markers carry their ids all the same."


def _no_oldest(policy: Policy) -> str:
    """Return why the oldest iterations' results do not stay; empty if they do."""
    if policy.fit_stage is FitStage.OFF:
        return "fit_stage is off"
    if policy.age_stage is not AgeStage.PRESSURE:
        return f"age_stage is {policy.age_stage}"
    if policy.age_hard_cap_iterations:
        return "age_hard_cap_iterations is set"
    if not policy.fit_keep_oldest:
        return _NO_SHARE
    return "" if policy.oldest_share else _NO_DISCOUNT


def inert(policy: Policy) -> Mapping[str, str]:
    """Return the fields that have no effect under this policy, with the reason."""
    found: dict[str, str] = {}
    names: tuple[str, ...]
    if policy.fit_stage is FitStage.OFF:
        names = ("fit_high", "fit_low", "fit_head_share", "fit_residue_high", "fit_residue_low")
        found |= dict.fromkeys(names, "fit_stage is off")
    elif policy.age_stage is AgeStage.OFF:
        found |= dict.fromkeys(("fit_residue_high", "fit_residue_low"), "age_stage is off")
    if why := _no_oldest(policy):
        prices = ("price_cached", "price_written")
        names = {_NO_SHARE: prices, _NO_DISCOUNT: ("fit_keep_oldest",)}.get(why, ("fit_keep_oldest", *prices))
        found |= dict.fromkeys(names, why)
    if policy.fit_stage is FitStage.OFF:
        found["fit_keep_light"] = "fit_stage is off"
    elif policy.age_stage is not AgeStage.PRESSURE:
        found["fit_keep_light"] = f"age_stage is {policy.age_stage}"
    if not policy.cuts_in_batches:
        found["ceiling_tokens"] = "old items do not go in batches, oldest first"
    if policy.fit_stage is FitStage.OFF and not ages(policy):
        found["age_arguments"] = "nothing is clipped"
    kinds = [f"age_keep_{kind}" for kind in Ageing]
    if not ages(policy):
        why = "age_stage is off"
        if policy.age_stage is not AgeStage.OFF:
            why = "age_stage is pressure, and without fit_stage there is none"
            found["age_stage"] = "there is no pressure while fit_stage is off"
        names = ("age_keep_iterations", *kinds, "age_keep_feedback", "age_hard_cap_iterations")
        found |= dict.fromkeys(names, why)
    elif all(getattr(policy, name) != AS_GENERAL for name in (*kinds, "age_keep_feedback")):
        found["age_keep_iterations"] = "every kind has a number of its own"
    if policy.age_stage is not AgeStage.ALWAYS:
        found["age_repeats"] = f"age_stage is {policy.age_stage}, and not always"
    if policy.own_text_max_tokens == 0:
        names = ("note_max_tokens", "note_place", "registry_share")
        found |= dict.fromkeys(names, "own_text_max_tokens leaves no room")
    elif policy.note_place is NotePlace.OFF:
        found["note_max_tokens"] = "note_place is off"
    return found


def warnings(policy: Policy, given: Mapping[str, object], base: str, window: int) -> Sequence[str]:
    """Return combinations that are allowed but make little sense, each with what would.

    Args:
        policy: the policy in force.
        given: the fields that a source sets, overriding the preset.
        base: the preset's name.
        window: tokens of the context window if the request names none; some warnings depend on it.
    """
    found = [
        f"policy.{name} is set and changes nothing: {why}"
        for name, why in inert(policy).items()
        if name in given and given[name] != getattr(preset(base), name)
    ]
    return [*found, *_stages(policy, base), *_keeps(policy), *_sizes(policy, window), *_prefixes(policy)]


def _stages(policy: Policy, base: str) -> Iterator[str]:
    fits, when = policy.fit_stage is not FitStage.OFF, ages(policy)
    if not fits and when:
        yield (
            "policy.fit_stage is off while old items are clipped: a prompt whose newest iterations are large can pass "
            "its limit, and nothing makes it fit; oldest_first does"
        )
    if not fits and not when and base != "cap_only":
        yield (
            "neither age nor fit trims anything: prompts grow until the provider refuses them; if the agent sees to "
            "that, preset cap_only says so"
        )
    if policy.age_stage is AgeStage.ALWAYS and policy.registry_share > 0 and policy.own_text_max_tokens:
        yield (
            "policy.registry_share is above 0 while items are clipped at every call: the registry changes each time, "
            "and where it is in the system prompt nothing of the prompt stays cached; set it to 0, as lean does"
        )
    narrow = policy.fit_high - policy.fit_low < NARROW
    if policy.fit_stage is FitStage.OLDEST_FIRST and policy.age_stage is AgeStage.PRESSURE and narrow:
        yield (
            f"policy.fit_low, {policy.fit_low:g}, is close to fit_high, {policy.fit_high:g}: batches are small and "
            f"often, and each writes the prompt cache again; {max(0.01, policy.fit_high - 0.4):.2g} makes them rare"
        )
    if fits and policy.fit_high > NO_MARGIN:
        yield (
            f"policy.fit_high, {policy.fit_high:g}, leaves nothing for what an estimate may be wrong by: a provider "
            "may refuse a prompt that seems to fit; 0.9 leaves a tenth"
        )
    if policy.note_place is NotePlace.OFF and policy.registry_share == 0 and when:
        yield (
            "with neither note nor registry the model learns only from markers that something was taken out; "
            "policy.note_place tail costs some forty tokens a call"
        )


def _keeps(policy: Policy) -> Iterator[str]:
    if not ages(policy):
        return
    cap = policy.age_hard_cap_iterations
    longer = [_KINDS[kind] for kind in _KINDS if policy.keep(kind) > cap]
    if cap and longer:
        most = max(policy.keep(kind) for kind in _KINDS)
        yield (
            f"policy.age_hard_cap_iterations, {cap:,}, drops iterations that are to be kept, up to {most:,} of them "
            f"for {', '.join(longer)}; raise it, or lower age_keep_iterations"
        )
    unread = [_KINDS[kind] for kind in HEAVY if policy.keep(kind) == 0]
    if unread:
        yield (
            f"the newest iteration's {', '.join(unread)} may be clipped before the model has seen them; keep 1 "
            "iteration or more of them (policy.age_keep_iterations or its own knob)"
        )


def _sizes(policy: Policy, window: int) -> Iterator[str]:
    tokens = policy.cap_text_bytes // BYTES_PER_TOKEN
    if policy.fit_stage is not FitStage.OFF and tokens > policy.fit_low * window:
        yield (
            f"policy.cap_text_bytes lets one tool result take about {tokens:,} tokens, more than the low-water mark "
            f"of a window of {window:,} (limits.default_window); where windows are that small, "
            f"{max(1_024, int(policy.fit_low * window)):,} bytes leave room for several"
        )


def _prefixes(policy: Policy) -> Iterator[str]:
    seen: list[tuple[str, str]] = []
    for kind in Feedback:
        name = f"feedback_{kind}"
        for prefix in getattr(policy, name):
            shown = KNOBS[name].kind.show([prefix])[1:-1]
            first = next((other for other, earlier in seen if prefix.startswith(earlier)), None)
            if first is not None:
                yield f"policy.{name} has {shown}, which {first} takes first; a text is of one kind only"
            if len(prefix.strip()) < SHORT_PREFIX:
                yield (
                    f"policy.{name} has {shown}, with which a person's text may begin too: it would be collapsed "
                    "with the feedback"
                )
            seen.append((name, prefix))


def report(settings: Settings) -> Sequence[str]:
    """Return all that `check-config` prints about the policy, as lines."""
    policy, base, limit = settings.policy, settings.preset, settings.limits.default_window
    source = settings.sources.get("policy.preset", "the default")
    changes = _changes(settings)
    lines = [f"The policy is preset {base} ({source}), {'with:' if changes else 'as it is.'}", *changes]
    lines += [
        f"A request may choose another preset, and change fields. With this one, and a limit of {limit:,} tokens:",
        "",
    ]
    for sentence in sentences(policy, limit):
        step = sentence.startswith("  ")
        lines += textwrap.wrap(
            sentence.strip(),
            _WIDTH,
            initial_indent="    " if step else "- ",
            subsequent_indent="       " if step else "  ",
        )
    for warning in warnings(policy, settings.policy_overrides, base, limit):
        lines += ["", *textwrap.wrap(f"warning: {warning}.", _WIDTH, subsequent_indent="  ")]
    return lines


def rules_of_files(settings: Settings) -> Iterator[str]:
    """Yield what was read from the files of `guard.rule_files`, as lines."""
    if not settings.guard.rule_files:
        return
    from prompt_sidecar.guard.rule_files import described  # RE2 takes a while to load

    for path in settings.guard.rule_files:
        yield ""
        for sentence in described(path):
            yield from textwrap.wrap(sentence, _WIDTH, subsequent_indent="  ")


def age(today: date) -> Sequence[str]:
    """Return how old the catalogue of models is, as lines."""
    built = catalogue.built()
    days = max(0, (today - date.fromisoformat(built.day)).days)
    text = (
        f"The catalogue of models is {days:,} days old (built on {built.day}). A newer release has a newer one; "
        "[models] in the settings adds to it."
    )
    return textwrap.wrap(text, _WIDTH)


def _changes(settings: Settings) -> Sequence[str]:
    """Return how the policy differs from its preset, one line for each field that a source sets."""
    base = preset(settings.preset)
    lines = []
    for name, knob in KNOBS.items():
        if name in settings.policy_overrides:
            now, was = (knob.kind.show(getattr(each, name)) for each in (settings.policy, base))
            than = "as the preset has it" if now == was else f"in place of {was}"
            lines.append(f"  {name} = {now}, {than} ({settings.sources['policy.' + name]})")
    return lines


def _of_limit(share: float, limit: int) -> str:
    return f"{_share(share)} of the limit ({int(share * limit):,} tokens)"


def _share(share: float) -> str:
    return f"{share * 100:.4g} %"


def _bytes(name: str, policy: Policy) -> str:
    shown = KNOBS[name].kind.show(getattr(policy, name)).strip('"')
    return f"{int(shown):,} bytes" if shown.isdecimal() else f"{shown[:-3]} {shown[-3:]}"


def _iterations(count: int) -> str:
    return "1 iteration" if count == 1 else f"{count:,} iterations"
