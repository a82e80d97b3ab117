"""Runs of a browser agent, in every format: pages, screenshots, actions, and what the agent tells itself of its steps.

A browser agent's history differs from a coding agent's. Its bulk is user messages: at each step a snapshot of the page
between EXTERNAL-CONTENT tags, often with a screenshot. Actions are small and have small results. In between the agent
tells the model, as the user, that a step failed, that it repeats itself, or that what it took for the answer was
rejected. Such a run is made once, as OpenAI chat, and written in the other formats from that; the same seed and shape
give the same run. Source of the shape: the discussion of Pilo that the design starts from.

`seen` reads a returned prompt back, of whatever format, into one plain form that tests compare.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prompt_sidecar.facts.trim_calls import Annotation, TrimAnswer
from prompt_sidecar.v1 import conversation_pb2 as pb
from tests.oracle.runs import Run, body_of, dumps, turns
from tests.oracle.shapes import ANTHROPIC_MESSAGES, FORMATS, OPENAI_CHAT, blocks_of, messages_of, role_of

CONVERSATION = "conversation"
ALL_FORMATS = (*FORMATS, CONVERSATION)


class Part(StrEnum):
    """What a message of a browsing run is for."""

    SYSTEM = "system"
    TASK = "task"
    SNAPSHOT = "snapshot"
    CALL = "call"
    RESULT = "result"
    VALIDATION = "validation"
    ERROR = "error"
    REPETITION = "repetition"
    PERSON = "person"
    """A person's word in between."""


FEEDBACK: Mapping[Part, Annotation] = {
    Part.VALIDATION: Annotation.VALIDATION_FEEDBACK,
    Part.ERROR: Annotation.STEP_ERROR,
    Part.REPETITION: Annotation.REPETITION_WARNING,
}
"""What an agent would annotate its feedback as."""
PREFIXES: Mapping[Part, str] = {
    Part.VALIDATION: "Validation feedback: ",
    Part.ERROR: "Step error: ",
    Part.REPETITION: "Repetition warning: ",
}
"""How feedback begins where it is known by that."""


@dataclass(frozen=True, slots=True)
class Browsing:
    """What a run holds. Shares are probabilities per iteration; sizes are characters."""

    iterations: int = 50
    page: int = 4_000
    """Median of a page's text; sizes vary by a factor of two."""
    snapshots: float = 0.9
    """Share of iterations that show the page again."""
    screenshots: float = 0.5
    """Share of snapshots with an image."""
    validations: float = 0.1
    errors: float = 0.15
    repetitions: float = 0.08
    persons: float = 0.02
    bare: float = 0.03
    """Share of iterations in which the model only talks."""
    same_again: float = 0.05
    """Share of iterations that make the last call again and get the last result."""
    prefixed: bool = True
    """Whether feedback begins as the default policy has it; else only annotations tell it."""
    merged: bool = False
    """Whether an Anthropic user turn is one message: results, then feedback and snapshot as text blocks after them."""
    odd_ids: float = 0.0
    """Share of calls with an empty id (OpenAI) or one that was used before."""


@dataclass(frozen=True, slots=True)
class History:
    """A browsing run in one format."""

    format: str
    run: Run
    """In conversation format: the OpenAI chat run that it was written from."""
    slices: Sequence[bytes] = field(repr=False)
    """Each message as it is sent: JSON, or a serialised `prompt_sidecar.v1.Message`."""
    parts: Sequence[Part]
    """What each message is for; of a merged turn what its first block is for."""

    @property
    def lengths(self) -> list[int]:
        """How many messages each prompt of the run holds."""
        return turns(self.run.messages)

    def prompt(self, length: int | None = None) -> dict[str, Any]:
        """The prompt of the first so many messages, as fields of a call."""
        return prompt_of(self, self.slices[:length])

    def annotations(self, length: int | None = None, parts: Sequence[Part] = tuple(FEEDBACK)) -> dict[int, Annotation]:
        """What an agent would say of those messages that are of these parts."""
        annotations = {**FEEDBACK, Part.SNAPSHOT: Annotation.SNAPSHOT}
        return {at: annotations[part] for at, part in enumerate(self.parts[:length]) if part in parts}

    def places(self, *parts: Part) -> list[int]:
        """Indices of the messages that are of these parts."""
        return [at for at, part in enumerate(self.parts) if part in parts]


def prompt_of(history: History, slices: Sequence[bytes]) -> dict[str, Any]:
    """A prompt of these messages, as fields of a call."""
    if history.format == CONVERSATION:
        return {"format": CONVERSATION, "body": b"", "messages": list(slices)}
    return {"format": history.format, "body": body_of(history.format, slices, system=history.run.system)}


