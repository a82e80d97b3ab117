"""What several formats share: text in place of a part, and JSON as it is shown."""

from __future__ import annotations

import json
from time import process_time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt import anthropic_messages
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.prompt.jsontext import canonical, load
from prompt_sidecar.prompt.parts import shown_json, string, text_in_place
from tests.oracle.respell import SPELLINGS


def test_text_in_place() -> None:
    """What a part says next to its content stays, byte for byte; the content goes."""
    part = b'{"type":"image","data":"AA==","cache_control":{ "type":"ephemeral"},"_meta":{"a":1.50},"detail":"high"}'
    expected = b'{"type":"text","text":"[\xc3\xa9\\"]","cache_control":{ "type":"ephemeral"},"_meta":{"a":1.50}}'
    assert expected == text_in_place(part, '[é"]')


@pytest.mark.parametrize(
    ("spelled", "shown"),
    [
        ("1", "1"),
        ("1.0", "1"),
        ("1e3", "1000"),
        ("-0.0", "0"),
        ("0.5", "0.5"),
        ("9007199254740993", "9007199254740993"),
        ("18446744073709551615", "18446744073709551615"),
        ("1e19", "10000000000000000000"),
        ("4.021455767686262e16", "40214557676862620"),
        ("40214557676862620", "40214557676862620"),
        ("-1e19", "-1e+19"),
        ("-10000000000000000000", "-1e+19"),
        ('{"b": [1.0, true, null], "a": "\\u00e9"}', '{"a":"é","b":[1,true,null]}'),
    ],
)
def test_json_is_shown_with_sorted_keys_and_all_digits(spelled: str, shown: str) -> None:
    """Keys are sorted, and whole numbers have no point, however they were spelled; large ones keep all digits."""
    assert shown == shown_json(load(spelled.encode(), "f"), "f")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab"é', max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(value=values, spelling=st.sampled_from(sorted(SPELLINGS)))
def test_shown_means_the_same(value: object, spelling: str) -> None:
    """Every spelling is shown alike, and what is shown decodes to what was sent."""
    raw = json.dumps(value).encode()
    shown = shown_json(load(raw, "f"), "f")
    assert canonical(load(raw, "f")) == canonical(load(shown.encode(), "f"))
    wrapped = json.dumps({"role": "user", "x": value}).encode()
    assert shown == shown_json(load(SPELLINGS[spelling](wrapped), "f")["x"], "f")


def test_too_deep() -> None:
    """What could not be written is refused by the name of where it stands."""
    with pytest.raises(InvalidJson) as caught:
        shown_json(json.loads("[" * 300 + "]" * 300), "json.body.messages[1]")
    assert "json.body.messages[1]" == caught.value.field


@pytest.mark.parametrize(("value", "text"), [("a", "a"), (None, ""), (1, ""), (["a"], "")])
def test_a_member_of_another_kind_is_no_string(value: object, text: str) -> None:
    """A member of another kind counts as none."""
    assert text == string(value)


IMAGE: Final = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 20}}


@pytest.mark.parametrize("spelled", [False, True])
def test_thousands_of_images_in_one_result(*, spelled: bool) -> None:
    """Their originals and what replaces them are found in one pass: 4,000 took ten seconds, some quarter of one now."""
    text = {"type": "text", "text": "\ud800"} if spelled else {"type": "text", "text": "a"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text, *[IMAGE] * 4_000]}
    raw = json.dumps({"role": "user", "content": [result]}).encode()
    format_ = anthropic_messages.FORMAT
    images = [item for item in format_.read(raw, "history").items if item.kind is ItemKind.IMAGE]
    began = process_time()
    originals = format_.originals(raw, images)
    written = format_.write(raw, dict.fromkeys(images, "gone"))
    took = process_time() - began

    assert [IMAGE] * 4_000 == [json.loads(each) for each in originals]
    assert [text, *[{"type": "text", "text": "gone"}] * 4_000] == json.loads(written)["content"][0]["content"]
    assert took < 2, f"{took:.1f} s"
