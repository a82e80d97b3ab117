"""docs/policy.md: prose by hand, and between marks what the code knows.

`python -m tests.config.policy_page` writes what has changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prompt_sidecar.config.effective import sentences
from prompt_sidecar.config.knobs import groups, knob, reader
from prompt_sidecar.config.presets import GUIDES, differs, reason, value
from prompt_sidecar.trim.policy import DEFAULT_PRESET, PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "policy.md"
LIMIT = 128_000
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def remade(page: str) -> str:
    """The page with its generated blocks as they should be."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{chr(10).join(BLOCKS[found[2]]())}\n\n{found[3]}", page)


def _presets() -> Iterator[str]:
    yield "| preset | it | choose it | mind |"
    yield "|---|---|---|---|"
    for name, guide in GUIDES.items():
        yield f"| `{name}` | {guide.purpose} | {guide.choose} | {guide.beware} |"
    yield ""
    yield f"Where a preset differs from `{DEFAULT_PRESET}`, and why:"
    yield ""
    yield f"| preset | knob | value | `{DEFAULT_PRESET}` | why |"
    yield "|---|---|---|---|---|"
    for name in PRESETS:
        for field in _knobs():
            if differs(name, field):
                shown = f"`{value(name, field)}` | `{value(DEFAULT_PRESET, field)}`"
                yield f"| `{name}` | `{field}` | {shown} | {reason(name, field)} |"


def _sentences() -> Iterator[str]:
    for place, (name, policy) in enumerate(PRESETS.items()):
        yield from ([""] if place else [])
        yield f"### {name}"
        yield ""
        for sentence in sentences(policy, LIMIT):
            step = sentence.startswith("  ")
            yield f"   {sentence.strip()}" if step else f"- {sentence}"


def _all_knobs() -> Iterator[str]:
    for place, group in enumerate(groups()):
        yield from ([""] if place else [])
        yield f"### {group.name}"
        yield ""
        yield f"{group.about[:1].upper()}{group.about[1:]}."
        yield ""
        yield "| knob | what | default | accepted | why that default |"
        yield "|---|---|---|---|---|"
        for field in group.knobs:
            told, accepted = (
                knob(field),
                reader(field).accepted.removesuffix(", with or without a unit, such as 65536, 64KiB or 1MB"),
            )
            yield f"| `{field}` | {told.what} | `{value(DEFAULT_PRESET, field)}` | {accepted} | {told.why} |"


def _knobs() -> Iterator[str]:
    for group in groups():
        yield from group.knobs


BLOCKS: Mapping[str, Callable[[], Iterator[str]]] = {
    "presets": _presets,
    "sentences": _sentences,
    "knobs": _all_knobs,
}


if __name__ == "__main__":
    PAGE.write_text(remade(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
