"""An API whose prompts are trimmed and whose model is not offered the sidecar's tools.

So there are no hidden turns: a whole answer is read for its usage and the arguments of its calls, a stream is relayed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Never

from prompt_sidecar.http.dialects.base import Call, Dialect, Filter, Shown, Turn
from prompt_sidecar.http.members import Members


class TrimmedOnly(Dialect):
    """See the module."""

    recalls: ClassVar[bool] = False

    def free(self, _: Members) -> bool:
        """The sidecar's tools are never offered."""
        return False

    def forbid_tools(self, members: Members) -> Never:
        """There are no hidden turns."""
        raise NotImplementedError

    def answers(self, results: Sequence[tuple[Call, str, bool]]) -> Never:
        """There are no hidden turns."""
        raise NotImplementedError

    def read(self, _: Mapping[str, Any], __: Collection[str]) -> Turn:
        """A turn that is the agent's. Its usage is read from the answer's bytes."""
        return Turn()

    def show(self, shown: Shown, turn: Turn) -> Never:
        """There are no hidden turns."""
        raise NotImplementedError

    def written(self, answer: dict[str, Any], shown: Shown, own: Collection[str]) -> Never:
        """There are no hidden turns."""
        raise NotImplementedError

    def filter(self, own: Collection[str], members: Members | None) -> Filter:
        """Streams are not filtered."""
        raise NotImplementedError

    def stream_error(self, status: int, body: bytes) -> Never:
        """A stream that has begun is relayed to its end."""
        raise NotImplementedError
