"""How much of the last returned prompt the present one begins with: what a provider's cache can keep.

Compared are decisions, not bytes: an agent that spells its history differently at each call has a cold cache of its own
making. What precedes the history (system prompt, tools, our directives) comes first in every provider's cache; if
it differs, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from prompt_sidecar.engine.steps.frame import OwnTexts, Places
from prompt_sidecar.engine.steps.rendering import RenderedHistory
from prompt_sidecar.facts.trim_calls import CacheBreak
from prompt_sidecar.prompt.format import Placement, Stands
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.ledger.decisions import weighed


@dataclass(frozen=True, slots=True)
class Prefix:
    """A returned prompt, as needed for comparing the next one."""

    agents: tuple[object, ...] = ()
    """The agent's part before the history: tools, system prompt, leading system messages."""
    texts: OwnTexts = field(default_factory=OwnTexts)
    """Our texts except the note."""
    places: Places = field(default_factory=lambda: Places(0, 0))
    """Where among the live records placeholder and registry are placed."""
    system_messages: int = 0
    """Number of the agent's own leading system messages."""
    overhead: int = 0
    """Tokens of system prompt and tools."""
    tokens: int = 0
    """Tokens of the whole prompt without the note."""

    def head(self, placement: Placement) -> tuple[object, ...]:
        """Return everything that precedes the history."""
        outside = placement.lists is Stands.OUTSIDE
        return (self.agents, self.texts.directives, outside and (self.texts.dropped, self.texts.registry))

    def broken(self, before: Prefix, kept: int, *, rewritten: bool) -> CacheBreak | None:
        """Return why this prompt does not begin with the previous one, of which `kept` tokens stay, or None.

        `rewritten`: whether the agent changed its history.
        """
        if kept >= before.tokens:
            return None
        return CacheBreak.AGENT if rewritten or before.agents != self.agents else CacheBreak.BATCH_POINT


@dataclass(frozen=True, slots=True)
class Since:
    """The history as it is returned now, and since when it differs from the last time."""

    ledger: Ledger
    rendered: RenderedHistory
    changed_from: int
    """The first record that differs, or the number of records then."""
    known: int
    """Number of records then; -1 if there was no previous prompt."""


class SharedPrefix(NamedTuple):
    """What a prompt has in common with the previous one."""

    first_changed: int
    """Index of the first message that differs; -1 if the part before the messages does, or there was no previous
    prompt."""
    kept: int
    """Tokens before it."""


def compare(  # noqa: PLR0917 - the two prompts, then what weighs them
    last: Prefix,
    now: Prefix,
    since: Since,
    placement: Placement,
    opaque_factor: float,
    count: Callable[[str], int],
) -> SharedPrefix:
    """Compare a prompt with the previous one.

    Args:
        last: the previous prompt.
        now: the current prompt.
        since: the history between the two.
        placement: where our text is placed in both.
        opaque_factor: what tokens of encrypted text are multiplied with.
        count: counts tokens.
    """
    if since.known < 0 or now.head(placement) != last.head(placement):
        return SharedPrefix(-1, 0)
    in_messages = placement.lists is not Stands.OUTSIDE
    rendered, texts, places = since.rendered, now.texts, now.places
    dropped_moved = in_messages and _moved((last.texts.dropped, last.places.dropped), (texts.dropped, places.dropped))
    registry_moved = in_messages and _moved(
        (last.texts.registry, last.places.registry), (texts.registry, places.registry)
    )
    leads = bool(texts.directives) and placement.directives is not Stands.OUTSIDE
    framing = now.system_messages + leads
    if since.changed_from >= since.known and not registry_moved and not dropped_moved:
        shown = bool(texts.dropped) + bool(texts.registry) if in_messages else 0
        return SharedPrefix(framing + shown + rendered.position(since.known), last.tokens)
    position = rendered.position(since.changed_from)
    # A text that one of the prompts does not have has no place in it.
    if registry_moved:
        position = min([position, *(each.places.registry for each in (last, now) if each.texts.registry)])
    if dropped_moved:
        position = min([position, *(each.places.dropped for each in (last, now) if each.texts.dropped)])
    stays = [since.ledger.records[index] for index in rendered.live[:position]]
    kept = now.overhead + sum(record.tokens for record in stays)
    kept += weighed(sum(record.opaque for record in stays), opaque_factor)
    # Our texts before the first change: all of those in the system prompt, as otherwise this line is not reached.
    dropped = not in_messages or (not dropped_moved and position >= places.dropped)
    registry = not in_messages or (not registry_moved and position >= places.registry)
    stay = OwnTexts(
        directives=texts.directives,
        dropped=texts.dropped if dropped else "",
        registry=texts.registry if registry else "",
    )
    kept += stay.tokens(count)
    if in_messages:
        position += bool(stay.dropped) + bool(stay.registry)
    return SharedPrefix(framing + position, kept)


def _moved(last: tuple[str, int], now: tuple[str, int]) -> bool:
    """Whether a text of ours has changed, or its place has."""
    return now[0] != last[0] or (bool(now[0]) and now[1] != last[1])
