"""Masks in the arguments of the agent's calls become values again on their way to the agent.

What may be restored is the guard's to decide (`guard.restore`). In a stream the arguments of a call flow until a mask
begins in them; from there they wait for the call's end, as the escapes that a value needs depend on what encloses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import orjson

from prompt_sidecar.serving.members import loads

Restore = Callable[[str, str], str]
"""Takes a tool's name and a call's arguments, JSON text; returns them with values."""

_OPENINGS: Final = ("⟦", "\\u27e6", "%e2%9f%a6", "\\342\\237\\246")
"""How a mask begins, as `guard.masks` reads it: a model may escape it."""
_BEGUN: Final = re.compile("|".join(map(re.escape, _OPENINGS)), re.IGNORECASE)
_LONGEST: Final = max(map(len, _OPENINGS))


class Arguments:
    """The arguments of one call in a stream."""

    def __init__(self, name: str, restore: Restore) -> None:
        self._name = name
        self._restore = restore
        self._text = ""
        self._sent = 0
        self._waits = False

    def feed(self, piece: str) -> str:
        """Take a piece; return what goes on now."""
        self._text += piece
        if self._waits:
            return ""
        found = _BEGUN.search(self._text, self._sent)
        if found is not None:
            self._waits, end = True, found.start()
        else:
            end = self._safe_end()
        out = self._text[self._sent : end]
        self._sent = end
        return out

    def _safe_end(self) -> int:
        """Where the text ends but for what may be half the beginning of a mask."""
        tail = self._text[max(self._sent, len(self._text) - _LONGEST) :].lower()
        for length in range(min(len(tail), _LONGEST), 0, -1):
            if any(opening.startswith(tail[-length:]) for opening in _OPENINGS):
                return len(self._text) - length
        return len(self._text)

    def rest(self) -> str:
        """Return what has waited, at the end of the call."""
        whole = self._restore(self._name, self._text) if self._waits else self._text
        rest = whole[self._sent :] if whole[: self._sent] == self._text[: self._sent] else self._text[self._sent :]
        self._sent = len(self._text)
        return rest


def restored(holder: dict[str, Any], member: str, name: str, restore: Restore) -> bool:
    """Restore the arguments that a member holds, as text or as an object; return whether they have changed."""
    value = holder.get(member)
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    if not _BEGUN.search(text):
        return False
    made = restore(name, text)
    if made == text:
        return False
    holder[member] = made if isinstance(value, str) else loads(made.encode())
    return True
