"""Masks in the choices of a chat stream behind its first, where a request asks for several (`n`).

Only the first choice can hold a turn that the sidecar answers, so the others pass but for the arguments of their calls.
Calls are numbered within a choice.
"""

from __future__ import annotations

from typing import Any

from prompt_sidecar.serving.restoring import Arguments, Restore
from prompt_sidecar.serving.sse import written
from prompt_sidecar.serving.untyped import member, objects


class OtherChoices:
    """The calls of all choices but the first."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], Arguments] = {}
        """By the numbers of choice and call."""
        self._waiting: dict[int, dict[int, Arguments]] = {}
        """Those of which a part waits, by the same."""
        self._newest: dict[str, Any] = {}

    @property
    def waits(self) -> bool:
        """Whether a part of a call's arguments waits for the next piece."""
        return bool(self._waiting)

    def take(self, chunk: dict[str, Any], restore: Restore) -> tuple[bytes, bool]:
        """Restore masks in a chunk, in place.

        Returns:
            What has waited in choices that end with this chunk, as chunks that go before it, and whether this one was
            changed.
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
            for piece in objects(member(choice, "delta", "tool_calls")):
                changed = self._restored(number, _number(piece), piece.get("function"), restore) or changed
            if choice.get("finish_reason") is not None:
                before += self._rest(number)
        return before, changed

    def rest(self) -> bytes:
        """Return what waits in choices that have not ended, at the end of the stream."""
        return b"".join([self._rest(number) for number in list(self._waiting)])

    def _restored(self, choice: int, call: int, function: Any, restore: Restore) -> bool:
        """Keep back what may be a mask; return whether the piece was changed."""
        name, text = member(function, "name"), member(function, "arguments")
        known = self._calls.get((choice, call))
        if known is None:
            if not isinstance(name, str):
                return False
            known = self._calls[choice, call] = Arguments(name, restore)
        if not isinstance(text, str):
            return False
        function["arguments"] = goes_on = known.feed(text)
        waiting = self._waiting.setdefault(choice, {})
        if known.waits:
            waiting[call] = known
        else:
            waiting.pop(call, None)
        if not waiting:
            del self._waiting[choice]
        return bool(goes_on != text)

    def _rest(self, choice: int) -> bytes:
        """Return what waits in a choice, as a chunk."""
        rests = [(call, rest) for call, each in self._waiting.pop(choice, {}).items() if (rest := each.rest())]
        if not rests:
            return b""
        delta = {"tool_calls": [{"index": call, "function": {"arguments": rest}} for call, rest in rests]}
        head = {name: value for name, value in self._newest.items() if name != "usage"}
        return written({**head, "choices": [{"index": choice, "delta": delta, "finish_reason": None}]})


def _number(numbered: dict[str, Any]) -> int:
    """The number of a choice or a call."""
    number = numbered.get("index", 0)
    return number if isinstance(number, int) else 0
