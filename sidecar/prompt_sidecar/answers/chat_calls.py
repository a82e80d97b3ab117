"""A call in a stream of chat completions, as its pieces make it: see `prompt_sidecar.providers.call_pieces`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prompt_sidecar.answers.restoring import Arguments
from prompt_sidecar.providers.call_pieces import LONGEST_NAME, another
from prompt_sidecar.providers.surrogates import paired
from prompt_sidecar.providers.untyped import member


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
        name = member(piece, "function", "name")
        return another(piece.get("id"), name, self.id, self.name, begun=bool(self.arguments))

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
                if isinstance(value, str) and value != self.name and len(self.name) < LONGEST_NAME:
                    self.name += value
            elif value is not None:
                self.inner[name] = value

    def entry(self) -> dict[str, Any]:
        """Return it as an entry of a message."""
        function = {"name": self.name, "arguments": paired("".join(self.arguments)), **self.inner}
        named = {"id": self.id} if self.id else {}
        return {**named, "type": "function", **self.more, "function": function}
