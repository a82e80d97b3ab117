"""A long run's memory is freed in pieces: what is freed at once lets no other thread run."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest

from prompt_sidecar.engine.steps import memory
from prompt_sidecar.engine.steps.memory import Memory
from tests.engine.runs.making import OPENAI_CHAT, Engine, body

PIECE = 100
MESSAGES = 5 * PIECE
ENDED = ("promises", "run-1")


def ends(engine: Engine) -> None:
    """The agent says so."""
    engine.runs.end(*ENDED)


def idle(engine: Engine) -> None:
    """Nobody has asked for twice the time to live."""
    engine.clock.now += 1_000_000
    engine.runs.sweep()


def caches(engine: Engine) -> None:
    """Memory is short."""
    engine.runs.table.shed(1_000_000_000)


class Noted(list[object]):
    """Pieces that note how many messages each has that is let go."""

    def __init__(self, pieces: list[object]) -> None:
        super().__init__(pieces)
        self.sizes: list[int] = []

    def pop(self, *_: object) -> object:
        """Take the last one."""
        piece = super().pop()
        self.sizes.append(len(piece) if isinstance(piece, list) else 0)
        return piece


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """It has had a run of some pieces."""
    monkeypatch.setattr(memory, "PIECE", PIECE)
    engine = Engine(limit=100_000)
    sent = [{"role": "user", "content": f"{at % 10}"} for at in range(MESSAGES)]
    engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, sent))
    return engine


@pytest.mark.parametrize("way", [ends, idle, caches])
def test_a_long_run_is_freed_in_pieces(
    way: Callable[[Engine], None], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it goes: piece by piece, none of more messages than one has, and all of them."""
    noted: list[Noted] = []
    whole = Memory.pieces

    def pieces(self: Memory) -> list[object]:
        noted.append(Noted(whole(self)))
        return noted[-1]

    monkeypatch.setattr(Memory, "pieces", pieces)
    way(engine)

    (found,) = noted
    assert [] == found
    assert max(found.sizes) <= PIECE
    assert 3 * MESSAGES == sum(found.sizes)  # records, what was read, and rows


def test_pieces_alone_hold_their_records(engine: Engine) -> None:
    """Once all else is gone: otherwise nothing would be freed with a piece."""
    run = engine.runs.table.known(*ENDED)
    assert run is not None
    record, pieces = run.memory.ledger.records[7], run.memory.pieces()
    ends(engine)
    del run
    while not isinstance(pieces[-1], list):
        pieces.pop()
    gc.collect()

    assert 3 == sys.getrefcount(record)  # by its piece, by this test, and by the call
