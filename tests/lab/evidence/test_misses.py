"""Where the sidecar and the control differ."""

from __future__ import annotations

import pytest

from tests.conformance.conversations import ANTHROPIC, GEMINI, RESPONSES
from tests.lab.evidence.contenders import CONTROL, NEVER, Contender
from tests.lab.evidence.making import Step, filler, made
from tests.lab.evidence.measuring import Material
from tests.lab.evidence.misses import difference
from tests.lab.evidence.recordings import CHAT

NEEDLE = "the needle_name stands in a line of its own"


@pytest.mark.parametrize("format", [ANTHROPIC, CHAT, RESPONSES, GEMINI])
def test_what_only_one_of_them_shows(format: str) -> None:
    """An old result that the control drops, against prompts that are never cut and cost more, and against itself."""
    steps = [Step(says="Look.", result=NEEDLE), *(filler(n, 200) for n in range(40)), Step(says="Use needle_name.")]
    material = Material(made(format, steps))
    whole = difference(material, Contender(NEVER), 0.5)
    expected = {("ours only", name): pytest.approx(1.0) for name in ("all", "older", "result")}
    assert expected == whole.visible
    assert expected == whole.source
    assert whole.size > 0 > whole.rewritten
    same = difference(material, Contender(CONTROL), 0.5)
    assert {("neither", name) for name in ("all", "older", "result")} == set(same.visible)
    assert (0.0, 0.0) == (same.size, same.rewritten)
