"""Bodies that are refused, by name of what is wrong and without their text."""

from __future__ import annotations

import pytest

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.body import split

MESSAGES = "json.body.messages"
SECRET = "only-in-the-prompt"

REFUSED = {
    "nothing": (b"", "json.body"),
    "white space": (b" \n", "json.body"),
    "not JSON": (b"hello", "json.body"),
    "a string": (b'"hello"', "json.body"),
    "a number": (b"12", "json.body"),
    "null": (b"null", "json.body"),
    "no messages": (b'{"model":"x"}', "json.body"),
    "an empty object": (b"{}", "json.body"),
    "empty messages": (b'{"messages":[]}', MESSAGES),
    "empty messages with space": (b'{"messages":[ ]}', MESSAGES),
    "an empty array": (b"[]", MESSAGES),
    "messages a number": (b'{"messages":12}', MESSAGES),
    "messages an object": (b'{"messages":{}}', MESSAGES),
    "messages a string": (b'{"messages":"[1]"}', MESSAGES),
    "messages null": (b'{"messages":null}', MESSAGES),
    "messages twice": (b'{"messages":[1],"messages":[1]}', "json.body"),
    "messages twice, other": (b'{"messages":[1],"messages":[2]}', "json.body"),
    "messages twice, escaped": (b'{"messages":[1],"m\\u0065ssages":[1]}', "json.body"),
    "member twice": (b'{"a":1,"a":1,"messages":[1]}', "json.body"),
    "member twice, other": (b'{"a":1,"messages":[1],"a":2}', "json.body"),
    "member twice, the later a prefix": (b'{"messages":[1],"max_tokens":12,"max_tokens":1}', "json.body"),
    "member twice, the later a prefix, first": (b'{"max_tokens":12,"max_tokens":1,"messages":[1]}', "json.body"),
    "junk after": (b'{"messages":[1]} x', "json.body"),
    "second document": (b"[1][2]", "json.body"),
    "unfinished": (b'{"messages":[1]', "json.body"),
    "comma at the end": (b'{"messages":[1],}', "json.body"),
    "comma in the array": (b'{"messages":[1,]}', "json.body"),
    "NaN": (b'{"messages":[1],"temperature":NaN}', "json.body"),
    "infinity": (b'{"messages":[1],"temperature":-Infinity}', "json.body"),
    "single quotes": (b"{'messages':[1]}", "json.body"),
    "a byte order mark": (b'\xef\xbb\xbf{"messages":[1]}', "json.body"),
    "a comment": (b'{"messages":[1] /* all */}', "json.body"),
    "name no UTF-8": (b'{"\xff":1,"messages":[1]}', "json.body"),
    "100,000 arrays": (b"[" * 100_000 + b"]" * 100_000, "json.body"),
    "100,000 arrays, open": (b"[" * 100_000, "json.body"),
    "100,000 objects": (b'{"messages":' * 100_000, "json.body"),
    "a deep member": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"messages":[1]}', "json.body"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_body_is_refused_by_its_field(name: str) -> None:
    """What is no body is refused by the field at fault."""
    raw, field = REFUSED[name]
    with pytest.raises(InvalidJson) as caught:
        split(raw)
    assert caught.value.field.startswith(field)


@pytest.mark.parametrize(
    "raw",
    [
        f'{{"messages":[1],"{SECRET}":1,"{SECRET}":2}}',
        f'{{"messages":"{SECRET}"}}',
        f'["{SECRET}"',
        f"{SECRET}",
        f'{{"messages":[1],"x":"{SECRET}',
    ],
)
def test_no_text_of_the_body_in_messages(raw: str) -> None:
    """An error says what is wrong without a word of the body."""
    with pytest.raises(InvalidJson) as caught:
        split(raw.encode())
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    ("raw", "text", "field"),
    [
        (b'{"messages":[1]}', True, "json.body"),
        (b'{"input":"hi"}', False, "json.body.input"),
        (b'{"input":7}', True, "json.body.input"),
        (b'{"input":[]}', True, "json.body.input"),
        (b'{"input":"a","input":"a"}', True, "json.body"),
        (b'"hi"', True, "json.body"),
    ],
)
def test_refused_by_another_name(raw: bytes, text: bool, field: str) -> None:
    """Where the messages are another member's, errors name that one."""
    with pytest.raises(InvalidJson) as caught:
        split(raw, None, "input", text=text)
    assert field == caught.value.field
    assert "messages is" not in str(caught.value)


def test_a_broken_member_of_a_member() -> None:
    """What is inside a member is refused where it is looked at, not echoed."""
    with pytest.raises(InvalidJson):
        split(b'{"messages":[1],"a":{"\xff":1}}').field("a.b")
