"""What `complete` reads of a provider's SDK.

The objects are the SDK's own, or dicts of the same shape; no SDK is imported. A turn of the model is added to the
history as the SDK's own objects, which the SDK accepts as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from prompt_sidecar.providers.api import ProviderApi

FunctionCall: TypeAlias = tuple[Any, Any, Any, Any]
"""Id, name, arguments, and the SDK's own object of a call."""


class SdkApi(ProviderApi):
    """An API whose SDK `complete` drives."""

    asks_usage: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The keywords by which a stream is asked for its usage; empty: it holds that anyway."""

    def history(self, given: Any) -> list[Any]:
        """Return the history, from the value of the keyword that holds it (`messages`)."""
        return list(given)

    def tool_name(self, definition: Any) -> Any:
        """Return the name in a tool's definition; empty or None if it has none."""
        return sdk_member(definition, "name")

    @abstractmethod
    def turn(self, response: Any) -> list[Any]:
        """Return the entries that a response adds to the history."""

    @abstractmethod
    def functions(self, response: Any) -> Iterable[FunctionCall]:
        """Return the calls of functions in a response."""

    @abstractmethod
    def waits_otherwise(self, response: Any) -> bool:
        """Whether a response holds anything else that the caller has to answer."""

    @abstractmethod
    def result(self, call_id: str, content: str, *, is_error: bool) -> dict[str, Any]:
        """Return a tool's answer as an entry of the history, or a part of one: see `joined`."""

    def joined(self, results: Sequence[Any]) -> list[Any]:
        """Return the answers of one turn's calls as the history holds them."""
        return list(results)

    def strict_only(self, function: str) -> bool:
        """Whether a function of the SDK, by its name, refuses tools that are not strict."""
        del function
        return False


def sdk_member(value: Any, *path: str) -> Any:
    """Return a member of an SDK's object or of a dict; None: it has none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value
