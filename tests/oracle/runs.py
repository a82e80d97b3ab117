"""Runs to replay: recorded ones, and synthetic ones that hold what recorded ones hold and more.

An agent sends its whole history again at each turn, so a run is replayed as its prompts: the messages before each
assistant message, then all of them. Of consecutive assistant messages each is a turn of its own.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.oracle import data
from tests.oracle.respell import python_unicode
from tests.oracle.shapes import ANTHROPIC_MESSAGES, OPENAI_CHAT, role_of

_FORMATS = {"openai_chat": OPENAI_CHAT, "anthropic": ANTHROPIC_MESSAGES}


@dataclass(frozen=True, slots=True)
class Run:
    """The messages of a whole run, in one format; `system` is the system prompt of Anthropic bodies."""

    name: str
    format: str
    messages: Sequence[Any] = field(repr=False)
    system: object = None

    def slices(self) -> list[bytes]:
        """Return the messages as JSON."""
        return [dumps(message) for message in self.messages]

    def body(self, length: int | None = None) -> bytes:
        """Return the request body that sends the first `length` messages (None: all)."""
        return body_of(self.format, self.slices()[:length], system=self.system)

    @property
    def leading(self) -> int:
        """Leading system messages, which the sidecar's message indices do not count."""
        count = 0
        while count < len(self.messages) and role_of(self.messages[count]) in ("system", "developer"):
            count += 1
        return count if self.format == OPENAI_CHAT else 0


def dumps(value: object) -> bytes:
    """Write JSON as Python does, characters unescaped."""
    return python_unicode(json.dumps(value).encode())


def body_of(format: str, slices: Sequence[bytes], *, system: object = None) -> bytes:
    """Return a request body around messages that are JSON already."""
    head: dict[str, Any] = {"model": "gpt-4o"}
    if format == ANTHROPIC_MESSAGES:
        head = {"model": "claude-sonnet-4-5", "max_tokens": 1024}
        if system is not None:
            head["system"] = system
    return dumps(head)[:-1] + b', "messages": [' + b", ".join(slices) + b"]}"


def turns(messages: Sequence[Any]) -> list[int]:
    """Return how many messages each prompt of the run holds: those before each assistant message, then all."""
    lengths = [place for place, message in enumerate(messages) if role_of(message) == "assistant" and place > 0]
    return lengths if lengths and lengths[-1] == len(messages) else [*lengths, len(messages)]


def recorded_paths() -> list[Path]:
    """Return the files of recorded runs in the formats that the oracle reads; none where there is no data folder.

    `tests.conformance` replays the others too.
    """
    return [path for path in data.present("runs/*.json.gz") if path.name.split(".")[1] in _FORMATS]


