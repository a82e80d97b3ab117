"""What stands whole in the returned prompt is kept up to date by what is new, as a look through all would find it."""

from __future__ import annotations

import random

import pytest

from prompt_sidecar.engine.steps.memory import Memory
from tests.engine.runs.making import FORMATS, LIMIT, ROOM, body, history
from tests.engine.runs.test_recalling import RECALL, asked
from tests.promises.engine import CALLER, RUN_ID, Engine


def looked_through(memory: Memory) -> set[str]:
    """The slow twin."""
    return {
        entry.stash_id
        for record in memory.ledger.records
        if not record.dropped
        for entry in record.entries
        if entry.action is None and not entry.recalled
    }


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("preset", ["cache_first", "fit_only", "lean"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_whole_is_known(format: str, preset: str, seed: int) -> None:
    """As a history grows, is recalled from, branches, and as the window gets smaller and larger."""
    chance = random.Random(seed)
    engine = Engine(limit=LIMIT, policy=ROOM, preset=preset)
    messages = history(format, 1)
    trimmed: list[str] = []
    seen_trimmed = seen_whole = False
    for turn in range(40):
        what = chance.random()
        if what < 0.15:
            messages = messages[: chance.randrange(2, len(messages) + 1)]
            messages += history(format, 1, task=f"Now do this instead: {turn}.")
        elif what < 0.3 and trimmed:
            stash_id = chance.choice(trimmed)
            content = engine.call(RECALL, {"id": stash_id}).content
            messages = messages + asked(format, RECALL, {"id": stash_id}, f"recall_{turn}", content)
        else:
            messages = messages + history(format, turn + 2)[-2:]
        answer = engine.trim(format, body(format, messages), context_window=chance.choice([LIMIT, LIMIT, 3 * LIMIT]))
        (run,) = [each for name, each in engine.runs.table._runs.items() if name == (CALLER, RUN_ID)]  # noqa: SLF001
        assert looked_through(run.memory) == run.memory.whole
        trimmed = [trim.stash_id for trim in answer.trimmed.trims if trim.stash_id]
        seen_trimmed |= bool(trimmed)
        seen_whole |= bool(run.memory.whole)
    assert seen_trimmed
    assert seen_whole
