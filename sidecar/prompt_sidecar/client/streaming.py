"""The loop behind `complete` with `stream=True`: the model's events flow, and its calls of the sidecar's tools do not.

A turn is put together from its events as they pass. What belongs to a call of the sidecar's is held back; when a turn
ends in such calls alone, they are answered and the model is called again, and its events follow as if it were one
answer: the beginning of later turns and the end of earlier ones are held back, and indexes count on. The events are the
SDK's own objects; one whose index changes is a copy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from prompt_sidecar.client.dialects import _get
from prompt_sidecar.client.engine import Ask, Engine, Rpc
from prompt_sidecar.client.loop import (
    MOST_TURNS,
    Completion,
    Work,
    _answered,
    _reported,
    _restored,
    _run,
    _theirs,
    offer,
)


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
    """Call the model until it answers or calls one of the agent's tools; see `loop.complete`.

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
    offered = _theirs(keywords) if work.strict else (yield from offer(engine, dialect, keywords))
    history, recalls, shown = dialect.history(keywords[dialect.prompt]), 0, 0
    for turn in range(1, MOST_TURNS + 1):
        asked = {**keywords, **offered.keywords, dialect.prompt: history}
        step = replace(work, keywords=asked, options=offered.options(work.options))
        stream, trimmed = yield from _answered(engine, step)
        reader = _READERS[dialect.format](offered.own, shown, first=turn == 1, hides_usage=counted)
        while (event := (yield Next(stream))) is not END:
            for each in reader.take(event):
                yield Emit(each)
        response, shown = reader.response(), reader.shown
        usage = dialect.usage(response)
        if usage.get("input_tokens") is not None:
            yield from _reported(engine, work.run_id, usage, trimmed)
        calls = dialect.calls(response)
        history = [*history, *dialect.turn(response)]
        own = [call for call in calls if call.name in offered.own]
        others = tuple(call for call in calls if call.name not in offered.own)
        results: list[Any] = []
        for call in own:
            answer = yield from _run(engine, call, step)
            results.append(call.result(answer.content, is_error=answer.is_error))
        recalls += len(own)
        if others or not own or dialect.others(response) or turn == MOST_TURNS:
            break
        history = [*history, *dialect.joined(results)]
    for each in reader.end():
        yield Emit(each)
    others = yield from _restored(engine, others, step)
    return Completion(response, others, trimmed, turn, recalls, dialect, tuple(history), tuple(results))


def _changed(value: Any, **members: Any) -> Any:
    """A copy of an SDK's object or a dict with other members."""
    if isinstance(value, Mapping):
        return {**value, **members}
    return value.model_copy(update=members)


@dataclass(slots=True)
class _Reader:
    """Reads the events of one turn."""

    own: frozenset[str]
    """Names of the sidecar's tools."""
    shown: int
    """How many blocks, items or calls the agent has seen, in all turns."""
    first: bool
    """Whether it is the first turn."""
    hides_usage: bool
    """Whether the agent has not asked for the event with the usage."""
    held: list[Any] = field(default_factory=list)
    """What ends the turn: it is the agent's only if no turn follows."""
    numbers: dict[int, int] = field(default_factory=dict)
    """The index that the agent sees, by the provider's."""
    hidden: set[int] = field(default_factory=set)
    """Indexes of calls of the sidecar's tools."""

    def take(self, event: Any) -> list[Any]:
        """Return what the agent sees of an event, now."""
        raise NotImplementedError

    def response(self) -> Any:
        """Return the turn as one response."""
        raise NotImplementedError

    def end(self) -> list[Any]:
        """Return what ends the last turn."""
        return self.held

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
        if _get(event, "usage") is not None:
            self.usage = _get(event, "usage")
        choices = _get(event, "choices") or ()
        if not choices:
            if not (self.hides_usage and _get(event, "usage") is not None):
                self.held.append(event)
            return []
        choice = choices[0]
        delta = _get(choice, "delta")
        text = _get(delta, "content")
        self.text += text or ""
        for name in ("refusal", "reasoning_content", "reasoning"):
            if isinstance(_get(delta, name), str):
                self.more[name] = self.more.get(name, "") + _get(delta, name)
        given = _get(delta, "tool_calls") or ()
        theirs = [self._call(call) for call in given]
        seen = [call for call in theirs if call is not None]
        if _get(choice, "finish_reason"):
            self.finish = _get(choice, "finish_reason")
            self.held.append(event)
            return []
        if given:
            if not seen and not text:
                return []
            changed = _changed(delta, tool_calls=seen or None)
            return [_changed(event, choices=[_changed(choice, delta=changed)])]
        begins = _get(delta, "role") and not text and not any(isinstance(_get(delta, name), str) for name in self.more)
        return [event] if self.first or not begins else []

    def _call(self, call: Any) -> Any:
        """Take a piece of a call; return it as the agent sees it, None: it is the sidecar's."""
        index = _get(call, "index")
        index = index if isinstance(index, int) else len(self.calls)
        known = self.calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        known["id"] = known["id"] or _get(call, "id") or ""
        function = known["function"]
        function["name"] = function["name"] or _get(call, "function", "name") or ""
        function["arguments"] += _get(call, "function", "arguments") or ""
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
        kind = _get(event, "type") or ""
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self.whole = _get(event, "response")
            self.held.append(event)
            return []
        index = _get(event, "output_index")
        if not isinstance(index, int):
            return [event] if self.first else []
        item = _get(event, "item")
        if item is not None and _get(item, "type") == "function_call" and _get(item, "name") in self.own:
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
        kind = _get(event, "type")
        if kind == "message_start":
            self._count(_get(event, "message", "usage"))
            return [event] if self.first else []
        if kind == "message_delta":
            self._count(_get(event, "usage"))
            self.stop = _get(event, "delta", "stop_reason")
        if kind in ("message_delta", "message_stop"):
            self.held.append(event)
            return []
        index = _get(event, "index")
        if not isinstance(index, int):
            return [event]
        if kind == "content_block_start":
            block = _get(event, "content_block")
            self.blocks[index] = dict(block) if isinstance(block, Mapping) else block.model_dump(exclude_none=True)
            if self.blocks[index].get("type") == "tool_use" and self.blocks[index].get("name") in self.own:
                self.hidden.add(index)
        elif kind == "content_block_delta":
            self._delta(index, _get(event, "delta"))
        if index in self.hidden:
            return []
        number = self.number(index)
        return [event if number == index else _changed(event, index=number)]

    def _count(self, usage: Any) -> None:
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            if _get(usage, name) is not None:
                self.usage[name] = _get(usage, name)

    def _delta(self, index: int, delta: Any) -> None:
        block, kind = self.blocks[index], _get(delta, "type")
        if kind == "text_delta":
            block["text"] = block.get("text", "") + _get(delta, "text")
        elif kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + _get(delta, "thinking")
        elif kind == "signature_delta":
            block["signature"] = _get(delta, "signature")
        elif kind == "input_json_delta":
            self.texts[index] = self.texts.get(index, "") + _get(delta, "partial_json")

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
