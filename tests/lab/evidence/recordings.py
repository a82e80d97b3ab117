"""Recorded runs in four formats, as the prompts that their agents sent, and the texts in them by who wrote them.

The prompt of a turn is all that came before the turn's answer. A run is measured in its own format; peers that read
chat completions only are given it in that form, in which every text has the same lines. Of the texts reasoning is left
out: providers do not promise to show it to the model again, and much of it is encrypted. So are system messages' texts
wherever evidence is looked for: they are kept by every strategy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.conformance.conversations import ANTHROPIC, GEMINI, MEMBER, RESPONSES, of_model
from tests.conformance.conversations import SYSTEM as IN_MEMBER
from tests.lab.harness.prompts import leaves
from tests.oracle import data
from tests.oracle.runs import dumps

CHAT = "openai_chat"


class Kind(StrEnum):
    """Who wrote a text."""

    SYSTEM = "system"
    USER = "user"
    RESULT = "result"
    TEXT = "text"
    """The model, in words."""
    ARGUMENTS = "arguments"
    """The model, as a string leaf of a call's arguments."""


SOURCES = frozenset({Kind.USER, Kind.RESULT})
"""Kinds that the model did not write itself."""


class Text(NamedTuple):
    """One text of a message."""

    kind: Kind
    text: str


