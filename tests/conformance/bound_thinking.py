"""A provider that binds each thinking block to all that stands before it, as Claude's newer models do.

The rules, each from the provider's pages (platform.claude.com/docs/en/build-with-claude, read in November 2026):

- "If the prefix differs from what you sent when the block was produced, that block and every later thinking block are
  invalid." "The checked prefix has three parts: the top-level `system` prompt, the set of `tools`, every `message`
  before the block" (preserved-thinking); "all message content before the block" (AWS, Bedrock user guide, preserved
  thinking), so the blocks before it in its own message too.
- "Request parameters outside those three fields … aren't part of the prefix check, and neither are `cache_control`
  markers"; "JSON formatting and key order don't matter; the values do"; "the prefix check ignores a deferred tool until
  a `tool_addition` block references it"; "with server-side compaction, the checked prefix starts at the most recent
  compaction block" (preserved-thinking).
- "Earlier thinking blocks aren't in the prefix, but each thinking block records which thinking block came before it,
  across turns. You can remove thinking blocks from the start of the history (oldest first), from the end, or all of
  them. What fails is a gap … Once you remove a block, leave it out. Putting it back invalidates the thinking blocks
  produced while it was gone" (preserved-thinking).
- A change invalidates the thinking that stands after it already. Thinking before it, and what is produced after the
  change was made, stay valid (preserved-thinking/prefix-checks).
- `prefix_mismatch_behavior`: `error` answers with 400, `drop_block` leaves the invalid blocks out and says so in
  `input_transformations`; where a request sets neither, accounts made since 2026-08-31 have `error` and older ones are
  not checked (preserved-thinking, "When the API enforces the check").
- "A tampered or undecryptable signature is a different failure. It always returns a 400" (preserved-thinking).
- In the latest assistant message the blocks are as the model gave them: not edited, not in another order, not removed
  in part (thinking, "Preserving thinking blocks"; the 400: "`thinking` or `redacted_thinking` blocks in the latest
  assistant message cannot be modified"). All of them may go: "strip every `thinking` and `redacted_thinking` block from
  the history (at minimum the named block and every one after it, in that turn and all later turns), leave each turn's
  other blocks in place" (thinking-troubleshooting); these models think adaptively, where no turn needs to begin with
  thinking (thinking).
- Consecutive messages of a role are one turn, and a string is one text block (API reference, messages).

What is only advised is a remark: "Don't compact between an assistant turn's `tool_use` and the `tool_result` that
answers it. Send that assistant turn back with its thinking intact" (preserved-thinking, "Patterns that don't work").

A request to a model that does not check prefixes is not checked, and what that model produces is bound to nothing; the
rest of the conversation goes by the model of each request. The models that check (preserved-thinking/prefix-checks):
Claude Fable 5.1 and 5.2, Opus 5.5, Sonnet 5.5, Haiku 5.5.

Not judged: which models read whose blocks, bytes behind an address, and on-demand compaction.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec
import orjson

from tests.conformance.providers import Cause, Refusal, Reply

THINKING = frozenset({"thinking", "redacted_thinking"})
_SIGNED = {"thinking": "signature", "redacted_thinking": "data"}
"""The member of each kind of block that carries the signature."""
_DATA = frozenset({"input", "input_schema"})
"""Members whose inside is the agent's data: `cache_control` in there is no mark."""
_BINDING = re.compile(r"claude-(?:fable-5-[1-9]|(?:opus|sonnet|haiku)-5-5)")
"""Models that check prefixes, of those that there are."""
ID_CHARACTERS = 24
"""Characters at the start of a signature that tell which block it signs; the rest is the recorded signature's."""


class Enforcement(StrEnum):
    """What happens to a request with invalid blocks that does not say itself what should."""

    ERROR = "error"
    """Accounts made since 2026-08-31."""
    DROP = "drop_block"
    RECORD = "record"
    """Older accounts: the blocks are let through and listed."""


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    model: str = ""
    system: msgspec.Raw = msgspec.Raw(b"null")
    tools: msgspec.Raw = msgspec.Raw(b"null")
    thinking: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A thinking block as it stands in a message."""

    index: int
    """Among the message's blocks."""
    signature: str
    content: bytes
    """Digest of the block without cache marks, signature included."""


