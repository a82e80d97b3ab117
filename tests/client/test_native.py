"""Native objects: written as JSON, edited without being touched."""

from __future__ import annotations

import copy
import json
from collections import UserDict, UserList
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.client.native import dumped, edited

leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)


class Message:
    """As the SDKs' message objects: pydantic's way of telling what was set."""

    def __init__(self, **members: Any) -> None:
        self.members = members

    def model_dump(self, *, mode: str, exclude_unset: bool, by_alias: bool, exclude: Any) -> dict[str, Any]:
        """What the API sent."""
        assert (mode, exclude_unset, by_alias, exclude) == ("json", True, True, None)
        return self.members


def places(value: Any, pointer: str = "") -> list[tuple[str, Any, Any]]:
    """Every place in a value: its pointer, its container, its key."""
    found: list[tuple[str, Any, Any]] = []
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in members:
        here = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
        found += [(here, value, key), *places(child, here)]
    return found


@given(data=st.data(), start=st.lists(values, min_size=1, max_size=5))
def test_edits_do_what_rfc_6902_says(data: st.DataObject, start: list[Any]) -> None:
    """Any edits in any order; the prompt that was given is not changed by any of them."""
    expected = copy.deepcopy(start)
    before = copy.deepcopy(start)
    edits: list[tuple[str, str, bytes]] = []
    for _ in range(data.draw(st.integers(0, 5))):
        if not (there := places(expected)):
            break
        pointer, parent, key = data.draw(st.sampled_from(there))
        operation = data.draw(st.sampled_from(["replace", "insert", "remove"]))
        new = data.draw(values)
        edits.append((operation, pointer, json.dumps(new).encode()))
        if operation == "remove":
            del parent[key]
        elif operation == "insert" and isinstance(parent, list):
            parent.insert(key, new)
        else:
            parent[key] = new

    assert expected == edited(start, edits)
    assert before == start


def test_what_is_not_edited_is_the_same_object() -> None:
    """Containers on the way of an edit are copies; all else is what was given, and the SDK's objects stay such."""
    kept, changed, gone = {"role": "user"}, {"role": "tool", "content": "long"}, {"role": "assistant"}
    message = Message(role="assistant")
    prompt = {"model": "m", "messages": (kept, message, changed, gone), "tools": [{}]}
    edits = [
        ("remove", "/messages/3", b""),
        ("replace", "/messages/2", b'{"role":"tool"}'),
        ("insert", "/messages/0", b'{"role":"system"}'),
        ("insert", "/system", b'"S"'),
    ]
    made = edited(prompt, edits)

    assert [{"role": "system"}, kept, message, {"role": "tool"}] == made["messages"]
    assert all(one is other for one, other in zip(made["messages"][1:3], (kept, message), strict=True))
    assert (made["tools"] is prompt["tools"], made["system"]) == (True, "S")
    assert (kept, message, changed, gone) == prompt["messages"]
    assert "system" not in prompt


def test_an_edit_inside_an_sdk_object() -> None:
    """It becomes a dict, as its members cannot be edited one by one."""
    message = Message(role="tool", content=["a", "b"])

    assert [{"role": "tool", "content": ["a"]}] == edited([message], [("remove", "/0/content/1", b"")])
    assert ["a", "b"] == message.members["content"]


@pytest.mark.parametrize(
    "edit",
    [
        ("replace", "/7", b"1"),
        ("insert", "/7", b"1"),
        ("remove", "/x", b""),
        ("remove", "/0/none", b""),
        ("replace", "/0/none", b"1"),
        ("replace", "/1/0", b"1"),
        ("replace", "/0", b"not json"),
        ("unknown_9", "/0", b"1"),
        ("remove", "/-1", b""),
        ("insert", "/-1", b"1"),
        ("replace", "/\u0661", b"1"),
        ("replace", "/ 0", b"1"),
        ("replace", "/1_0", b"1"),
    ],
)
def test_an_edit_that_does_not_fit_is_an_error(edit: tuple[str, str, bytes]) -> None:
    """Whatever a server answers, no prompt goes out half edited."""
    with pytest.raises((LookupError, TypeError, ValueError)):
        edited([{"a": 1}, "text"], [edit])


@given(values)
def test_json_of_plain_values(value: Any) -> None:
    """It reads back as it was."""
    assert value == json.loads(dumped(value))


def test_json_of_other_objects() -> None:
    """Message objects, other mappings and sequences at any depth; a lone surrogate stays escaped."""
    prompt = {"messages": UserList([Message(a=Message(b=1)), UserDict(c="é\ud800")])}

    assert b'{"messages":[{"a":{"b":1}},{"c":"\\u00e9\\ud800"}]}' == dumped(prompt)
    assert '["é"]'.encode() == dumped(["é"])


@pytest.mark.parametrize("value", [{1, 2}, [b"bytes"], [object()], {(): 1}])
def test_what_is_no_json(value: Any) -> None:
    """It is refused, and nothing of its text is told."""
    with pytest.raises(TypeError):
        dumped(value)
