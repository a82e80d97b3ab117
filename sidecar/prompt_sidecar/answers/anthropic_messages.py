"""Anthropic's messages.

A stream sends one content block after another, each begun, continued and ended by events with its index;
`message_delta` after the last one has the stop reason and the output tokens so far. Thinking is signed: the block must
be sent back unchanged, before the calls that followed it. platform.claude.com, "Streaming messages", "Thinking".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from prompt_sidecar.answers.answer_json import read, write_sound
from prompt_sidecar.answers.base import EarlierTurns, Filter, ModelTurn, add_output, error_text
from prompt_sidecar.answers.blocks import Block, BlockDialect, BlockFilter
from prompt_sidecar.answers.sse import Event, written
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, elements, loads
from prompt_sidecar.providers.anthropic_messages import ERROR_TYPES, INPUTS, Pieces, arguments_event, thinks
from prompt_sidecar.providers.api import ProviderApi
from prompt_sidecar.providers.surrogates import escaped, paired
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.providers.untyped import member, objects, ordinal, text_of, within
from prompt_sidecar.providers.usage import ProviderUsage

API: Final = APIS["anthropic_messages"]
_UNCHANGED: Final = frozenset({"auto", "none", "tool"})
"""Types of `tool_choice` under which more tools do not change which tool must be called."""


class AnthropicMessages(BlockDialect):
    """See the module."""

    api: ClassVar[ProviderApi] = API
    call_id: ClassVar[str] = "id"

    def call_in(self, block: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """See `BlockDialect`."""
        return block if block.get("type") == "tool_use" else None

    def thinks(self, block: Mapping[str, Any]) -> bool:
        """See `BlockDialect`."""
        return thinks(block)

    def says(self, block: Mapping[str, Any]) -> bool:
        """See `BlockDialect`."""
        return block.get("type") == "text"

    def blocks(self, message: Members) -> list[bytes]:
        """See `BlockDialect`. Content may be a string instead of an array."""
        content = message.raw("content")
        if not (found := elements(content)) and content.strip() not in (b"", b'""', b"null", b"[]"):
            found = [b'{"type":"text","text":' + content + b"}"]
        return found

    def text(self, entry: Any) -> str | None:
        """Return a message's text."""
        return text_of(member(entry, "content"), "text")

    def recall(self, members: Members) -> RecallOffer:
        """Whether the model need not call any of the tools.

        `any` requires a call of any tool, and cannot list tools; `tool` names one
        (platform.claude.com/cookbook/tool-use-tool-choice and the type ToolChoiceAny in
        github.com/anthropics/anthropic-sdk-python). Neither can be combined with thinking: platform.claude.com,
        "Building with extended thinking", as github.com/anthropics/claude-code/issues/18759 quotes it. All read in
        November 2026.
        """
        choice = members.get("tool_choice")
        free = choice is None or within(member(choice, "type"), _UNCHANGED)
        return RecallOffer.OFFERED if free else RecallOffer.FORCED

    def narrow(self, members: Members) -> bool:
        """Name the agent's tool, if it has only one."""
        tools = [loads(each) for each in self.agent_tools(members)]
        if member(members.get("tool_choice"), "type") != "any" or len(tools) != 1:
            return False
        name = self.tool_name(tools[0])
        if not name or member(tools[0], "type") not in (None, "custom"):
            return False
        choice = Members(members.raw("tool_choice"))
        choice.set("type", b'"tool"')
        choice.set("name", write_sound(name))
        members.set("tool_choice", choice.bytes())
        return True

    def forbid_tools(self, members: Members, _: Sequence[Any]) -> None:
        """Make the model answer without tools."""
        members.set("tool_choice", b'{"type":"none"}')

    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> ModelTurn:
        """Read a whole answer."""
        blocks = objects(answer.get("content"))
        return self.turn(blocks, answer.get("stop_reason"), own, API.usage.read(answer))

    def written(self, answer: dict[str, Any], shown: EarlierTurns, own: Collection[str]) -> Sequence[Any]:
        """Turn the last answer into the one for the agent."""
        blocks = [block for block in objects(answer.get("content")) if not self.is_own(block, own)]
        answer["content"] = [*shown.texts, *blocks]
        add_output(answer.get("usage"), "output_tokens", shown.output_tokens)
        return [{"role": "assistant", "content": answer["content"]}]

    def filter(self, own: Collection[str], _: Members | None) -> Filter:
        """Create a filter."""
        return _Blocks(self, own)

    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream with an error."""
        found = member(read(body), "error")
        fallback = {"type": ERROR_TYPES.get(status, "api_error"), "message": error_text(body, status)}
        return written({"type": "error", "error": found if isinstance(found, dict) else fallback}, "error")


@dataclass(slots=True, eq=False)
class _Block(Block):
    """See `Block`."""

    pieces: Pieces = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = Pieces(self.content)

    def joined(self) -> dict[str, Any]:
        """Return the block assembled from its pieces."""
        return self.pieces.joined(paired, lambda text: read(escaped(text).encode()))


class _Blocks(BlockFilter[_Block]):
    """Filters a stream's events. An event without an index belongs to the newest block."""

    index: ClassVar[str] = "index"

    def begin(self) -> None:
        """Begin a turn."""
        super().begin()
        self._usage: dict[str, Any] = {}
        self._model: Any = None

    def feed(self, event: Event) -> bytes:
        """Process an event."""
        data = event.json()
        kind = None if data is None else data.get("type")
        if event.data is None or kind == "ping":  # it keeps the connection alive
            return event.raw
        if kind == "error":
            return self._flushed() + event.raw
        if data is not None and kind == "message_start":
            self._counted(member(data, "message", "usage"))
            self._model = member(data, "message", "model")
            return self._other(event) if self.turns == 1 else b""
        if data is not None and kind in ("content_block_start", "content_block_delta", "content_block_stop"):
            return self._block(event, data)
        if data is not None and kind in ("message_delta", "message_stop"):
            return self._end(event, data)
        return self._other(event)

    def _counted(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _block(self, event: Event, data: dict[str, Any]) -> bytes:
        key, before = ordinal(data.get("index")), b""
        if data["type"] == "content_block_start":
            before = self._more(self._current.get(key))
            given = data.get("content_block")
            block = _Block(dict(given) if isinstance(given, dict) else {})
            self._blocks.append(block)
            self._current[key] = self._current[None] = block
        elif (found := self._current.get(key)) is not None:
            block = found
            if data["type"] == "content_block_delta":
                block.pieces.gather(data.get("delta"))
        else:  # forwarded; not a part of the message
            block = self._current[key] = _Block()
        return before + self._passed(event, data, block, ends=data["type"] == "content_block_stop")

    def _changed(self, event: Event, data: dict[str, Any]) -> bytes:
        return event.changed(data).raw

    def _continued(self, data: dict[str, Any]) -> bytes:
        return written(data, data["type"])

    def _piece(self, data: dict[str, Any]) -> Any:
        return member(data, "delta", "partial_json")

    def _arguments(self, place: Any, text: str) -> dict[str, Any]:
        return arguments_event(place, text)

    def _end(self, event: Event, data: dict[str, Any]) -> bytes:
        """Process an event about the whole message."""
        self._counted(data.get("usage"))
        stop = member(data, "delta", "stop_reason")
        if not self.ended and (stop is not None or data["type"] == "message_stop"):
            self._stop, self.ended = stop, True
            self._hidden = self.hides()
        if self._hidden:
            return b""
        if not self.ended:
            return self._other(event) if self.turns == 1 else self._counts(event, data)
        return self.rest() + (event.raw if data["type"] == "message_stop" else self._counts(event, data))

    def _counts(self, event: Event, data: dict[str, Any]) -> bytes:
        if self.turns == 1:
            return event.raw
        usage = data.get("usage")
        if isinstance(usage, dict):
            # message_start had the first turn's input; the agent's counts are those of the last turn.
            usage |= {name: self._usage[name] for name in INPUTS if name in self._usage}
            add_output(usage, "output_tokens", self.output_before)
        return event.changed(data).raw

    def counted(self) -> ProviderUsage | None:
        """Return the provider's usage."""
        reported = {"usage": self._usage, "model": self._model}
        return API.usage.read(reported) if self._usage else None

    def stopped(self) -> Any:
        """Return the stream's stop reason."""
        return self._stop

    def turn(self) -> ModelTurn:
        """Return the turn."""
        blocks = [block.joined() for block in self._blocks]
        return self.dialect.turn(blocks, self._stop, self.own, self.counted())
