"""The presets side by side: what each is for, when to choose it, and why each of its values is what it is.

A preset is a whole policy. Three of them differ from `cache_first` in a few fields, and those fields are the preset:
the table marks them, and each has its reason here. The values themselves stand in
`sidecar/prompt_sidecar/trim/policy.py`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.config.effective import inert
from prompt_sidecar.config.knobs import UNTOLD, groups, knob, reader
from prompt_sidecar.trim.policy import DEFAULT_PRESET, PRESETS

WIDTH: Final = 110
"""Columns of what is printed: it fits beside other windows, and the table of four presets needs most of it."""
MARK: Final = "*"
"""Stands behind a value that differs from that of `cache_first`."""


@dataclass(frozen=True, slots=True)
class Guide:
    """What a preset is for."""

    purpose: str
    choose: str
    beware: str
    reasons: Mapping[str, str]
    """Why a field differs from `cache_first`, for each that does."""


GUIDES: Final[Mapping[str, Guide]] = {
    "cache_first": Guide(
        "keeps the provider's prompt cache warm: what was trimmed keeps its bytes, and old items go in batches.",
        "for most agents, and for long runs with a provider that bills cached input at less than new input.",
        "a prompt is anywhere between nine twentieths of its limit and all of it; lean sends smaller ones. Of what is "
        "shown the oldest results are up to a fifth of the limit (fit_keep_oldest).",
        {},
    ),
    "lean": Guide(
        "sends the smallest prompt: all that is older than the newest iterations is clipped at every call.",
        "where nothing is cached (no prompt cache, or calls further apart than it lives), or where old observations "
        "mislead the model: browser agents, of whose pages only the last is true.",
        "every call changes the prompt where an item has just grown old, so the provider reads all after it anew. Of a "
        "model that binds its thinking to its prompt it keeps none from call to call.",
        {
            "age_stage": "Old observations go as soon as they are old: that is what this preset is for.",
            "age_repeats": "The prefix changes at every call as it is, so pointing to the newer of two equal results "
            "costs nothing more.",
            "fit_residue_high": "What is left of old steps is all that the model has of them: more of it stays.",
            "fit_residue_low": "Low enough for drops to be rare: each rewrites what follows.",
            "registry_share": "A registry would change at every call and, in formats where it stands ahead of all "
            "messages, leave nothing cached. Markers keep their ids, and search finds the rest.",
        },
    ),
    "cap_only": Guide(
        "elides what is huge in a tool result when it is first seen, and touches nothing after that.",
        "for short runs, and for agents that manage their window themselves and want recall and search.",
        "nothing makes a prompt fit: one that has grown past its limit comes back with fits=false.",
        {
            "fit_stage": "The agent makes the prompt fit; two that trim one history undo each other's cache.",
            "age_stage": "What the model has seen stays as it has seen it.",
        },
    ),
    "fit_only": Guide(
        "leaves all as it is up to the high-water mark; above it the largest tool results are elided, largest first.",
        "where a few huge results are what fills the window, and old steps must stay word for word.",
        "a run that stays at its limit is trimmed at nearly every call, each time at another place of the prefix. Of a "
        "model that binds its thinking to its prompt it then keeps hardly any.",
        {
            "fit_stage": "What is largest gives most for one edit, and no step vanishes while results can give.",
            "fit_high": "It trims at every call at its limit: a tenth is left, as the rule it follows has it.",
            "fit_low": "No further down than needed: as much as can stays verbatim.",
            "fit_keep_oldest": "Results are elided by size, wherever they stand.",
            "fit_residue_high": "Iterations are dropped late: what is large has given before them.",
            "fit_residue_low": "Low enough for drops to be rare: each rewrites what follows.",
        },
    ),
}
"""What there is to say about each preset, in the order in which people meet them."""


def differs(name: str, field: str) -> bool:
    """Whether a preset has another value than `cache_first`."""
    return bool(getattr(PRESETS[name], field) != getattr(PRESETS[DEFAULT_PRESET], field))


def reason(name: str, field: str) -> str:
    """Why a field of a preset has its value."""
    return GUIDES[name].reasons.get(field, UNTOLD.why) if differs(name, field) else knob(field).why


def value(name: str, field: str) -> str:
    """A field's value in a preset, as a settings file spells it."""
    return reader(field).show(getattr(PRESETS[name], field))


