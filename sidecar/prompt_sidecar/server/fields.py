"""What holds for a field of any request: ids, names, numbers and lists within their bounds, enums with a known value.

Each check refuses with the field's name, the value or its size, and what would be accepted. None of them shows text
that may be a prompt's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from enum import StrEnum
from typing import Any, TypeVar

from prompt_sidecar.errors import InvalidRequest, TooLarge
from prompt_sidecar.server.wire import WireEnum

RUN_ID_BYTES = 256
"""The longest run id: four times a UUID with a prefix; ids are kept for every run and written to logs."""
NAME_BYTES = 256
"""The longest name of a model or a tool, or stash id, that is looked at."""

MESSAGE_BYTES = 1_048_576
"""The longest request that is no prompt: twice what a model can write at once, of which a tool's call is the longest.
Parsed, two bytes can become a list's element of thirty-two: 64 MiB of them took a gigabyte and five seconds."""

Names = TypeVar("Names", bound=StrEnum)


def check_message(raw: bytes) -> None:
    """Raises TooLarge if a request that is no prompt has more bytes than any can need. It is not parsed then."""
    if len(raw) > MESSAGE_BYTES:
        raise TooLarge(
            f"the request has {len(raw):,} bytes; all but TrimPrompt's may have {MESSAGE_BYTES:,}",
            bound="request.bytes",
        )


def checked_run_id(run_id: str) -> str:
    """Return `run_id` if it can be one.

    Raises:
        InvalidRequest: it is empty, too long, or holds a character that cannot be printed.
    """
    size = len(run_id.encode())
    if not 1 <= size <= RUN_ID_BYTES:
        raise InvalidRequest(f"run_id has {size} bytes; it must have 1 to {RUN_ID_BYTES}", field="run_id")
    if not run_id.isprintable():
        raise InvalidRequest("run_id holds a character that cannot be printed", field="run_id")
    return run_id


def check_name(field: str, value: str, most_bytes: int = NAME_BYTES) -> None:
    """Raises InvalidRequest if a name or an id is empty or too long."""
    size = len(value.encode())
    if not 1 <= size <= most_bytes:
        raise InvalidRequest(f"{field} has {size} bytes; it must have 1 to {most_bytes}", field=field)


def check_number(field: str, value: int, low: int, high: int | None = None) -> None:
    """Raises InvalidRequest if a number is below `low` or, where there is one, above `high`."""
    if value < low or (high is not None and value > high):
        accepted = f"at least {low:,}" if high is None else f"from {low:,} to {high:,}"
        raise InvalidRequest(f"{field} is {value:,}; it must be {accepted}", field=field)


def check_length(field: str, values: Sized, most: int) -> None:
    """Raises InvalidRequest if a list is too long."""
    if len(values) > most:
        raise InvalidRequest(f"{field} has {len(values):,} elements; it may have {most:,}", field=field)


def enum_name(enum: WireEnum, value: int, prefix: str, field: str) -> str:
    """Return the lower-case name of an enum's value without its prefix.

    Raises:
        InvalidRequest: it is 0 or not known.
    """
    names: Mapping[int, str] = {number: name for name, number in enum.items()}
    if value == 0 or value not in names:
        accepted = ", ".join(name for number, name in sorted(names.items()) if number)
        said = "not set" if value == 0 else f"{value}, which is not known"
        raise InvalidRequest(f"{field} is {said}; it may be one of {accepted}", field=field)
    return names[value].removeprefix(prefix).lower()


def enum_numbers(enum: WireEnum, prefix: str, names: type[Names], zero: Names | None = None) -> Mapping[Names, Any]:
    """Return the wire's number of each name, the way back; `zero` is the one that the wire calls UNSPECIFIED."""
    return {name: 0 if name is zero else enum.Value(prefix + name.name) for name in names}
