"""The slow twins of `checks`: every condition is asked, in the order in which one would say them."""

from __future__ import annotations

from prompt_sidecar.guard import checks
from prompt_sidecar.guard.checks import (
    _DOTTED,
    _NUMBERED,
    _PASSWORD_NAME,
    _PLAIN_KEY,
    _TYPE,
    _UUID,
    _UUID_CHARACTERS,
    _UUID_NAME,
    _UUID_TOKEN,
    EXAMINED,
)


def is_generated(value: str) -> bool:
    """What `checks.is_generated` returns."""
    value = value[:EXAMINED]
    if len(value) < 8 or len(set(value)) < 5 or checks.is_placeholder(value) or _NUMBERED.search(value):
        return False
    if not sum(character.isalpha() for character in value) or checks.is_wordlike(value):
        return False
    if not sum(character.isdigit() for character in value):
        even = checks.entropy(value) >= 3.0
        if len(value) >= 20 and value.isalpha() and value.islower():
            return not checks.is_wordlike(value, 0.5) and even
        changes = checks._changes(value) >= 0.3  # noqa: SLF001
        return len(value) >= 12 and not checks.is_wordlike(value, 0.55) and changes and even
    return checks.entropy(value) >= 2.6


def named(value: str, before: str, after: str) -> bool:
    """What `checks.named` returns."""
    whole, value = value[:EXAMINED], value.rstrip(".,;:=&?!)")[:EXAMINED] or value
    if after[:1] in {"(", "[", "{"} or checks.is_code(value) or checks.is_unrelated(before) or whole.endswith("..."):
        return False
    if checks.is_member(value) and not (whole[-1:] in {"!", "?"} and checks.is_typed(whole)):
        return False
    if len(value) < 16 and _PLAIN_KEY.search(before):
        return False
    if _UUID.fullmatch(value):
        if len(set(value)) < _UUID_CHARACTERS:
            return False
        return _UUID_NAME.search(before) is not None or _UUID_TOKEN.search(before) is not None
    return is_generated(value) or (_PASSWORD_NAME.search(before) is not None and checks.is_typed(whole))


def line(value: str, before: str, after: str) -> bool:
    """What `checks.line` returns."""
    related = not checks.is_unrelated(before)
    return named(value, before, after) or (related and not checks.is_code(value) and checks.is_mixed(value))


def argument(value: str, before: str) -> bool:
    """What `checks.argument` returns."""
    value = value.rstrip("\"'`;,")[:EXAMINED]
    if len(value) < 6 or checks.is_code(value) or checks.is_name(value) or checks.is_term(value):
        return False
    if checks.is_unrelated(before) or value.startswith(("((", "(&", "(*")):
        return False
    if value[0] in "*&" and checks.is_identifier(value[1:]):
        return False
    remark = value.startswith("(") and ")" not in value and not checks.is_typed(value)
    if (_DOTTED.search(value) and _TYPE.search(value)) or remark:
        return False
    return is_generated(value) or checks.is_typed(value) or checks.is_mixed(value)
