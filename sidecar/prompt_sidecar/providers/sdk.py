"""What `complete` reads from a provider's SDK.

The objects are the SDK's own, or dicts of the same shape; no SDK is imported. A turn of the model is added to the
history as the SDK's own objects, which the SDK accepts unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from prompt_sidecar.providers.api import ProviderApi

FunctionCall: TypeAlias = tuple[Any, Any, Any, Any]
"""Id, name, arguments, and the SDK's own object of a call."""


@dataclass(slots=True, eq=False)
class TurnPart:
    """A block, an item or a call of a turn that a stream sends in pieces."""

    name: str = ""
    """The function that it calls; empty if none is known."""
    place: Any = None
    """The index that the agent sees; None if it has seen nothing of it yet."""


@dataclass(frozen=True, slots=True)
class PartPiece:
    """A piece of a part."""

    part: TurnPart | None
    """None if it is unreadable, and forwarded unchanged."""
    native: Any
    """The SDK's object with the part's index."""
    index: Any = None
    """That index, as the provider wrote it."""


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """The content of a stream's event."""

    pieces: Sequence[PartPiece] = ()
    begins: bool = False
    """Whether it only begins an answer."""
    ends: bool = False
    """Whether it belongs to the end of an answer."""
    says_more: bool = False
    """Whether it has content even without its pieces."""
    is_usage: bool = False
    """Whether it has usage and nothing else."""


class StreamedTurn(ABC):
    """One turn of the model, built from its stream's events."""

    index: ClassVar[str] = "index"
    """The member of an event, or of a part of it, with a part's index."""

    @abstractmethod
    def take(self, event: Any) -> StreamedEvent:
        """Add an event; return its content."""

    def only(self, event: Any, kept: Sequence[Any]) -> Any:
        """Return an event with the kept objects of its pieces; by default an event is its only piece."""
        return kept[0] if kept else event

    @abstractmethod
    def response(self) -> Any:
        """Return the turn as one response."""


class SdkApi(ProviderApi):
    """An API whose SDK `complete` drives."""

    asks_usage: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The keywords that request usage in a stream; empty: it is always included."""

    def history(self, given: Any) -> list[Any]:
        """Return the history, from the value of its keyword (`messages`)."""
        return list(given)

    @abstractmethod
    def streamed(self) -> StreamedTurn:
        """Return an object that builds a turn from the events of a stream."""

    @abstractmethod
    def turn(self, response: Any) -> list[Any]:
        """Return the entries that a response adds to the history."""

    @abstractmethod
    def functions(self, response: Any) -> Iterable[FunctionCall]:
        """Return the calls of functions in a response."""

    @abstractmethod
    def waits_otherwise(self, response: Any) -> bool:
        """Whether a response has anything else that the caller must answer."""

    def strict_only(self, function: str) -> bool:
        """Whether a function of the SDK, by its name, refuses tools that are not strict."""
        del function
        return False


def is_object(value: Any) -> bool:
    """Whether a value has members: an SDK's object, or a dict."""
    return isinstance(value, Mapping) or hasattr(value, "model_copy")


def sdk_members(value: Any) -> dict[str, Any]:
    """Return the members of an SDK's object or of a dict; empty for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    return dict(value.model_dump(exclude_none=True)) if hasattr(value, "model_dump") else {}


def sdk_changed(value: Any, **members: Any) -> Any:
    """Return a copy of an SDK's object or of a dict with other members."""
    return {**value, **members} if isinstance(value, Mapping) else value.model_copy(update=members)


def several(value: Any) -> Sequence[Any]:
    """Return an array; empty for anything else."""
    return value if isinstance(value, list | tuple) else ()
