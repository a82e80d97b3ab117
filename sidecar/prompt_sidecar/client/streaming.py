"""The loop behind `complete` with `stream=True`: the model's events flow, and its calls of the sidecar's tools do not.

A turn is put together from its events as they pass. What belongs to a call of the sidecar's is held back; when a turn
ends in such calls alone, they are answered and the model is called again, and its events follow as if it were one
answer: the beginning of later turns and the end of earlier ones are held back, and indexes count on. The events are the
SDK's own objects; one whose index changes is a copy.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from prompt_sidecar.client.engine import Ask, Engine, Rpc
from prompt_sidecar.client.loop import MOST_TURNS, Completion
from prompt_sidecar.client.model_calls import usage_of
from prompt_sidecar.client.turns import Work, answered, offer, only_theirs, reported, taken, with_values
from prompt_sidecar.providers.call_pieces import LONGEST_NAME, another
from prompt_sidecar.providers.sdk import sdk_member as member
from prompt_sidecar.providers.surrogates import sound
from prompt_sidecar.providers.untyped import ordinal


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
    api, keywords = work.api, dict(work.keywords)
    asks = {name: value for name, value in api.asks_usage.items() if not keywords.get(name)}
    keywords |= asks
    offered = only_theirs(keywords) if work.strict else (yield from offer(engine, api, keywords))
    history, recalls, shown = api.history(keywords[api.messages]), 0, 0
    for number in range(1, MOST_TURNS + 1):
        asked = {**keywords, **offered.keywords, api.messages: history}
        step = replace(work, keywords=asked, options=offered.options(work.options))
        stream, trimmed = yield from answered(engine, step)
        reader = _READERS[api.format](offered.own, shown, first=number == 1, hides_usage=bool(asks))
        while (event := (yield Next(stream))) is not END:
            for each in reader.take(event):
                yield Emit(each)
        response, shown = reader.response(), reader.shown
        usage = usage_of(api, response)
        if usage.get("input_tokens") is not None:
            yield from reported(engine, work.run_id, usage, trimmed)
        turn = yield from taken(engine, step, response, offered.own, history)
        recalls += len(turn.results)
        if turn.is_last or number == MOST_TURNS:
            break
        history = [*turn.history, *api.joined(turn.results)]
    for each in reader.last:
        yield Emit(each)
    calls = yield from with_values(engine, turn.calls, step)
    return Completion(response, calls, trimmed, number, recalls, api, tuple(turn.history), tuple(turn.results))


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


@dataclass(slots=True, eq=False)
class _Called:
    """A call of a chat completion, as it is pieced together."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    place: Any = None
    """The index that the agent sees; None: none yet."""

    def take(self, call: Any) -> None:
        """Take a piece."""
        self.id = self.id or _text(member(call, "id"))
        name = _text(member(call, "function", "name"))
        if not self.arguments and name != self.name and len(self.name) < LONGEST_NAME:
            self.name += name
        if piece := _text(member(call, "function", "arguments")):
            self.arguments.append(piece)

    def entry(self) -> dict[str, Any]:
        """Return it as an entry of a message."""
        function = {"name": self.name, "arguments": sound("".join(self.arguments))}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(slots=True)
class _Chat(_Reader):
    """Chunks of chat completions."""

    text: list[str] = field(default_factory=list)
    more: dict[str, list[str]] = field(default_factory=dict)
    """Other texts of the message: a refusal, reasoning of OpenAI's kin."""
    calls: list[_Called] = field(default_factory=list)
    current: dict[int | None, _Called] = field(default_factory=dict)
    """By the provider's index, of which several calls may have the same."""
    usage: Any = None
    finish: Any = None

    def take(self, event: Any) -> list[Any]:
        """See `_Reader`."""
        if member(event, "usage") is not None:
            self.usage = member(event, "usage")
        choices = _several(member(event, "choices"))
        if not choices:
            if not (self.hides_usage and member(event, "usage") is not None):
                self.last.append(event)
            return []
        choice = choices[0]
        delta = member(choice, "delta")
        text = _text(member(delta, "content"))
        self.text.append(text)
        for name in ("refusal", "reasoning_content", "reasoning"):
            if isinstance(member(delta, name), str):
                self.more.setdefault(name, []).append(member(delta, name))
        given = _several(member(delta, "tool_calls"))
        theirs = [self._call(call) for call in given]
        seen = [call for call in theirs if call is not None]
        left_out = any(one is not other for one, other in zip(theirs, given, strict=True))
        if member(choice, "finish_reason"):
            self.finish = member(choice, "finish_reason")
            if left_out:
                event = _changed(event, choices=[_changed(choice, delta=_changed(delta, tool_calls=seen or None))])
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
        if not _is_object(call):
            return call
        given = member(call, "index")
        index = ordinal(given)
        known = self.current.get(index)
        named = member(call, "id"), member(call, "function", "name")
        if known is None or another(*named, known.id, known.name, begun=bool(known.arguments)):
            known = self.current[index] = _Called()
            self.calls.append(known)
        known.take(call)
        if known.name in self.own:
            return None
        if known.place is None:
            known.place = self.shown
            self.shown += 1
        return call if known.place == given else _changed(call, index=known.place)

    def response(self) -> Any:
        """See `_Reader`."""
        message: dict[str, Any] = {"role": "assistant", "content": sound("".join(self.text)) or None}
        message |= {name: sound("".join(pieces)) for name, pieces in self.more.items()}
        if self.calls:
            message["tool_calls"] = [call.entry() for call in self.calls]
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return {"choices": [choice], "usage": self.usage}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_object(value: Any) -> bool:
    """Whether a value has members: an SDK's object, or a dict."""
    return isinstance(value, Mapping) or hasattr(value, "model_copy")


