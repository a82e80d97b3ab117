"""Masks in the calls of streamed answers: text that only begins like one, as a provider may send it."""

from __future__ import annotations

from time import thread_time

import pytest

from prompt_sidecar.integrations.answers import _Call, prompt_has_masks


@pytest.mark.parametrize("text", ['"' + "\\" * 400_000, '"' + "\\u27e6" * 200_000], ids=["backslashes", "beginnings"])
def test_what_is_nearly_a_mask_takes_no_time(text: str) -> None:
    """It is looked at once, not from each of its characters on: that would take minutes."""
    began = thread_time()
    call = _Call()
    assert text == call.feed(text) + call.rest()
    assert not prompt_has_masks(text.encode())
    assert 20 > thread_time() - began
