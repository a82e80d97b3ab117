"""Runs in four formats: bodies, their form in chat completions, and reasoning."""

from __future__ import annotations

import json

import pytest

from tests.conformance.conversations import ANTHROPIC, GEMINI, RESPONSES
from tests.lab.evidence.contenders import Contender
from tests.lab.evidence.history import History
from tests.lab.evidence.making import Step, filler, made
from tests.lab.evidence.measuring import Material, cell_of
from tests.lab.evidence.recordings import CHAT, paths, recorded, without_reasoning
from tests.lab.evidence.ruler import Ruler

formats = pytest.mark.parametrize("format", [ANTHROPIC, CHAT, RESPONSES, GEMINI])
STEPS = [Step("Look.", {"path": "src/a.py"}, "one\ntwo"), filler(1), Step("Go.", {}, "three", user="Stop."), filler(2)]


@formats
def test_a_body_splits_into_what_it_was_made_of(format: str) -> None:
    """System prompt and messages come back as they went in."""
    run = made(format, STEPS)
    assert (run.head, run.slices) == run.split(run.body(run.slices))
    assert list(run.messages) == [json.loads(raw) for raw in run.slices]


@formats
def test_an_answer_is_the_models_alone(format: str) -> None:
    """The answer of a turn ends where the client goes on."""
    run = made(format, STEPS)
    kinds = [len(run.answer(turn)) for turn in range(len(STEPS))]
    assert [3 if format == RESPONSES else 1] * len(STEPS) == kinds


@formats
def test_chat_form_has_the_same_lines_and_weight(format: str) -> None:
    """Peers that read chat completions are given the same lines, and pay what the run weighs in its own format."""
    run = made(format, STEPS)
    history = History(run)
    chat = run.in_chat()
    assert history.ids.keys() == History(chat).ids.keys()
    assert len(run.starts) == len(chat.starts)
    own, other = Ruler(run, history), Ruler(chat, history)
    weights = [[ruler.size(turn) for turn in range(len(STEPS))] for ruler in (own, other)]
    assert pytest.approx(weights[0], abs=8) == weights[1]  # a system prompt is a message there


@formats
def test_without_reasoning(format: str) -> None:
    """Reasoning leaves, and the turns stay."""
    bare = without_reasoning(made(format, STEPS))
    assert "secret_of_thought" not in json.dumps(list(bare.messages))
    assert History(made(format, STEPS)).ids.keys() == History(bare).ids.keys()
    assert len(STEPS) == len(bare.starts)


def test_recorded_runs() -> None:
    """A recorded run of each format that is there: something is needed, and the sidecar's prompts fit and are valid."""
    found = paths()
    if not found:
        pytest.skip("recorded data runs not found; PROMPT_SIDECAR_DATA names the folder that holds them")
    runs = [recorded(path) for path in found.values()]
    shortest = {run.format: run for run in sorted(runs, key=lambda run: -len(run.messages))}
    for run in shortest.values():
        if len(run.messages) > 500:
            continue  # a minute of replay; `make evidence` measures it
        cell = cell_of(Material(run), Contender("cache_first", "cache_first"), 0.5, asked=1)
        assert cell.counted
        assert (0, 0) == (cell.over, cell.invalid)
        assert 0 < cell.sums.visible <= cell.sums.total
