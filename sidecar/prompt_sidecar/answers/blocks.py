"""A stream of content blocks, each begun, continued and ended by events with its index: Anthropic's and Bedrock's.

Where blocks are left out, the others are numbered anew. Reasoning waits until the turn shows something.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from prompt_sidecar.answers.base import Filter
from prompt_sidecar.answers.restoring import Arguments
from prompt_sidecar.answers.sse import Event
from prompt_sidecar.providers.untyped import ordinal


@dataclass(slots=True, eq=False)
class Block:
    """A content block, as it is pieced together."""

    content: dict[str, Any] = field(default_factory=dict)
    place: Any = None
    """The index that the agent sees."""
    shown: bool = False
    arguments: Arguments | None = None
    """Of a call of the agent's, where masks are restored."""

    def joined(self) -> dict[str, Any]:
        """Return the block as its pieces make it."""
        raise NotImplementedError


AnyBlock = TypeVar("AnyBlock", bound=Block)


class BlockFilter(Filter, Generic[AnyBlock]):
    """Filters events of blocks, which it numbers anew where some are the sidecar's."""

    index: ClassVar[str]
    """The member of an event that has its block's index."""

    def __init__(self, own: Collection[str]) -> None:
        super().__init__(own)
        self._next = 0
        """The index of the agent's next block, where one was left out."""
        self._visible: list[AnyBlock] = []

    def begin(self) -> None:
        """A turn begins."""
        super().begin()
        self._blocks: list[AnyBlock] = []
        self._current: dict[int | None, AnyBlock] = {}
        """By the provider's index."""
        self._held: list[tuple[Event, dict[str, Any], AnyBlock | None]] = []
        """Events of reasoning and what came behind them, until the turn shows something."""
        self._stop: Any = None
        self._hidden = False

    @abstractmethod
    def _changed(self, event: Event, data: dict[str, Any]) -> bytes:
        """Write an event with other data."""

    @abstractmethod
    def _continued(self, place: Any, text: str) -> bytes:
        """Write an event with a piece of the arguments of the call at a place."""

    def rest(self) -> bytes:
        """Return what has waited, where the message was cut off."""
        if self._hidden:
            return b""
        return self._flushed() + b"".join(map(self._more, list(self._waiting)))

    def _other(self, event: Event) -> bytes:
        """Send an event that says nothing of blocks, behind those that wait."""
        if self._hidden:
            return b""
        if self._held:
            self._held.append((event, {}, None))
            return b""
        return event.raw

    def _more(self, block: AnyBlock | None) -> bytes:
        """Return what has waited of a call's arguments, as an event."""
        rest = self._release(block)
        return b"" if block is None or not rest else self._continued(block.place, rest)

    def _flushed(self) -> bytes:
        held, self._held = self._held, []
        return b"".join([event.raw if block is None else self._sent(event, data, block) for event, data, block in held])

    def _placed(self, block: AnyBlock, index: Any) -> None:
        """Give a block its index in the answer."""
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
        """Return the message that the agent holds."""
        return [{"role": "assistant", "content": [block.joined() for block in self._visible]}]
