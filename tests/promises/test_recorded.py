"""The promises on every recorded run, replayed turn by turn at 30 % of its final size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.runs import recorded, recorded_paths, turns
from tests.promises.checks import adopt_complaints, fit_complaints, fresh_complaints, resend_complaints, spread
from tests.promises.replay import figures, limit_of, recorded_replay, sticky_complaints

PRESETS = ("cache_first", "fit_only")
SMALL = 30
"""Turns up to which a run counts as small: every turn is then tried, else a sample."""
HOWS = ("own text", "no own text", "mixed")

paths = pytest.mark.parametrize("path", recorded_paths(), ids=lambda path: path.name.split(".")[0])
presets = pytest.mark.parametrize("preset", PRESETS)
in_turns = pytest.mark.parametrize(
    ("path", "preset"),
    [
        pytest.param(path, PRESETS[number % 2], id=f"{path.name.split('.')[0]}-{PRESETS[number % 2]}")
        for number, path in enumerate(recorded_paths())
    ],
)
"""Each run under one preset: the synthetic runs are tried under both."""


@presets
@paths
def test_every_prompt_is_within_its_limit(path: Path, preset: str) -> None:
    """Every prompt is within its limit, by the oracle's count as well, unless the protected text alone is not."""
    assert [] == fit_complaints(recorded_replay(path, preset).turns)


@presets
@paths
def test_valid_identical_and_restorable(path: Path, preset: str) -> None:
    """No new defect by either oracle; untrimmed messages are the very bytes; every original comes back by its id."""
    assert [] == recorded_replay(path, preset).complaints[:20]


@presets
@paths
def test_old_bytes_change_at_batch_points_only(path: Path, preset: str) -> None:
    """Old bytes change at batch points only, the prefix is kept otherwise, and nothing that was trimmed grows."""
    assert [] == sticky_complaints(recorded_replay(path, preset))[:20]


@presets
@paths
def test_trims_at_all(path: Path, preset: str) -> None:
    """At 30 % of its size a run is trimmed, so that the other tests test something."""
    assert recorded_replay(path, preset).turns[-1].verdict.trims


@in_turns
@pytest.mark.parametrize("how", HOWS)
def test_adopting_changes_nothing(path: Path, preset: str, how: str) -> None:
    """An agent that keeps the prompts it got is answered as one that keeps its untrimmed history."""
    assert [] == adopt_complaints(recorded_replay(path, preset), how)


@in_turns
def test_sending_otherwise_changes_nothing(path: Path, preset: str) -> None:
    """Untrimmed, trimmed, mixed, and each as six serialisers write it: the same answer."""
    run = recorded(path)
    lengths = turns(run.messages)
    wanted = [lengths[place] for place in spread(len(lengths), 3)]
    assert [] == resend_complaints(run, preset, limit_of(run), wanted)[:20]


@presets
@paths
def test_a_fresh_process_changes_nothing(path: Path, preset: str) -> None:
    """A process begun at any turn, sent the untrimmed history, gives the same bytes and ids, and the originals."""
    result = recorded_replay(path, preset)
    places = spread(len(result.turns), len(result.turns) if len(result.turns) <= SMALL else 8)
    assert [] == fresh_complaints(result, places)[:20]


@paths
def test_cache_first_costs_less_than_trimming_at_every_call(path: Path) -> None:
    """`cache_first` costs less than trimming at every call, and from 8k tokens on at most 5 % above the control."""
    found = figures(recorded_replay(path, "cache_first"))
    assert found.ours < found.every_call
    if found.limit >= 8_000:
        assert found.of_control <= 1.05


@paths
def test_own_text_is_small(path: Path) -> None:
    """At limits of 32k tokens and more, our own text is at most 2 % of the cost."""
    found = figures(recorded_replay(path, "cache_first"))
    if found.limit < 32_000:
        pytest.skip("the limit is below 32k tokens")
    assert found.own_share <= 0.02


def test_recorded_runs_are_there() -> None:
    """There are recorded runs of both formats wherever there are any."""
    if not recorded_paths():
        pytest.skip("recorded data runs not found; PROMPT_SIDECAR_DATA names the folder that holds them")
    assert {"openai_chat", "anthropic_messages"} == {recorded(path).format for path in recorded_paths()}
