"""The loop behind `complete` with `stream=True`: the model's events flow, and its calls of the sidecar's tools do not.

A turn is put together from its events as they pass. What belongs to a call of the sidecar's is held back; when a turn
ends in such calls alone, they are answered and the model is called again, and its events follow as if it were one
answer: the beginning of later turns and the end of earlier ones are held back, and indexes count on. The events are the
SDK's own objects; one whose index changes is a copy.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from prompt_sidecar.client.dialects import member
from prompt_sidecar.client.engine import Ask, Engine, Rpc
from prompt_sidecar.client.loop import MOST_TURNS, Completion
from prompt_sidecar.client.turns import Work, answered, offer, only_theirs, reported, taken, with_values


@dataclass(frozen=True, slots=True)
class Next:
    """The next event of a stream; its result is the event, or `END`."""

    stream: Any


@dataclass(frozen=True, slots=True)
class Emit:
    """An event for the agent."""

    event: Any


END: Final = object()
"""The result of `Next` where there is no further event."""
Streaming: TypeAlias = Generator[Rpc | Ask | Next | Emit, Any, Completion]


def stream_complete(engine: Engine, work: Work) -> Streaming:
    """Call the model until it answers or calls one of the agent's tools; see `prompt_sidecar.client.loop.complete`.

    Raises:
        ClientError: the sidecar did not answer, and the client does not fail open.
        ValueError: more than one answer (`n`) is asked for.
    """
    if (work.keywords.get("n") or 1) != 1:
        raise ValueError("the loop takes one answer: call it with n = 1")
    return _steps(engine, work)


def _steps(engine: Engine, work: Work) -> Streaming:
    dialect, keywords = work.dialect, dict(work.keywords)
    counted = dialect.format == "openai_chat" and not keywords.get("stream_options")
    if counted:
        keywords["stream_options"] = {"include_usage": True}
    offered = only_theirs(keywords) if work.strict else (yield from offer(engine, dialect, keywords))
    history, recalls, shown = dialect.history(keywords[dialect.prompt]), 0, 0
    for number in range(1, MOST_TURNS + 1):
        asked = {**keywords, **offered.keywords, dialect.prompt: history}
        step = replace(work, keywords=asked, options=offered.options(work.options))
        stream, trimmed = yield from answered(engine, step)
        reader = _READERS[dialect.format](offered.own, shown, first=number == 1, hides_usage=counted)
        while (event := (yield Next(stream))) is not END:
            for each in reader.take(event):
                yield Emit(each)
        response, shown = reader.response(), reader.shown
        usage = dialect.usage(response)
        if usage.get("input_tokens") is not None:
            yield from reported(engine, work.run_id, usage, trimmed)
        turn = yield from taken(engine, step, response, offered.own, history)
        recalls += len(turn.results)
        if turn.is_last or number == MOST_TURNS:
            break
        history = [*turn.history, *dialect.joined(turn.results)]
    for each in reader.last:
        yield Emit(each)
    calls = yield from with_values(engine, turn.calls, step)
    return Completion(response, calls, trimmed, number, recalls, dialect, tuple(turn.history), tuple(turn.results))


def _changed(value: Any, **members: Any) -> Any:
    """A copy of an SDK's object or a dict with other members."""
    if isinstance(value, Mapping):
        return {**value, **members}
    return value.model_copy(update=members)


@dataclass(slots=True)
class _Reader(ABC):
    """Reads the events of one turn."""

    own: frozenset[str]
    """Names of the sidecar's tools."""
    shown: int
    """How many blocks, items or calls the agent has seen, in all turns."""
    first: bool
    """Whether it is the first turn."""
    hides_usage: bool
    """Whether the agent has not asked for the event with the usage."""
    last: list[Any] = field(default_factory=list)
    """Events that end the turn: the agent sees those of the last turn only."""
    numbers: dict[int, int] = field(default_factory=dict)
    """The index that the agent sees, by the provider's."""
    hidden: set[int] = field(default_factory=set)
    """Indexes of calls of the sidecar's tools."""

    @abstractmethod
    def take(self, event: Any) -> list[Any]:
        """Return what the agent sees of an event, now."""

    @abstractmethod
    def response(self) -> Any:
        """Return the turn as one response."""

    def number(self, index: int) -> int:
        """Return the index that the agent sees."""
        if index not in self.numbers:
            self.numbers[index] = self.shown
            self.shown += 1
        return self.numbers[index]


