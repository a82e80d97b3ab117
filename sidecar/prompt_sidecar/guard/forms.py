"""How the tables of rules for secrets are written: a row of the tables, and made-up examples of keys."""

from __future__ import annotations

from typing import Final

from prompt_sidecar.guard.rule import BEGIN, VALUE, Rule, RuleAction, RuleGroup

_ALPHABETS: Final = {
    "word": "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEaD3qUiCkLy4",
    "letters": "FaKeNoTrEaLbUtLoOkSlIkEiTwHeNrEaDqUiCkLy",
    "lower": "fa4ke0bu7tl8ook9sli2ke3it",
    "hex": "fa4e0b1d2c3e5a6f7980",
    "upper": "FAKE2BUT3LOOKS4LIKE5IT6WHEN7READ",
    "digits": "4928371650",
}
END: Final = r"(?:[^A-Za-z0-9_-]|$)"
"""The end of a value whose last character may be a dash. The end is not part of the value."""


def fake(length: int, alphabet: str = "word") -> str:
    """Return characters that look like those of a key, the same at each call."""
    letters = _ALPHABETS[alphabet]
    return (letters * (length // len(letters) + 1))[:length]


def fake_uuid() -> str:
    """Return digits that look like those of a UUID."""
    return "-".join(fake(length, "hex") for length in (8, 4, 4, 4, 12))


def secret(
    name: str,
    pattern: str,
    example: str,
    counterexample: str,
    *,
    kind: str = "",
    check: str = "key",
    near: str = "",
    names: str = "",
) -> Rule:
    r"""Return a rule for secrets, as a table's row: masked under `enforce`; `kind` is the name unless given.

    A pattern that begins with `\b` also begins after an underscore, and one that ends with it ends before one.
    """
    if pattern.startswith(r"\b"):
        body = pattern.removeprefix(r"\b")
        if f"?P<{VALUE}>" not in body and body.endswith(r"\b"):
            body = f"(?P<{VALUE}>" + body.removesuffix(r"\b") + r")(?:\b|_)"
        pattern = BEGIN + (body if f"?P<{VALUE}>" in body else f"(?P<{VALUE}>{body})")
    return Rule(
        name, kind or name, RuleGroup.SECRETS, pattern, check, RuleAction.MASK, example, counterexample, near, names
    )