def side_by_side() -> str:
    """All presets in one table, and what each is for."""
    knobs = max(len(field) for group in groups() for field in group.knobs)
    cells = {(name, field): _cell(name, field) for name in PRESETS for group in groups() for field in group.knobs}
    widths = {name: max(len(name), *(len(cells[key]) for key in cells if key[0] == name)) for name in PRESETS}
    lines = [_row("", knobs, {name: name for name in PRESETS}, widths)]
    for group in groups():
        lines += ["", f"{group.name}: {group.about}" if group.about else group.name]
        lines += [
            _row("  " + field, knobs, {name: cells[name, field] for name in PRESETS}, widths) for field in group.knobs
        ]
    lines += ["", f"{MARK} differs from {DEFAULT_PRESET}, the default    ( ) changes nothing in that preset", ""]
    for name, guide in GUIDES.items():
        lines += [*_wrapped(f"{name} {guide.purpose}", ""), *_wrapped(f"Choose it {guide.choose}", "    ")]
        lines += [*_wrapped(f"Mind: {guide.beware}", "    "), ""]
    lines += [
        "prompt-sidecar presets NAME tells the reason of every value. Choose one with --preset NAME, and change",
        "single knobs of it with --set policy.KNOB=VALUE; prompt-sidecar check-config then tells what it does. A",
        "request may choose and change for itself.",
    ]
    return "\n".join(lines)


def in_full(name: str) -> str:
    """One preset: what it is for, and every value with its reason."""
    guide, idle = GUIDES[name], inert(PRESETS[name])
    lines = [*_wrapped(f"{name} {guide.purpose}", ""), "", *_wrapped(f"Choose it {guide.choose}", "")]
    lines += [*_wrapped(f"Mind: {guide.beware}", "")]
    for group in groups():
        lines += ["", f"{group.name}: {group.about}" if group.about else group.name]
        for field in group.knobs:
            other = f"  {MARK} {DEFAULT_PRESET}: {value(DEFAULT_PRESET, field)}" if differs(name, field) else ""
            lines += ["", f"  {field} = {value(name, field)}{other}"]
            lines += _wrapped(knob(field).what, "      ")
            if field in idle:
                lines += _wrapped(f"It changes nothing here: {idle[field]}.", "      ")
            else:
                lines += _wrapped("Why: " + reason(name, field), "      ")
    return "\n".join(lines)


def as_json(name: str = "") -> str:
    """The same for programs: the preset of that name, or all of them."""
    shown = {each: _data(each) for each in PRESETS if name in ("", each)}
    return json.dumps({"default": DEFAULT_PRESET, "presets": shown}, indent=2, ensure_ascii=False)


def _data(name: str) -> Mapping[str, object]:
    guide, idle = GUIDES[name], inert(PRESETS[name])
    return {
        "purpose": guide.purpose,
        "choose": guide.choose,
        "mind": guide.beware,
        "knobs": {
            field: {
                "value": getattr(PRESETS[name], field),
                "differs": differs(name, field),
                "in_effect": field not in idle,
                "what": knob(field).what,
                "why": reason(name, field),
                "accepted": reader(field).accepted,
            }
            for group in groups()
            for field in group.knobs
        },
    }


def _cell(name: str, field: str) -> str:
    plain = getattr(PRESETS[name], field)
    shown = f"{len(plain)} texts" if isinstance(plain, tuple) else value(name, field).strip('"')
    shown = f"({shown})" if field in inert(PRESETS[name]) else shown
    return f"{shown} {MARK}" if differs(name, field) else shown


def _row(first: str, knobs: int, cells: Mapping[str, str], widths: Mapping[str, int]) -> str:
    return "   ".join([f"{first:<{knobs + 2}}", *(f"{cells[name]:<{widths[name]}}" for name in cells)]).rstrip()


def _wrapped(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
