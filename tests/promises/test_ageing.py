"""The promises under ageing: random histories, policies, annotations, re-sends, rewinds, restarts; and the plateau."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prompt_sidecar.facts.history_size import SizeKind
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.trim.entries import Reason
from prompt_sidecar.trim.own_text import SHARE_OF_LIMIT
from prompt_sidecar.trim.policy import AgeStage
from prompt_sidecar.trim.presets import preset
from prompt_sidecar.trim.stages import ELIDE_FLOOR
from tests.oracle import data as recorded_data
from tests.oracle.browsing import ALL_FORMATS, Browsing, History, Part, browsing, prompt_of, returned
from tests.oracle.runs import Run, Shape, dumps, recorded, synthetic, turns
from tests.oracle.shapes import OPENAI_CHAT
from tests.promises.ageing import In, begun, differ, grown, inputs, look, lost, up_to
from tests.promises.engine import Engine

moderate = settings(
    max_examples=15,  # fewer than elsewhere: each example judges every prompt of a run, three times sent
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
formats = pytest.mark.parametrize("format", ALL_FORMATS)


@formats
@moderate
@given(data=st.data())
def test_any_sequence(format: str, data: st.DataObject) -> None:
    """Whatever changes from call to call, answers are valid, complete and restorable, and items only shrink."""
    agent = begun(data, format)
    chance = random.Random(data.draw(st.integers(0, 99)))
    force = data.draw(inputs)
    for length in agent.history.lengths:
        if data.draw(st.integers(0, 4)) == 0:
            force = data.draw(inputs)
        how = data.draw(st.sampled_from(["untrimmed", "untrimmed", "adopted", "mixed"]))
        assert [] == agent.go(length, force, how, chance)


@formats
@moderate
@given(data=st.data(), force=inputs)
def test_rewinds_and_branches(format: str, data: st.DataObject, force: In) -> None:
    """A history that is cut and goes on otherwise is answered validly, and again as if nothing had been."""
    agent = begun(data, format)
    chance = random.Random(data.draw(st.integers(0, 99)))
    for length in agent.history.lengths[::2]:
        assert [] == agent.go(length, force, "untrimmed", chance)
    lengths = agent.history.lengths
    cut = data.draw(st.sampled_from(lengths), label="cut")
    assert [] == agent.go(cut, force, "untrimmed", chance)
    if data.draw(st.booleans()):
        other = browsing(data.draw(st.integers(0, 99)), format, Browsing(iterations=6, page=400))
        start = next(at for at, part in enumerate(other.parts) if part is Part.CALL)
        agent.branch(cut, other, start)
    for length in turns(agent.history.run.messages):
        if length > cut:
            assert [] == agent.go(length, force, "untrimmed", chance)


def test_reasoning_of_a_turn_that_goes_on_again() -> None:
    """Cutting a history back into a turn brings its reasoning back, which is no item that grew; nothing else may."""
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Find it."},
        {"role": "assistant", "content": None, "reasoning_content": "so " * 40, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Not here."},
        {"role": "assistant", "content": "It is not here."},
        {"role": "user", "content": "Look again."},
        {"role": "assistant", "content": "It is there."},
        {"role": "user", "content": "Where?"},
    ]
    slices = [dumps(message) for message in messages]
    history = History(OPENAI_CHAT, Run("plain", OPENAI_CHAT, messages, None), slices, ())
    engine = Engine(limit=60, preset="cap_only", policy={"age_stage": "always"})
    whole, cut = (
        look(history, slices[:length], engine.trim(**prompt_of(history, slices[:length]))) for length in (7, 3)
    )
    assert Reason.REASONING in {trim.reason for trim in whole.trims.values()}
    assert [] == grown(whole, cut, 3, rewound=True)
    assert grown(whole, cut, 3, rewound=False)
    clipped = {place: replace(trim, reason=Reason.FIT) for place, trim in whole.trims.items()}
    assert grown(replace(whole, trims=clipped), cut, 3, rewound=True)


@formats
@moderate
@given(data=st.data(), force=inputs)
def test_a_fresh_process(format: str, data: st.DataObject, force: In) -> None:
    """Under constant inputs a process that begins anywhere, with the revision or without, gives the same bytes."""
    agent = begun(data, format)
    history, lengths = agent.history, agent.history.lengths
    answers = [
        agent.send(agent.slices[:length], force, annotations=up_to(agent.annotations, length)) for length in lengths
    ]
    place = data.draw(st.integers(0, len(lengths) - 1), label="begins at")
    revision = answers[place - 1].prompt.revision if place and data.draw(st.booleans(), label="with revision") else b""
    fresh = replace(agent, engine=Engine(limit=1))
    for length, expected in list(zip(lengths, answers, strict=True))[place : place + 3]:
        actual = fresh.send(
            agent.slices[:length], force, annotations=up_to(agent.annotations, length), revision=revision
        )
        revision = b""
        assert [] == differ(history, expected, actual)
        assert returned(expected) == returned(actual)
        shown = look(history, agent.slices[:length], actual)
        assert [] == lost(history, agent.slices[:length], shown, fresh.engine)


@formats
@moderate
@given(data=st.data())
def test_a_fresh_process_after_changes(format: str, data: st.DataObject) -> None:
    """Where inputs changed on the way, a process that is given the revision goes on as the first one does."""
    agent = begun(data, format)
    lengths = agent.history.lengths
    place = data.draw(st.integers(0, len(lengths) - 1), label="begins at")
    revision = b""
    for length in lengths[:place]:
        force = data.draw(inputs)
        sent = agent.slices[:length]
        revision = agent.send(sent, force, annotations=up_to(agent.annotations, length)).prompt.revision
    fresh = replace(agent, engine=Engine(limit=1))
    force = data.draw(inputs)
    for length in lengths[place : place + 3]:
        sent, annotations = agent.slices[:length], up_to(agent.annotations, length)
        expected = agent.send(sent, force, annotations=annotations)
        actual = fresh.send(sent, force, annotations=annotations, revision=revision)
        revision = b""
        assert [] == differ(agent.history, expected, actual, own=False)


# -- plateau ---------------------------------------------------------------------------------------------------------

SHARE = 0.04
"""Limit of a long run, as a share of its final tokens: it is filled many times over."""
AGEING = ("lean", "cache_first", "fit_only")
"""Presets under which items age."""
LAST = 100
"""Prompts that a plateau is looked at over."""


@cache
def long_run(kind: str, iterations: int = 500) -> History:
    """A run that comes to many times its limit."""
    if kind == "browsing":
        return browsing(5, OPENAI_CHAT, Browsing(iterations=iterations))
    run = synthetic(5, OPENAI_CHAT, Shape(iterations=iterations, median=1_200, defects=False, parallel=2))
    return History(OPENAI_CHAT, run, run.slices(), [Part.PERSON] * len(run.messages))


@dataclass(frozen=True, slots=True)
class Course:
    """What became of one run under one preset. Tokens."""

    name: str
    limit: int
    after: Sequence[int]
    """Each returned prompt."""
    item: int
    """More than any item that is clipped whole: tokens besides results that one prompt added to the last."""
    batches: Sequence[int]
    """Places of the prompts at which there was a batch point."""


def course(history: History, name: str, limit: int) -> Course:
    """Send each prompt of a run."""
    engine = Engine(limit=limit, preset=name)
    answers = [engine.trim(**history.prompt(length)) for length in history.lengths]
    others = [answer.tokens.before - _results(answer) for answer in answers]
    return Course(
        name,
        limit,
        [answer.tokens.after for answer in answers],
        max(ELIDE_FLOOR, *(after - before for before, after in pairwise(others))),
        [place for place, answer in enumerate(answers) if answer.cache.batch_point],
    )


def _results(answer: TrimAnswer) -> int:
    assert answer.size is not None
    return answer.size.by_kind[SizeKind.RESULTS].tokens_sent


def least(course: Course) -> float:
    """The fewest tokens that a prompt may have once there was a batch point.

    What is used is brought down to the low-water mark, by whole items but for results. In that the room for our own
    text counts as taken. The last drop may take what clipping left down to a low mark of its own.
    """
    policy, limit = preset(course.name), course.limit
    own = min(policy.own_text_max_tokens, int(SHARE_OF_LIMIT * limit))
    residue = (policy.fit_residue_high - policy.fit_residue_low) * limit
    return policy.fit_low * limit - own - residue - course.item


def plateau_complaints(course: Course) -> list[str]:
    """Say where a run's last prompts leave the water marks, or still grow.

    `lean` has no low mark: what is old is clipped whatever is used.
    """
    policy, limit = preset(course.name), course.limit
    last, before = course.after[-LAST:], course.after[-2 * LAST : -LAST]
    high = policy.fit_high * limit
    found = []
    if max(last) > high:
        found.append(f"{max(last)} tokens, above the high-water mark of {high:.0f}")
    if policy.age_stage is AgeStage.PRESSURE and min(last) < least(course):
        found.append(f"{min(last)} tokens, below the low-water mark, {least(course):.0f}")
    if median(last) > median(before) + 0.1 * limit:
        found.append(f"still grows: {median(before)} tokens, then {median(last)}")
    return found


@pytest.mark.parametrize(
    ("name", "kind"), [(name, ("browsing", "coding")[number % 2]) for number, name in enumerate(AGEING)]
)
def test_a_long_run_plateaus(name: str, kind: str) -> None:
    """Of 500 iterations that come to 25 times the limit, the last 100 prompts vary within the water marks."""
    history = long_run(kind)
    limit = int(SHARE * Engine(limit=10**9, preset="cap_only").trim(**history.prompt()).tokens.before)
    assert [] == plateau_complaints(course(history, name, limit))


def test_growth_has_an_end_below_the_marks() -> None:
    """However large the limit, what `lean` leaves of old iterations takes no more than its share: it ends by itself."""
    history, limit = long_run("browsing"), 60_000
    newest = 18_000  # tokens that pages and results of three iterations may take
    assert max(course(history, "lean", limit).after[-LAST:]) <= preset("lean").fit_residue_high * limit + newest


@pytest.mark.parametrize("name", AGEING)
def test_a_recorded_run_plateaus(name: str) -> None:
    """The longest recorded coding run, at 30 % of its final size."""
    paths = recorded_data.present("runs/pi-large.*")
    if not paths:
        recorded_data.need("runs/pi-large.openai_chat.json.gz")
    run = recorded(paths[0])
    history = History(run.format, run, run.slices(), [Part.PERSON] * len(run.messages))
    limit = int(0.3 * Engine(limit=10**9, preset="cap_only").trim(**history.prompt()).tokens.before)
    assert [] == plateau_complaints(course(history, name, limit))


@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(AGEING),
    page=st.sampled_from([400, 2_000]),
    limit=st.sampled_from([6_000, 12_000]),
)
@settings(max_examples=5, deadline=None)
def test_any_run_plateaus(seed: int, name: str, page: int, limit: int) -> None:
    """Whatever the run holds, no prompt is above the high mark, and none below the low one once it was passed."""
    history = browsing(seed, OPENAI_CHAT, Browsing(iterations=220, page=page, screenshots=0.0))
    made = course(history, name, limit)
    policy = preset(name)
    assert max(made.after) <= policy.fit_high * limit
    assert median(made.after[-LAST:]) <= median(made.after[-2 * LAST : -LAST]) + 0.15 * limit
    if policy.age_stage is AgeStage.PRESSURE and made.batches:
        assert min(made.after[made.batches[0] :]) >= least(made)
