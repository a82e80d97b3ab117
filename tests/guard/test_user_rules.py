"""Rules and actions that settings add."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prompt_sidecar.config.settings import SettingsError, load
from prompt_sidecar.guard.options import ENFORCE, GuardOptions, UserRule
from prompt_sidecar.guard.rules import RuleAction, default_rules, faults

_OWN = UserRule("payroll_number", r"\bPN-[0-9]{6}\b", "for PN-123456", "for PN-12")


def _actions(options: GuardOptions) -> dict[str, RuleAction]:
    return {rule.name: rule.action for rule in default_rules(options).rules}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "Payroll"}, "lower-case"),
        ({"kind": "a kind"}, "lower-case"),
        ({"name": "jwt"}, "two rules"),
        ({"pattern": "PN-["}, "missing ]"),
        ({"pattern": r"PN-(?=[0-9])"}, "no RE2 expression"),
        ({"pattern": "(PN|)"}, "empty text"),
        ({"pattern": "PN-[0-9]*|x*"}, "empty text"),
        ({"pattern": r"\APN-[0-9]{6}"}, r"\A in its pattern"),
        ({"pattern": r"PN-\C{6}"}, r"\C in its pattern"),
        ({"pattern": "(?i-m:^PN)"}, "(?i-m in its pattern"),
        ({"pattern": r"PN-[0-9]{6}" + "[a-z]{0,999}" * 40}, "instructions"),
        ({"example": "none"}, "finds nothing in its example"),
        ({"check": "luhn"}, "finds nothing in its example"),
        ({"counterexample": "PN-123456"}, "finds something in its counterexample"),
        ({"action": "defang"}, "which is for lookalikes"),
        ({"group": "lookalikes", "action": "mask"}, "which is for secrets and personal"),
    ],
)
def test_a_bad_rule_is_refused_by_name(changes: dict[str, str], words: str) -> None:
    """What is wrong with a user's rule is said with its name, in one line."""
    rule = replace(_OWN, **changes)
    (fault,) = faults(GuardOptions(rules=(rule,)))
    assert words in fault
    assert rule.name in fault


def test_an_escaped_backslash_is_none_of_an_anchor() -> None:
    r"""`\\A` is a backslash and a letter."""
    rule = replace(_OWN, pattern=r"PN\\A[0-9]{2}", example=r"PN\A12", counterexample="PN12")
    assert [] == list(faults(GuardOptions(rules=(rule,))))


def test_a_rule_of_the_settings_file_finds(tmp_path: Path) -> None:
    """A rule in the file is searched with the sidecar's own, and masks under `enforce` if nothing else is set."""
    path = tmp_path / "s.toml"
    path.write_text(
        "[guard]\nmode = 'enforce'\n[[guard.rules]]\nname = 'payroll_number'\n"
        "pattern = '\\bPN-(?P<value>[0-9]{6})\\b'\n"
        "example = 'for PN-123456'\ncounterexample = 'for PN-12'\n"
    )
    rules = default_rules(load({}, config=str(path)).guard)
    (find,) = rules.scan(["pay PN-654321 now"])[0]
    assert ("payroll_number", RuleAction.MASK, 7, 13) == (find.rule.name, find.rule.action, find.start, find.end)


def test_a_bad_rule_of_the_settings_file_stops_the_start(tmp_path: Path) -> None:
    """A start with a bad rule ends with a message that names it."""
    path = tmp_path / "s.toml"
    path.write_text("[[guard.rules]]\nname = 'x'\npattern = '['\nexample = 'a'\ncounterexample = 'b'\n")
    with pytest.raises(SettingsError, match="the rule x has a pattern"):
        load({}, config=str(path))


def test_actions_go_from_rule_to_group_to_default() -> None:
    """A rule's own action goes before its group's, which goes before the default; what is off is not looked for."""
    options = GuardOptions(ENFORCE, ("personal=mask", "phone=off", "lookalikes=defang", "payroll_number=observe"))
    actions = _actions(replace(options, rules=(_OWN,)))
    assert (RuleAction.MASK, RuleAction.MASK) == (actions["email"], actions["jwt"])
    assert (RuleAction.DEFANG, RuleAction.OBSERVE) == (actions["forged_mask"], actions["payroll_number"])
    assert "phone" not in actions


def test_audit_changes_nothing() -> None:
    """Under `audit` each rule that is on observes."""
    options = GuardOptions(actions=("lookalikes=defang", "phone=off"))
    assert {RuleAction.OBSERVE} == set(_actions(options).values())
    assert not default_rules(options).changes_text
    assert default_rules(replace(options, mode=ENFORCE)).changes_text


def test_the_digest_is_of_what_decides() -> None:
    """The digest differs with patterns, checks and actions, and is the same for equal rules."""
    base = GuardOptions(ENFORCE, rules=(_OWN,))
    others = [
        replace(base, mode="audit"),
        replace(base, actions=("email=mask",)),
        replace(base, rules=()),
        replace(base, rules=(replace(_OWN, pattern="PN-[0-9]+"),)),
        replace(base, rules=(replace(_OWN, check="key"),)),
        replace(base, rules=(replace(_OWN, kind="staff"),)),
    ]
    digests = [default_rules(options).digest for options in (base, *others)]
    assert len(digests) == len(set(digests))
    assert default_rules(replace(base, rules=(replace(_OWN, example="PN-000000"),))).digest == digests[0]
