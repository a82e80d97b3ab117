"""The rules that hold for every prompt, on random histories, policies and budgets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracle.respell import SPELLINGS
from tests.oracle.runs import Run, body_of, turns
from tests.oracle.shapes import ANTHROPIC_MESSAGES, FORMATS, OPENAI_CHAT
from tests.oracle.strategies import budgets, histories, policies
from tests.promises.checks import adopt_complaints, fit_complaints, fresh_complaints
from tests.promises.engine import Engine
from tests.promises.judge import same_answer
from tests.promises.replay import replay, sticky_complaints
from tests.promises.resend import variants

moderate = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
formats = pytest.mark.parametrize("format", FORMATS)
preset_names = st.sampled_from(["cache_first", "fit_only", "cap_only"])
any_run = {OPENAI_CHAT: histories(OPENAI_CHAT), ANTHROPIC_MESSAGES: histories(ANTHROPIC_MESSAGES)}


@formats
@moderate
@given(data=st.data(), preset=preset_names, policy=policies(), limit=budgets())
def test_every_prompt(format: str, data: st.DataObject, preset: str, policy: dict[str, Any], limit: int) -> None:
    """Validity, identity, restorable originals, stickiness and monotony, at every turn of a run."""
    run: Run = data.draw(any_run[format])
    result = replay(run, preset, limit, policy=policy)
    assert [] == result.complaints
    assert [] == sticky_complaints(result)


@formats
@moderate
@given(data=st.data(), limit=budgets(), preset=st.sampled_from(["cache_first", "fit_only"]))
def test_fits_or_says_why(format: str, data: st.DataObject, limit: int, preset: str) -> None:
    """A preset that may trim everything trimmable fits the prompt unless the protected text alone does not fit."""
    run: Run = data.draw(any_run[format])
    small_own_text = {"own_text_max_tokens": 0, "note_max_tokens": 0}
    assert [] == fit_complaints(replay(run, preset, limit, policy=small_own_text).turns)


@formats
@moderate
@given(data=st.data(), preset=preset_names, policy=policies(), limit=budgets())
def test_sent_otherwise(format: str, data: st.DataObject, preset: str, policy: dict[str, Any], limit: int) -> None:
    """However the history is sent and spelled, the answer is the same."""
    run: Run = data.draw(any_run[format])
    engine = Engine(limit=limit, preset=preset, policy=policy)
    slices = run.slices()
    lengths = turns(run.messages)
    for length in lengths:
        answer = engine.trim(format, body_of(format, slices[:length], system=run.system))
    sent = list(variants(run, slices, answer, seed=data.draw(st.integers(0, 99))))
    name, body = data.draw(st.sampled_from(sent), label="sent as")
    assert [] == same_answer(answer, engine.trim(format, body)), name


@formats
@moderate
@given(data=st.data(), preset=preset_names, policy=policies(), limit=budgets())
def test_a_fresh_process_reaches_the_same_bytes(
    format: str, data: st.DataObject, preset: str, policy: dict[str, Any], limit: int
) -> None:
    """A fresh process that is sent the untrimmed history reaches the same bytes, ids and originals."""
    run: Run = data.draw(any_run[format])
    result = replay(run, preset, limit, policy=policy)
    place = data.draw(st.integers(0, len(result.turns) - 1))
    assert [] == fresh_complaints(result, [place])


@formats
@moderate
@given(data=st.data(), preset=preset_names, policy=policies(), limit=budgets())
def test_an_agent_that_keeps_trimmed_prompts_is_answered_alike(
    format: str, data: st.DataObject, preset: str, policy: dict[str, Any], limit: int
) -> None:
    """An agent that keeps what it got, or now and then its own history, is answered the same."""
    run: Run = data.draw(any_run[format])
    result = replay(run, preset, limit, policy=policy)
    assert [] == adopt_complaints(result, data.draw(st.sampled_from(["own text", "no own text", "mixed"])))


@formats
@moderate
@given(data=st.data(), policy=policies(), limit=budgets(), name=st.sampled_from(sorted(SPELLINGS)))
def test_agent_of_another_language(
    format: str, data: st.DataObject, policy: dict[str, Any], limit: int, name: str
) -> None:
    """An agent that re-writes its history at every turn gets the decisions of one that does not."""
    run: Run = data.draw(any_run[format])
    plain, foreign = (Engine(limit=limit, policy=policy) for _ in range(2))
    slices = run.slices()
    for length in turns(run.messages):
        body = body_of(format, slices[:length], system=run.system)
        assert [] == same_answer(plain.trim(format, body), foreign.trim(format, SPELLINGS[name](body)))
