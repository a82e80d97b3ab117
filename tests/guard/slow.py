"""The slow twin of the scanner: Python's `re`, one rule and one text at a time, and all pairs compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from prompt_sidecar.guard.checks import CHECKS, CONTEXT
from prompt_sidecar.guard.rule import Action, Find, Group, Rule

MASK = re.compile("⟦[a-z0-9_]{1,64}:[a-z0-9]{10}⟧")


def scan(rules: Sequence[Rule], text: str) -> Sequence[Find]:
    """What `Scanner.scan` finds in a text."""
    text = re.sub("[\ud800-\udfff]", "?", text)
    masks = [match.span() for match in MASK.finditer(text)]
    finds = [
        find
        for rule in rules
        for find in _of(rule, text)
        if rule.group is Group.LOOKALIKES or not any(start <= find.start and find.end <= end for start, end in masks)
    ]
    kept = [find for find in finds if find.rule.group is Group.LOOKALIKES]
    values = [find for find in finds if find.rule.group is not Group.LOOKALIKES]
    for masked in (True, False):
        left = [find for find in values if (find.rule.action is Action.MASK) is masked]
        taken = [find for find in kept if find.rule.group is not Group.LOOKALIKES] if not masked else []
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


def _of(rule: Rule, text: str) -> Iterator[Find]:
    pattern = _pattern(rule.pattern)
    group = "value" if "value" in pattern.groupindex else 0
    for match in pattern.finditer(text):
        start, end = match.span(group)
        around = text[max(0, start - CONTEXT) : start], text[end : end + CONTEXT]
        if start < end and (not rule.check or CHECKS[rule.check](text[start:end], *around)):
            yield Find(start, end, rule)


def _overlap(one: Find, other: Find) -> bool:
    return one.start < other.end and other.start < one.end
