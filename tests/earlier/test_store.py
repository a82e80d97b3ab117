"""What an earlier version has put into a shared store is read by this one, whose replica goes on with the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.earlier import runs
from tests.earlier.runs import MADE, KeptStore
from tests.promises.engine import CALLER, RUN_ID, Engine
from tests.promises.played import instability
from tests.store.sharing import Stepped, running_valkey

STORED = [folder / "store-openai_chat.json.xz" for folder in MADE.values()]
LIFE = 3_600_000
"""Milliseconds that the dump stays."""


@pytest.fixture(params=STORED, ids=[path.parent.name for path in STORED])
def taken_over(request: pytest.FixtureRequest) -> Iterator[tuple[KeptStore, Engine, Stepped]]:
    """A dump in a real Valkey, and a replica that has not seen the run."""
    kept = runs.load(request.param, KeptStore)
    with running_valkey() as valkey:
        for key, fields in kept.hashes.items():
            mapping = {runs.raw(field): value for field, value in fields.items()}
            valkey.client.hset(runs.raw(key), mapping=mapping)
            valkey.client.pexpire(runs.raw(key), LIFE)
        for key, members in kept.sets.items():
            valkey.client.zadd(runs.raw(key), {runs.raw(member): score for member, score in members.items()})
            valkey.client.pexpire(runs.raw(key), LIFE)
        archive = Stepped(valkey.url)
        yield kept, kept.run.engine(archive), archive


def test_what_a_store_held_of_a_run_is_read(taken_over: tuple[KeptStore, Engine, Stepped]) -> None:
    """Every original byte for byte, the tasks, the figures, and what a search finds."""
    kept, engine, archive = taken_over
    assert len(kept.originals) > 3
    assert kept.originals == {stash_id: engine.original(stash_id) for stash_id in kept.originals}
    assert kept.tasks == [task.text for task in engine.runs.recalling.list_tasks(CALLER, RUN_ID)]
    assert kept.calls == engine.figures().calls
    assert engine.search("build module error").matching_items > 0
    assert {} == {loss: times for loss, times in archive.store.lost.items() if times}


def test_a_run_in_a_store_goes_on(taken_over: tuple[KeptStore, Engine, Stepped]) -> None:
    """A replica that has only the store returns the recorded prompt, and goes on to the end of the run."""
    kept, engine, archive = taken_over
    play = kept.run.play()
    turns = play.turns()
    before = play.trim(engine, play.raw(play.messages[: kept.run.length]))
    assert kept.run.returned == (before.prompt.body or b"").decode()
    for length in turns[turns.index(kept.run.length) + 1 :]:
        answer = play.trim(engine, play.raw(play.messages[:length]))
        assert [] == list(instability(play, before, answer))
        assert all(engine.original(trim.stash_id) is not None for trim in answer.trimmed.trims if trim.stash_id)
        before = answer
    archive.drain()
    assert {} == {loss: times for loss, times in archive.store.lost.items() if times}
    assert kept.originals == {stash_id: engine.original(stash_id) for stash_id in kept.originals}
