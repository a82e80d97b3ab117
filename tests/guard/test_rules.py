"""The rules that come with the sidecar."""

from __future__ import annotations

from pathlib import Path

from prompt_sidecar.guard import checks, kinds
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import RULES, RuleGroup, default_rules
from tests.config.settings_page import remade
from tests.guard.guard_page import BLOCKS, PAGE

_SET = default_rules(GuardOptions(mode=ENFORCE))


def test_each_rule_finds_its_example_and_not_its_counterexample() -> None:
    """A rule finds something in its example, and nothing in its counterexample."""
    rules = RULES.values()
    found, beside = (
        [{find.rule.name for find in finds} for finds in _SET.scan(texts)]
        for texts in ([rule.example for rule in rules], [rule.counterexample for rule in rules])
    )
    assert [] == [rule.name for rule, names in zip(rules, found, strict=True) if rule.name not in names]
    assert [] == [rule.name for rule, names in zip(rules, beside, strict=True) if rule.name in names]


def test_the_page_shows_every_rule() -> None:
    """docs/guard.md has each rule with its example; `python -m tests.guard.guard_page` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    assert remade(page, BLOCKS) == page
    for rule in RULES.values():
        assert f"| `{rule.name}` |" in page


def test_no_whole_example_stands_in_a_file() -> None:
    """No source, test or page of the guard holds a key of a known form: code hosts refuse a push with one."""
    sources = [PAGE, *Path(kinds.__file__).parent.glob("*.py"), *Path(__file__).parent.glob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in sources]
    found = [
        (source.name, find.rule.name)
        for source, finds in zip(sources, _SET.scan(texts), strict=True)
        for find in finds
        if find.rule.group is RuleGroup.SECRETS and find.rule.check == "key"
    ]
    assert [] == found


def test_a_random_password_is_no_placeholder_for_its_letters() -> None:
    """One letter in both cases is not what documents write in place of a value."""
    assert checks.url_password("vXxXx" + "czYpA9BTTE2QX", "postgres://app:", "@db.internal")
    assert not checks.url_password("xxxxxxxxxx", "postgres://app:", "@db.internal")
    assert not checks.url_password("XXXXXXXXXX", "postgres://app:", "@db.internal")