@dataclass(frozen=True, slots=True)
class Part:
    """Any other block."""

    digest: bytes
    result: bool = False
    """Whether it answers a call."""
    names: tuple[str, ...] = ()
    """Tools that it refers to."""
    compaction: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What the check sees of one message; the same message is one object."""

    role: str
    parts: tuple[Block | Part, ...]
    calls: tuple[str, ...]
    """Ids of the client's tools that it calls."""
    answers: bool
    """Whether it holds results."""
    compacts: bool
    """Whether it holds a compaction block."""


@dataclass(frozen=True, slots=True)
class Thought:
    """A block that this provider has produced."""

    content: bytes
    prefix: bytes
    before: str
    """Signature of the thinking block before it as the provider saw the prompt; empty: there was none."""
    answer: int
    """Which of the provider's answers it is part of."""
    walked: Walk = field(repr=False)
    """The prompt that it was produced under."""
    bound: bool = True
    """Whether its model binds it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A thinking block in a request."""

    place: str
    message: int
    block: Block
    prefix: bytes
    """Digest of all before it."""


@dataclass(slots=True)
class Walk:
    """A request, read from its start: digests of the prefix after each message, and the thinking blocks."""

    tools: bytes
    system: bytes
    after: list[bytes] = field(default_factory=list)
    """The prefix after each message; thinking apart."""
    seen: list[Seen] = field(default_factory=list)
    """The thinking blocks, in order."""
    messages: list[Message] = field(default_factory=list)
    state: bytes = b""
    role: str = ""