def browsing(seed: int, format: str, shape: Browsing | None = None) -> History:
    """Make a run. The same seed, format and shape give the same run."""
    shape = shape or Browsing()
    made = list(_Maker(random.Random(seed), shape, reuse=format == ANTHROPIC_MESSAGES).messages())
    parts = [part for part, _ in made]
    messages = [message for _, message in made]
    name = f"browsing-{seed}-{format}"
    if format == ANTHROPIC_MESSAGES:
        pairs = [(part, _anthropic(message)) for part, message in made[1:]]
        if shape.merged:
            pairs = list(_merged(pairs))
        run = Run(name, format, [message for _, message in pairs], messages[0]["content"])
        return History(format, run, run.slices(), [part for part, _ in pairs])
    run = Run(name, OPENAI_CHAT, messages)
    return History(format, run, run.slices() if format == OPENAI_CHAT else [typed(each) for each in messages], parts)


_VOCABULARY = """
price cart login search result hotel flight review offer ticket date guest room filter sort map address contact
shipping return help account order invoice voucher category product detail gallery menu footer banner cookie
"""
_WORDS = _VOCABULARY.split()
_Made = Iterator[tuple[Part, dict[str, Any]]]


class _Maker:
    """Writes a run's messages in OpenAI's format from one source of chance."""

    def __init__(self, chance: random.Random, shape: Browsing, *, reuse: bool) -> None:
        self.chance = chance
        self.shape = shape
        self.reuse = reuse
        """Whether odd ids are used ones; a format that pairs by id alone has no empty ones."""
        self.used: list[str] = []
        self.last: tuple[str, str, str] | None = None
        """Tool, arguments and result of the last call."""

    def messages(self) -> _Made:
        chance, shape = self.chance, self.shape
        yield Part.SYSTEM, {"role": "system", "content": "You browse the web for the user, one action at a time."}
        yield (
            Part.TASK,
            {"role": "user", "content": "Task: find the cheapest room in May. Plan: search, compare, tell."},
        )
        for number in range(shape.iterations):
            if number == 0 or chance.random() < shape.snapshots:
                yield Part.SNAPSHOT, self.snapshot(number)
            if chance.random() < shape.bare:
                yield (
                    Part.CALL,
                    {"role": "assistant", "content": f"Step {number}: I have the answer. {self.words(12)}."},
                )
                yield Part.VALIDATION, self.feedback(Part.VALIDATION, number)
                continue
            yield from self.step(number)
            for part, share in (
                (Part.VALIDATION, shape.validations),
                (Part.ERROR, shape.errors),
                (Part.REPETITION, shape.repetitions),
            ):
                if chance.random() < share:
                    yield part, self.feedback(part, number)
            if chance.random() < shape.persons:
                yield Part.PERSON, {"role": "user", "content": f"Also look at the {self.words(3)}."}

    def snapshot(self, number: int) -> dict[str, Any]:
        lines = [f"[E{at}] {self.words(7)}" for at in range(int(self.shape.page * self.chance.uniform(0.5, 2) / 55))]
        text = (
            f"This is the page at step {number}.\n"
            f'<EXTERNAL-CONTENT label="page-snapshot" url="https://example.com/{self.chance.choice(_WORDS)}/{number}">\n'
            + "\n".join(lines or ["(empty)"])
            + "\n</EXTERNAL-CONTENT>\nChoose the next action."
        )
        if self.chance.random() >= self.shape.screenshots:
            return {"role": "user", "content": text}
        data = base64.b64encode(f"{number:04}".encode() + self.chance.randbytes(240)).decode()
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return {"role": "user", "content": [{"type": "text", "text": text}, image]}

    def step(self, number: int) -> _Made:
        chance = self.chance
        if self.last is None or chance.random() >= self.shape.same_again:
            self.last = self.action(number)
        name, arguments, result = self.last
        call_id = f"call_{number}_{chance.getrandbits(24):06x}"
        if chance.random() < self.shape.odd_ids:
            call_id = (chance.choice(self.used) if self.used else call_id) if self.reuse else ""
        self.used.append(call_id)
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        text = f"Step {number}: {self.words(25)}." if chance.random() < 0.7 else None
        yield Part.CALL, {"role": "assistant", "content": text, "tool_calls": [call]}
        yield Part.RESULT, {"role": "tool", "tool_call_id": call_id, "content": result}

    def action(self, number: int) -> tuple[str, str, str]:
        """A tool, its arguments and its result; one action in five takes or gives much text."""
        chance = self.chance
        name = chance.choice(["click", "fill", "goto", "scroll", "extract"])
        arguments: dict[str, Any] = {"ref": f"E{chance.randint(1, 99)}"}
        result: dict[str, Any] = {"success": True, "action": name, "step": number}
        if name == "fill":
            arguments["value"] = self.words(chance.choice([3, 60]))
        elif name == "goto":
            arguments = {"url": f"https://example.com/{chance.choice(_WORDS)}/{number}"}
        elif name == "extract":
            arguments = {"description": self.words(15)}
            result["extracted"] = self.words(chance.choice([40, 300]))
        result["page"] = self.words(20)
        return name, json.dumps(arguments), json.dumps(result)

    def feedback(self, part: Part, number: int) -> dict[str, Any]:
        start = PREFIXES[part] if self.shape.prefixed else ""
        return {"role": "user", "content": f"{start}at step {number}, {self.words(self.chance.choice([12, 80]))}."}

    def words(self, count: int) -> str:
        return " ".join(self.chance.choice(_WORDS) for _ in range(count))


