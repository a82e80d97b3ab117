"""A made-up API, in which nothing has the name that it has elsewhere.

A history is a `dialogue` of a person, a machine and devices. The machine `uses` devices, by references. A stream's
events hold pieces of what is said, uses whole, and at the end why it is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from prompt_sidecar.providers.api import ApiPath, Provider
from prompt_sidecar.providers.call_pieces import CallPlace
from prompt_sidecar.providers.messages import Message, parts_of, role_of, texts_of
from prompt_sidecar.providers.sdk import FunctionCall, PartPiece, SdkApi, StreamedEvent, StreamedTurn, TurnPart
from prompt_sidecar.providers.untyped import member, objects, string
from prompt_sidecar.providers.usage import UsageMembers

MADE_UP: Final = Provider("made_up", "http://127.0.0.1:1")


class MadeUp(SdkApi):
    """See the module."""

    format: ClassVar[Any] = "made_up"
    provider: ClassVar[Provider] = MADE_UP
    route: ClassVar[str] = "talk"
    messages: ClassVar[str] = "dialogue"
    tools: ClassVar[str] = "tools"
    paths: ClassVar[tuple[ApiPath, ...]] = (ApiPath(re.compile(r"/talk$")),)
    usage: ClassVar[UsageMembers] = UsageMembers(
        usage="spent", input=("read",), cached=("reused",), outputs=(("wrote",),)
    )

    def from_model(self, message: Message) -> bool:
        """See `Messages`."""
        return bool(role_of(message) == "machine")

    def calls(self, message: Message) -> list[str]:
        """See `Messages`."""
        return texts_of(parts_of(message, "uses"), "ref")

    def answers(self, message: Message) -> list[str]:
        """See `Messages`."""
        return texts_of([message], "ref") if role_of(message) == "device" else []

    def words(self, message: Message) -> Message | None:
        """See `Messages`."""
        return None if role_of(message) in ("machine", "device") else message

    def error(self, status: int, message: str, reason: str, *, final: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        del status, final
        return {"problem": {"what": reason, "why": message}}

    def call_places(self, answer: Mapping[str, Any]) -> Iterator[CallPlace]:
        """See `ProviderApi`."""
        for use in [*objects(member(answer.get("reply"), "uses")), *objects([answer.get("use")])]:
            yield use, "with", string(use.get("device"))

    def tool_name(self, definition: Any) -> Any:
        """See `ProviderApi`."""
        return member(definition, "device")

    def tool_result(self, call_id: str, name: str, text: str, *, is_error: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        del name, is_error
        return {"role": "device", "ref": call_id, "said": text}

    def streamed(self) -> StreamedTurn:
        """See `SdkApi`."""
        return _Streamed()

    def turn(self, response: Any) -> list[Any]:
        """See `SdkApi`."""
        return [response["reply"]]

    def functions(self, response: Any) -> Iterator[FunctionCall]:
        """See `SdkApi`."""
        for use in objects(response["reply"].get("uses")):
            yield use["ref"], use["device"], use["with"], use

    def waits_otherwise(self, response: Any) -> bool:
        """See `SdkApi`."""
        del response
        return False


class _Streamed(StreamedTurn):
    index: ClassVar[str] = "nth"

    def __init__(self) -> None:
        self._reply: dict[str, Any] = {"role": "machine", "said": "", "uses": []}
        self._last: Any = {}

    def take(self, event: Any) -> StreamedEvent:
        """See `StreamedTurn`."""
        if "over" in event:
            self._last = event
            return StreamedEvent(ends=True)
        self._reply["said"] += event.get("said", "")
        if "use" not in event:
            return StreamedEvent()
        self._reply["uses"].append(event["use"])
        return StreamedEvent([PartPiece(TurnPart(event["use"]["device"]), event, event.get("nth"))])

    def response(self) -> Any:
        """See `StreamedTurn`."""
        return {**self._last, "reply": self._reply}