def recorded(path: Path) -> Run:
    """Load a recorded run. Anthropic runs get a plain system prompt, as bodies usually have one."""
    loaded = data.document(path)
    format = _FORMATS[loaded["format"]]
    system = "You are a careful software engineer." if format == ANTHROPIC_MESSAGES else None
    return Run(path.name.split(".")[0], format, loaded["messages"], system)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a synthetic run holds. Shares are probabilities per iteration; sizes are characters."""

    iterations: int = 20
    parallel: int = 4
    """Most calls in one iteration."""
    median: int = 900
    """Median characters of a result; sizes are log-normal, as in recorded runs."""
    spread: float = 1.2
    """Standard deviation of the logarithm: one result in a hundred is sixteen times the median."""
    interruptions: float = 0.1
    """Share of iterations after which the user says something."""
    reasoning: float = 0.3
    images: float = 0.05
    unknown_blocks: float = 0.05
    cache_marks: bool = True
    odd_ids: float = 0.15
    """Share of calls with an empty (OpenAI) or reused id."""
    defects: bool = True
    """Whether there are aborted turns: a call that nobody answered, messages of one role in a row."""
    bare: float = 0.1
    """Share of iterations without a call: the model only talks."""
    instructions: float = 0.0
    """Share of the user's turns in Anthropic's format that system messages follow; some change which tools there are,
    and with `defects` some stand where none may."""


def synthetic(seed: int, format: str, shape: Shape | None = None) -> Run:
    """Make a run. The same seed, format and shape give the same run."""
    maker = _Maker(random.Random(seed), format, shape or Shape())
    system = None
    if format == ANTHROPIC_MESSAGES:
        text = {"type": "text", "text": "You are a careful engineer. " * 4}
        system = [text | ({"cache_control": {"type": "ephemeral"}} if maker.shape.cache_marks else {})]
    messages = list(maker.messages())
    if format == ANTHROPIC_MESSAGES and maker.shape.instructions:
        messages = list(_instructed(random.Random(f"instructions {seed}"), messages, maker.shape))
    return Run(f"synthetic-{seed}-{format}", format, messages, system)


def _instructed(chance: random.Random, messages: Sequence[Any], shape: Shape) -> Iterator[Any]:
    """The messages with system messages between them."""
    for place, message in enumerate(messages):
        yield message
        after = role_of(messages[place + 1]) if place + 1 < len(messages) else "assistant"
        allowed = role_of(message) == "user" and after == "assistant"
        if chance.random() < (shape.instructions if allowed else shape.defects * 0.03):
            for _ in range(chance.choice((1, 1, 1, 2))):
                yield _instruction(chance, f"{place}.{chance.getrandbits(32):x}")


def _instruction(chance: random.Random, name: str) -> dict[str, Any]:
    """A system message, unlike any other, so that it is found again."""
    kind = chance.random()
    reminder = f"The task list was not used lately ({name})."
    if kind < 0.4:
        return {"role": "system", "content": reminder}
    if kind < 0.6:
        return {"role": "system", "content": reminder, "clear_at": "next_user_message"}
    if kind < 0.85:
        return {"role": "system", "content": [{"type": "text", "text": " ".join(chance.choices(_WORDS, k=30))}]}
    change = chance.choice(("tool_addition", "tool_removal"))
    return {"role": "system", "content": [{"type": change, "tool": {"type": "tool_reference", "name": name}}]}


_WORDS = ("result", "value", "error", "module", "import", "return", "client", "server", "token", "index", "buffer")
_CJK = "提示词缓存裁剪原文检索工具结果漢字テスト한국어"
_EMOJI = "🙂🚀👩‍💻🇩🇪✅❌"


_Call = tuple[str, str, dict[str, Any]]
"""A call's id, tool name and arguments."""