def _several(value: Any) -> Sequence[Any]:
    """An array; empty: it is none."""
    return value if isinstance(value, list | tuple) else ()


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
        index = ordinal(member(event, "output_index"))
        if index is None:
            return [event] if self.first else []
        item = member(event, "item")
        if item is not None and member(item, "type") == "function_call" and _text(member(item, "name")) in self.own:
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


@dataclass(slots=True, eq=False)
class _Block:
    """A content block, as it is pieced together."""

    content: dict[str, Any]
    texts: dict[str, list[str]] = field(default_factory=dict)
    """Pieces of its members that are texts."""
    input: list[str] = field(default_factory=list)
    place: int | None = None
    """The index that the agent sees; None: none yet."""

    def take(self, delta: Any) -> None:
        """Take a piece."""
        kind = member(delta, "type")
        if kind == "input_json_delta":
            self.input.append(_text(member(delta, "partial_json")))
        for of, name in _PIECES:
            if kind == of:
                self.texts.setdefault(name, []).append(_text(member(delta, name)))

    def joined(self) -> dict[str, Any]:
        """Return the block as its pieces make it."""
        made = dict(self.content)
        made |= {name: sound(_text(made.get(name)) + "".join(pieces)) for name, pieces in self.texts.items()}
        if self.input:
            made["input"] = _arguments(sound("".join(self.input)))
        return made


_PIECES: Final = (("text_delta", "text"), ("thinking_delta", "thinking"), ("signature_delta", "signature"))


def _arguments(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):  # the message was cut off in them
        return {}


@dataclass(slots=True)
class _Messages(_Reader):
    """Events of Anthropic's messages."""

    blocks: list[_Block] = field(default_factory=list)
    current: dict[int, _Block] = field(default_factory=dict)
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
            self.stop = member(event, "delta", "stop_reason") or self.stop
        if kind in ("message_delta", "message_stop"):
            self.last.append(event)
            return []
        given = member(event, "index")
        index = ordinal(given)
        if index is None:
            return [event]
        if kind == "content_block_start":
            self.current[index] = _Block(_members(member(event, "content_block")))
            self.blocks.append(self.current[index])
        block = self.current.setdefault(index, _Block({}))
        if kind == "content_block_delta":
            block.take(member(event, "delta"))
        if block.content.get("type") == "tool_use" and _text(block.content.get("name")) in self.own:
            return []
        if block.place is None:
            block.place = self.shown
            self.shown += 1
        return [event if block.place == given else _changed(event, index=block.place)]

    def _count(self, usage: Any) -> None:
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            if member(usage, name) is not None:
                self.usage[name] = member(usage, name)

    def response(self) -> Any:
        """See `_Reader`."""
        content = [block.joined() for block in self.blocks]
        return {"role": "assistant", "content": content, "stop_reason": self.stop, "usage": self.usage}


def _members(value: Any) -> dict[str, Any]:
    """The members of an SDK's object or of a dict; none if it is something else."""
    if isinstance(value, Mapping):
        return dict(value)
    return dict(value.model_dump(exclude_none=True)) if hasattr(value, "model_dump") else {}


_READERS: Final[Mapping[str, Callable[..., _Reader]]] = {
    "openai_chat": _Chat,
    "openai_responses": _Responses,
    "anthropic_messages": _Messages,
}
