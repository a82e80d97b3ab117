"""Masks in the calls of streamed answers: text that only begins like one, as a provider may send it."""

from __future__ import annotations

import pytest

from prompt_sidecar.integrations.answers import _StreamedCall, prompt_has_masks


@pytest.mark.parametrize("piece", ["\\", "\\u27e6"], ids=["backslashes", "beginnings"])
def test_text_that_nearly_is_a_mask_is_read_once(piece: str) -> None:
    """Not from each of its characters on: that would take hours here."""
    text = '"' + piece * (1_000_000 // len(piece))
    call = _StreamedCall(lambda text: {"delta": text})
    assert text == call.feed(text) + call.rest()
    assert not prompt_has_masks(text.encode())
