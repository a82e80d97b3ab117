"""Bedrock's Converse and ConverseStream.

The model is in the path. A stream is Amazon's event stream: content blocks one after another, of which only calls have
an event for their beginning; `messageStop` has the reason to stop, and `metadata` behind it the usage. No choice of
tools forbids them all, and requests whose history has calls must define tools: a model that should answer is told so in
the last result. docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import orjson

from prompt_sidecar.serving.dialects.base import (
    Call,
    Dialect,
    EventSplitter,
    Filter,
    Shown,
    Turn,
    add_output,
    error_text,
)
from prompt_sidecar.serving.frames import FRAMES, FrameSplitter, exception, frame
from prompt_sidecar.serving.histories import ConverseHistory
from prompt_sidecar.serving.members import Members, array, elements, loads
from prompt_sidecar.serving.provider_usage import ProviderUsage, read_usage
from prompt_sidecar.serving.restoring import Arguments
from prompt_sidecar.serving.sse import Event
from prompt_sidecar.serving.untyped import member, objects

ENOUGH: Final = "Do not call this tool again now. Answer with what you know."
"""Behind the last result, where the model is to answer."""
NO_ANSWER: Final = "(The model gave no answer.)"
"""In place of an answer that is nothing but calls of the sidecar's tools: a message without content is refused."""
_WHOLE: Final = frozenset({"tool_use", "end_turn", "stop_sequence"})
_THOUGHTS: Final = ("text", "signature", "redactedContent")
_EXCEPTIONS: Final[Mapping[int, str]] = {
    400: "validationException",
    408: "modelStreamErrorException",
    424: "modelStreamErrorException",
    429: "throttlingException",
    503: "serviceUnavailableException",
}


