"""The output of `prompt-sidecar presets`: the presets side by side, or one of them with the reason for every value."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

from prompt_sidecar.config.explain import inert
from prompt_sidecar.config.reference import GROUPS
from prompt_sidecar.trim.policy import KNOBS
from prompt_sidecar.trim.presets import DEFAULT_PRESET, EXPLAINED

WIDTH: Final = 110
"""Width of the output, in columns: it fits next to other windows, and the table of four presets needs most of it."""
MARK: Final = "*"
"""Added to a value that differs from that of the default preset."""


def side_by_side() -> str:
    """Return all presets in one table, with the purpose of each."""
    knobs = max(map(len, KNOBS)) + 2
    cells = {(name, field): _cell(name, field) for name in EXPLAINED for field in KNOBS}
    widths = {name: max(len(name), *(len(cells[name, field]) for field in KNOBS)) for name in EXPLAINED}

    def row(first: str, shown: Mapping[str, str]) -> str:
        return "   ".join([f"{first:<{knobs}}", *(f"{shown[name]:<{widths[name]}}" for name in shown)]).rstrip()

    lines = [row("", {name: name for name in EXPLAINED})]
    for group in GROUPS:
        lines += ["", f"{group.name}: {group.about}"]
        lines += [row("  " + field, {name: cells[name, field] for name in EXPLAINED}) for field in group.knobs]
    lines += ["", f"{MARK} differs from {DEFAULT_PRESET}, the default    ( ) changes nothing in that preset", ""]
    for name, preset in EXPLAINED.items():
        lines += [*_wrapped(f"{name} {preset.purpose}", ""), *_wrapped(f"Choose it {preset.choose}", "    ")]
        lines += [*_wrapped(f"Mind: {preset.beware}", "    "), ""]
    lines += [
        "prompt-sidecar presets NAME shows the reason of every value. Choose one with --preset NAME, and change single",
        "knobs of it with --set policy.KNOB=VALUE; prompt-sidecar check-config then says what it does. A request may",
        "choose and change for itself.",
    ]
    return "\n".join(lines)


def in_full(name: str) -> str:
    """Return one preset: its purpose, and every value with its reason."""
    preset, default = EXPLAINED[name], EXPLAINED[DEFAULT_PRESET]
    idle = inert(preset.policy)
    lines = [*_wrapped(f"{name} {preset.purpose}", ""), "", *_wrapped(f"Choose it {preset.choose}", "")]
    lines += [*_wrapped(f"Mind: {preset.beware}", "")]
    for group in GROUPS:
        lines += ["", f"{group.name}: {group.about}"]
        for field in group.knobs:
            other = f"  {MARK} {DEFAULT_PRESET}: {default.shown(field)}" if field in preset.reasons else ""
            lines += ["", f"  {field} = {preset.shown(field)}{other}"]
            lines += _wrapped(KNOBS[field].what, "      ")
            why = f"It changes nothing here: {idle[field]}." if field in idle else f"Why: {preset.reason(field)}"
            lines += _wrapped(why, "      ")
    return "\n".join(lines)


def as_json(name: str = "") -> str:
    """Return the same for programs: the preset with that name, or all presets."""
    shown = {each: _data(each) for each in EXPLAINED if name in ("", each)}
    return json.dumps({"default": DEFAULT_PRESET, "presets": shown}, indent=2, ensure_ascii=False)


def _data(name: str) -> Mapping[str, object]:
    preset = EXPLAINED[name]
    idle = inert(preset.policy)
    return {
        "purpose": preset.purpose,
        "choose": preset.choose,
        "mind": preset.beware,
        "knobs": {
            field: {
                "value": getattr(preset.policy, field),
                "differs": field in preset.reasons,
                "in_effect": field not in idle,
                "what": knob.what,
                "why": preset.reason(field),
                "accepted": knob.kind.accepted + knob.kind.spelling,
            }
            for field, knob in KNOBS.items()
        },
    }


def _cell(name: str, field: str) -> str:
    preset = EXPLAINED[name]
    plain = getattr(preset.policy, field)
    shown = f"{len(plain)} texts" if isinstance(plain, tuple) else preset.shown(field).strip('"')
    shown = f"({shown})" if field in inert(preset.policy) else shown
    return f"{shown} {MARK}" if field in preset.reasons else shown


def _wrapped(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
