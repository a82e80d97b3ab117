"""How much of the prompt returned last the present one begins with: what a provider's prompt cache can keep.

Compared are decisions, not bytes: an agent that spells its history anew at each call has a cold cache of its own
making. What stands before the history (system prompt, tools, our directives) comes first in every provider's cache; if
it differs, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from prompt_sidecar.facts.trim_calls import CacheBreak
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format, Stands
from prompt_sidecar.trim.ledger import Ledger, weighed
from prompt_sidecar.turn.frame import OwnTexts, Places
from prompt_sidecar.turn.own_state import OwnState
from prompt_sidecar.turn.rendering import Rendered

AGENTS: Final = 3
"""Of what stands before the history, the parts that are the agent's: tools, system prompt, system messages."""


@dataclass(frozen=True, slots=True)
class Place:
    """A prompt, as far as the next one is compared with it."""

    head: tuple[object, ...]
    tokens: int


@dataclass(slots=True)
class Prefix:
    """The prompt returned last, as far as it is needed."""

    head: tuple[object, ...] = ()
    tokens: int = 0
    """Its tokens, the note not counted."""
    places: Places = field(default_factory=lambda: Places(0, 0))
    registry: str = ""
    dropped: str = ""

    def place(self) -> Place:
        """What of it tells later whether, and why, the next prompt begins otherwise."""
        return Place(self.head[:AGENTS], self.tokens)

    def broken(self, before: Place, kept: int, *, rewritten: bool) -> CacheBreak | None:
        """Why the prompt in hand, which has taken the place of the one before, does not begin with that; None: it does.

        Args:
            before: the place of the one before.
            kept: tokens that the two begin with.
            rewritten: whether the agent changed its history.
        """
        if kept >= before.tokens:
            return None
        return CacheBreak.AGENT if rewritten or before.head != self.head[:AGENTS] else CacheBreak.BATCH_POINT

    def compare(
        self,
        split: Split,
        member: bytes | None,
        system: list[bytes],
        format_: Format,
        own: OwnState,
        *,
        places: Places,
        rendered: Rendered,
        ledger: Ledger,
        overhead: int,
        changed_from: int,
        known: int,
        count: Callable[[str], int],
        opaque_factor: float,
    ) -> tuple[int, int]:
        """Compare with the prompt in hand, and take its place.

        Args:
            split: the body as it was sent.
            member: its member that holds the system prompt, without our text.
            system: its leading system messages.
            format_: its format.
            own: our own text in it.
            places: where that stands.
            rendered: the history as it is returned.
            ledger: the history.
            overhead: tokens of system prompt and tools.
            changed_from: the first record that differs from last time, or the number of records then.
            known: records that there were then.
            count: counts tokens.
            opaque_factor: what tokens of encrypted text are multiplied with.

        Returns:
            Index of the first message that differs (-1: what stands before the messages does, or there was no prompt
            before), and the tokens before it.
        """
        in_messages = format_.placement.lists is not Stands.OUTSIDE
        fields = tuple(split.field(name) for name in format_.tool_fields)
        in_member = () if in_messages else (own.texts.dropped, own.texts.registry)
        head = (fields, member, tuple(system), own.texts.directives, in_member)
        same_head = bool(known) and head == self.head
        recounted = in_messages and (
            own.texts.dropped != self.dropped or (bool(own.texts.dropped) and places.dropped != self.places.dropped)
        )
        registry_moved = in_messages and (
            own.texts.registry != self.registry
            or (bool(own.texts.registry) and places.registry != self.places.registry)
        )
        before, last = self.tokens, self.places
        had_registry = bool(self.registry)
        self.head, self.places, self.registry, self.dropped = head, places, own.texts.registry, own.texts.dropped
        self.tokens = overhead + ledger.weight(opaque_factor) + own.tokens - own.note_tokens
        if not same_head:
            return -1, 0
        leads = bool(own.texts.directives) and format_.placement.directives is not Stands.OUTSIDE
        framing = len(system) + leads
        if changed_from >= known and not registry_moved and not recounted:
            shown = bool(own.texts.dropped) + bool(own.texts.registry) if in_messages else 0
            return framing + shown + rendered.position(known), before
        position = rendered.position(changed_from)
        if registry_moved:
            position = min(position, places.registry, last.registry if had_registry else position)
        if recounted:
            position = min(position, places.dropped, last.dropped)
        stays = [ledger.records[index] for index in rendered.live[:position]]
        kept = overhead + sum(record.tokens for record in stays)
        kept += weighed(sum(record.opaque for record in stays), opaque_factor)
        # Of our texts those that stand before the first change: in the system prompt all, else we would not be here.
        dropped = not in_messages or (not recounted and position >= places.dropped)
        registry = not in_messages or (not registry_moved and position >= places.registry)
        texts = OwnTexts(
            directives=own.texts.directives,
            dropped=own.texts.dropped if dropped else "",
            registry=own.texts.registry if registry else "",
        )
        kept += texts.tokens(count)
        if in_messages:
            position += bool(texts.dropped) + bool(texts.registry)
        return framing + position, kept
