"""A call in a stream of chat completions, as its pieces make it.

Servers differ in the pieces of calls. Some give several calls one index, each with an id of its own
(github.com/ollama/ollama/issues/15457); some repeat id and name in each piece, or leave the id empty after the first;
some give each piece a new id, but the name only once. So a call ends where its index gets another id with a name, or
another name once its arguments have begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prompt_sidecar.serving.answer_json import paired
from prompt_sidecar.serving.restoring import Arguments
from prompt_sidecar.serving.untyped import member

_LONGEST_NAME: Final = 1_024
"""Characters of a name after which no piece is added to it. Names of tools have far fewer."""


@dataclass(slots=True, eq=False)
class Called:
    """A call, as it is pieced together."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    inner: dict[str, Any] = field(default_factory=dict)
    """Other members of its function."""
    more: dict[str, Any] = field(default_factory=dict)
    """Other members."""
    place: Any = None
    """The index that the agent sees."""
    shown: bool = False
    filled: Arguments | None = None
    """Its arguments, where masks are restored."""

    def ends_with(self, piece: Mapping[str, Any]) -> bool:
        """Whether a piece with the same index begins another call."""
        call_id, name = piece.get("id"), member(piece, "function", "name")
        if not isinstance(name, str) or not name:
            return False
        if isinstance(call_id, str) and call_id and self.id and call_id != self.id:
            return True
        differs = bool(self.name) and name != self.name
        return differs and (bool(self.arguments) or (bool(call_id) and not self.id))

    def take(self, piece: Mapping[str, Any]) -> None:
        """Take a piece."""
        for name, value in piece.items():
            if name == "function":
                self._function(value)
            elif name == "id":
                self.id = self.id or (value if isinstance(value, str) else "")
            elif name != "index" and value is not None:
                self.more[name] = value

    def _function(self, function: Any) -> None:
        for name, value in function.items() if isinstance(function, dict) else ():
            if name == "arguments":
                if isinstance(value, str) and value:
                    self.arguments.append(value)
            elif name == "name":
                if isinstance(value, str) and value != self.name and len(self.name) < _LONGEST_NAME:
                    self.name += value
            elif value is not None:
                self.inner[name] = value

    def entry(self) -> dict[str, Any]:
        """Return it as an entry of a message."""
        function = {"name": self.name, "arguments": paired("".join(self.arguments)), **self.inner}
        named = {"id": self.id} if self.id else {}
        return {**named, "type": "function", **self.more, "function": function}
