"""A new call whose arguments hold one of the sidecar's labels is reported before the tool runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.client.model_calls import model_calls
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.providers.table import SDKS
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.ids import mint

ID = mint(b"run", 3, 1, b"message")
TEXT = "a line of a file\n" * 40
CUT = elide.cut(TEXT.encode(), TEXT.encode(), len(TEXT), budget=400, head_share=0.5, stash_id=ID)


def labels(stash_id: str) -> list[str]:
    """Every label that can stand in a prompt."""
    assert CUT is not None
    encoded = TEXT.encode()
    return [
        *(
            elide.placeholder(kind, stash_id, len(TEXT)) or ""
            for kind in (ItemKind.TEXT, ItemKind.RESULT, ItemKind.IMAGE)
        ),
        elide.clipped_arguments(json.dumps({"text": TEXT}), stash_id, free_text=False) or "",
        elide.clipped_snapshot(f"<EXTERNAL-CONTENT>{TEXT}</EXTERNAL-CONTENT>", stash_id, len(TEXT)),
        elide.elided(encoded, encoded, len(TEXT), CUT, stash_id),
        elide.repeated(stash_id, len(TEXT), 12),
        elide.carrier(elide.placeholder(ItemKind.RESULT, stash_id, len(TEXT)) or "", 7),
        elide.naming(elide.placeholder(ItemKind.RESULT, stash_id, len(TEXT)) or "", ["src/app.py", "read_page"]),
    ]


def called(arguments: str) -> Any:
    """The model's call with these arguments, as chat completions return it."""
    function = {"name": "write", "arguments": arguments}
    message = {"tool_calls": [{"id": "c", "type": "function", "function": function}]}
    (call,) = model_calls(SDKS["openai_chat"], {"choices": [{"message": message}]})
    return call


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("label", labels(ID))
def test_a_label_in_new_arguments_is_reported(label: str, escaped: bool) -> None:
    """Any label with an id, alone or within a text, however the model escapes it."""
    arguments = {"path": "notes.md", "lines": [{"text": f"before {label} after"}]}
    assert called(json.dumps(arguments, ensure_ascii=escaped)).copied_label


@pytest.mark.parametrize("text", ["", "{}", "[content clipped]", "id=abcdefghjk, 3 bytes", *labels("")])
def test_other_text_is_not(text: str) -> None:
    """What only resembles a label, or has no id, which a user may write as well."""
    assert not called(json.dumps({"text": text})).copied_label
