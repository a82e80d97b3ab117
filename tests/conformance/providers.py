"""What a scripted provider is asked and what it answers, whatever it checks of the reasoning that comes back to it.

An agent of a recorded run asks with the prompt that it would really send. The provider says what it would refuse that
prompt for, and gives the recorded answer with its reasoning signed over the prompt as sent. A refused prompt is
answered too, so that a replay goes on and one mistake does not hide the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Cause(StrEnum):
    """Why a prompt is refused, or what is to be said of it."""

    PREFIX = "prefix"
    """A block stands after something that is not as it was when the block was produced."""
    CHAIN = "chain"
    """A block between others is missing, moved, or back again."""
    FORGED = "forged"
    """A signature that this provider has not given, or another content under it."""
    NEWEST = "newest"
    """The newest turn's reasoning is not complete, or not as it was."""
    OPENING = "opening"
    """The turn that goes on does not begin with thinking, though the mode of thinking asks for it."""
    SIGNATURE = "signature"
    """A call of the current turn has no signature."""
    PAIRING = "pairing"
    """Reasoning without the item that followed it, or an item without the reasoning that it needs."""
    STRUCTURE = "structure"
    """Something else that the provider refuses, by the format's validator."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to answer with status 400."""

    cause: Cause
    place: str
    """Where in the body, such as `messages.3.content.0`."""
    detail: str = ""
    """What was found there."""

    def __str__(self) -> str:
        return f"{self.place}: {self.cause}{': ' if self.detail else ''}{self.detail}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a provider does with a prompt."""

    refusals: Sequence[Refusal]
    """Empty: the prompt is accepted. The first is the one that the provider would name."""
    messages: Sequence[bytes] = field(repr=False, default=())
    """The recorded answer, signed, as JSON."""
    remarks: Sequence[Refusal] = ()
    """What the provider advises against and does not refuse."""
    carried: int = 0
    """Reasoning blocks in the request that the model is shown."""
    given: int = 0
    """Reasoning blocks in the answer."""
    dropped: Sequence[str] = ()
    """Places of the blocks that it left out, where the request asks for that instead of a refusal."""


class Provider(Protocol):
    """A scripted provider of one conversation."""

    def ask(self, body: bytes, recorded: Sequence[bytes]) -> Reply:
        """Judge a request body and answer it with the recorded messages; without any it is judged only."""
        ...  # pragma: no cover