# -- the other formats -----------------------------------------------------------------------------------------------


def _anthropic(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of OpenAI's format in Anthropic's."""
    if message["role"] == "tool":
        block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [block]}
    content = message["content"]
    parts: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if part["type"] == "image_url":
            source = {"type": "base64", "media_type": "image/png", "data": part["image_url"]["url"].partition(",")[2]}
            blocks.append({"type": "image", "source": source})
        else:
            blocks.append(part)
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = json.loads(function["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    return {"role": message["role"], "content": blocks}


def _merged(pairs: Sequence[tuple[Part, dict[str, Any]]]) -> _Made:
    """Messages with those of the user in a row made one, but for the opening's."""
    held: tuple[Part, dict[str, Any]] | None = None
    for part, message in pairs:
        if held is not None and held[1]["role"] == "user" == message["role"] and held[0] is not Part.TASK:
            held = (held[0], {"role": "user", "content": [*held[1]["content"], *message["content"]]})
            continue
        if held is not None:
            yield held
        held = (part, message)
    if held is not None:
        yield held


_ROLES = {
    "system": pb.ROLE_SYSTEM,
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
    "tool": pb.ROLE_TOOL,
}
_NAMES = {number: name for name, number in _ROLES.items()}


def typed(message: Mapping[str, Any]) -> bytes:
    """A message of OpenAI's format as a serialised `prompt_sidecar.v1.Message`."""
    made = pb.Message(role=_ROLES[message["role"]])
    content = message["content"]
    if message["role"] == "tool":
        made.parts.add(tool_result=pb.ToolResult(call_id=message["tool_call_id"], text=content))
        return made.SerializeToString(deterministic=True)
    parts: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for part in parts:
        if part["type"] == "image_url":
            data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
            made.parts.add(image=pb.Image(media_type="image/png", data=data))
        else:
            made.parts.add(text=part["text"])
    for call in message.get("tool_calls", ()):
        function = call["function"]
        made.parts.add(
            tool_call=pb.ToolCall(id=call["id"], name=function["name"], arguments_json=function["arguments"])
        )
    return made.SerializeToString(deterministic=True)


# -- what is returned ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """One returned message in a plain form."""

    role: str
    texts: tuple[str, ...] = ()
    calls: tuple[tuple[str, str, str], ...] = ()
    """Id, tool name and arguments as JSON text."""
    results: tuple[tuple[str, str], ...] = ()
    """The id of the call that is answered, and the text."""
    images: int = 0

    @property
    def text(self) -> str:
        """All texts, a line each."""
        return "\n".join(self.texts)


def returned(answer: TrimAnswer) -> list[bytes]:
    """The returned messages, each as its bytes."""
    if answer.prompt.messages is not None:
        return list(answer.prompt.messages)
    return [dumps(message) for message in messages_of(json.loads(answer.prompt.body or b""))]


def seen(answer: TrimAnswer) -> list[Seen]:
    """The returned messages in the plain form, the sidecar's own text left out."""
    own = {piece.message_index for piece in answer.prompt.own_text}
    if answer.prompt.messages is not None:
        everything = [_seen_typed(pb.Message.FromString(raw)) for raw in answer.prompt.messages]
    else:
        everything = [_seen_json(message) for message in messages_of(json.loads(answer.prompt.body or b""))]
    return [message for at, message in enumerate(everything) if at not in own]


def sent(history: History, length: int | None = None) -> list[Seen]:
    """The messages of a run in the plain form, as they are sent."""
    if history.format == CONVERSATION:
        return [_seen_typed(pb.Message.FromString(raw)) for raw in history.slices[:length]]
    return [_seen_json(message) for message in history.run.messages[:length]]


def _seen_typed(message: pb.Message) -> Seen:
    calls = [part.tool_call for part in message.parts if part.HasField("tool_call")]
    results = [part.tool_result for part in message.parts if part.HasField("tool_result")]
    return Seen(
        role=_NAMES[message.role],
        texts=tuple(part.text for part in message.parts if part.HasField("text")),
        calls=tuple((call.id, call.name, call.arguments_json) for call in calls),
        results=tuple((result.call_id, result.text) for result in results),
        images=sum(part.HasField("image") for part in message.parts),
    )


def _seen_json(message: Mapping[str, Any]) -> Seen:
    content = message.get("content")
    if role_of(message) == "tool":
        return Seen("tool", results=((message["tool_call_id"], str(content)),))
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else blocks_of(message)
    calls = [
        (call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())
    ]
    calls += [(each["id"], each["name"], json.dumps(each["input"])) for each in blocks if each["type"] == "tool_use"]
    return Seen(
        role=role_of(message),
        texts=tuple(each["text"] for each in blocks if each["type"] == "text"),
        calls=tuple(calls),
        results=tuple((each["tool_use_id"], each["content"]) for each in blocks if each["type"] == "tool_result"),
        images=sum(each["type"] in ("image", "image_url") for each in blocks),
    )
