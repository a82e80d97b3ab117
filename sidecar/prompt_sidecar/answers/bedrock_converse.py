"""Bedrock's Converse and ConverseStream.

The model is in the path. A stream is Amazon's event stream: content blocks one after another, of which only calls have
an event for their beginning; `messageStop` has the stop reason, and `metadata` after it the usage. No tool choice
forbids all tools, and requests whose history has calls must define tools: an instruction in the last result makes a
model answer without them. docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from prompt_sidecar.answers.answer_json import read
from prompt_sidecar.answers.base import EarlierTurns, EventSplitter, Filter, ModelTurn, add_output, error_text
from prompt_sidecar.answers.blocks import Block, BlockDialect, BlockFilter
from prompt_sidecar.answers.frames import FRAMES, FrameSplitter, exception, frame, reframed
from prompt_sidecar.answers.sse import Event
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, NotJson, array, elements, loads
from prompt_sidecar.providers.api import ProviderApi
from prompt_sidecar.providers.surrogates import escaped, paired
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.providers.untyped import member, object_of, objects, ordinal
from prompt_sidecar.providers.usage import ProviderUsage

API: Final = APIS["bedrock_converse"]
ENOUGH: Final = "Do not call this tool again now. Answer with what you know."
"""Added to the last result when the model has to answer."""
NO_ANSWER: Final = "(The model gave no answer.)"
"""Replaces an answer that only calls the sidecar's tools: a message without content is refused."""
_THOUGHTS: Final = ("text", "signature", "redactedContent")
_EXCEPTIONS: Final[Mapping[int, str]] = {
    400: "validationException",
    408: "modelStreamErrorException",
    424: "modelStreamErrorException",
    429: "throttlingException",
    503: "serviceUnavailableException",
}


