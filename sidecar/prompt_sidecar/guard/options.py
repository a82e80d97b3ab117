"""The settings of the guard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.guard.checks import CHECKS
from prompt_sidecar.guard.rule import RuleAction, RuleGroup
from prompt_sidecar.values import (
    GIB,
    KIB,
    MIB,
    Kind,
    byte_count,
    choice,
    required,
    seconds,
    setting,
    switch,
    tables,
    text,
    texts,
)

AUDIT: Final = "audit"
ENFORCE: Final = "enforce"
REFUSE: Final = "refuse"
PASS: Final = "pass"  # noqa: S105 - a word of the settings
_ACTIONS: Final = texts(200, 80)
_PAIRS: Final = texts(1_000, 300)
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def _actions() -> Kind:
    """Return the kind of a setting with actions of rules and groups."""

    def check(value: object) -> tuple[str, ...]:
        checked: tuple[str, ...] = _ACTIONS.check(value)
        for each in checked:
            name, equals, action = each.partition("=")
            if not name or not equals or action not in set(RuleAction):
                raise ValueError(each)
        return checked

    return Kind(
        f"at most 200 texts such as email=mask, each a rule or group and one of {', '.join(RuleAction)}",
        check,
        _ACTIONS.parse,
        _ACTIONS.show,
        ', as an array such as ["email=mask", "lookalikes=defang"], or one text alone; [] for none',
    )


def _pairs() -> Kind:
    """Return the kind of a setting with pairs of a tool and a kind of value."""

    def check(value: object) -> tuple[str, ...]:
        checked: tuple[str, ...] = _PAIRS.check(value)
        for each in checked:
            tool, colon, kind = each.rpartition(":")
            if not (tool and colon and kind) or (kind != "*" and not _KIND.fullmatch(kind)):
                raise ValueError(each)
        return checked

    return Kind(
        "at most 1,000 texts such as deploy:github_token, each a tool's name or *, and a kind of value or *",
        check,
        _PAIRS.parse,
        _PAIRS.show,
        ', as an array such as ["deploy:github_token", "*:card"], or one text alone; [] for none',
    )


@dataclass(frozen=True, slots=True)
class UserRule:
    """A user's own rule: one of `[[guard.rules]]`. `rules.faults` reports its other errors."""

    name: str = required(text(40), "The rule's name, of lower-case letters, digits and underscores.")
    pattern: str = required(
        text(2_000),
        "What it finds: RE2 syntax, in which ^ and $ match at line ends. If it has a group (?P<value>…), that is "
        "what is masked, else the whole match.",
    )
    example: str = required(text(2_000), "A text in which it finds something. Settings are shown: make one up.")
    counterexample: str = required(text(2_000), "A text that resembles the example, and in which it finds nothing.")
    check: str = setting(
        "",
        choice("", *CHECKS),
        "What a match must also pass: key and random ask for randomness, luhn and iban for check digits; empty: no "
        "more.",
    )
    kind: str = setting("", text(40), "The kind that its masks name; empty: the rule's name.")
    group: str = setting(
        RuleGroup.SECRETS,
        choice(*RuleGroup),
        "What it looks for, so that guard.actions may name it with others of its group.",
    )
    action: str = setting(
        "",
        choice("", *RuleAction),
        "What is done about what it finds; empty: mask for secrets and personal data, observe for look-alikes.",
    )


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """What the guard looks for in new text, and what it does about finds."""

    mode: str = setting(
        AUDIT,
        choice(AUDIT, ENFORCE),
        "audit: look and report, change and refuse nothing; enforce: do what the actions of rules say. Ceilings "
        "have actions of their own.",
        "Masks change prompts: the reports show first what they would change.",
    )
    actions: Sequence[str] = setting(
        (),
        _actions(),
        "What is done about what a rule, or a group of rules, finds, over the defaults (docs/guard.md); a rule's own "
        "goes before its group's. The groups: secrets, personal, lookalikes.",
        "Secrets, cards and IBANs are masked, the rest is observed.",
    )
    scan_seconds: float = setting(
        1.0,
        seconds(0.001, 60),
        "Processor time for the rules on one text; those that have not begun by then let it through, and one that has "
        "begun lets the rest through after ten times as long. Both are counted.",
        "It is enough for some 50 MB. Time in which others have the processor does not count, or a busy machine would "
        "let secrets through.",
        advanced=True,
    )
    fail_closed: bool = setting(
        False,
        switch(),
        "Refuse a prompt with a text for which the rules did not have the time, in place of letting it through.",
        "A huge text stops agents only where that is asked for.",
        advanced=True,
    )
    rules: Sequence[UserRule] = tables(
        UserRule,
        "Rules of your own, in addition to those that come with the sidecar (docs/guard.md).",
        "[[guard.rules]]\nname = 'payroll_number'\npattern = '\\bPN-[0-9]{6}\\b'\n"
        "example = 'for PN-123456'\ncounterexample = 'for PN-12'",
        named=False,
        most=100,
    )
    rule_files: Sequence[str] = setting(
        (),
        texts(8, 4_096),
        "Files of rules in the format of gitleaks and betterleaks (TOML), in addition to the rules that come with the "
        "sidecar (docs/guard.md). Read at the start.",
        "The sidecar's own rules find more, with fewer false finds; a file adds what they lack.",
    )
    unread: str = setting(
        REFUSE,
        choice(REFUSE, PASS),
        "What becomes of a request that a door would send on and that the guard cannot read, where it masks: a form "
        "with files, an unknown encoding, binary data. refuse: it gets 403; pass: it goes on as it came.",
        "What was not read may hold anything. Uploads of files need pass.",
    )
    restore: Sequence[str] = setting(
        (),
        _pairs(),
        "Which tools get values back in place of masks (RestoreSecrets): pairs of a tool's name and a kind of value, "
        "such as deploy:github_token; * means all tools, or all kinds. Empty: none.",
        "A tool's output can make a model call any tool with any mask, so only tools that need a value may get it.",
    )
    run_vault_bytes: int = setting(
        4_194_304,
        byte_count(64 * KIB, GIB),
        "Values that masks of one run stand for, as estimated; beyond it further ones are masked too, but not kept: no "
        "tool gets them back, and they are not masked where no rule finds them.",
        "4 MiB hold six thousand keys, or a thousand private keys; runs have some tens.",
        advanced=True,
    )
    vault_bytes: int = setting(
        67_108_864,
        byte_count(MIB, 64 * GIB),
        "The same for all runs; beyond it the run that was idle for longest loses its values, which are known again "
        "when its history is sent again.",
        "Sixteen runs at their own bound, or thousands of usual ones.",
        advanced=True,
    )
