"""A new message or member of a body, as the guard reads it: its strings, and the finds of the rules in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from prompt_sidecar.errors import GuardRefused
from prompt_sidecar.guard.rule import Find
from prompt_sidecar.guard.rules import RuleSet
from prompt_sidecar.guard.vault import OUTSIDE
from prompt_sidecar.prompt.literals import Changes
from prompt_sidecar.prompt.strings import Leaf, Strings


@dataclass(slots=True)
class NewPart:
    """A message or a member of the body that is new."""

    message: int
    member: str
    where: str
    """The field of the request, for an error."""
    raw: bytes | memoryview
    """A memoryview if it is long, until it is masked."""
    leaves: Sequence[Leaf]
    strings: Strings
    texts: list[Text] = field(default_factory=list)
    """One text for each leaf."""
    scanned: int = 0
    """Number of texts that the rules have scanned."""
    imitates: bool = False
    """Whether it has something to be defanged."""
    apart: bool = False
    """Whether it is a member of the body other than system prompt and history, which the next prompt need not have."""

    @property
    def first(self) -> int:
        """`Value.first` of values found in it: those of a separate member are masked outside the history only."""
        return OUTSIDE if self.apart else self.message

    def written(self, changes: Changes) -> bytes:
        """Return its bytes with other texts."""
        raw = bytes(self.raw)
        return self.strings.changed(raw, changes) if changes else raw


@dataclass(slots=True)
class Text:
    """A text, and if it is JSON, the strings in it."""

    text: str
    inner: Sequence[tuple[int, Text]] | None
    finds: Sequence[Find] = ()
    name: str = ""
    """Name of the member that it is the value of, if a rule is for such names."""

    def all(self) -> Iterable[Text]:
        """Yield this text and all in it."""
        yield self
        for _, each in self.inner or ():
            yield from each.all()

    def value(self, find: Find) -> str:
        """Return what was found, decoded if the text is JSON."""
        value = self.text[find.start : find.end]
        if self.inner is None or "\\" not in value:
            return value
        try:
            decoded = orjson.loads(f'"{value}"')
        except orjson.JSONDecodeError:
            return value
        return decoded if isinstance(decoded, str) else value


class Names(dict[str, str]):
    """Names of members that occurred: the name itself if a rule is for such names, else empty."""

    def __init__(self, rules: RuleSet) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, name: str) -> str:
        known = self[name] = name if self._rules.names(name) else ""
        return known


def name_of(leaf: Leaf) -> str:
    """Return the name of the member whose value, or list of values, a string belongs to."""
    for step in reversed(leaf.path):
        if isinstance(step, str):
            return step
    return ""


def refusal(part: NewPart, rule: str) -> GuardRefused:
    """Return the error for a find of a rule whose action is to refuse."""
    return GuardRefused(
        f"{part.where}: the rule {rule} finds something, and its action is to refuse; remove what it finds, or give "
        "the rule another action (guard.actions)",
        field=part.where,
        rule=rule,
    )
