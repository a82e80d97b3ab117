"""What stands around Gemini's contents: the system instruction, a stored cache, tools."""

from __future__ import annotations

import json

import pytest

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.body import split
from prompt_sidecar.prompt.format import Format, SystemMember
from prompt_sidecar.prompt.formats import FORMATS

GEMINI: Format = FORMATS["gemini_contents"]
OURS = '{"text":"ours"}'


def system() -> SystemMember:
    """The member that holds the system prompt."""
    assert GEMINI.system is not None
    return GEMINI.system


@pytest.mark.parametrize(
    ("before", "after", "again"),
    [
        (None, f'{{"parts":[{OURS}]}}', "null"),
        ("null", f'{{"parts":[{OURS}]}}', "null"),
        (
            '{"parts":[{"text" : "S\\u00e9"} ]}',
            f'{{"parts":[{{"text" : "S\\u00e9"}} ,{OURS}]}}',
            '{"parts":[{"text" : "S\\u00e9"} ]}',
        ),
        (
            '{"role":"user","parts":{"text":"S"}}',
            f'{{"role":"user","parts":[{{"text":"S"}},{OURS}]}}',
            '{"role":"user","parts":[{"text":"S"}]}',
        ),
        ('{"role":"user"}', f'{{"role":"user","parts":[{OURS}]}}', '{"role":"user","parts":[]}'),
        ('{"role":"user","parts":null}', f'{{"role":"user","parts":[{OURS}]}}', '{"role":"user","parts":[]}'),
    ],
    ids=range(6),
)
def test_own_text_is_added_and_removed_again(before: str | None, after: str, again: str) -> None:
    """What is in the system prompt keeps its bytes; ours is a further part, and goes again."""
    added = system().add(None if before is None else before.encode(), "ours")
    assert after == added.decode()
    assert again == system().without(added, lambda text: text == "ours").decode()
    assert added == system().without(added, lambda _: False)
    assert added == system().add(again.encode(), "ours")


def test_system_texts() -> None:
    """Its texts count, and a part that is no text as what it is."""
    assert ["a", '{"x":1.0}'] == system().texts(b'{"parts":[{"text":"a"},{"x":1}]}')
    assert [[], []] == [system().texts(value) for value in (b"null", b'{"role":"user"}')]


@pytest.mark.parametrize("value", [b"1", b"[]", b'"text"', b'{"parts":"text"}'])
def test_system_refuses(value: bytes) -> None:
    """A system prompt that has no parts is refused by its name."""
    with pytest.raises(InvalidJson) as caught:
        system().add(value, "ours")
    assert "json.body.systemInstruction" == caught.value.field


@pytest.mark.parametrize("name", ["systemInstruction", "system_instruction"])
def test_spelling_of_the_member(name: str) -> None:
    """It is found under either spelling; a body without one gets the first."""
    body = json.dumps({"contents": [{"parts": []}], name: {"parts": []}}).encode()
    assert (name, b'{"parts": []}') == GEMINI.member(split(body, None, "contents"))
    assert ("systemInstruction", None) == GEMINI.member(split(b'{"contents":[{}]}', None, "contents"))


@pytest.mark.parametrize("name", ["cachedContent", "cached_content"])
def test_stored_cache(name: str) -> None:
    """Beside a stored cache the provider refuses a system prompt, so there is no place for ours."""
    assert GEMINI.variant is not None
    cached = GEMINI.variant(split(json.dumps({name: "cachedContents/a", "contents": [{}]}).encode(), None, "contents"))
    assert (GEMINI.name, None) == (cached.name, cached.system)
    for body in (f'{{"{name}":null,"contents":[{{}}]}}', '{"contents":[{}]}', "[{}]"):
        assert GEMINI is GEMINI.variant(split(body.encode(), None, "contents"))


def test_a_tool_is_a_function_declaration() -> None:
    """A tool is a member of `functionDeclarations`, its parameters a JSON schema."""
    expected = {"name": "n", "description": "d", "parametersJsonSchema": {"type": "object"}}
    assert expected == json.loads(GEMINI.tool("n", "d", b'{"type":"object"}'))