class _Maker:
    """Writes messages of one format from one source of chance."""

    def __init__(self, chance: random.Random, format: str, shape: Shape) -> None:
        self.chance = chance
        self.anthropic = format == ANTHROPIC_MESSAGES
        self.shape = shape
        self.used: list[str] = []

    def messages(self) -> Iterator[dict[str, Any]]:
        chance, shape = self.chance, self.shape
        if not self.anthropic:
            yield {"role": "system", "content": "You are a careful engineer."}
        yield self.user("Find out why the nightly build fails, and fix it.")
        for _ in range(shape.iterations):
            if chance.random() < shape.bare:
                yield self.assistant(self.text(200), [])
                yield self.user("Go on.")
                continue
            calls = [self.call() for _ in range(chance.randint(1, shape.parallel))]
            if self.anthropic or chance.random() < 0.5:
                # Only ids that are distinct within a turn can be answered in Anthropic's format.
                calls = list({call[0]: call for call in calls}.values())
            yield self.assistant(self.text(160) if chance.random() < 0.7 else "", calls)
            if shape.defects and chance.random() < 0.04:
                yield self.user("Stop. That was the wrong directory.")
                continue
            yield from self.results(calls)
            if chance.random() < shape.interruptions:
                yield self.user(self.text(120) or "Go on.")

    def call(self) -> _Call:
        chance = self.chance
        fresh = f"call_{chance.getrandbits(48):012x}"
        call_id = fresh
        if chance.random() < self.shape.odd_ids:
            reuse = self.used and chance.random() < 0.6
            call_id = chance.choice(self.used) if reuse else (fresh if self.anthropic else "")
        self.used.append(call_id or fresh)
        name = chance.choice(["read_file", "grep", "run", "write_file", "browser.open"])
        arguments: dict[str, Any] = {"path": f"src/{chance.choice(_WORDS)}.py", "line": chance.randint(1, 900)}
        if name == "write_file":
            arguments = {"path": arguments["path"], "content": self.text(self.size(), "code")}
        if chance.random() < 0.2:
            arguments |= {"z": 1.0, "a": {"10": 1e3, "9": [True, None, "é<&>"]}}
        return call_id, name, arguments

    def assistant(self, text: str, calls: Sequence[_Call]) -> dict[str, Any]:
        chance, shape = self.chance, self.shape
        thinks = chance.random() < shape.reasoning
        if not self.anthropic:
            message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "Thinking.")}
            if thinks:
                message["reasoning_content"] = self.text(80)
            if calls:
                message["tool_calls"] = [
                    {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                    for call_id, name, arguments in calls
                ]
            return message
        blocks: list[dict[str, Any]] = []
        if thinks:
            signature = f"sig+/{chance.getrandbits(64):x}=="
            blocks.append({"type": "thinking", "thinking": self.text(80), "signature": signature})
        if text or not calls:
            blocks.append({"type": "text", "text": text or "Thinking."})
        if chance.random() < shape.unknown_blocks:
            blocks.append({"type": "x_new_block", "data": {"z": 1, "a": [2.50]}})
        for call_id, name, arguments in calls:
            blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
        return {"role": "assistant", "content": blocks}

    def results(self, calls: Sequence[_Call]) -> Iterator[dict[str, Any]]:
        if not self.anthropic:
            for call_id, _, _ in calls:
                yield {"role": "tool", "tool_call_id": call_id, "content": self.result_text()}
            return
        blocks: list[dict[str, Any]] = []
        for call_id, _, _ in calls:
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": self.result_content()}
            if self.chance.random() < 0.1:
                block["is_error"] = True
            blocks.append(block)
        yield {"role": "user", "content": blocks}

    def result_content(self) -> object:
        kind = self.chance.random()
        if kind < 0.5:
            return self.result_text()
        parts: list[dict[str, Any]] = [{"type": "text", "text": self.result_text()}]
        if self.chance.random() < self.shape.images:
            data = "iVBORw0KGgo" + "A" * 400
            parts.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
        return parts

    def user(self, text: str) -> dict[str, Any]:
        if not self.anthropic:
            if self.chance.random() < self.shape.images:
                image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400}}
                return {"role": "user", "content": [{"type": "text", "text": text}, image]}
            return {"role": "user", "content": text}
        return {"role": "user", "content": [{"type": "text", "text": text}]}

    def size(self) -> int:
        return min(int(math.exp(self.chance.gauss(math.log(self.shape.median), self.shape.spread))), 200_000)

    def result_text(self) -> str:
        return self.text(self.size()) or "(no output)"

    def text(self, size: int, kind: str = "") -> str:
        """Return text of about `size` characters: code, log, JSON, prose, CJK or emoji."""
        kind = kind or self.chance.choice(["code", "log", "json", "prose", "cjk", "emoji"])
        pieces: list[str] = []
        length = 0
        while length < size:
            piece = self.line(kind)
            pieces.append(piece)
            length += len(piece)
        return "".join(pieces)[:size].strip()

    def line(self, kind: str) -> str:
        chance = self.chance
        words = " ".join(chance.choice(_WORDS) for _ in range(6))
        match kind:
            case "code":
                return f"    def {chance.choice(_WORDS)}_{chance.randint(0, 99)}(self) -> None:\n        # {words}\n"
            case "log":
                second = chance.randint(0, 59)
                return f"2026-01-14 12:00:{second:02} \x1b[31mERROR\x1b[0m [{words}] truncated\r\n"
            case "json":
                return json.dumps({chance.choice(_WORDS): chance.random(), "text": words}) + "\n"
            case "cjk":
                return "".join(chance.choice(_CJK) for _ in range(30)) + "。\n"
            case "emoji":
                return "".join(chance.choice(_EMOJI) for _ in range(10)) + f" {words}\n"
        return words.capitalize() + ". "
