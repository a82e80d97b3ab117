"""The slow twin of the scanner: Python's `re`, one rule and one text at a time, and all pairs compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

from prompt_sidecar.guard import scanner
from prompt_sidecar.guard.checks import CHECKS, DECODED, decoded
from prompt_sidecar.guard.rule import BY_NAME, Find, Rule, RuleAction, RuleGroup
from prompt_sidecar.guard.rules import RULES

MASK = re.compile("⟦[a-z0-9_]{1,64}:[a-z0-9]{10}⟧")


def scan(rules: Sequence[Rule], text: str) -> Sequence[Find]:
    """What `Scanner.scan` finds in a text."""
    text = re.sub("[\ud800-\udfff]", "?", text)
    found: list[Find] = []
    apart, shared = _gates(tuple(rules), text.isascii())
    touched = {
        expression: [match.span() for match in _pattern(_plain(expression)).finditer(text)] for expression in shared
    }
    touched[""] = [match.span() for match in _pattern(_plain(apart)).finditer(text)] if apart else []
    spans = sorted(span for spans in touched.values() for span in spans if span[0] < span[1])
    page = scanner.page(text, [(*span, 0) for span in spans])
    for rule in rules:
        near = _near(rule, text.isascii())
        if near is not None and touched["" if near not in shared else near]:
            found += _of(rule, page)
    masks = [match.span() for match in MASK.finditer(text)]
    finds = [
        find
        for find in found
        if find.rule.group is RuleGroup.LOOKALIKES
        or not any(start <= find.start and find.end <= end for start, end in masks)
    ]
    kept = [find for find in finds if find.rule.group is RuleGroup.LOOKALIKES]
    values = [find for find in finds if find.rule.group is not RuleGroup.LOOKALIKES]
    for masked in (True, False):
        left = [find for find in values if (find.rule.action is RuleAction.MASK) is masked]
        left = [
            find
            for find in left
            if find.rule.kind not in BY_NAME or not any(_is_form_in(other, find) for other in left)
        ]
        taken = [find for find in kept if find.rule.group is not RuleGroup.LOOKALIKES] if not masked else []
        while left:
            best = min(left, key=lambda find: (find.start, -find.end))
            if not any(_overlap(best, other) for other in taken):
                kept.append(best)
                left = [find for find in left if not _overlap(best, find)]
            left = [find for find in left if find is not best]
    return sorted(kept, key=lambda find: (find.start, -find.end, find.rule.name))


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII | re.MULTILINE)


def _plain(pattern: str) -> str:
    """A pattern without the names of its groups, which a pattern of many would have twice."""
    return pattern.replace("(?P<value>", "(?:")


def _near(rule: Rule, is_ascii: bool) -> str | None:
    near = rule.near or rule.pattern
    if is_ascii and rule.in_ascii != "":
        return rule.in_ascii
    return near


@cache
def _gates(rules: tuple[Rule, ...], is_ascii: bool) -> tuple[str, Sequence[str]]:
    """The patterns of all rules that share none, as one, and those that are shared."""
    near = [each for each in (_near(rule, is_ascii) for rule in rules) if each is not None]
    shared = [each for each, count in Counter(near).items() if count > 1]
    return scanner.together([each for each in near if each not in shared]), shared


def _of(rule: Rule, page: scanner.ScannedText) -> Iterator[Find]:
    pattern = _pattern(rule.pattern)
    group = "value" if "value" in pattern.groupindex else 0
    for match in pattern.finditer(page.text):
        start, end = match.span(group)
        span = page.span(start, end) if start < end else None
        if span is None:
            continue
        value, before, after = page.around(start, end)
        if rule.check == DECODED:
            text = decoded(value)
            others = [each for each in RULES.values() if each.group is RuleGroup.SECRETS and each.check != DECODED]
            found = text is not None and any(find.rule.group is RuleGroup.SECRETS for find in scan(others, text))
        else:
            found = not rule.check or CHECKS[rule.check](value, before, after)
        if found:
            yield Find(*span, rule)


def _is_form_in(one: Find, other: Find) -> bool:
    """Whether a value with a form is all of a value by its name but the signs of a sentence after it."""
    return one.rule.kind not in BY_NAME and one.start == other.start and 0 < other.end - one.end <= scanner.SIGNS


def _overlap(one: Find, other: Find) -> bool:
    return one.start < other.end and other.start < one.end