def texts_of(format: str, message: Any) -> list[Text]:
    """Return the texts of a decoded message; what cannot be read is absent."""
    return list(_READERS[format](message)) if isinstance(message, Mapping) else []


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text without the spaces around them, blank ones left out."""
    return (line for part in text.split("\n") if (line := part.strip()))


def _anthropic(message: Mapping[str, Any]) -> Iterator[Text]:
    role, content = message.get("role"), message.get("content")
    spoken = _spoken(role)
    if isinstance(content, str):
        yield Text(spoken, content)
        return
    for block in _mappings(content):
        kind = block.get("type")
        if kind == "text":
            yield from _several(spoken, [block.get("text")])
        elif kind == "tool_use":
            yield from _several(Kind.ARGUMENTS, leaves(block.get("input")))
        elif kind == "tool_result":
            yield from _several(Kind.RESULT, _content(block.get("content")))


def _chat(message: Mapping[str, Any]) -> Iterator[Text]:
    role = message.get("role")
    kind = Kind.RESULT if role in {"tool", "function"} else _spoken(role)
    yield from _several(kind, _content(message.get("content")))
    for call in _mappings(message.get("tool_calls")):
        function = call.get("function")
        yield from _arguments(function.get("arguments") if isinstance(function, Mapping) else None)


def _responses(item: Mapping[str, Any]) -> Iterator[Text]:
    kind = str(item.get("type") or "message")
    if kind == "message":
        yield from _several(_spoken(item.get("role")), _content(item.get("content")))
    elif kind == "function_call":
        yield from _arguments(item.get("arguments"))
    elif kind.endswith("_call"):
        yield from _several(Kind.ARGUMENTS, leaves(item.get("input")))
        yield from _several(Kind.ARGUMENTS, leaves(item.get("action")))
    elif kind.endswith("_output"):
        yield from _several(Kind.RESULT, _content(item.get("output")))


def _gemini(content: Mapping[str, Any]) -> Iterator[Text]:
    spoken = Kind.TEXT if content.get("role") == "model" else Kind.USER
    for part in _mappings(content.get("parts")):
        if not part.get("thought"):
            yield from _several(spoken, [part.get("text")])
        call = part.get("functionCall") or part.get("function_call") or {}
        yield from _several(Kind.ARGUMENTS, leaves(call.get("args")))
        response = part.get("functionResponse") or part.get("function_response") or {}
        yield from _several(Kind.RESULT, leaves(response.get("response")))


def _spoken(role: object) -> Kind:
    if role in {"system", "developer"}:
        return Kind.SYSTEM
    return Kind.TEXT if role in {"assistant", "model"} else Kind.USER


def _content(content: object) -> Iterator[Any]:
    if isinstance(content, str):
        yield content
    for block in _mappings(content):
        yield block.get("text")


def _arguments(raw: object) -> Iterator[Text]:
    value = raw
    if isinstance(raw, str):
        try:
            value = json.loads(raw)
        except ValueError:
            value = raw
    return _several(Kind.ARGUMENTS, leaves(value))


def _several(kind: Kind, texts: Iterable[Any]) -> Iterator[Text]:
    return (Text(kind, text) for text in texts if isinstance(text, str) and text)


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Text]]] = {
    ANTHROPIC: _anthropic,
    CHAT: _chat,
    RESPONSES: _responses,
    GEMINI: _gemini,
}


FORMATS = {"anthropic": ANTHROPIC, "openai_chat": CHAT, "openai_responses": RESPONSES, "gemini_contents": GEMINI}
MODELS = {ANTHROPIC: "claude-sonnet-4-6", CHAT: "gpt-4.1", RESPONSES: "gpt-4.1", GEMINI: "gemini-2.5-pro"}
"""Models whose window is a million tokens, so that the limit is the one asked for, and for which the sidecar counts as
the ruler does; the recorded ones may have another factor."""
MEMBERS = {**MEMBER, CHAT: "messages"}
SYSTEM = "You are a careful software engineer."
"""For runs whose file has no system prompt, as bodies usually have one."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Unit:
    """Some messages of a run, from `start` to before `end`, and the same in chat completions' form."""

    start: int
    end: int
    chat: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole run in one format."""

    name: str
    format: str
    messages: Sequence[Any] = field(repr=False)
    starts: Sequence[int] = field(repr=False)
    """For each turn, the place of its answer: how many messages its prompt has."""
    system: str = SYSTEM
    """Empty: none, or among the messages."""

    @property
    def slices(self) -> list[bytes]:
        """The messages as JSON."""
        return [dumps(message) for message in self.messages]

    @property
    def head(self) -> list[bytes]:
        """The system prompt as JSON, where it is a member of the body."""
        return [dumps(_system(self.format, self.system))] if self.system and self.format in IN_MEMBER else []

    def answer(self, turn: int) -> Sequence[Any]:
        """The messages that the model answered at a turn."""
        start = self.starts[turn]
        end = self.starts[turn + 1] if turn + 1 < len(self.starts) else len(self.messages)
        stop = next((at for at in range(start, end) if not of_model(self.format, self.messages[at])), end)
        return self.messages[start:stop]

    def body(self, slices: Sequence[bytes]) -> bytes:
        """A request body with these messages."""
        members: dict[str, Any] = {} if self.format == GEMINI else {"model": MODELS[self.format]}
        if self.format == ANTHROPIC:
            members["max_tokens"] = 1_024
        if self.system and self.format in IN_MEMBER:
            members[IN_MEMBER[self.format]] = _system(self.format, self.system)
        head = dumps(members)[:-1] + (b', "' if members else b'"')
        return head + MEMBERS[self.format].encode() + b'": [' + b", ".join(slices) + b"]}"

    def split(self, body: bytes) -> tuple[list[bytes], list[bytes]]:
        """The pieces of the system prompt of a body, and its messages, as JSON."""
        members = _members.decode(body)
        system = bytes(members.get(IN_MEMBER.get(self.format, ""), b""))
        pieces = [bytes(piece) for piece in _array.decode(system)] if system.startswith(b"[") else [system]
        messages = [bytes(piece) for piece in _array.decode(members[MEMBERS[self.format]])]
        return [piece for piece in pieces if piece], messages

    def decoded(self, messages: Sequence[Any]) -> dict[str, Any]:
        """A decoded request body with these messages and the run's own system prompt."""
        own = {IN_MEMBER[self.format]: _system(self.format, self.system)} if self.head else {}
        return {**own, MEMBERS[self.format]: list(messages)}

    def in_chat(self) -> Recording:
        """The run in chat completions' form: a message of several results becomes several, reasoning is left out."""
        if self.format == CHAT:
            return self
        made: list[Any] = [{"role": "system", "content": self.system}] if self.system else []
        starts: list[int] = []
        for unit in self.units():
            starts += [len(made)] * (unit.start in self.starts)
            made += unit.chat
        return replace(self, format=CHAT, messages=made, starts=starts, system="")

    def units(self) -> Iterator[Unit]:
        """The run's messages, each with the same in chat completions' form."""
        if self.format == CHAT:
            yield from (Unit(place, place + 1, [message]) for place, message in enumerate(self.messages))
            return
        numbers = _Numbers()
        place = 0
        while place < len(self.messages):
            end = place + 1
            if self.format == RESPONSES and of_model(self.format, self.messages[place]):
                # The items of one answer are one message there.
                while end < len(self.messages) and of_model(self.format, self.messages[end]) and end not in self.starts:
                    end += 1
            yield Unit(place, end, list(_IN_CHAT[self.format](self.messages[place:end], numbers)))
            place = end


def paths() -> dict[str, Path]:
    """The files of the recorded runs by name; none where there is no data folder."""
    return {path.name.split(".")[0]: path for path in data.present("runs/*.json.gz")}


