"""Checks of request fields that all doors share: ids, names, numbers and lists.

Each check raises InvalidRequest with the field's name, its value or size, and what is accepted. No message contains
text that may belong to a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized

from prompt_sidecar.errors import InvalidRequest, TooLarge

RUN_ID_BYTES = 256
"""The longest run id: four times a UUID with a prefix. Ids are kept for every run and written to logs."""
NAME_BYTES = 256
"""The longest name of a model or a tool, and the longest stash id."""
REQUEST_ID_BYTES = 128
"""The longest request id: twice a UUID with a prefix. Some hundred are kept for each run."""
MOST_TOOLS = 64
"""Names of tools in one request: half of what a provider lets an agent define."""
MESSAGE_BYTES = 1_048_576
"""The longest request of a method other than TrimPrompt: twice the longest text that a model can write at once, a tool
call. When parsed, two bytes can become a list element of thirty-two: 64 MiB of them took a gigabyte and five
seconds."""


def check_message(raw: bytes) -> None:
    """Raise TooLarge if a request of a method other than TrimPrompt has more bytes than any needs."""
    if len(raw) > MESSAGE_BYTES:
        raise TooLarge(
            f"the request has {len(raw):,} bytes; all but TrimPrompt's may have {MESSAGE_BYTES:,}",
            bound="request.bytes",
        )


def checked_run_id(run_id: str) -> str:
    """Return `run_id` if it is valid.

    Raises:
        InvalidRequest: it is empty, too long, or contains a character that cannot be printed.
    """
    if not run_id.isprintable():  # a header byte that is not UTF-8 becomes a lone surrogate, which cannot be encoded
        raise InvalidRequest("run_id holds a character that cannot be printed", field="run_id")
    check_name("run_id", run_id, RUN_ID_BYTES)
    return run_id


def checked_request_id(request_id: str) -> str:
    """Return `request_id`, which may be empty, if it is not too long. Raises InvalidRequest."""
    check_length("request_id", request_id, REQUEST_ID_BYTES)
    return request_id


def check_name(field: str, value: str, most_bytes: int = NAME_BYTES) -> None:
    """Raise InvalidRequest if a required name or id is empty or too long."""
    size = len(value.encode())
    if not 1 <= size <= most_bytes:
        raise InvalidRequest(f"{field} has {size} bytes; it must have 1 to {most_bytes}", field=field)


def check_length(field: str, value: str, most_bytes: int = NAME_BYTES) -> None:
    """Raise InvalidRequest if an optional name or id is too long."""
    size = len(value.encode())
    if size > most_bytes:
        raise InvalidRequest(f"{field} has {size} bytes; it may have at most {most_bytes}", field=field)


def check_number(field: str, value: int, low: int, high: int | None = None) -> None:
    """Raise InvalidRequest if a number is below `low` or, if given, above `high`."""
    if value < low or (high is not None and value > high):
        accepted = f"at least {low:,}" if high is None else f"from {low:,} to {high:,}"
        raise InvalidRequest(f"{field} is {value:,}; it must be {accepted}", field=field)


def check_count(field: str, values: Sized, most: int) -> None:
    """Raise InvalidRequest if a list has too many elements."""
    if len(values) > most:
        raise InvalidRequest(f"{field} has {len(values):,} elements; it may have at most {most:,}", field=field)


def check_names(field: str, names: Sequence[str], most: int) -> None:
    """Raise InvalidRequest if a list of names is too long, or one of them is empty or too long."""
    check_count(field, names, most)
    for index, name in enumerate(names):
        check_name(f"{field}[{index}]", name)