class BoundThinking:
    """A provider of one conversation. It remembers what it has signed."""

    def __init__(self, enforcement: Enforcement = Enforcement.ERROR) -> None:
        self._enforcement = enforcement
        self._thoughts: dict[str, Thought] = {}
        self._answers: dict[tuple[str, ...], int] = {}
        self._of_answer: list[tuple[str, ...]] = []

    def ask(self, body: bytes, recorded: Sequence[bytes]) -> Reply:
        """Judge a request and answer it with the recorded messages, their thinking signed over this prompt."""
        request = msgspec.json.decode(body, type=_Body)
        walk = walked(bytes(request.system), bytes(request.tools), [bytes(raw) for raw in request.messages])
        refusals = [*self._forged(walk), *self._newest(walk)]
        binds = bool(_BINDING.search(request.model))
        invalid, kept = self._checked(walk, binds=binds)
        behaviour = self._behaviour(request.thinking)
        dropped: list[str] = []
        if behaviour is Enforcement.ERROR:
            refusals += invalid
        elif behaviour is Enforcement.DROP:
            dropped = [refusal.place for refusal in invalid]
        remarks = [*self._left_out(walk), *(invalid if behaviour is Enforcement.RECORD else ())]
        carried = len(walk.seen) - len(invalid)
        answer = self._sign(walk, kept, recorded, binds=binds) if recorded else []
        given = len(self._of_answer[-1]) if recorded else 0
        return Reply(refusals, answer, remarks, carried=carried, given=given, dropped=dropped)

    def _behaviour(self, thinking: Mapping[str, Any] | None) -> Enforcement:
        binding = (thinking or {}).get("block_binding") or {}
        asked = binding.get("prefix_mismatch_behavior")
        return Enforcement(asked) if asked else self._enforcement

    def _forged(self, walk: Walk) -> Iterator[Refusal]:
        for seen in walk.seen:
            thought = self._thoughts.get(seen.block.signature)
            if thought is None:
                yield Refusal(Cause.FORGED, seen.place, "no such signature was given")
            elif thought.content != seen.block.content:
                yield Refusal(Cause.FORGED, seen.place, "the block is not as it was")

    def _newest(self, walk: Walk) -> Iterator[Refusal]:
        """In the latest assistant turn the thinking is whole, in its order, or absent."""
        newest = _newest_turn(walk)
        found = [seen.block.signature for seen in walk.seen if seen.message in newest]
        answers = {self._thoughts[one].answer for one in found if one in self._thoughts}
        for answer in sorted(answers):
            whole = self._of_answer[answer]
            if [one for one in found if one in whole] != list(whole):
                yield Refusal(Cause.NEWEST, f"messages.{newest[-1]}", "thinking partly removed or in another order")

    def _left_out(self, walk: Walk) -> Iterator[Refusal]:
        newest = _newest_turn(walk)
        if not newest or not walk.messages[-1].answers:
            return
        calls = tuple(call for place in newest for call in walk.messages[place].calls)
        answer = self._answers.get(calls)
        if answer is not None and self._of_answer[answer] and all(seen.message not in newest for seen in walk.seen):
            yield Refusal(Cause.NEWEST, f"messages.{newest[-1]}", "answered calls without their thinking")

    def _checked(self, walk: Walk, *, binds: bool) -> tuple[list[Refusal], str]:
        """What is invalid, and the last block that the model is shown."""
        invalid: list[Refusal] = []
        last = ""
        for seen in walk.seen:
            thought = self._thoughts.get(seen.block.signature)
            if thought is None or thought.content != seen.block.content:
                continue
            if not (binds and thought.bound):
                last = seen.block.signature
            elif thought.prefix != seen.prefix:
                invalid.append(Refusal(Cause.PREFIX, seen.place, _difference(thought, walk, seen)))
            elif last not in {"", thought.before}:
                invalid.append(Refusal(Cause.CHAIN, seen.place, "the thinking block before it is another one"))
            else:
                last = seen.block.signature
        return invalid, last

    def _sign(self, walk: Walk, kept: str, recorded: Sequence[bytes], *, binds: bool) -> list[bytes]:
        answer = len(self._of_answer)
        given: list[str] = []
        calls: list[str] = []
        messages = []
        going = Walk(walk.tools, walk.system, list(walk.after), state=walk.state, role=walk.role)
        for raw in recorded:
            value = orjson.loads(raw)
            signed = []
            for block in blocks_of(value.get("content")):
                if block.get("type") in THINKING:
                    whole, fields = signed_block(block, _digest(going.state, kept.encode()))
                    self._thoughts[fields.signature] = Thought(fields.content, going.state, kept, answer, walk, binds)
                    kept = fields.signature
                    given.append(kept)
                    signed.append(whole)
                    continue
                _step(going, value["role"], _read_block(block, 0), {})
                calls += [block["id"]] if block.get("type") == "tool_use" else []
                signed.append(block)
            messages.append(orjson.dumps(value | {"content": signed}) if given else raw)
        self._of_answer.append(tuple(given))
        self._answers[tuple(calls)] = answer
        return messages


def walked(system: bytes, tools: bytes, messages: Sequence[bytes]) -> Walk:
    """Read a request from its start. All is raw JSON; `null` is what is not there."""
    always, deferred = _tools(tools)
    walk = Walk(always, _digest(_canonical(orjson.loads(system))))
    walk.state = _digest(walk.tools, walk.system)
    for place, raw in enumerate(messages):
        message = read(raw)
        walk.messages.append(message)
        if deferred or message.compacts:
            prefixes = _through(walk, message, deferred)
        else:
            walk.state, walk.role, prefixes = _known(walk.state, walk.role, message)
        for block, prefix in prefixes:
            walk.seen.append(Seen(f"messages.{place}.content.{block.index}", place, block, prefix))
        walk.after.append(walk.state)
    return walk


@lru_cache(maxsize=200_000)
def _known(state: bytes, role: str, message: Message) -> tuple[bytes, str, tuple[tuple[Block, bytes], ...]]:
    """What a message makes of a prefix that was seen before: an agent sends its history again at each turn."""
    walk = Walk(b"", b"", state=state, role=role)
    prefixes = _through(walk, message, {})
    return walk.state, walk.role, prefixes


def _through(walk: Walk, message: Message, deferred: dict[str, bytes]) -> tuple[tuple[Block, bytes], ...]:
    """Read one message; return its thinking blocks, each with the prefix before it."""
    prefixes = []
    for part in message.parts:
        if isinstance(part, Block):
            prefixes.append((part, walk.state))
        else:
            _step(walk, message.role, part, deferred)
    return tuple(prefixes)


