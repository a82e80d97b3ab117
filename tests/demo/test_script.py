"""The script is a long investigation of a source that every machine has."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest

from sidecar.trim.policy import Policy
from tests.demo import stranger
from tests.demo.investigation import LONG_FILE, PLAN, PLAN_AFTER
from tests.demo.prompt import LABEL, Prompt
from tests.demo.script import FACT, OTHER_FACT, OTHER_FILE, Notes, script
from tests.demo.tools import Tools

SOURCE = Tools(Path(sysconfig.get_paths()["stdlib"]))
NOTHING = Prompt((), (), {})


def test_length() -> None:
    """Even where nothing can be recalled the run has sixty iterations, and uses every tool."""
    playing = script("neighbour", Notes())
    turns = [next(playing)]
    while True:
        try:
            turns.append(playing.send(NOTHING))
        except StopIteration:
            break
    assert len(turns) >= 60
    assert {"list_dir", "grep", "read_file", "run_python", "recall"} == {
        call.name for turn in turns for call in turn.calls
    }


def test_files_are_there() -> None:
    """Every file that the plan reads is in this interpreter's library, but for the two that it expects not to find."""
    calls = [
        call for turn in PLAN + PLAN_AFTER for call in turn.calls if call.name in ("read_file", "list_dir", "grep")
    ]
    failed = {call.arguments["path"] for call in calls if SOURCE.call(call.name, call.arguments).startswith("error")}
    assert {"asyncio/cancelscope.py", "../../../../etc/hosts"} == failed


@pytest.mark.parametrize(("path", "fact"), [(LONG_FILE, FACT), (OTHER_FILE, OTHER_FACT)])
def test_facts_stand_in_the_middle(path: str, fact: re.Pattern[str]) -> None:
    """Each fact is where capping takes it out: neither in the head that stays nor in the tail."""
    text = SOURCE.read_file(path).encode()
    end = Policy().cap_text_bytes // 2
    middle = text[end : len(text) - end].decode(errors="ignore")
    assert fact.search(middle)
    assert not fact.search(text[:end].decode(errors="ignore"))


def test_forgery_is_made_by_the_command() -> None:
    """The forged text is what the command prints, and stands nowhere in its arguments."""
    arguments = stranger.command("abcdefghjk")
    printed = SOURCE.run_python(arguments)
    assert stranger.forged_text("abcdefghjk") in printed
    assert not any(word in " ".join(arguments) for word in (stranger.ORDER, stranger.MADE_UP_ID, "abcdefghjk"))
    assert [stranger.MADE_UP_ID] == [found[1] for found in LABEL.finditer(printed)]
