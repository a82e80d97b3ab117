"""Bedrock's Converse and ConverseStream.

The model is in the path. A stream is Amazon's event stream: content blocks one after another, of which only calls have
an event for their beginning; `messageStop` has the reason to stop, and `metadata` behind it the usage. No choice of
tools forbids them all, and requests whose history has calls must define tools: a model that should answer is told so in
the last result. docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import orjson

from prompt_sidecar.answers.answer_json import read, write_sound
from prompt_sidecar.answers.base import (
    Call,
    Dialect,
    EventSplitter,
    Filter,
    Shown,
    Turn,
    add_output,
    error_text,
)
from prompt_sidecar.answers.blocks import Block, BlockFilter
from prompt_sidecar.answers.frames import FRAMES, FrameSplitter, exception, frame, reframed
from prompt_sidecar.answers.histories import NamedCall, named
from prompt_sidecar.answers.reported_usage import read_usage
from prompt_sidecar.answers.restoring import Arguments
from prompt_sidecar.answers.sse import Event
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, NotJson, array, elements, loads
from prompt_sidecar.providers.surrogates import escaped, paired, sound
from prompt_sidecar.providers.untyped import member, objects, ordinal, within
from prompt_sidecar.providers.usage import ProviderUsage

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


class BedrockConverse(Dialect):
    """See the module."""

    format: ClassVar[str] = "bedrock_converse"
    messages: ClassVar[str] = "messages"
    system: ClassVar[tuple[str, ...]] = ("system",)

    def agent_tools(self, members: Members) -> list[bytes]:
        """The definitions of the agent's tools."""
        try:
            configuration = Members(members.raw("toolConfig"))
        except NotJson:
            return []
        return [each for each in elements(configuration.raw("tools")) if each.lstrip()[:1] == b"{"]

    def text(self, entry: Any) -> str | None:
        """A message's text."""
        blocks = objects(member(entry, "content"))
        return "".join([each["text"] for each in blocks if isinstance(each.get("text"), str)])

    def calls(self, entry: Any) -> list[NamedCall]:
        """A message's calls."""
        blocks = objects(member(entry, "content"))
        found = [each["toolUse"] for each in blocks if isinstance(each.get("toolUse"), dict)]
        return [named(call.get("toolUseId"), call.get("name"), call.get("input")) for call in found]

    streamed: ClassVar[str] = FRAMES

    def recall(self, members: Members) -> RecallOffer:
        """Whether the model may choose among the tools."""
        choice = member(members.get("toolConfig"), "toolChoice")
        free = choice is None or (isinstance(choice, dict) and "auto" in choice)
        return RecallOffer.OFFERED if free else RecallOffer.FORCED

    def continued(self, history: bytes, added: Sequence[bytes]) -> bytes:
        """Return the array with the turn behind it. Roles alternate, so the model's last message is continued."""
        before = elements(history)
        if before and added and self.speaker(loads(before[-1])) == self.speaker(loads(added[0])):
            last, first = Members(before[-1]), Members(added[0])
            last.set("content", array([*elements(last.raw("content")), *elements(first.raw("content"))]))
            return array([*before[:-1], last.bytes(), *added[1:]])
        return super().continued(history, added)

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

    def own_calls(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """The sidecar's calls in a turn."""
        return [block for entry in entries for block in objects(member(entry, "content")) if _is_own(block, own)]

    def calling(self, entries: Sequence[Any], own: Collection[str]) -> list[Any]:
        """The turn's message without its text: its thinking stays, as the provider may want a call to begin with it."""
        made = []
        for entry in entries:
            blocks = objects(member(entry, "content"))
            if any(_is_own(block, own) for block in blocks):
                kept = [each for each in blocks if "reasoningContent" in each or _is_own(each, own)]
                made.append({**entry, "content": kept})
        return made

    def called_too(self, entries: Sequence[bytes], calls: Sequence[bytes]) -> list[bytes]:
        """Add calls to the message."""
        if not calls:
            return list(entries)
        last = Members(entries[-1])
        last.set("content", array([*elements(last.raw("content")), *calls]))
        return [*entries[:-1], last.bytes()]

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
    return within(member(block, "toolUse", "name"), own)


def _is_blank(block: Mapping[str, Any]) -> bool:
    """Whether a block is a text that the provider gives and does not take."""
    return isinstance(block.get("text"), str) and not block["text"].strip()


def _turn(blocks: list[dict[str, Any]], stop: Any, own: Collection[str], usage: ProviderUsage | None) -> Turn:
    ours = [block["toolUse"] for block in blocks if _is_own(block, own)]
    kept = [block for block in blocks if not _is_blank(block)]
    return Turn(
        entries=[{"role": "assistant", "content": kept}] if kept else [],
        own=[
            Call(sound(str(each.get("toolUseId"))), str(each["name"]), write_sound(each.get("input") or {}).decode())
            for each in ours
        ],
        waits=any("toolUse" in block and not _is_own(block, own) for block in blocks),
        whole=within(stop, _WHOLE),
        usage=usage,
    )


@dataclass(slots=True, eq=False)
class _Block(Block):
    """See `Block`."""

    pieces: dict[str, list[str]] = field(default_factory=dict)
    """Of texts and arguments, by kind."""

    def gather(self, delta: Any) -> None:
        """Take a piece."""
        if not isinstance(delta, dict):
            return
        found = [("input", member(delta, "toolUse", "input")), ("text", delta.get("text"))]
        if isinstance(thought := delta.get("reasoningContent"), dict):
            self.content.setdefault("reasoningContent", {})
            found = [(name, thought.get(name)) for name in _THOUGHTS]
        elif isinstance(delta.get("text"), str):
            self.content.setdefault("text", "")
        for kind, piece in found:
            if isinstance(piece, str):
                self.pieces.setdefault(kind, []).append(piece)

    def joined(self) -> dict[str, Any]:
        """Return the block as its pieces make it."""
        block = self.content
        found = {kind: paired("".join(pieces)) for kind, pieces in self.pieces.items()}
        if "toolUse" in block:
            given = read(escaped(found.get("input", "")).encode())
            block["toolUse"]["input"] = given if isinstance(given, dict) else {}
        elif "reasoningContent" in block and "redactedContent" in found:
            block["reasoningContent"] = {"redactedContent": found["redactedContent"]}
        elif "reasoningContent" in block:
            said = {name: found[name] for name in _THOUGHTS if name in found}
            block["reasoningContent"] = {"reasoningText": {"text": "", **said}}
        elif "text" in block:
            block["text"] = found.get("text", "")
        return block


class _Blocks(BlockFilter[_Block]):
    """Filters a stream's events. An index is a block's until it has ended."""

    index: ClassVar[str] = "contentBlockIndex"

    def begin(self) -> None:
        """A turn begins."""
        super().begin()
        self._usage: ProviderUsage | None = None

    def feed(self, event: Event) -> bytes:
        """Take an event."""
        data = event.json()
        if event.data is None:  # an exception
            return self._flushed() + event.raw
        if data is None:
            return self._other(event)
        if event.name == "messageStart":
            return self._other(event) if self.turns == 1 else b""
        if event.name in ("contentBlockStart", "contentBlockDelta", "contentBlockStop"):
            return self._block(event, data)
        if event.name == "messageStop":
            if self.ended:
                return self._other(event)
            self._stop, self.ended = data.get("stopReason"), True
            self._hidden = self.hides()
            return b"" if self._hidden else self.rest() + self._stopped(event, data)
        if event.name == "metadata":
            self._usage = read_usage(BedrockConverse.format, data)
            return b"" if self._hidden else self._counted(event, data)
        return self._other(event)

    def _block(self, event: Event, data: dict[str, Any]) -> bytes:
        key, before = ordinal(data.get("contentBlockIndex")), b""
        block = self._current.get(key)
        if block is None or event.name == "contentBlockStart":
            before = self._more(block)
            block = self._current[key] = _Block()
            self._blocks.append(block)
        if event.name == "contentBlockStart":
            if isinstance(use := member(data, "start", "toolUse"), dict):
                block.content["toolUse"] = {**use, "input": {}}
        elif event.name == "contentBlockDelta":
            block.gather(data.get("delta"))
        else:
            del self._current[key]
        if _is_own(block.content, self.own):
            self.left_out = True
            return before
        if "reasoningContent" in block.content and self.own:
            self._held.append((event, data, block))
            return before
        return before + self._flushed() + self._restored(event, data, block)

    def _restored(self, event: Event, data: dict[str, Any], block: _Block) -> bytes:
        """Send an event, with values in place of masks in a call's arguments."""
        use = block.content.get("toolUse")
        if self.restore is None or use is None:
            return self._sent(event, data, block)
        if block.arguments is None:
            block.arguments = Arguments(str(use.get("name")), self.restore)
        if event.name == "contentBlockStop":
            return self._more(block) + self._sent(event, data, block)
        if isinstance(text := member(data, "delta", "toolUse", "input"), str):
            kept = self._give(block, block.arguments, text)
            if kept != text:
                self._placed(block, data.get("contentBlockIndex"))
                data |= {"contentBlockIndex": block.place, "delta": {"toolUse": {"input": kept}}}
                return reframed(event, data)
        return self._sent(event, data, block)

    def _changed(self, event: Event, data: dict[str, Any]) -> bytes:
        return reframed(event, data)

    def _continued(self, place: Any, text: str) -> bytes:
        return frame({"contentBlockIndex": place, "delta": {"toolUse": {"input": text}}}, "contentBlockDelta")

    def _stopped(self, event: Event, data: dict[str, Any]) -> bytes:
        """Send the end of the message, which is no call if the agent sees none."""
        turn, before = self.turn(), b""
        if not turn.own or turn.waits:
            return event.raw
        if not self._visible:
            place, block = self._next, {"text": NO_ANSWER}
            self._visible.append(_Block({"text": ""}, pieces={"text": [NO_ANSWER]}))
            before = frame({"contentBlockIndex": place, "delta": block}, "contentBlockDelta")
            before += frame({"contentBlockIndex": place}, "contentBlockStop")
        if self._stop != "tool_use":
            return before + event.raw
        return before + reframed(event, {**data, "stopReason": "end_turn"})

    def _counted(self, event: Event, data: dict[str, Any]) -> bytes:
        if not self.output_before:
            return event.raw
        add_output(data.get("usage"), "outputTokens", self.output_before, "totalTokens")
        return reframed(event, data)

    def counted(self) -> ProviderUsage | None:
        """Return what the provider has counted."""
        return self._usage

    def turn(self) -> Turn:
        """Return the turn."""
        blocks = [made for block in self._blocks if (made := block.joined())]
        return _turn(blocks, self._stop, self.own, self._usage)
