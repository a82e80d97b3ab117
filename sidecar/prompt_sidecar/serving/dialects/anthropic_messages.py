"""Anthropic's messages.

A stream gives one content block after another, each begun, continued and ended by events with its index;
`message_delta` behind the last one has the reason to stop and the output tokens so far. Thinking is signed: the block
must come back as it was, before the calls that it led to. platform.claude.com, "Streaming messages", "Thinking".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from prompt_sidecar.serving.dialects.base import Call, Dialect, Filter, Shown, Turn, add_output, error_text
from prompt_sidecar.serving.histories import AnthropicHistory
from prompt_sidecar.serving.members import Members, array, elements, loads
from prompt_sidecar.serving.provider_errors import ANTHROPIC_TYPES
from prompt_sidecar.serving.provider_usage import ProviderUsage, read_usage
from prompt_sidecar.serving.restoring import Arguments
from prompt_sidecar.serving.sse import Event, written
from prompt_sidecar.serving.untyped import member, objects

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_INPUTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_WHOLE: Final = frozenset({"tool_use", "end_turn", "stop_sequence"})


class AnthropicMessages(AnthropicHistory, Dialect):
    """See the module."""

    def free(self, members: Members) -> bool:
        """Whether the model may choose among the tools."""
        choice = members.get("tool_choice")
        return choice is None or member(choice, "type") == "auto"

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

    def arguments(self, answer: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, str]]:
        """Yield what holds each call's arguments."""
        for block in objects(answer.get("content")):
            if block.get("type") == "tool_use":
                yield block, "input", str(block.get("name"))

    def filter(self, own: Collection[str], _: Members | None) -> Filter:
        """Make a filter."""
        return _Blocks(own)

    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream with an error."""
        found = member(loads(body), "error")
        fallback = {"type": ANTHROPIC_TYPES.get(status, "api_error"), "message": error_text(body, status)}
        return written({"type": "error", "error": found if isinstance(found, dict) else fallback}, "error")


def _is_own(block: Mapping[str, Any], own: Collection[str]) -> bool:
    return block.get("type") == "tool_use" and block.get("name") in own


def _turn(blocks: list[dict[str, Any]], stop: Any, own: Collection[str], usage: ProviderUsage | None) -> Turn:
    ours = [block for block in blocks if _is_own(block, own)]
    theirs = any(block.get("type") == "tool_use" and not _is_own(block, own) for block in blocks)
    return Turn(
        entries=[{"role": "assistant", "content": blocks}] if blocks else [],
        own=[
            Call(str(each.get("id")), str(each["name"]), orjson.dumps(each.get("input") or {}).decode())
            for each in ours
        ],
        waits=theirs or stop == "pause_turn",
        whole=stop in _WHOLE,
        usage=usage,
    )


class _Blocks(Filter):
    """Filters events of blocks, which it numbers anew where some are the sidecar's."""

    def __init__(self, own: Collection[str]) -> None:
        super().__init__(own)
        self._next = 0
        """The index of the agent's next block."""
        self._visible: list[dict[str, Any]] = []

    def begin(self) -> None:
        """A turn begins."""
        super().begin()
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._places: dict[int, int] = {}
        self._arguments: dict[int, Arguments] = {}
        """Of the agent's calls, where masks are restored."""
        self._held: list[tuple[Event, dict[str, Any], int]] = []
        """Events of thinking, until the turn shows something."""
        self._usage: dict[str, Any] = {}
        self._model: Any = None
        self._stop: Any = None
        self._hidden = False

    def feed(self, event: Event) -> bytes:
        """Take an event."""
        data = event.json()
        kind = None if data is None else data.get("type")
        if data is None or kind in (None, "ping", "error"):
            return event.raw
        if kind == "message_start":
            self._counted(member(data, "message", "usage"))
            self._model = member(data, "message", "model")
            return event.raw if self.turns == 1 else b""
        if kind in ("content_block_start", "content_block_delta", "content_block_stop"):
            return self._block(event, data)
        if kind == "message_delta":
            self._counted(data.get("usage"))
            self._stop, self.ended = member(data, "delta", "stop_reason"), True
            self._hidden = self.hides()
            return b"" if self._hidden else self._flushed() + self._ended(event, data)
        return b"" if self._hidden else event.raw

    def _counted(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _block(self, event: Event, data: dict[str, Any]) -> bytes:
        index = data.get("index", 0)
        if data["type"] == "content_block_start":
            block = data.get("content_block")
            self._blocks[index] = dict(block) if isinstance(block, dict) else {}
        elif data["type"] == "content_block_delta" and index in self._blocks:
            self._gather(index, data.get("delta"))
        elif index in self._inputs:
            text = "".join(self._inputs.pop(index))
            self._blocks[index]["input"] = (loads(text.encode()) if text.strip() else {}) or {}
        block = self._blocks.get(index, {})
        if _is_own(block, self.own):
            return b""
        if block.get("type") in _THINKING and self.own:
            self._held.append((event, data, index))
            return b""
        return self._flushed() + self._restored(event, data, index)

    def _restored(self, event: Event, data: dict[str, Any], index: int) -> bytes:
        """Send an event, with values in place of masks in a call's arguments."""
        if self.restore is None or self._blocks.get(index, {}).get("type") != "tool_use":
            return self._sent(event, data, index)
        if data["type"] == "content_block_start":
            self._arguments[index] = Arguments(str(self._blocks[index].get("name")), self.restore)
        elif data["type"] == "content_block_stop":
            rest = self._release(index)
            before = written(self._more(index, rest), "content_block_delta") if rest else b""
            return before + self._sent(event, data, index)
        elif isinstance(text := member(data, "delta", "partial_json"), str):
            kept = self._give(index, self._arguments[index], text)
            if kept != text:
                delta = {"type": "input_json_delta", "partial_json": kept}
                return written({**data, "index": self._places[index], "delta": delta}, event.name)
        return self._sent(event, data, index)

    def rest(self) -> bytes:
        """Return what has waited of arguments, where the message was cut off in them."""
        if self.ended:
            return b""
        return b"".join(
            [written(self._more(index, rest), "content_block_delta") for index, rest in self._release_all()]
        )

    def _more(self, index: int, text: str) -> dict[str, Any]:
        delta = {"type": "input_json_delta", "partial_json": text}
        return {"type": "content_block_delta", "index": self._places[index], "delta": delta}

    def _gather(self, index: int, delta: Any) -> None:
        block, kind = self._blocks[index], member(delta, "type")
        if kind == "input_json_delta":
            self._inputs.setdefault(index, []).append(str(delta.get("partial_json") or ""))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
        elif isinstance(delta, dict):
            for name, value in delta.items():
                if name != "type" and isinstance(value, str):
                    block[name] = str(block.get(name) or "") + value

    def _flushed(self) -> bytes:
        held, self._held = self._held, []
        return b"".join(self._sent(*each) for each in held)

    def _sent(self, event: Event, data: dict[str, Any], index: int) -> bytes:
        if index not in self._places:
            self._places[index] = self._next
            self._next += 1
            self._visible.append(self._blocks.get(index, {}))
        if self._places[index] == index:
            return event.raw
        data["index"] = self._places[index]
        return written(data, event.name)

    def _ended(self, event: Event, data: dict[str, Any]) -> bytes:
        if self.turns == 1:
            return event.raw
        usage = data.get("usage")
        if isinstance(usage, dict):
            # message_start told the first turn's input; the agent's counts are those of the last one.
            usage |= {name: self._usage[name] for name in _INPUTS if name in self._usage}
            add_output(usage, "output_tokens", self.output_before)
        return written(data, event.name)

    def turn(self) -> Turn:
        """Return the turn."""
        blocks = [block for _, block in sorted(self._blocks.items())]
        usage = read_usage(AnthropicMessages.format, {"usage": self._usage, "model": self._model})
        return _turn(blocks, self._stop, self.own, usage if self._usage else None)

    def visible(self) -> Sequence[Any]:
        """Return the message that the agent holds."""
        return [{"role": "assistant", "content": self._visible}]
