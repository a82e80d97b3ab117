"""The settings for documents: the policy's knobs in groups, and the example file that explains every setting."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.config.settings import SETTINGS, TABLES
from prompt_sidecar.trim.policy import KNOBS
from prompt_sidecar.values import Setting

_WIDTH: Final = 116
"""Width of text in the example file, in columns."""


@dataclass(frozen=True, slots=True)
class KnobGroup:
    """Knobs that belong to one stage."""

    name: str
    about: str
    knobs: Sequence[str]


def _group(name: str, about: str, *prefixes: str) -> KnobGroup:
    return KnobGroup(name, about, [knob for knob in KNOBS if knob.startswith(prefixes)])


GROUPS: Final[Sequence[KnobGroup]] = (
    _group("Condense", "a tool result, when it is first seen", "condense"),
    _group("Cap", "one tool result, when it is first seen", "cap_"),
    _group("Age", "items of old iterations", "age_"),
    _group(
        "Feedback",
        "what the agent tells the model about its last step, and reminds it of; both go when they are old",
        "feedback_",
        "reminder_",
    ),
    _group("Fit", "the whole prompt, near its limit", "fit_", "ceiling_", "trim_", "never_", "pin_"),
    _group("Prices", "what the provider's cache is worth", "price_"),
    _group("Cache", "how the returned prompt is cached by its provider", "cache_"),
    _group("Own text", "what the sidecar adds", "own_text_", "note_", "registry_"),
    _group("Reasoning", "what the model thought before it answered", "reasoning_"),
)
"""All knobs by stage, in the order in which the stages process a prompt."""


def sections() -> Mapping[str, Mapping[str, Setting]]:
    """Return the settings by table of the settings file; settings before all tables are under an empty name."""
    found: dict[str, dict[str, Setting]] = {}
    for name, declared in SETTINGS.items():
        table, _, key = name.rpartition(".")
        found.setdefault(table, {})[key] = declared
    return found


def example() -> str:
    """Return a TOML file that explains every setting; each line is a comment, so that the file changes nothing."""
    lines = [
        "# Settings of the prompt sidecar. Every line shows a default; remove the # of those to change.",
        "# The environment overrides this file: PROMPT_SIDECAR_SERVER__LISTEN for `listen` of [server].",
        "# A size may have a unit (65536, 64KiB, 1MB), and so may a time (500ms, 10s, 60m, 2h).",
    ]
    for table, settings in sections().items():
        lines += ["", f"[{table}]"] if table else []
        plain = {key: each for key, each in settings.items() if not each.advanced}
        advanced = {key: each for key, each in settings.items() if each.advanced}
        lines += _explained(plain)
        if advanced:
            lines += [
                "",
                f"# Advanced settings of [{table}]: their defaults suit nearly everybody.",
                *_explained(advanced),
            ]
    for several in TABLES.values():
        lines += ["", *(f"# {line}" for line in textwrap.wrap(several.what, _WIDTH))]
        lines += [] if several.made_of_others else _keys(several.settings)
        lines += ["# Such as:", *(f"#   {line}" for line in several.example.splitlines())]
    return "\n".join(lines) + "\n"


def _explained(settings: Mapping[str, Setting]) -> Iterator[str]:
    for key, each in settings.items():
        words = [each.what, f"Accepted: {each.kind.accepted}.", f"Why this default: {each.why}" if each.why else ""]
        yield ""
        yield from (f"# {line}" for paragraph in words for line in textwrap.wrap(paragraph, _WIDTH))
        yield f"# {key} = {each.shown_default}"


def _keys(settings: Mapping[str, Setting]) -> Iterator[str]:
    """Yield the keys of tables that may be repeated."""
    for key, each in settings.items():
        default = "it must be set" if each.required else f"default {each.shown_default}"
        words = f"{key}: {each.what} Accepted: {each.kind.accepted}; {default}."
        yield from (f"# {line}" for line in textwrap.wrap(words, _WIDTH))
