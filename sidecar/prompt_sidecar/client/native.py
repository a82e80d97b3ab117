"""Converts a program's own objects to JSON and back, changing only what was trimmed.

A prompt may be a mapping or a list that contains dicts and message objects of a provider's SDK. It is sent as the JSON
that the SDK would send. The sidecar answers with edits. Only the containers on an edit's path are copied, so that the
caller's objects are never changed, and parts that were not trimmed are the same objects in the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

REPLACE: Final = "replace"
INSERT: Final = "insert"
REMOVE: Final = "remove"


def dumped(value: Any) -> bytes:
    """Return a native value as JSON.

    Raises:
        TypeError, ValueError, RecursionError: it contains a value that JSON has no form for.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain).encode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8. As an escape it reaches the sidecar, whose error describes it.
        return json.dumps(value, separators=(",", ":"), default=plain).encode()


def plain(value: Any) -> Any:
    """Return an SDK's object as JSON types: the API's members, and none that the SDK added.

    The SDKs send their own objects in this form (openai `_utils/_json.py`, anthropic `_utils/_json.py`).

    Raises:
        TypeError: it is not an SDK's object.
    """
    if hasattr(value, "model_dump"):
        left_out = getattr(value, "__api_exclude__", None)
        return value.model_dump(mode="json", exclude_unset=True, by_alias=True, exclude=left_out)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"a prompt cannot hold an object of type {type(value).__name__}")


def edited(prompt: Any, edits: Iterable[tuple[str, str, bytes]]) -> Any:
    """Apply edits, each an operation, a JSON pointer and a value as JSON, in order; return the edited prompt.

    Raises:
        LookupError, TypeError, ValueError: an edit does not fit the prompt.
    """
    holder: list[Any] = [prompt]
    copies = _Copies()
    for operation, pointer, value in edits:
        parent, key = copies.reach(holder, pointer)
        if operation == REMOVE:
            del parent[key]
        elif operation == INSERT and isinstance(parent, list):
            if key > len(parent):
                raise IndexError(f"{pointer} is past the end")
            parent.insert(key, json.loads(value))
        elif operation in (INSERT, REPLACE):
            if operation == REPLACE:
                parent[key]  # a missing member cannot be replaced
            parent[key] = json.loads(value)
        else:
            raise ValueError(f"an edit of the kind {operation} is not known")
    return holder[0]


def remade(prompt: Any, given: Any, made: Any, member: str) -> Any:
    """Convert an edited prompt back to its original shape; unchanged parts are the same objects as before.

    Args:
        prompt: bytes, text or native objects.
        given: the prompt as JSON types.
        made: the new prompt as JSON types.
        member: the member with the messages.
    """
    if isinstance(prompt, bytes | str):
        raw = dumped(made)
        return raw.decode() if isinstance(prompt, str) else raw
    if not isinstance(made, dict) or not isinstance(prompt, Mapping):
        return _same_objects(prompt, given, made) if isinstance(made, list) else made
    members = {name: prompt[name] if name in prompt and given.get(name) == made[name] else made[name] for name in made}
    old, new = given.get(member), made.get(member)
    if isinstance(old, list) and isinstance(new, list) and old != new:
        members[member] = _same_objects(prompt[member], old, new)
    return members


def _same_objects(objects: Any, given: list[Any], made: list[Any]) -> list[Any]:
    """Return the new messages, with the given object for each that is unchanged."""
    known = {dumped(message): each for message, each in zip(given, objects, strict=True)}
    return [known.get(dumped(message), message) for message in made]


def _index(part: str) -> int:
    """Return an index of a list in RFC 6901's form. Raises ValueError: a negative one would count from the end."""
    if not (part.isascii() and part.isdecimal()):
        raise ValueError(f"an edit's pointer names a place in a list by {len(part)} characters that are no index")
    return int(part)


class _Copies:
    """The containers that were copied for edits. Each is copied once, whatever the number of edits."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def reach(self, holder: list[Any], pointer: str) -> tuple[Any, Any]:
        """Return a copy of the container that a pointer leads to, which may be changed, and the key in it."""
        parent: Any = holder
        key: Any = 0
        for part in pointer.split("/")[1:]:
            child = self._own(parent[key])
            parent[key] = child
            parent = child
            key = _index(part) if isinstance(child, list) else part.replace("~1", "/").replace("~0", "~")
        return parent, key

    def _own(self, value: Any) -> Any:
        if id(value) in self._made:
            return value
        copy = value
        if hasattr(value, "model_dump"):
            copy = json.loads(dumped(value))
        elif isinstance(value, Mapping):
            copy = dict(value)
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            copy = list(value)
        else:
            raise TypeError(f"an edit leads into a {type(value).__name__}")
        self._made[id(copy)] = copy  # kept, so that no other object gets its id
        return copy
