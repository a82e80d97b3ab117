"""A provider that wants the newest turn's thinking back whole, as Claude's models without bound thinking do.

The rules, each from the provider's pages (platform.claude.com/docs/en/build-with-claude, read in November 2026):

- Within a tool-use turn thinking blocks must be passed back; outside tool use those of prior turns may be left out; a
  tool-use loop is one assistant turn (thinking, "Preserving thinking blocks"). A turn ends where the user says what is
  no tool result (extended-thinking).
- In the latest assistant message the blocks are as the model gave them: not edited, not in another order, not removed
  in part (thinking).
- In extended (manual) mode the final assistant turn of a request with thinking on begins with a thinking block;
  adaptive mode has no such rule (thinking). The 400 says: "Expected `thinking` or `redacted_thinking`, but found
  `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the
  lastmost set of `tool_use` and `tool_result` blocks)".
- A signature that was altered is refused wherever it stands (thinking-troubleshooting).

Which of its answers a message stands for is known by the ids of its calls: the text and the arguments beside thinking
may have become shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import orjson

from tests.conformance.bound_thinking import THINKING, Block, Message, blocks_of, read, signed_block
from tests.conformance.providers import Cause, Refusal, Reply


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    thinking: dict[str, Any] | None = None


class TurnThinking:
    """A provider of one conversation. It remembers what it has signed."""

    def __init__(self) -> None:
        self._given: dict[str, bytes] = {}
        """Digest of each block's content, by its signature."""
        self._answers: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Signatures of each answer, in order, by the ids of its calls."""
        self._whole: dict[str, tuple[str, ...]] = {}
        """The same by each of them."""

    def ask(self, body: bytes, recorded: Sequence[bytes]) -> Reply:
        """Judge a request and answer it with the recorded messages, their thinking signed."""
        request = msgspec.json.decode(body, type=_Body)
        messages = [read(bytes(raw)) for raw in request.messages]
        on = (request.thinking or {}).get("type", "disabled")
        refusals: list[Refusal] = []
        if on != "disabled":
            refusals = [*self._forged(messages), *self._current(messages, manual=on == "enabled")]
        carried = sum(len(_thoughts(message)) for message in messages)
        before = len(self._given)
        answer = self._sign(recorded) if recorded else []
        return Reply(refusals, answer, carried=carried, given=len(self._given) - before)

    def _forged(self, messages: Sequence[Message]) -> Iterator[Refusal]:
        for place, message in enumerate(messages):
            for block in _thoughts(message):
                if self._given.get(block.signature) != block.content:
                    yield Refusal(Cause.FORGED, f"messages.{place}.content.{block.index}", "it is not as it was given")

    def _current(self, messages: Sequence[Message], *, manual: bool) -> Iterator[Refusal]:
        """What is missing in the turn that goes on, and in the latest assistant turn."""
        turns = list(_assistant_turns(messages))
        words = max((place for place, message in enumerate(messages) if says(message)), default=-1)
        for number, places in enumerate(turns):
            newest = number == len(turns) - 1
            if places[0] < words and not newest:
                continue
            calls = tuple(call for place in places for call in messages[place].calls)
            found = tuple(block.signature for place in places for block in _thoughts(messages[place]))
            # An answer without calls is known by its thinking only, and may have lost it.
            given = self._answers.get(calls, ()) if calls else self._whole.get(found[0], ()) if found else ()
            if found != given:
                yield Refusal(Cause.NEWEST, f"messages.{places[0]}", f"{len(found)} of {len(given)} thinking blocks")
        open_turns = [places for places in turns if places[0] > words]
        if manual and open_turns and messages[-1].answers:
            first = messages[open_turns[0][0]]
            if self._given and not isinstance(first.parts[0], Block):
                yield Refusal(Cause.OPENING, f"messages.{open_turns[0][0]}.content.0", "thinking is on")

    def _sign(self, recorded: Sequence[bytes]) -> list[bytes]:
        given: list[str] = []
        calls: list[str] = []
        messages = []
        for raw in recorded:
            value = orjson.loads(raw)
            blocks = []
            for block in blocks_of(value.get("content")):
                signed = block
                if block.get("type") in THINKING:
                    signed, state = signed_block(block, b"")
                    self._given[state.signature] = state.content
                    given.append(state.signature)
                elif block.get("type") == "tool_use":
                    calls.append(block["id"])
                blocks.append(signed)
            messages.append(orjson.dumps(value | {"content": blocks}) if given else raw)
        self._answers[tuple(calls)] = tuple(given)
        self._whole |= dict.fromkeys(given, tuple(given))
        return messages


def says(message: Message) -> bool:
    """Whether the user says something in a message besides answering calls."""
    results = message.answers and all(not isinstance(part, Block) and part.result for part in message.parts)
    return message.role == "user" and not results


def _thoughts(message: Message) -> list[Block]:
    return [part for part in message.parts if isinstance(part, Block)] if message.role == "assistant" else []


def _assistant_turns(messages: Sequence[Message]) -> Iterator[list[int]]:
    """Places of consecutive assistant messages."""
    places: list[int] = []
    for place, message in enumerate(messages):
        if message.role == "assistant":
            places.append(place)
        elif places:
            yield places
            places = []
    if places:
        yield places