class BedrockConverse(ConverseHistory, Dialect):
    """See the module."""

    streamed: ClassVar[str] = FRAMES

    def free(self, members: Members) -> bool:
        """Whether the model may choose among the tools."""
        choice = member(members.get("toolConfig"), "toolChoice")
        return choice is None or (isinstance(choice, dict) and "auto" in choice)

    def tool_name(self, definition: Any) -> str:
        """The name in a tool's definition."""
        found = member(definition, "toolSpec", "name")
        return found if isinstance(found, str) else ""

    def offer(self, members: Members, definitions: Sequence[bytes]) -> None:
        """Add the sidecar's tools behind the agent's."""
        configuration = Members(members.raw("toolConfig"))
        configuration.set("tools", array([*elements(configuration.raw("tools")), *definitions]))
        members.set("toolConfig", configuration.bytes())

    def forbid_tools(self, _: Members, answers: Sequence[Any]) -> None:
        """Tell the model in the last result that it should answer."""
        answers[-1]["content"][-1]["toolResult"]["content"].append({"text": ENOUGH})

    def answers(self, results: Sequence[tuple[Call, str, bool]]) -> list[Any]:
        """One message of the user's: the provider wants all results of a turn in one."""
        # Not all models take a status of a result; the text says what went wrong.
        blocks = [{"toolResult": {"toolUseId": call.id, "content": [{"text": text}]}} for call, text, _ in results]
        return [{"role": "user", "content": blocks}] if blocks else []

    def joined(self, answers: Sequence[Any], following: Sequence[bytes]) -> list[bytes]:
        """Put the sidecar's answers into the message that holds the agent's."""
        first = loads(following[0]) if following else None
        if not answers or member(first, "role") != "user":
            return [*map(orjson.dumps, answers), *following]
        merged = Members(following[0])
        ours = [orjson.dumps(block) for block in answers[0]["content"]]
        merged.set("content", array([*ours, *elements(merged.raw("content"))]))
        return [merged.bytes(), *following[1:]]

    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> Turn:
        """Read a whole answer."""
        blocks = objects(member(answer.get("output"), "message", "content"))
        return _turn(blocks, answer.get("stopReason"), own, read_usage(self.format, answer))

    def show(self, shown: Shown, turn: Turn) -> None:
        """Remember a hidden turn's text."""
        for entry in turn.entries:
            shown.texts += [block for block in entry["content"] if "text" in block]

    def written(self, answer: dict[str, Any], shown: Shown, own: Collection[str]) -> Sequence[Any]:
        """Turn the last answer into the agent's."""
        message = member(answer.get("output"), "message")
        if not isinstance(message, dict):
            return []
        blocks = objects(message.get("content"))
        kept = [*shown.texts, *(block for block in blocks if not _is_own(block, own))]
        if len(kept) < len(shown.texts) + len(blocks):
            kept = kept or [{"text": NO_ANSWER}]
            if not any("toolUse" in block for block in kept) and answer.get("stopReason") == "tool_use":
                answer["stopReason"] = "end_turn"
        message["content"] = kept
        add_output(answer.get("usage"), "outputTokens", shown.output_tokens, "totalTokens")
        return [{"role": "assistant", "content": kept}]

    def arguments(self, answer: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, str]]:
        """Yield what holds each call's arguments."""
        for block in objects(member(answer.get("output"), "message", "content")):
            if isinstance(use := block.get("toolUse"), dict):
                yield use, "input", str(use.get("name"))

    def splitter(self, most_bytes: int) -> EventSplitter:
        """Make what splits a stream into frames."""
        return FrameSplitter(most_bytes)

    def filter(self, own: Collection[str], _: Members | None) -> Filter:
        """Make a filter."""
        return _Blocks(own)

    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream with an error."""
        return exception({"message": error_text(body, status)}, _EXCEPTIONS.get(status, "internalServerException"))


def _is_own(block: Mapping[str, Any], own: Collection[str]) -> bool:
    return member(block, "toolUse", "name") in own


def _is_blank(block: Mapping[str, Any]) -> bool:
    """Whether a block is a text that the provider gives and does not take."""
    return isinstance(block.get("text"), str) and not block["text"].strip()


def _turn(blocks: list[dict[str, Any]], stop: Any, own: Collection[str], usage: ProviderUsage | None) -> Turn:
    ours = [block["toolUse"] for block in blocks if _is_own(block, own)]
    kept = [block for block in blocks if not _is_blank(block)]
    return Turn(
        entries=[{"role": "assistant", "content": kept}] if kept else [],
        own=[
            Call(str(each.get("toolUseId")), str(each["name"]), orjson.dumps(each.get("input") or {}).decode())
            for each in ours
        ],
        waits=any("toolUse" in block and not _is_own(block, own) for block in blocks),
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
        self._pieces: dict[tuple[int, str], list[str]] = {}
        """Of texts and arguments, by block and kind, until the block is whole."""
        self._places: dict[int, int] = {}
        self._arguments: dict[int, Arguments] = {}
        """Of the agent's calls, where masks are restored."""
        self._held: list[tuple[Event, dict[str, Any], int]] = []
        """Events of reasoning, until the turn shows something."""
        self._usage: ProviderUsage | None = None
        self._stop: Any = None
        self._hidden = False

    def feed(self, event: Event) -> bytes:
        """Take an event."""
        data = event.json()
        if data is None:
            return event.raw
        if event.name == "messageStart":
            return event.raw if self.turns == 1 else b""
        if event.name in ("contentBlockStart", "contentBlockDelta", "contentBlockStop"):
            return self._block(event, data)
        if event.name == "messageStop":
            self._stop, self.ended = data.get("stopReason"), True
            self._hidden = self.hides()
            return b"" if self._hidden else self._flushed() + self._stopped(event, data)
        if event.name == "metadata":
            self._usage = read_usage(BedrockConverse.format, data)
            return b"" if self._hidden else self._counted(event, data)
        return b"" if self._hidden else event.raw

    def rest(self) -> bytes:
        """Return what has waited."""
        return b"" if self._hidden else self._flushed()

    def _block(self, event: Event, data: dict[str, Any]) -> bytes:
        index = data.get("contentBlockIndex", 0)
        block = self._blocks.setdefault(index, {})
        if event.name == "contentBlockStart":
            if isinstance(use := member(data, "start", "toolUse"), dict):
                block["toolUse"] = {**use, "input": {}}
        elif event.name == "contentBlockDelta":
            self._gather(index, block, data.get("delta"))
        else:
            self._join(index)
        if _is_own(block, self.own):
            return b""
        if "reasoningContent" in block and self.own:
            self._held.append((event, data, index))
            return b""
        return self._flushed() + self._restored(event, data, index)

    def _gather(self, index: int, block: dict[str, Any], delta: Any) -> None:
        if not isinstance(delta, dict):
            return
        found = [("input", member(delta, "toolUse", "input")), ("text", delta.get("text"))]
        if isinstance(thought := delta.get("reasoningContent"), dict):
            block.setdefault("reasoningContent", {})
            found = [(name, thought.get(name)) for name in _THOUGHTS]
        elif isinstance(delta.get("text"), str):
            block.setdefault("text", "")
        for kind, piece in found:
            if isinstance(piece, str):
                self._pieces.setdefault((index, kind), []).append(piece)

    def _join(self, index: int) -> None:
        """Put a block together of its pieces."""
        block = self._blocks[index]
        found = {
            kind: "".join(self._pieces.pop((index, kind)))
            for kind in ("input", "text", *_THOUGHTS)
            if (index, kind) in self._pieces
        }
        if "toolUse" in block:
            given = loads(found.get("input", "").encode())
            block["toolUse"]["input"] = given if isinstance(given, dict) else {}
        elif "reasoningContent" in block and "redactedContent" in found:
            block["reasoningContent"] = {"redactedContent": found["redactedContent"]}
        elif "reasoningContent" in block:
            block["reasoningContent"] = {"reasoningText": {"text": "", **found}}
        elif "text" in block:
            block["text"] = found.get("text", "")

    def _restored(self, event: Event, data: dict[str, Any], index: int) -> bytes:
        """Send an event, with values in place of masks in a call's arguments."""
        use = self._blocks[index].get("toolUse")
        if self.restore is None or use is None:
            return self._sent(event, data, index)
        if index not in self._arguments:
            self._arguments[index] = Arguments(str(use.get("name")), self.restore)
        if event.name == "contentBlockStop":
            rest, before = self._release(index), b""
            if rest:
                more = {"contentBlockIndex": self._place(index), "delta": {"toolUse": {"input": rest}}}
                before = frame(more, "contentBlockDelta")
            return before + self._sent(event, data, index)
        if isinstance(text := member(data, "delta", "toolUse", "input"), str):
            kept = self._give(index, self._arguments[index], text)
            if kept != text:
                data |= {"contentBlockIndex": self._place(index), "delta": {"toolUse": {"input": kept}}}
                return frame(data, event.name)
        return self._sent(event, data, index)

    def _flushed(self) -> bytes:
        held, self._held = self._held, []
        return b"".join(self._sent(*each) for each in held)

    def _place(self, index: int) -> int:
        """The index of a block in the agent's answer."""
        if index not in self._places:
            self._places[index] = self._next
            self._next += 1
            self._visible.append(self._blocks[index])
        return self._places[index]

    def _sent(self, event: Event, data: dict[str, Any], index: int) -> bytes:
        place = self._place(index)
        if place == index:
            return event.raw
        data["contentBlockIndex"] = place
        return frame(data, event.name)

    def _stopped(self, event: Event, data: dict[str, Any]) -> bytes:
        """Send the end of the message, which is no call if the agent sees none."""
        turn, before = self.turn(), b""
        if not turn.own or turn.waits:
            return event.raw
        if not self._visible:
            place, block = self._next, {"text": NO_ANSWER}
            self._visible.append(block)
            before = frame({"contentBlockIndex": place, "delta": block}, "contentBlockDelta")
            before += frame({"contentBlockIndex": place}, "contentBlockStop")
        if self._stop != "tool_use":
            return before + event.raw
        return before + frame({**data, "stopReason": "end_turn"}, event.name)

    def _counted(self, event: Event, data: dict[str, Any]) -> bytes:
        if not self.output_before:
            return event.raw
        add_output(data.get("usage"), "outputTokens", self.output_before, "totalTokens")
        return frame(data, event.name)

    def turn(self) -> Turn:
        """Return the turn."""
        for index in {index for index, _ in self._pieces}:
            self._join(index)
        return _turn([block for _, block in sorted(self._blocks.items())], self._stop, self.own, self._usage)

    def visible(self) -> Sequence[Any]:
        """Return the message that the agent holds."""
        return [{"role": "assistant", "content": self._visible}]
