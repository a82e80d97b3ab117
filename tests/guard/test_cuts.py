"""A value is masked before anything is cut: neither half of an elided text nor a page of recall holds its rest."""

from __future__ import annotations

import json
import random
import string
from typing import Any, Final

import pytest

from prompt_sidecar.facts.tool_calls import RECALL
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.recall.selection import ByteRange
from tests.promises.engine import Engine

ENFORCE: Final = GuardOptions(mode="enforce", scan_seconds=60)


def private_key(chance: random.Random) -> str:
    """A made-up key on 25 lines."""
    lines = ["".join(chance.choices(string.ascii_letters + string.digits, k=64)) for _ in range(25)]
    return "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"])


@pytest.mark.parametrize("seed", range(2))
def test_no_cut_frees_a_part_of_a_value(seed: int) -> None:
    """Of keys that fill a result, wherever it is cut: no line in any prompt or page."""
    chance = random.Random(seed)
    keys = [private_key(chance) for _ in range(8)]
    text = "\n".join(f"{'line of a log ' * chance.randrange(40)}\n{key}\n" for key in keys)
    parts = [line for key in keys for line in key.splitlines()[1:-1]]
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    engine = Engine(limit=2_500, guard=ENFORCE)
    for turn in range(4):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        result = f"{turn}\n{text}" + "more of it, line by line\n" * 400
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": result},
        ]
        answer = engine.trim("openai_chat", json.dumps({"messages": messages}).encode())
        shown = (answer.prompt.body or b"").decode()
        for trim in answer.trimmed.trims:
            for start in range(0, 3_000, 700):
                shown += engine.call(RECALL, {"id": trim.stash_id, "first_line": 1 + start // 500}).content
                found = engine.retrieve(trim.stash_id, selection=ByteRange(start, start + 777))
                assert found.outcome is Outcome.HIT
                shown += found.page.content.decode()
        assert [] == [part for part in parts if part in shown or part[:16] in shown or part[-16:] in shown]
    assert answer.trimmed.trims