@dataclass(slots=True)
class _Chat(_Reader):
    """Chunks of chat completions."""

    text: str = ""
    more: dict[str, str] = field(default_factory=dict)
    """Other texts of the message: a refusal, reasoning of OpenAI's kin."""
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    usage: Any = None
    finish: Any = None

    def take(self, event: Any) -> list[Any]:
        """See `_Reader`."""
        if member(event, "usage") is not None:
            self.usage = member(event, "usage")
        choices = member(event, "choices") or ()
        if not choices:
            if not (self.hides_usage and member(event, "usage") is not None):
                self.last.append(event)
            return []
        choice = choices[0]
        delta = member(choice, "delta")
        text = member(delta, "content")
        self.text += text or ""
        for name in ("refusal", "reasoning_content", "reasoning"):
            if isinstance(member(delta, name), str):
                self.more[name] = self.more.get(name, "") + member(delta, name)
        given = member(delta, "tool_calls") or ()
        theirs = [self._call(call) for call in given]
        seen = [call for call in theirs if call is not None]
        if member(choice, "finish_reason"):
            self.finish = member(choice, "finish_reason")
            self.last.append(event)
            return []
        if given:
            if not seen and not text:
                return []
            changed = _changed(delta, tool_calls=seen or None)
            return [_changed(event, choices=[_changed(choice, delta=changed)])]
        begins = (
            member(delta, "role") and not text and not any(isinstance(member(delta, name), str) for name in self.more)
        )
        return [event] if self.first or not begins else []

    def _call(self, call: Any) -> Any:
        """Take a piece of a call; return it as the agent sees it, None: it is the sidecar's."""
        index = member(call, "index")
        index = index if isinstance(index, int) else len(self.calls)
        known = self.calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        known["id"] = known["id"] or member(call, "id") or ""
        function = known["function"]
        function["name"] = function["name"] or member(call, "function", "name") or ""
        function["arguments"] += member(call, "function", "arguments") or ""
        if function["name"] in self.own:
            self.hidden.add(index)
            return None
        number = self.number(index)
        return call if number == index else _changed(call, index=number)

    def response(self) -> Any:
        """See `_Reader`."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None, **self.more}
        if self.calls:
            message["tool_calls"] = [self.calls[index] for index in sorted(self.calls)]
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return {"choices": [choice], "usage": self.usage}


@dataclass(slots=True)
class _Responses(_Reader):
    """Events of responses."""

    whole: Any = None

    def take(self, event: Any) -> list[Any]:
        """See `_Reader`."""
        kind = member(event, "type") or ""
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self.whole = member(event, "response")
            self.last.append(event)
            return []
        index = member(event, "output_index")
        if not isinstance(index, int):
            return [event] if self.first else []
        item = member(event, "item")
        if item is not None and member(item, "type") == "function_call" and member(item, "name") in self.own:
            self.hidden.add(index)
        if index in self.hidden:
            return []
        number = self.number(index)
        return [event if number == index else _changed(event, output_index=number)]

    def response(self) -> Any:
        """See `_Reader`."""
        if self.whole is None:
            raise ValueError("the stream ended before the response did")
        return self.whole


@dataclass(slots=True)
class _Messages(_Reader):
    """Events of Anthropic's messages."""

    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    """The arguments of calls, as JSON text."""
    usage: dict[str, Any] = field(default_factory=dict)
    stop: Any = None

    def take(self, event: Any) -> list[Any]:
        """See `_Reader`."""
        kind = member(event, "type")
        if kind == "message_start":
            self._count(member(event, "message", "usage"))
            return [event] if self.first else []
        if kind == "message_delta":
            self._count(member(event, "usage"))
            self.stop = member(event, "delta", "stop_reason")
        if kind in ("message_delta", "message_stop"):
            self.last.append(event)
            return []
        index = member(event, "index")
        if not isinstance(index, int):
            return [event]
        if kind == "content_block_start":
            block = member(event, "content_block")
            self.blocks[index] = dict(block) if isinstance(block, Mapping) else block.model_dump(exclude_none=True)
            if self.blocks[index].get("type") == "tool_use" and self.blocks[index].get("name") in self.own:
                self.hidden.add(index)
        elif kind == "content_block_delta":
            self._delta(index, member(event, "delta"))
        if index in self.hidden:
            return []
        number = self.number(index)
        return [event if number == index else _changed(event, index=number)]

    def _count(self, usage: Any) -> None:
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            if member(usage, name) is not None:
                self.usage[name] = member(usage, name)

    def _delta(self, index: int, delta: Any) -> None:
        block, kind = self.blocks[index], member(delta, "type")
        if kind == "text_delta":
            block["text"] = block.get("text", "") + member(delta, "text")
        elif kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + member(delta, "thinking")
        elif kind == "signature_delta":
            block["signature"] = member(delta, "signature")
        elif kind == "input_json_delta":
            self.texts[index] = self.texts.get(index, "") + member(delta, "partial_json")

    def response(self) -> Any:
        """See `_Reader`."""
        for index, text in self.texts.items():
            self.blocks[index]["input"] = json.loads(text or "{}")
        content = [self.blocks[index] for index in sorted(self.blocks)]
        return {"role": "assistant", "content": content, "stop_reason": self.stop, "usage": self.usage}


_READERS: Final[Mapping[str, Callable[..., _Reader]]] = {
    "openai_chat": _Chat,
    "openai_responses": _Responses,
    "anthropic_messages": _Messages,
}
