"""Anthropic's messages.

A stream gives one content block after another, each begun, continued and ended by events with its index;
`message_delta` behind the last one has the reason to stop and the output tokens so far. Thinking is signed: the block
must come back as it was, before the calls that it led to. platform.claude.com, "Streaming messages", "Thinking".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import orjson

from prompt_sidecar.answers.answer_json import read, write_sound
from prompt_sidecar.answers.base import Call, Dialect, Filter, Shown, Turn, add_output, error_text
from prompt_sidecar.answers.blocks import Block, BlockFilter
from prompt_sidecar.answers.histories import NamedCall, named
from prompt_sidecar.answers.reported_usage import read_usage
from prompt_sidecar.answers.restoring import Arguments
from prompt_sidecar.answers.sse import Event, written
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, array, elements, loads
from prompt_sidecar.providers.anthropic_messages import ERROR_TYPES
from prompt_sidecar.providers.surrogates import escaped, paired, sound
from prompt_sidecar.providers.untyped import member, objects, ordinal, text_of, within
from prompt_sidecar.providers.usage import ProviderUsage

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_INPUTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_WHOLE: Final = frozenset({"tool_use", "end_turn", "stop_sequence"})


class AnthropicMessages(Dialect):
    """See the module."""

    format: ClassVar[str] = "anthropic_messages"
    messages: ClassVar[str] = "messages"
    system: ClassVar[tuple[str, ...]] = ("system",)

    def text(self, entry: Any) -> str | None:
        """A message's text."""
        return text_of(member(entry, "content"), "text")

    def calls(self, entry: Any) -> list[NamedCall]:
        """A message's calls."""
        blocks = [each for each in objects(member(entry, "content")) if each.get("type") == "tool_use"]
        return [named(each.get("id"), each.get("name"), each.get("input")) for each in blocks]

    def recall(self, members: Members) -> RecallOffer:
        """Whether the model may choose among the tools."""
        choice = members.get("tool_choice")
        free = choice is None or member(choice, "type") == "auto"
        return RecallOffer.OFFERED if free else RecallOffer.FORCED

    def forbid_tools(self, members: Members, _: Sequence[Any]) -> None:
        """Have the model answer without tools."""
        members.set("tool_choice", b'{"type":"none"}')

    def answers(self, results: Sequence[tuple[Call, str, bool]]) -> list[Any]:
        """One message of the user's: the provider wants all results of a turn in one."""
        blocks = []
        for call, text, is_error in results:
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "content": text}
            blocks.append(block | {"is_error": True} if is_error else block)
        return [{"role": "user", "content": blocks}] if blocks else []

    def joined(self, answers: Sequence[Any], following: Sequence[bytes]) -> list[bytes]:
        """Put the sidecar's answers into the message that holds the agent's."""
        first = loads(following[0]) if following else None
        if not answers or member(first, "role") != "user":
            return [*map(orjson.dumps, answers), *following]
        assert isinstance(first, dict)
        content = first.get("content")
        raw = elements(orjson.dumps(content)) if isinstance(content, list) else []
        blocks = raw or [orjson.dumps({"type": "text", "text": content})]
        ours = [orjson.dumps(block) for block in answers[0]["content"]]
        merged = Members(following[0])
        merged.set("content", array([*ours, *blocks]))
        return [merged.bytes(), *following[1:]]

    def own_calls(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """The sidecar's calls in a turn."""
        return [block for entry in entries for block in objects(member(entry, "content")) if _is_own(block, own)]

    def calling(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """The turn's message without its text: its thinking stays, as the provider may want a call to begin with it."""
        made = []
        for entry in entries:
            blocks = objects(member(entry, "content"))
            if any(_is_own(block, own) for block in blocks):
                kept = [each for each in blocks if within(each.get("type"), _THINKING) or _is_own(each, own)]
                made.append({**entry, "content": kept})
        return made

    def called_too(self, entries: Sequence[bytes], calls: Sequence[bytes]) -> list[bytes]:
        """Add calls to the message."""
        if not calls:
            return list(entries)
        last = Members(entries[-1])
        content = last.raw("content")
        blocks = elements(content)
        if not blocks and content.strip() not in (b"", b'""', b"null", b"[]"):
            blocks = [b'{"type":"text","text":' + content + b"}"]
        last.set("content", array([*blocks, *calls]))
        return [*entries[:-1], last.bytes()]

    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> Turn:
        """Read a whole answer."""
        return _turn(objects(answer.get("content")), answer.get("stop_reason"), own, read_usage(self.format, answer))

    def show(self, shown: Shown, turn: Turn) -> None:
        """Remember a hidden turn's text."""
        for entry in turn.entries:
            shown.texts += [block for block in entry["content"] if block.get("type") == "text"]

    def written(self, answer: dict[str, Any], shown: Shown, own: Collection[str]) -> Sequence[Any]:
        """Turn the last answer into the agent's."""
        blocks = [block for block in objects(answer.get("content")) if not _is_own(block, own)]
        answer["content"] = [*shown.texts, *blocks]
        add_output(answer.get("usage"), "output_tokens", shown.output_tokens)
        return [{"role": "assistant", "content": answer["content"]}]

    def filter(self, own: Collection[str], _: Members | None) -> Filter:
        """Make a filter."""
        return _Blocks(own)

    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream with an error."""
        found = member(read(body), "error")
        fallback = {"type": ERROR_TYPES.get(status, "api_error"), "message": error_text(body, status)}
        return written({"type": "error", "error": found if isinstance(found, dict) else fallback}, "error")


def _is_own(block: Mapping[str, Any], own: Collection[str]) -> bool:
    return block.get("type") == "tool_use" and within(block.get("name"), own)


def _turn(blocks: list[dict[str, Any]], stop: Any, own: Collection[str], usage: ProviderUsage | None) -> Turn:
    ours = [block for block in blocks if _is_own(block, own)]
    theirs = any(block.get("type") == "tool_use" and not _is_own(block, own) for block in blocks)
    return Turn(
        entries=[{"role": "assistant", "content": blocks}] if blocks else [],
        own=[
            Call(sound(str(each.get("id"))), str(each["name"]), write_sound(each.get("input") or {}).decode())
            for each in ours
        ],
        waits=theirs or stop == "pause_turn",
        whole=within(stop, _WHOLE),
        usage=usage,
    )


@dataclass(slots=True, eq=False)
class _Block(Block):
    """See `Block`."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    """Pieces of its members that are texts."""
    input: list[str] | None = None
    """Pieces of a call's arguments; None: there were none."""

    def gather(self, delta: Any) -> None:
        """Take a piece."""
        kind = member(delta, "type")
        if kind == "input_json_delta":
            piece = delta.get("partial_json")
            self.input = self.input or []
            self.input.append(piece if isinstance(piece, str) else "")
        elif kind == "citations_delta":
            cited = self.content.get("citations")
            self.content["citations"] = cited if isinstance(cited, list) else []
            self.content["citations"].append(delta.get("citation"))
        elif isinstance(delta, dict):
            for name, value in delta.items():
                if name != "type" and isinstance(value, str):
                    self.texts.setdefault(name, []).append(value)

    def joined(self) -> dict[str, Any]:
        """Return the block as its pieces make it."""
        for name, pieces in self.texts.items():
            begun = self.content.get(name)
            self.content[name] = paired((begun if isinstance(begun, str) else "") + "".join(pieces))
        self.texts.clear()
        if self.input is not None:
            text = paired("".join(self.input))
            self.content["input"] = (read(escaped(text).encode()) if text.strip() else {}) or {}
        return self.content


class _Blocks(BlockFilter[_Block]):
    """Filters a stream's events. Where an event has no index, it is of the newest block."""

    index: ClassVar[str] = "index"

    def begin(self) -> None:
        """A turn begins."""
        super().begin()
        self._usage: dict[str, Any] = {}
        self._model: Any = None

    def feed(self, event: Event) -> bytes:
        """Take an event."""
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
                block.gather(data.get("delta"))
        else:  # it goes on, and is no part of the message
            block = self._current[key] = _Block({})
        if _is_own(block.content, self.own):
            self.left_out = True
            return before
        if within(block.content.get("type"), _THINKING) and self.own:
            self._held.append((event, data, block))
            return before
        return before + self._flushed() + self._restored(event, data, block)

    def _restored(self, event: Event, data: dict[str, Any], block: _Block) -> bytes:
        """Send an event, with values in place of masks in a call's arguments."""
        if self.restore is None or block.content.get("type") != "tool_use":
            return self._sent(event, data, block)
        if block.arguments is None:
            block.arguments = Arguments(str(block.content.get("name")), self.restore)
        if data["type"] == "content_block_stop":
            return self._more(block) + self._sent(event, data, block)
        if data["type"] == "content_block_delta" and isinstance(text := member(data, "delta", "partial_json"), str):
            kept = self._give(block, block.arguments, text)
            if kept != text:
                self._placed(block, data.get("index"))
                delta = {"type": "input_json_delta", "partial_json": kept}
                return event.changed({**data, "index": block.place, "delta": delta}).raw
        return self._sent(event, data, block)

    def _changed(self, event: Event, data: dict[str, Any]) -> bytes:
        return event.changed(data).raw

    def _continued(self, place: Any, text: str) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": text}
        return written({"type": "content_block_delta", "index": place, "delta": delta}, "content_block_delta")

    def _end(self, event: Event, data: dict[str, Any]) -> bytes:
        """Take an event about the whole message."""
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
            # message_start told the first turn's input; the agent's counts are those of the last one.
            usage |= {name: self._usage[name] for name in _INPUTS if name in self._usage}
            add_output(usage, "output_tokens", self.output_before)
        return event.changed(data).raw

    def counted(self) -> ProviderUsage | None:
        """Return what the provider has counted."""
        told = {"usage": self._usage, "model": self._model}
        return read_usage(AnthropicMessages.format, told) if self._usage else None

    def turn(self) -> Turn:
        """Return the turn."""
        blocks = [block.joined() for block in self._blocks]
        return _turn(blocks, self._stop, self.own, self.counted())
