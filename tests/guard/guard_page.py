"""docs/guard.md: written by hand, and between marks every rule with its example, from the rules themselves.

`python -m tests.guard.guard_page` writes what has changed. Examples of keys are cut short: a page with whole ones would
look like a leak to scanners of code hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from prompt_sidecar.guard.lookalikes import defang
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rule import RuleAction, RuleGroup
from prompt_sidecar.guard.rules import default_rules
from tests.config.settings_page import remade

PAGE: Final = Path(__file__).parents[2] / "docs" / "guard.md"
_RULES: Final = default_rules(GuardOptions(ENFORCE, ("lookalikes=defang",)))
_SHOWN: Final = 12
"""Characters of an example's value."""


def _values(group: RuleGroup) -> Iterator[str]:
    yield "| rule | example, its value cut short | in its place under `enforce` |"
    yield "|---|---|---|"
    for rule in _RULES.rules:
        if rule.group is group:
            (find, *_) = (find for find in _RULES.scan([rule.example])[0] if find.rule is rule)
            value = rule.example[find.start : find.end]
            cut = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
            before = _on_one_line(rule.example[: find.start])
            after = _on_one_line(rule.example[find.end :])
            mask = f"`⟦{rule.kind}:…⟧`" if rule.action is RuleAction.MASK else "observed"
            yield f"| `{rule.name}` | {_code(f'{before}{_on_one_line(cut)}{after}')} | {mask} |"


def _lookalikes() -> Iterator[str]:
    yield "| rule | example | defanged |"
    yield "|---|---|---|"
    for rule in _RULES.rules:
        if rule.group is RuleGroup.LOOKALIKES:
            broken = defang(rule.example, [find for find in _RULES.scan([rule.example])[0] if find.rule is rule])
            yield f"| `{rule.name}` | {_code(_seen(rule.example))} | {_code(_seen(broken))} |"


def _on_one_line(text: str) -> str:
    return text.replace("\n", "⏎")


def _seen(text: str) -> str:
    """A text in which characters that nobody sees are shown by their numbers."""
    shown = "".join(c if c.isprintable() else f"<U+{ord(c):04X}>" for c in text)
    return shown if len(shown) <= 90 else f"{shown[:90]}…"


def _code(text: str) -> str:
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{text.strip()}{ticks}".replace("|", "\\|")


BLOCKS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "secrets": lambda: _values(RuleGroup.SECRETS),
    "personal": lambda: _values(RuleGroup.PERSONAL),
    "lookalikes": _lookalikes,
}


if __name__ == "__main__":
    PAGE.write_text(remade(PAGE.read_text(encoding="utf-8"), BLOCKS), encoding="utf-8")
