"""docs/policy.md: prose by hand, and between marks what the code knows.

`python -m tests.config.policy_page` writes what has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prompt_sidecar.config.explain import sentences
from prompt_sidecar.config.reference import GROUPS
from prompt_sidecar.trim.policy import KNOBS
from prompt_sidecar.trim.presets import DEFAULT_PRESET, EXPLAINED, PRESETS
from tests.config.settings_page import remade, rows

PAGE = Path(__file__).parents[2] / "docs" / "policy.md"
LIMIT = 128_000


def _presets() -> Iterator[str]:
    yield "| preset | it | choose it | mind |"
    yield "|---|---|---|---|"
    for name, each in EXPLAINED.items():
        yield f"| `{name}` | {each.purpose} | {each.choose} | {each.beware} |"
    yield ""
    yield f"Where a preset differs from `{DEFAULT_PRESET}`, and why:"
    yield ""
    yield f"| preset | knob | value | `{DEFAULT_PRESET}` | why |"
    yield "|---|---|---|---|---|"
    default = EXPLAINED[DEFAULT_PRESET]
    for name, each in EXPLAINED.items():
        for field, why in each.reasons.items():
            yield f"| `{name}` | `{field}` | `{each.shown(field)}` | `{default.shown(field)}` | {why} |"


def _sentences() -> Iterator[str]:
    for place, (name, policy) in enumerate(PRESETS.items()):
        yield from ([""] if place else [])
        yield f"### {name}"
        yield ""
        for sentence in sentences(policy, LIMIT):
            step = sentence.startswith("  ")
            yield f"   {sentence.strip()}" if step else f"- {sentence}"


def _knobs() -> Iterator[str]:
    for place, group in enumerate(GROUPS):
        yield from ([""] if place else [])
        yield f"### {group.name}"
        yield ""
        yield f"{group.about[:1].upper()}{group.about[1:]}."
        yield ""
        yield from rows({knob: KNOBS[knob] for knob in group.knobs})


BLOCKS: Mapping[str, Callable[[], Iterator[str]]] = {"presets": _presets, "sentences": _sentences, "knobs": _knobs}


if __name__ == "__main__":
    PAGE.write_text(remade(PAGE.read_text(encoding="utf-8"), BLOCKS), encoding="utf-8")