def recorded(path: Path, *, reasoning: bool = True) -> Recording:
    """Load a run; without `reasoning`, what the model thought is removed from it."""
    loaded = data.document(path)
    format = FORMATS[loaded["format"]]
    messages = loaded["messages"]
    starts = loaded.get("turns") or [
        place for place, message in enumerate(messages) if place and of_model(format, message)
    ]
    system = loaded.get("instructions") or loaded.get("system") or SYSTEM
    if format == CHAT and any(texts_kind(format, message) is Kind.SYSTEM for message in messages):
        system = ""
    run = Recording(path.name.split(".")[0], format, messages, starts, system)
    return run if reasoning else without_reasoning(run)


def without_reasoning(run: Recording) -> Recording:
    """The same run as of a model that does not think."""
    kept: list[Any] = []
    moved: list[int] = []
    for message in run.messages:
        moved.append(len(kept))
        bare = _bare(run.format, message)
        if bare is not None:
            kept.append(bare)
    return replace(run, messages=kept, starts=[moved[start] for start in run.starts])


def texts_kind(format: str, message: Any) -> Kind | None:
    """The kind of a message's first text; None: it has none."""
    return next((text.kind for text in texts_of(format, message)), None)


def _system(format: str, text: str) -> object:
    return {"parts": [{"text": text}]} if format == GEMINI else text


def _bare(format: str, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if format == RESPONSES:
        return None if message.get("type") == "reasoning" else message
    if format == CHAT:
        return {name: value for name, value in message.items() if not name.startswith("reasoning")}
    member = "content" if format == ANTHROPIC else "parts"
    blocks = message.get(member)
    if not isinstance(blocks, list):
        return message
    kept = [block for block in blocks if "thinking" not in str(block.get("type")) and not block.get("thought")]
    # An answer that is nothing but thought stays, so that the run keeps its turns.
    return {**message, member: kept} if kept else message


@dataclass(slots=True)
class _Numbers:
    """Counts calls and results where calls have no ids: each result answers the oldest open call."""

    calls: int = 0
    results: int = 0


def _from_anthropic(messages: Sequence[Mapping[str, Any]], _: _Numbers) -> Iterator[Mapping[str, Any]]:
    (message,) = messages
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if message["role"] == "assistant":
        calls = [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        yield _answer(texts, calls)
        return
    for block in blocks:
        if block["type"] == "tool_result":
            found = [text for _, text in texts_of(ANTHROPIC, {"role": "user", "content": [block]})]
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": "\n".join(found)}
    if texts:
        yield {"role": str(message["role"]), "content": "\n".join(texts)}


def _from_responses(items: Sequence[Mapping[str, Any]], _: _Numbers) -> Iterator[Mapping[str, Any]]:
    if of_model(RESPONSES, items[0]):
        texts = [text for item in items for kind, text in texts_of(RESPONSES, item) if kind is Kind.TEXT]
        calls = [
            (
                item["call_id"],
                item["name"],
                json.loads(item["arguments"]) if "arguments" in item else {"input": item.get("input")},
            )
            for item in items
            if "call_id" in item
        ]
        if texts or calls:
            yield _answer(texts, calls)
        return
    (item,) = items
    text = "\n".join(text for _, text in texts_of(RESPONSES, item))
    if "call_id" in item:
        yield {"role": "tool", "tool_call_id": item["call_id"], "content": text}
    else:
        yield {"role": "system" if item["role"] == "developer" else str(item["role"]), "content": text}


def _from_gemini(contents: Sequence[Mapping[str, Any]], numbers: _Numbers) -> Iterator[Mapping[str, Any]]:
    (content,) = contents
    parts = [part for part in content["parts"] if isinstance(part, Mapping)]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought")]
    calls = []
    for part in parts:
        if "functionCall" in part:
            call = part["functionCall"]
            calls.append((f"call-{numbers.calls}", call["name"], call.get("args", {})))
            numbers.calls += 1
        if "functionResponse" in part:
            text = "\n".join(leaves(part["functionResponse"].get("response")))
            yield {"role": "tool", "tool_call_id": f"call-{numbers.results}", "content": text}
            numbers.results += 1
    if content.get("role") == "model":
        if texts or calls:
            yield _answer(texts, calls)
    elif texts:
        yield {"role": "user", "content": "\n".join(texts)}


def _answer(texts: Sequence[str], calls: Sequence[tuple[str, str, Any]]) -> Mapping[str, Any]:
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for call_id, name, arguments in calls
    ]
    return {"role": "assistant", "content": "\n".join(texts) or None} | ({"tool_calls": made} if made else {})


_IN_CHAT: Mapping[str, Callable[[Sequence[Mapping[str, Any]], _Numbers], Iterator[Mapping[str, Any]]]] = {
    ANTHROPIC: _from_anthropic,
    RESPONSES: _from_responses,
    GEMINI: _from_gemini,
}
