"""The promises on synthetic runs: the same checks as on recorded ones, with no data needed."""

from __future__ import annotations

from functools import cache

import pytest

from tests.oracle.runs import Run, Shape, synthetic, turns
from tests.oracle.shapes import FORMATS
from tests.oracle.tokens import count_prompt
from tests.promises.checks import adopt_complaints, fit_complaints, fresh_complaints, resend_complaints, spread
from tests.promises.replay import Replay, figures, replay, sticky_complaints

LONG = Shape(iterations=60, median=1_500)
SEEDS = (1, 2)

formats = pytest.mark.parametrize("format", FORMATS)
presets = pytest.mark.parametrize("preset", ["cache_first", "fit_only"])
seeds = pytest.mark.parametrize("seed", SEEDS)


@cache
def _run(seed: int, format: str) -> tuple[Run, int]:
    """Make a long run and a limit of 40 % of it."""
    run = synthetic(seed, format, LONG)
    return run, int(0.4 * count_prompt({"messages": list(run.messages)}))


@cache
def _replay(seed: int, format: str, preset: str) -> Replay:
    run, limit = _run(seed, format)
    return replay(run, preset, limit)


@seeds
@presets
@formats
def test_every_prompt_is_within_its_limit(format: str, preset: str, seed: int) -> None:
    """Every prompt is within its limit unless the protected text alone is not."""
    assert [] == fit_complaints(_replay(seed, format, preset).turns)


@seeds
@presets
@formats
def test_valid_identical_and_restorable(format: str, preset: str, seed: int) -> None:
    """No new defect by either oracle; untrimmed messages are the very bytes; every original comes back by its id."""
    assert [] == _replay(seed, format, preset).complaints[:20]


@seeds
@presets
@formats
def test_old_bytes_change_at_batch_points_only(format: str, preset: str, seed: int) -> None:
    """Old bytes change at batch points only, the prefix is kept otherwise, and nothing that was trimmed grows."""
    assert [] == sticky_complaints(_replay(seed, format, preset))[:20]


@presets
@formats
@pytest.mark.parametrize("how", ["own text", "no own text", "mixed"])
def test_adopting_changes_nothing(format: str, preset: str, how: str) -> None:
    """An agent that keeps the prompts it got is answered as one that keeps its untrimmed history."""
    assert [] == adopt_complaints(_replay(1, format, preset), how)


@presets
@formats
def test_sending_otherwise_changes_nothing(format: str, preset: str) -> None:
    """Untrimmed, trimmed, mixed, and each as six serialisers write it: the same answer."""
    run, limit = _run(2, format)
    lengths = turns(run.messages)
    wanted = [lengths[place] for place in spread(len(lengths), 3)]
    assert [] == resend_complaints(run, preset, limit, wanted)[:20]


@presets
@formats
def test_a_fresh_process_changes_nothing(format: str, preset: str) -> None:
    """A process begun at any sixth turn, sent the untrimmed history, gives the same bytes and ids, and originals."""
    result = _replay(1, format, preset)
    assert [] == fresh_complaints(result, range(0, len(result.turns), 6))[:20]


@seeds
@formats
def test_cache_first_costs_less_than_trimming_at_every_call(format: str, seed: int) -> None:
    """`cache_first` costs less than trimming at every call, and keeps whole prefixes between few batch points."""
    found = figures(_replay(seed, format, "cache_first"))
    assert found.ours < found.every_call
    assert 1 <= found.batch_points <= found.turns / 4
