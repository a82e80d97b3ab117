"""Lines that are read back from condensed results, and what they count for."""

from __future__ import annotations

import json

from prompt_sidecar.trim.condense.calls import call_of
from prompt_sidecar.trim.condense.condensing import Level, labelled, reduced
from prompt_sidecar.trim.condense.output import Output
from tests.lab.evidence.making import Step, filler, made
from tests.lab.evidence.measuring import Material
from tests.lab.evidence.reading import by_what_is_shown, on_a_terminal, read_back
from tests.lab.evidence.recordings import CHAT
from tests.lab.evidence.ruler import Sight

FOUND = [f"src/app/settings.py:{number}:    needle_{number} = 1" for number in range(4)]
BUILT = [f"build/web: module {number} is compiled" for number in range(12)]
CALL = call_of("bash", json.dumps({"command": "rg -n needle_"}))


def condensed(lines: list[str]) -> str:
    """The lines as `safe` makes them, with the label."""
    found = reduced(Output("\n".join(lines), CALL), Level.SAFE)
    assert found is not None
    return labelled(found.text, "a1b2c3d4e5")


def test_paths_and_beginnings_are_read_back() -> None:
    """Each line as it was; nothing of a text without a condensed result's label."""
    text = condensed([*FOUND, "then", *BUILT])
    assert FOUND[0] not in text
    assert BUILT[0] not in text
    assert {*FOUND, *BUILT, "then"} == {*read_back(text)}
    assert not [*read_back(text.rpartition("\n")[0])]


def test_what_a_terminal_shows() -> None:
    """A line with codes is found by what is shown of it."""
    line = "\x1b[31mFAIL\x1b[0m src/a.ts\r"
    assert "FAIL src/a.ts" == on_a_terminal(line)
    assert {"FAIL src/a.ts": [7]} == by_what_is_shown({line: 7, "plain": 8})


def test_a_line_to_be_read_back_is_not_visible() -> None:
    """The strict figure compares whole lines; the second one counts what can be derived."""
    steps = [Step(says="Look.", result="\n".join(FOUND)), *(filler(n) for n in range(3)), Step(says="Use needle_2.")]
    material = Material(made(CHAT, steps))
    (need,) = material.needs[-1]
    sight = Sight(material.ruler.pieces)
    for text, seen, derived in (("\n".join(FOUND), True, False), (condensed(FOUND), False, True), ("no", False, False)):
        message = {"role": "tool", "tool_call_id": "call-0", "content": text}
        sight.move((material.ruler.piece(json.dumps(message).encode()),))
        assert [seen, derived] == [sight.shows_source(need.source), sight.derives(need.source)]
