"""The last prompt of each run, from which the next one is made when the sidecar does not trim it.

Everything is kept as bytes, or as copies that share the agent's texts, since an agent may change its own objects at any
time. Nothing is decoded until the sidecar fails: in ordinary turns this costs a reference to what was sent, and the
edits that were returned.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

from prompt_sidecar.client import native

Edit: TypeAlias = tuple[str, str, bytes]


@dataclass(frozen=True, slots=True)
class UntrimmedPrompt:
    """An untrimmed prompt of which only the newest messages were sent, without its whole bytes."""

    members: bytes
    """The body with an empty array of messages, or that array."""
    member: str
    """The body's member for the messages; empty if there is no body."""
    messages: tuple[Any, ...]
    """As JSON types in containers that are never changed."""
    size: int
    """Bytes of the messages as JSON."""

    def __len__(self) -> int:
        return len(self.members) + self.size

    def prompt(self) -> Any:
        """Return the prompt as JSON types that may be changed."""
        messages = json.loads(native.dumped(self.messages))
        return {**json.loads(self.members), self.member: messages} if self.member else messages


Piece: TypeAlias = bytes | UntrimmedPrompt
"""A prompt, or the messages that were sent after one, as a body."""


def decoded(piece: Piece) -> Any:
    """Return a piece of a history as JSON types."""
    return piece.prompt() if isinstance(piece, UntrimmedPrompt) else json.loads(piece)


@dataclass(frozen=True, slots=True)
class LastPrompt:
    """One run's last prompt, and the untrimmed history that it was made from."""

    format: str
    asked: tuple[Piece, ...]
    """The untrimmed history: a body, and those sent after it with a `base_revision`."""
    edits: tuple[Edit, ...] | None = None
    """The edits that turn the history into the prompt; None if the prompt is in `made`."""
    made: bytes = b""
    notes: frozenset[int] = frozenset()
    """Indices of messages that no later prompt contains."""
    revision: bytes = b""
    """The revision in the sidecar's last answer."""
    covered: tuple[Piece, ...] = ()
    """The untrimmed history that this revision covers."""
    tokens: int = 0
    """Tokens of the prompt as the sidecar counted them; 0: unknown."""
    limit: int = 0
    """The limit that the sidecar applied, in tokens."""
    most_bytes: int = 0
    """Bytes from which a prompt is assumed to be too long; 0: unknown."""
    refused: bool = False
    """Whether the provider refused the prompt as too long."""
    removed: frozenset[bytes] = frozenset()
    """Digests of the blocks of thinking that were removed and must not return."""
    left_out: int = 0
    """Number of iterations that were left out."""
    fell_back: bool = False
    """Whether the client made it, without the sidecar."""

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        edits = sum(len(value) + len(pointer) for _, pointer, value in self.edits or ())
        covered = 0 if self.covered == self.asked else sum(map(len, self.covered))
        return sum(map(len, self.asked)) + covered + edits + len(self.made) + 64 * len(self.removed)

    def prompt(self) -> Any:
        """Return the prompt that was sent, as JSON types. If made by edits, it still has the blocks in `removed`."""
        return json.loads(self.made) if self.edits is None else native.edited(decoded(self.asked[0]), self.edits)
