"""The promises on every recorded run, replayed turn by turn at 30 % of its final size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.runs import recorded, recorded_paths, turns
from tests.promises.checks import adopt_complaints, fit_complaints, fresh_complaints, resend_complaints, spread
from tests.promises.replay import Replay, figures, limit_of, recorded_replay, sticky_complaints

PRESETS = ("cache_first", "fit_only")
SMALL = 30
"""Turns up to which a run counts as small: every turn is then tried, else a sample."""
HOWS = ("own text", "no own text", "mixed")

PATHS = recorded_paths()


def _case(path: Path, preset: str, *more: str) -> Any:
    return pytest.param(path, preset, *more, id="-".join((path.name.split(".")[0], preset, *more)))


runs = pytest.mark.parametrize(("path", "preset"), [_case(path, preset) for path in PATHS for preset in PRESETS])
in_turns = pytest.mark.parametrize(
    ("path", "preset", "how"),
    [_case(path, PRESETS[number % 2], HOWS[number % 3]) for number, path in enumerate(PATHS)],
)
"""Each run under one preset, and adopted in one way: the synthetic runs are tried in all."""


@runs
def test_a_run_keeps_every_promise(path: Path, preset: str) -> None:
    """One replay, by turns, and whatever it breaks.

    Prompts are within the limit, by the oracle's count as well, unless the protected text alone is not. No defect is
    new by either oracle, untrimmed messages are the very bytes, and every original comes back by its id. Old bytes
    change at batch points only, and nothing that was trimmed grows. At 30 % of its size the run is trimmed at all.
    """
    replay = recorded_replay(path, preset)
    broken = {
        "within the limit": fit_complaints(replay.turns),
        "valid, identical and restorable": replay.complaints[:20],
        "changed at batch points only": sticky_complaints(replay)[:20],
        "costs": list(_cost_complaints(replay)) if preset == "cache_first" else [],
    }
    assert {} == {name: complaints for name, complaints in broken.items() if complaints}
    assert replay.turns[-1].verdict.trims


def _cost_complaints(replay: Replay) -> Iterator[str]:
    """`cache_first` costs less than trimming at each call; how much else depends on the limit."""
    found = figures(replay)
    if found.ours >= found.every_call:
        yield f"{found.ours} is no less than {found.every_call} of trimming at every call"
    if found.limit >= 8_000 and found.of_control > 1.05:
        yield f"{found.of_control} of the control's cost, more than 5 % above it"
    if found.limit >= 32_000 and found.own_share > 0.02:
        yield f"our own text is {found.own_share:.1%} of the cost, more than 2 %"


@in_turns
def test_however_it_is_sent(path: Path, preset: str, how: str) -> None:
    """The same answers to agents that keep prompts they got, to other spellings, and from a process begun at a turn."""
    run, replay = recorded(path), recorded_replay(path, preset)
    lengths = turns(run.messages)
    wanted = [lengths[place] for place in spread(len(lengths), 3)]
    places = spread(len(replay.turns), len(replay.turns) if len(replay.turns) <= SMALL else 8)
    broken = {
        f"adopting with {how}": adopt_complaints(replay, how),
        "as serialisers write it": resend_complaints(run, preset, limit_of(run), wanted)[:20],
        "a fresh process": fresh_complaints(replay, places)[:20],
    }
    assert {} == {name: complaints for name, complaints in broken.items() if complaints}


def test_recorded_runs_are_there() -> None:
    """There are recorded runs of both formats wherever there are any."""
    if not PATHS:
        pytest.skip("recorded data runs not found; PROMPT_SIDECAR_DATA names the folder that holds them")
    assert {"openai_chat", "anthropic_messages"} == {recorded(path).format for path in PATHS}
