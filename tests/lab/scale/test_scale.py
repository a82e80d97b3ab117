"""A small trial from beginning to end; and what it counts is seen where it happens."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from tests.doors.envoy.through import envoy_binary
from tests.doors.grpc.serving import Serving, serving
from tests.lab.harness.prompts import FORMATS, prompts_of
from tests.lab.scale.__main__ import QUICK, sections
from tests.lab.scale.agents import LEAST_BYTES, Agent, Given, Recording, recording_of
from tests.lab.scale.playing import Trial, compare_run, play
from tests.oracle.runs import synthetic
from tests.real.needing import need

PLAN = replace(
    QUICK,
    agents=6,
    think=0.5,
    quiet=2.0,
    killed=7.0,
    ids=20,
    window=4_000,
    settled=0.0,
    durability="acknowledged",
)
PATIENT = {"STORE__FIRST_WAIT": "30s", "STORE__TIMEOUT": "10s", "STORE__ACKNOWLEDGE_TIMEOUT": "60s"}


def recordings() -> list[Recording]:
    """Runs that need no recorded data."""
    runs = [synthetic(3, format) for format in FORMATS]
    return [recording_of(prompts_of(run.name, run.format, run.slices())) for run in runs]


def test_a_trial(tmp_path: Path) -> None:
    """Two sidecars behind Envoy, one is killed: no prompt is lost, no byte is another, and each id is answered."""
    need(envoy_binary)
    trial = play(PLAN, 2, recordings(), tmp_path, **PATIENT)

    assert trial.sound, (trial.quiet, trial.killed)
    assert 1 == trial.kills
    assert PLAN.agents <= trial.quiet.calls
    assert trial.bodies
    assert 0 < trial.originals == trial.killed.asked
    assert {"memory", "received", "commands"} == {name for name, value in trial.stored.items() if value > 0}
    assert [{"2"}, {"2"}] == [{*found.facts} for found in sections([trial]) if found.name in {"kept", "size"}]


def test_bodies_are_those_of_the_run() -> None:
    """Each is what an agent sends at that turn; agents begin where a prompt is worth trimming."""
    run = synthetic(3, "openai_chat")
    prompts = prompts_of(run.name, run.format, run.slices())
    made = recording_of(prompts)

    assert list(prompts.bodies())[: len(made.ends)] == [made.body(turn) for turn in range(len(made.ends))]
    assert len(made.body(made.beginnings[-1])) >= LEAST_BYTES


def played(served: Serving) -> Agent:
    """An agent with one answer and one original of a sidecar."""
    recording = recordings()[0]
    agent = Agent("run", recording, recording.beginnings[-1], 4_000, carries=False)
    answer = served.stub.TrimPrompt(agent.request())
    agent.keep(answer, 0.0)
    assert agent.ids
    return agent


def test_what_is_not_the_same_is_counted() -> None:
    """An answer or an original that differs by a byte makes a trial fail; the same ones do not."""
    with serving() as served:
        agent = played(served)
        stash_id = next(iter(agent.ids))
        trial = Trial(2, PLAN)
        compare_run(trial, agent, served.stub)
        assert (1, 0, True) == (trial.bodies, trial.wrong_bodies, trial.sound)
        agent.given[0] = Given(agent.given[0].turn, sha256(b"other").digest())
        agent.originals[stash_id] = sha256(b"other").digest()
        compare_run(trial, agent, served.stub)
        assert (1, 1, False) == (trial.wrong_bodies, trial.wrong_originals, trial.sound)


@pytest.mark.parametrize("counted", ["lost", "missing"])
def test_what_is_missing_makes_a_trial_fail(counted: str) -> None:
    """A prompt without an answer, or an id without its original."""
    trial = Trial(2, PLAN, bodies=1)
    assert trial.sound
    getattr(trial.killed, counted)["UNAVAILABLE"] += 1
    assert not trial.sound
