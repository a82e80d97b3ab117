"""A long text: what memory a call takes beside it, and that it is treated as a short one is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from prompt_sidecar.engine.steps import turn
from prompt_sidecar.guard import masking
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.prompt import body, jsontext, utf8
from tests.promises.engine import Engine

SECRET = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"


def history(text: str) -> list[dict[str, Any]]:
    """A call and its result."""
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]


def written(messages: list[dict[str, Any]]) -> bytes:
    """A body."""
    return json.dumps(messages).encode()


_CALL: Final = """
import sys
from pathlib import Path
from tests.promises.engine import Engine
from tests.lab.harness.servers import memory
from tests.engine.steps.test_long_texts import history, written
engine = Engine(limit=100_000)
engine.trim("openai_chat", written(history("a b c\\n" * 100_000)))
raw = written(history('\\\\":' + "a b c\\n" * 7_000_000))
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
assert len(engine.trim("openai_chat", raw).trimmed.trims) == 1
print((memory("VmHWM") - before) / len(raw) + 1)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells a process's peak of memory there")
def test_a_text_is_copied_once_at_a_time() -> None:
    """A call takes its body, its text, and one copy of either, with some megabytes of its own; never two copies."""
    environment = os.environ | {"PYTHONMALLOC": "malloc", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _CALL], capture_output=True, check=True, text=True, env=environment)
    assert float(done.stdout) <= 3.4


@pytest.mark.parametrize("mode", ["audit", "enforce"])
def test_long_texts_are_treated_as_short_ones(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views in place of copies, pieces in place of the whole, and originals that are written once change nothing."""
    longer = [*history(f"🙂 {SECRET} é\n" * 4_000), {"role": "assistant", "content": f"Seen: {SECRET}."}]
    longer += history(f"🙂 {SECRET} é\n" * 4_000)  # the same again
    bodies = [json.dumps(longer[:length], ensure_ascii=length % 2 == 0).encode() for length in (3, 6, 7)]

    def decisions_of(engine: Engine) -> list[Any]:
        answers = [engine.trim("openai_chat", each) for each in bodies]
        ids = [trim.stash_id for trim in answers[-1].trimmed.trims]
        return [
            *(
                (answer.prompt.body, answer.trimmed.trims, answer.tokens, answer.news.repeated, answer.guard.findings)
                for answer in answers
            ),
            *map(engine.original, ids),
        ]

    guard = GuardOptions(mode=mode)
    expected = decisions_of(Engine(limit=20_000, guard=guard))
    assert len(expected) > len(bodies)
    for module in (jsontext, body, masking):
        monkeypatch.setattr(module, "WRITTEN_BYTES", 64)
    monkeypatch.setattr(turn, "RECORD_BYTES", 64)
    monkeypatch.setattr(utf8, "PIECE_CHARACTERS", 7)
    assert expected == decisions_of(Engine(limit=20_000, guard=guard))