class BedrockConverse(BlockDialect):
    """See the module."""

    api: ClassVar[ProviderApi] = API
    call_id: ClassVar[str] = "toolUseId"
    streamed: ClassVar[str] = FRAMES

    def call_in(self, block: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """See `BlockDialect`."""
        return object_of(block["toolUse"]) if "toolUse" in block else None

    def thinks(self, block: Mapping[str, Any]) -> bool:
        """See `BlockDialect`."""
        return "reasoningContent" in block

    def says(self, block: Mapping[str, Any]) -> bool:
        """See `BlockDialect`."""
        return "text" in block

    def agent_tools(self, members: Members) -> list[bytes]:
        """Return the definitions of the agent's tools."""
        try:
            configuration = Members(members.raw("toolConfig"))
        except NotJson:
            return []
        return [each for each in elements(configuration.raw("tools")) if each.lstrip()[:1] == b"{"]

    def text(self, entry: Any) -> str | None:
        """Return a message's text."""
        blocks = objects(member(entry, "content"))
        return "".join([each["text"] for each in blocks if isinstance(each.get("text"), str)])

    def recall(self, members: Members) -> RecallOffer:
        """Whether the model need not call any of the tools.

        `any` requires a call of any tool; `tool`, which names one, is supported by few models. docs.aws.amazon.com,
        ToolChoice.
        """
        choice = member(members.get("toolConfig"), "toolChoice")
        free = choice is None or (isinstance(choice, dict) and ("auto" in choice or "tool" in choice))
        return RecallOffer.OFFERED if free else RecallOffer.FORCED

    def continued(self, history: bytes, added: Sequence[bytes]) -> bytes:
        """Return the array with the turn added. Roles alternate, so the model's last message is continued."""
        before = elements(history)
        if before and added and self.speaker(loads(before[-1])) == self.speaker(loads(added[0])):
            last, first = Members(before[-1]), Members(added[0])
            last.set("content", array([*elements(last.raw("content")), *elements(first.raw("content"))]))
            return array([*before[:-1], last.bytes(), *added[1:]])
        return super().continued(history, added)

    def offer(self, members: Members, definitions: Sequence[bytes]) -> None:
        """Add the sidecar's tools behind the agent's."""
        configuration = Members(members.raw("toolConfig"))
        configuration.set("tools", array([*elements(configuration.raw("tools")), *definitions]))
        members.set("toolConfig", configuration.bytes())

    def withdraw(self, members: Members, names: Collection[str]) -> None:
        """Remove tools that were offered, by their names."""
        configuration = Members(members.raw("toolConfig"))
        super().withdraw(configuration, names)
        members.set("toolConfig", configuration.bytes())

    def forbid_tools(self, _: Members, answers: Sequence[Any]) -> None:
        """Instruct the model, in the last result, to answer."""
        answers[-1]["content"][-1]["toolResult"]["content"].append({"text": ENOUGH})

    def read(self, answer: Mapping[str, Any], own: Collection[str]) -> ModelTurn:
        """Read a whole answer."""
        blocks = objects(member(answer.get("output"), "message", "content"))
        return self.turn(blocks, answer.get("stopReason"), own, API.usage.read(answer))

    def turn(
        self, blocks: list[dict[str, Any]], stop: Any, own: Collection[str], usage: ProviderUsage | None
    ) -> ModelTurn:
        """See `BlockDialect`. Blank texts are left out: the provider returns them, but does not accept them."""
        kept = [block for block in blocks if not isinstance(text := block.get("text"), str) or text.strip()]
        return super().turn(kept, stop, own, usage)

    def written(self, answer: dict[str, Any], shown: EarlierTurns, own: Collection[str]) -> Sequence[Any]:
        """Turn the last answer into the one for the agent."""
        message = member(answer.get("output"), "message")
        if not isinstance(message, dict):
            return []
        blocks = objects(message.get("content"))
        kept = [*shown.texts, *(block for block in blocks if not self.is_own(block, own))]
        if len(kept) < len(shown.texts) + len(blocks):
            kept = kept or [{"text": NO_ANSWER}]
            if not any("toolUse" in block for block in kept) and answer.get("stopReason") == "tool_use":
                answer["stopReason"] = "end_turn"
        message["content"] = kept
        add_output(answer.get("usage"), "outputTokens", shown.output_tokens, "totalTokens")
        return [{"role": "assistant", "content": kept}]

    def splitter(self, most_bytes: int) -> EventSplitter:
        """Create a splitter of the stream's frames."""
        return FrameSplitter(most_bytes)

    def filter(self, own: Collection[str], _: Members | None) -> Filter:
        """Create a filter."""
        return _Blocks(self, own)

    def stream_error(self, status: int, body: bytes) -> bytes:
        """End a stream with an error."""
        return exception({"message": error_text(body, status)}, _EXCEPTIONS.get(status, "internalServerException"))


@dataclass(slots=True, eq=False)
class _Block(Block):
    """See `Block`."""

    pieces: dict[str, list[str]] = field(default_factory=dict)
    """Pieces of texts and arguments, by kind."""

    def gather(self, delta: Any) -> None:
        """Add a piece."""
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
        """Return the block assembled from its pieces."""
        block = self.content
        found = {kind: paired("".join(pieces)) for kind, pieces in self.pieces.items()}
        if "toolUse" in block:
            given = read(escaped(found.get("input", "")).encode())
            block["toolUse"]["input"] = given if isinstance(given, dict) else {}
        elif "reasoningContent" in block and "redactedContent" in found:
            block["reasoningContent"] = {"redactedContent": found["redactedContent"]}
        elif "reasoningContent" in block:
            thoughts = {name: found[name] for name in _THOUGHTS if name in found}
            block["reasoningContent"] = {"reasoningText": {"text": "", **thoughts}}
        elif "text" in block:
            block["text"] = found.get("text", "")
        return block


class _Blocks(BlockFilter[_Block]):
    """Filters a stream's events. An index identifies a block until the block has ended."""

    index: ClassVar[str] = "contentBlockIndex"

    def begin(self) -> None:
        """Begin a turn."""
        super().begin()
        self._usage: ProviderUsage | None = None

    def feed(self, event: Event) -> bytes:
        """Process an event."""
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
            self._usage = API.usage.read(data)
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
        return before + self._passed(event, data, block, ends=event.name == "contentBlockStop")

    def _changed(self, event: Event, data: dict[str, Any]) -> bytes:
        return reframed(event, data)

    def _continued(self, data: dict[str, Any]) -> bytes:
        return frame(data, "contentBlockDelta")

    def _piece(self, data: dict[str, Any]) -> Any:
        return member(data, "delta", "toolUse", "input")

    def _arguments(self, place: Any, text: str) -> dict[str, Any]:
        return {"contentBlockIndex": place, "delta": {"toolUse": {"input": text}}}

    def _stopped(self, event: Event, data: dict[str, Any]) -> bytes:
        """Send the end of the message; the stop reason is not a call if the agent has got none."""
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
        """Return the provider's usage."""
        return self._usage

    def stopped(self) -> Any:
        """Return the stream's stop reason."""
        return self._stop

    def turn(self) -> ModelTurn:
        """Return the turn."""
        blocks = [made for block in self._blocks if (made := block.joined())]
        return self.dialect.turn(blocks, self._stop, self.own, self._usage)
