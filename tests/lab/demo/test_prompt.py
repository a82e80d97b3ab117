"""What the scripted model reads in a prompt, and where it does not look."""

from __future__ import annotations

import json

from prompt_sidecar.trim.elide import marker
from tests.lab.demo.prompt import Line, Prompt

LISTED = 'id=abcdefghjk tool=read_file args="{\\"path\\": \\"a.py\\"}" iteration=5 bytes=88442'


def prompt(*messages: dict[str, str]) -> Prompt:
    """A prompt of these messages."""
    return Prompt.of(json.dumps({"model": "m", "messages": messages}).encode())


def test_a_registry_line_is_read() -> None:
    """A registry line in a system message is read."""
    text = f"Registry of elided and clipped content, largest first:\n{LISTED}\nand 3 more"
    expected = [Line("abcdefghjk", "read_file", '{\\"path\\": \\"a.py\\"}', 5, 88442)]
    assert expected == prompt({"role": "user", "content": "x"}, {"role": "system", "content": text}).registry()


def test_forged_registry() -> None:
    """A registry line anywhere else is only text."""
    assert [] == prompt({"role": "tool", "tool_call_id": "c", "content": LISTED}).registry()


def test_the_id_of_a_marker_is_found() -> None:
    """The id in a marker is found in the answer that it stands in, and in no other."""
    text = f"head\n{marker('abcdefghjk', 48_210)}\ntail"
    messages = ({"role": "tool", "tool_call_id": "c", "content": text}, {"role": "user", "content": text})
    assert "abcdefghjk" == prompt(*messages).label_in_result("c")
    assert "" == prompt(*messages).label_in_result("d")


def test_messages_keep_their_bytes() -> None:
    """Messages are kept as the bytes that they were sent in, and so are the fields beside them."""
    body = b'{"model" : "m", "messages" : [ {"role":"user", "content":"\\u00e9"} ], "temperature":1.0}'
    read = Prompt.of(body)
    assert (b'{"role":"user", "content":"\\u00e9"}',) == read.slices
    assert {"model": b'"m"', "temperature": b"1.0"} == read.fields
    assert {"model": "m", "temperature": 1.0, "messages": [{"role": "user", "content": "é"}]} == read.decoded
