"""Masks in the choices of a chat stream behind its first, where a request asks for several (`n`).

Only the first choice can hold a turn that the sidecar answers, so the others pass but for the arguments of their calls.
Calls are numbered within a choice; several may have one number, as in the first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from prompt_sidecar.answers.chat_calls import Called
from prompt_sidecar.answers.restoring import Arguments, Restore
from prompt_sidecar.answers.sse import written
from prompt_sidecar.providers.untyped import member, objects, ordinal


class OtherChoices:
    """The calls of all choices but the first."""

    def __init__(self, undo: list[Callable[[], object]]) -> None:
        """`undo` gets what takes back what an event has changed of what waits, in order."""
        self._undo = undo
        self._calls: dict[tuple[int, int | None], Called] = {}
        """The newest by the numbers of choice and call."""
        self._waiting: dict[int, dict[Called, Arguments]] = {}
        """Those of which a part waits, by the number of their choice."""
        self._newest: dict[str, Any] = {}

    @property
    def waits(self) -> bool:
        """Whether a part of a call's arguments waits for the next piece."""
        return bool(self._waiting)

    def take(self, chunk: dict[str, Any], restore: Restore) -> tuple[bytes, bool]:
        """Restore masks in a chunk, in place.

        Returns:
            What has waited in choices that end with this chunk, as chunks that go before it, and whether this one was
            changed. Where it has pieces of such a choice's calls, what has waited is put behind them.
        """
        choices = objects(chunk.get("choices"))
        if all(_number(each) == 0 for each in choices):
            return b"", False
        before, changed = b"", False
        if any(_number(each) == 0 for each in choices[1:]):  # what looks at the first choice finds it at the beginning
            choices.sort(key=lambda each: _number(each) != 0)
            chunk["choices"], changed = choices, True
        self._newest = chunk
        for choice in choices:
            number = _number(choice)
            if number == 0:
                continue
            changed = self._restored(number, choice.get("delta"), restore) or changed
            if choice.get("finish_reason"):  # some servers write "" until the end
                if pieces := objects(member(choice, "delta", "tool_calls")):  # what waited follows them
                    rests = self._rests(number)
                    choice["delta"]["tool_calls"], changed = [*pieces, *rests], changed or bool(rests)
                else:
                    before += self._rest(number)
        return before, changed

    def rest(self) -> bytes:
        """Return what waits in choices that have not ended, at the end of the stream."""
        return b"".join([self._rest(number) for number in list(self._waiting)])

    def _restored(self, choice: int, delta: Any, restore: Restore) -> bool:
        """Keep back in a choice's pieces of calls what may be masks; return whether they were changed."""
        pieces: list[dict[str, Any]] = []
        changed = False
        for piece in objects(member(delta, "tool_calls")):
            key = choice, ordinal(piece.get("index"))
            call = self._calls.get(key)
            if call is None or call.ends_with(piece):
                if call is not None and (rest := self._released(choice, call)):
                    pieces.append(rest)
                    changed = True
                call = self._calls[key] = Called(place=piece.get("index"))
            call.take(piece)
            changed = self._filled(choice, call, piece.get("function"), restore) or changed
            pieces.append(piece)
        if changed:
            delta["tool_calls"] = pieces
        return changed

    def _filled(self, choice: int, call: Called, function: Any, restore: Restore) -> bool:
        """Keep back what may be a mask in a piece of a call's arguments; return whether it was changed."""
        text = member(function, "arguments")
        if not isinstance(text, str):
            return False
        if call.filled is None:
            call.filled = Arguments(call.name, restore)
        before = self._waiting.get(choice, {}).get(call)
        self._undo += (partial(self._wait, choice, call, before), call.filled.undo())
        function["arguments"] = goes_on = call.filled.feed(text)
        self._wait(choice, call, call.filled if call.filled.waits else None)
        return goes_on != text

    def _wait(self, choice: int, call: Called, arguments: Arguments | None) -> None:
        """Note whether a part of a call's arguments waits; None: nothing does."""
        waiting = self._waiting.setdefault(choice, {})
        if arguments is not None:
            waiting[call] = arguments
        else:
            waiting.pop(call, None)
        if not waiting:
            del self._waiting[choice]

    def _released(self, choice: int, call: Called) -> dict[str, Any] | None:
        """Return what waits of a call's arguments, as a piece; None: nothing."""
        arguments = self._waiting.get(choice, {}).get(call)
        if arguments is None:
            return None
        self._undo += (partial(self._wait, choice, call, arguments), arguments.undo())
        self._wait(choice, call, None)
        rest = arguments.rest()
        return {"index": call.place, "function": {"arguments": rest}} if rest else None

    def _rests(self, choice: int) -> list[dict[str, Any]]:
        """Return what waits in a choice, as pieces."""
        return [rest for call in list(self._waiting.get(choice, {})) if (rest := self._released(choice, call))]

    def _rest(self, choice: int) -> bytes:
        """Return what waits in a choice, as a chunk."""
        calls = self._rests(choice)
        if not calls:
            return b""
        head = {name: value for name, value in self._newest.items() if name != "usage"}
        return written({**head, "choices": [{"index": choice, "delta": {"tool_calls": calls}, "finish_reason": None}]})


def _number(choice: dict[str, Any]) -> int:
    """The number of a choice."""
    return ordinal(choice.get("index")) or 0