def _step(walk: Walk, role: str, part: Block | Part, deferred: dict[str, bytes]) -> None:
    assert isinstance(part, Part)
    if part.compaction:
        walk.state, walk.role = _digest(walk.tools, walk.system), ""
    if role != walk.role:
        walk.state, walk.role = _digest(walk.state, role.encode()), role
    walk.state = _digest(walk.state, part.digest)
    for name in part.names:
        if name in deferred:
            walk.state = _digest(walk.state, deferred.pop(name))


@lru_cache(maxsize=50_000)
def read(raw: bytes) -> Message:
    """Read one message."""
    value = orjson.loads(raw)
    blocks = blocks_of(value.get("content"))
    parts = tuple(_read_block(block, index) for index, block in enumerate(blocks))
    kinds = [block.get("type") for block in blocks]
    calls = tuple(block["id"] for block in blocks if block.get("type") == "tool_use")
    return Message(value["role"], parts, calls, "tool_result" in kinds, "compaction" in kinds)


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """The blocks of a message's content; a string is one of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or ())


def _read_block(block: Mapping[str, Any], index: int) -> Block | Part:
    digest = _digest(_canonical(block))
    kind = block.get("type")
    if kind in THINKING:
        return Block(index, str(block.get(_SIGNED[str(kind)])), digest)
    return Part(digest, kind == "tool_result", tuple(_references(block)), kind == "compaction")


def _references(block: Any) -> Iterator[str]:
    """Names of tools that a block refers to."""
    if isinstance(block, list):
        for inner in block:
            yield from _references(inner)
    elif isinstance(block, Mapping):
        if block.get("type") == "tool_reference":
            yield str(block.get("tool_name") or block.get("name"))
        for name in ("tool", "content"):
            yield from _references(block.get(name))


@lru_cache(maxsize=1_000)
def _tools(raw: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The digest of the tools that count from the start, and those of each that is deferred."""
    tools = orjson.loads(raw) or []
    always = [tool for tool in tools if not tool.get("defer_loading")]
    deferred = {str(tool.get("name")): _digest(_canonical(tool)) for tool in tools if tool.get("defer_loading")}
    return _digest(_canonical(always)), deferred


def _canonical(value: Any) -> bytes:
    return orjson.dumps(_unmarked(value), option=orjson.OPT_SORT_KEYS)


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(inner) for inner in value]
    if isinstance(value, Mapping):
        return {
            name: inner if name in _DATA else _unmarked(inner)
            for name, inner in value.items()
            if name != "cache_control"
        }
    return value


def _digest(*parts: bytes) -> bytes:
    digest = blake2b(digest_size=18)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def signed_block(block: Mapping[str, Any], prefix: bytes) -> tuple[dict[str, Any], Block]:
    """A recorded block with a signature of the provider's over `prefix`, as long as its own; and how it is read."""
    member = _SIGNED[str(block["type"])]
    own = str(block.get(member) or "")
    name = base64.b64encode(_digest(prefix, _canonical(block))).decode()
    assert len(name) == ID_CHARACTERS
    whole = {**block, member: name + own[ID_CHARACTERS:]}
    signed = _read_block(whole, 0)
    assert isinstance(signed, Block)
    return whole, signed


def _newest_turn(walk: Walk) -> list[int]:
    """Places of the messages that make up the latest assistant turn."""
    places = [place for place, message in enumerate(walk.messages) if message.role == "assistant"]
    newest = places[-1:]
    while newest and newest[0] - 1 in places:
        newest.insert(0, newest[0] - 1)
    return newest


def _difference(thought: Thought, walk: Walk, seen: Seen) -> str:
    """What of the prefix is not as it was."""
    old = thought.walked
    if old.tools != walk.tools:
        return "the tools differ"
    if old.system != walk.system:
        return "the system prompt differs"
    for place, (before, now) in enumerate(zip(old.after, walk.after, strict=False)):
        if before != now:
            return f"message {place} of {seen.message} differs"
    return f"it stands after {seen.message} messages, and was produced after {len(old.after)}"
