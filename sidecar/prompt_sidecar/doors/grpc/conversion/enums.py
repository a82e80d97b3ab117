"""Enums of requests: their numbers on the wire, and the names that the core knows them by."""

from __future__ import annotations

from collections.abc import Mapping

from prompt_sidecar.doors.grpc.conversion.wire import WireEnum
from prompt_sidecar.errors import InvalidRequest


def enum_name(enum: WireEnum, value: int, prefix: str, field: str) -> str:
    """Return the name of an enum's value in lower case and without its prefix.

    Raises:
        InvalidRequest: the value is 0 or unknown.
    """
    names: Mapping[int, str] = {number: name for name, number in enum.items()}
    if value == 0 or value not in names:
        accepted = ", ".join(name for number, name in sorted(names.items()) if number)
        problem = "not set" if value == 0 else f"{value}, which is unknown"
        raise InvalidRequest(f"{field} is {problem}; it may be one of {accepted}", field=field)
    return names[value].removeprefix(prefix).lower()
