"""A rule of the guard, as data: what it finds, and what is done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

VALUE: Final = "value"
"""The named group of a pattern that is masked; without one, the whole match is."""


BEGIN: Final = r"(?:\b|_)"
"""How the pattern of a value with a form of its own begins: such a value may also follow an underscore."""


BY_NAME: Final = frozenset({"named_secret", "authorization_header"})
"""Kinds of values without a form of their own: what is before them identifies them."""


Exclusion = tuple[tuple[str, str], ...]
"""What makes a match no find: pairs of a part of it (`secret` for the value, `match` for all, `line` for its
surroundings in the line) and a pattern that this part matches, RE2 syntax. All pairs must match."""


class RuleAction(StrEnum):
    """The action for a find of a rule."""

    OFF = "off"
    OBSERVE = "observe"
    MASK = "mask"
    DEFANG = "defang"
    REFUSE = "refuse"


class RuleGroup(StrEnum):
    """What a rule looks for."""

    SECRETS = "secrets"
    PERSONAL = "personal"
    LOOKALIKES = "lookalikes"


@dataclass(frozen=True, slots=True)
class Rule:
    r"""What to look for, and what to do about it.

    The pattern is RE2 syntax that Python's `re` reads in the same way (with `re.ASCII | re.MULTILINE`): `^` and `$`
    match at line ends, classes such as `\w` are ASCII. What it matches is a find if `check` accepts it.
    """

    name: str
    """In settings, answers and metrics: lower-case letters, digits and underscores."""
    kind: str
    """The kind that its masks show: several rules may find one kind of value."""
    group: RuleGroup
    pattern: str
    check: str = ""
    """Name of the check in `prompt_sidecar.guard.checks` that a match must also pass; empty: no check."""
    action: RuleAction = RuleAction.OBSERVE
    example: str = ""
    """A text in which the rule finds something. Made up, and built when the module is loaded, so that the source holds
    nothing that looks like a secret to a scanner."""
    counterexample: str = ""
    """A text that resembles the example, and in which the rule finds nothing."""
    near: str = ""
    """A pattern that each text with a find matches and that is faster to search for; empty: the pattern itself."""
    names: str = ""
    """A pattern of names: the rule also scans a string of structured data after its member's name, written `name:
    value`, if this matches the name's end. Empty: no name matters."""
    in_ascii: str | None = ""
    """The same for texts that are all ASCII; empty: `near`; None: the rule finds nothing in such a text."""
    keywords: str = ""
    """A pattern of words of which one is near each find, at most as far as rules scan around a match. Rules that have
    this are searched for by it alone, and together by an automaton of their own."""
    any_group: bool = False
    """The value is the first group that takes part in a match, or all of it if none does."""
    entropy: float = 0.0
    """Shannon entropy that a value must exceed, in bits a character."""
    exclusions: Sequence[Exclusion] = ()
    """What makes a match no find, beyond `check`."""


@dataclass(frozen=True, slots=True)
class Find:
    """What a rule found: the range of characters to be masked or broken. Never the text."""

    start: int
    end: int
    rule: Rule
