"""Messages of content blocks, each begun, continued and ended by events with its index: Anthropic's and Bedrock's.

If blocks are left out of a stream, the others are renumbered. Reasoning waits until the turn has visible content.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

import orjson

from prompt_sidecar.answers.base import Dialect, EarlierTurns, Filter, ModelTurn
from prompt_sidecar.answers.histories import NamedCall, named
from prompt_sidecar.answers.restoring import StreamedArguments
from prompt_sidecar.answers.sse import Event
from prompt_sidecar.prompt.members import Members, array, elements, loads
from prompt_sidecar.providers.untyped import member, objects, ordinal, within
from prompt_sidecar.providers.usage import ProviderUsage

_WHOLE: Final = frozenset({"tool_use", "end_turn", "stop_sequence"})
"""Stop reasons of turns that ended normally."""


class BlockDialect(Dialect):
    """An API whose messages consist of blocks."""

    call_id: ClassVar[str]
    """The member with a call's id."""

    @abstractmethod
    def call_in(self, block: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the call in a block, or None."""

    @abstractmethod
    def thinks(self, block: Mapping[str, Any]) -> bool:
        """Whether a block is the model's thinking."""

    @abstractmethod
    def says(self, block: Mapping[str, Any]) -> bool:
        """Whether a block is text."""

    def is_own(self, block: Mapping[str, Any], own: Collection[str]) -> bool:
        """Whether a block is a call of the sidecar's tools."""
        call = self.call_in(block)
        return call is not None and within(call.get("name"), own)

    def calls(self, entry: Any) -> list[NamedCall]:
        """Return a message's calls."""
        found = [call for each in objects(member(entry, "content")) if (call := self.call_in(each)) is not None]
        return [named(call.get(self.call_id), call.get("name"), call.get("input")) for call in found]

    def blocks(self, message: Members) -> list[bytes]:
        """Return the blocks of a message."""
        return elements(message.raw("content"))

    def joined(self, answers: Sequence[Any], following: Sequence[bytes]) -> list[bytes]:
        """Put the sidecar's results into the message that contains the agent's."""
        if not answers or not following or member(loads(following[0]), "role") != "user":
            return super().joined(answers, following)
        merged = Members(following[0])
        merged.set("content", array([*map(orjson.dumps, answers[0]["content"]), *self.blocks(merged)]))
        return [merged.bytes(), *following[1:]]

    def own_calls(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return the sidecar's calls in a turn."""
        return [block for entry in entries for block in objects(member(entry, "content")) if self.is_own(block, own)]

    def calling(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """Return the turn's message without its text; thinking stays, as the provider may require it before a call."""
        made = []
        for entry in entries:
            blocks = objects(member(entry, "content"))
            if any(self.is_own(block, own) for block in blocks):
                kept = [each for each in blocks if self.thinks(each) or self.is_own(each, own)]
                made.append({**entry, "content": kept})
        return made

    def called_too(self, entries: Sequence[bytes], calls: Sequence[bytes]) -> list[bytes]:
        """Add calls to the message."""
        if not calls:
            return list(entries)
        last = Members(entries[-1])
        last.set("content", array([*self.blocks(last), *calls]))
        return [*entries[:-1], last.bytes()]

    def show(self, shown: EarlierTurns, turn: ModelTurn) -> None:
        """Keep a hidden turn's text."""
        for entry in turn.entries:
            shown.texts += filter(self.says, entry["content"])

    def turn(
        self, blocks: list[dict[str, Any]], stop: Any, own: Collection[str], usage: ProviderUsage | None
    ) -> ModelTurn:
        """Return the turn that has these blocks and this stop reason."""
        entries = [{"role": "assistant", "content": blocks}] if blocks else []
        return self.turn_of(entries, own, usage, whole=within(stop, _WHOLE), waits=stop == "pause_turn", finish=stop)


@dataclass(slots=True, eq=False)
class Block(ABC):
    """A content block, while it is assembled."""

    content: dict[str, Any] = field(default_factory=dict)
    place: Any = None
    """The index that the agent gets."""
    shown: bool = False
    arguments: StreamedArguments | None = None
    """Arguments of an agent's call, if masks are restored."""

    @abstractmethod
    def joined(self) -> dict[str, Any]:
        """Return the block assembled from its pieces."""


AnyBlock = TypeVar("AnyBlock", bound=Block)


class BlockFilter(Filter, Generic[AnyBlock]):
    """Filters events of blocks, and renumbers them if some are the sidecar's."""

    index: ClassVar[str]
    """The member of an event with its block's index."""

    dialect: BlockDialect

    def __init__(self, dialect: BlockDialect, own: Collection[str]) -> None:
        super().__init__(dialect, own)
        self._next = 0
        """The index of the agent's next block, if one was left out."""
        self._visible: list[AnyBlock] = []

    def begin(self) -> None:
        """Begin a turn."""
        super().begin()
        self._blocks: list[AnyBlock] = []
        self._current: dict[int | None, AnyBlock] = {}
        """Blocks by the provider's index."""
        self._stop: Any = None
        self._hidden = False

    @abstractmethod
    def _changed(self, event: Event, data: dict[str, Any]) -> bytes:
        """Write an event with other data."""

    @abstractmethod
    def _continued(self, data: dict[str, Any]) -> bytes:
        """Write an event that continues a block."""

    @abstractmethod
    def _piece(self, data: dict[str, Any]) -> Any:
        """Return the piece of a call's arguments in an event's data."""

    @abstractmethod
    def _arguments(self, place: Any, text: str) -> dict[str, Any]:
        """Return the data of an event with a piece of the arguments of the call at a place."""

    def rest(self) -> bytes:
        """Return the waiting bytes, after the message was cut off."""
        if self._hidden:
            return b""
        return self._flushed() + b"".join(map(self._more, list(self._waiting)))

    def _other(self, event: Event) -> bytes:
        """Send an event about no block, behind those that wait."""
        return b"" if self._hidden else self._behind(lambda: event.raw)

    def _passed(self, event: Event, data: dict[str, Any], block: AnyBlock, *, ends: bool) -> bytes:
        """Process an event of a block, which it may end; return the bytes to send now."""
        if self.dialect.is_own(block.content, self.own):
            self.left_out = True
            return b""
        if self.own and self.dialect.thinks(block.content):
            self._held.append(partial(self._sent, event, data, block))
            return b""
        return self._flushed() + self._restored(event, data, block, ends=ends)

    def _restored(self, event: Event, data: dict[str, Any], block: AnyBlock, *, ends: bool) -> bytes:
        """Send an event, with values in place of masks in a call's arguments."""
        call = self.dialect.call_in(block.content)
        if self.restore is None or call is None:
            return self._sent(event, data, block)
        if block.arguments is None:
            block.arguments = StreamedArguments(str(call.get("name")), self.restore)
        if ends:
            return self._more(block) + self._sent(event, data, block)
        if isinstance(text := self._piece(data), str):
            kept = self._give(block, block.arguments, text)
            if kept != text:
                self._placed(block, data.get(self.index))
                return self._changed(event, data | self._arguments(block.place, kept))
        return self._sent(event, data, block)

    def _more(self, block: AnyBlock | None) -> bytes:
        """Return the waiting part of a call's arguments, as an event."""
        rest = self._release(block)
        return b"" if block is None or not rest else self._continued(self._arguments(block.place, rest))

    def _placed(self, block: AnyBlock, index: Any) -> None:
        """Set a block's index in the answer."""
        if not block.shown:
            block.shown = True
            block.place = self._next if self.renumbers else index
            self._next = max(self._next, (ordinal(block.place) or 0) + 1)
            self._visible.append(block)

    def _sent(self, event: Event, data: dict[str, Any], block: AnyBlock) -> bytes:
        self._placed(block, data.get(self.index))
        if block.place == data.get(self.index) or not self.renumbers:
            return event.raw
        data[self.index] = block.place
        return self._changed(event, data)

    def visible(self) -> Sequence[Any]:
        """Return the message that the agent has."""
        return [{"role": "assistant", "content": [block.joined() for block in self._visible]}]
