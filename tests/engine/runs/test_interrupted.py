"""A call that has to end keeps what it has done: its retry goes on from there, and answers what it would have."""

from __future__ import annotations

import gc
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.engine.runs import drafts
from prompt_sidecar.engine.steps import received, turn
from prompt_sidecar.errors import CallCancelled, DeadlinePassed, InvalidRequest
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.guard import masking
from prompt_sidecar.guard.options import GuardOptions
from tests.engine.runs.making import ANTHROPIC_MESSAGES, FORMATS, LIMIT, OPENAI_CHAT, body, history
from tests.promises.engine import Engine
from tests.steps import steps
from tests.trim.histories import few

formats = pytest.mark.parametrize("format", FORMATS)
TOGETHER = 4
"""Messages after which a call may end, in these tests."""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls end often."""
    monkeypatch.setattr(received, "TOGETHER", TOGETHER)
    monkeypatch.setattr(turn, "TOGETHER", TOGETHER)
    monkeypatch.setattr("prompt_sidecar.engine.runs.pace.ASK_EVERY", 0.0)


class Late:
    """A deadline that has passed at one of the looks at it, and at all later ones."""

    def __init__(self, at: int, error: type[Exception] = DeadlinePassed) -> None:
        self.at = at
        self.looks = 0
        self.error = error

    def __call__(self) -> None:
        """Look."""
        self.looks += 1
        if self.looks >= self.at:
            raise self.error("the deadline has passed")


def trim(engine: Engine, format: str, raw: bytes, check: Callable[[], None], **fields: Any) -> TrimAnswer:
    """Trim with a check of one's own."""
    values: dict[str, Any] = {
        "context_window": LIMIT,
        "output_reserve": 0,
        "preset": "cache_first",
        "accept_bytes": 1 << 30,
    }
    call = TrimCall(**({"caller": "promises", "run_id": "run-1", "format": format, "body": raw} | values | fields))
    return engine.runs.trim(call, check)


def never() -> None:
    """No deadline."""


def returned(answer: TrimAnswer) -> tuple[object, ...]:
    """What of an answer decides the run's next prompts, and what the agent sends on."""
    return (
        answer.prompt.body,
        list(answer.prompt.messages or ()),
        sorted(map(str, answer.trimmed.trims)),
        answer.tokens,
        answer.fits,
        answer.prompt.revision,
        answer.iteration,
        list(map(str, answer.trimmed.stash_entries)),
        answer.cache,
    )


def longer(format: str, iterations: int) -> bytes:
    """A prompt with a call id twice, and with a result that answers nothing that is open."""
    messages = history(format, iterations)
    if format == OPENAI_CHAT:
        messages.insert(9, {"role": "tool", "tool_call_id": "call_1", "content": "late " * 300})
        messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Once more."}] * 3
    return body(format, messages)


def with_values(count: int) -> bytes:
    """A prompt of short messages, with values in every seventh."""
    messages = [{"role": "user", "content": f"number {number}"} for number in range(count)]
    for number in range(3, count, 7):
        key = "AKIA" + "".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(number * k * k + k) % 32] for k in range(3, 19))
        messages[number]["content"] += f" id={key}; write to jane{number}@shop.example.org"
    return body(OPENAI_CHAT, messages)


@few
@given(
    format=st.sampled_from(FORMATS),
    policy=st.sampled_from(["cache_first", "lean", "fit_only"]),
    before=st.integers(0, 12),
    iterations=st.integers(4, 18),
    ends=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    fields=st.sampled_from([{}, {"accept_bytes": 1_000_000}]),
)
def test_the_retry_answers_the_same(  # noqa: PLR0917 - what is drawn
    format: str, policy: str, before: int, iterations: int, ends: list[int], fields: dict[str, Any]
) -> None:
    """Wherever calls end, and however often, the retry answers byte for byte what an undisturbed process does."""
    spared, engine = (Engine(limit=LIMIT) for _ in range(2))
    if before:
        for each in (spared, engine):
            trim(each, format, longer(format, before), never, preset=policy)
    raw = longer(format, before + iterations)
    for at in ends:
        try:
            trim(engine, format, raw, Late(at), preset=policy, **fields)
        except DeadlinePassed:
            continue
        break
    expected = trim(spared, format, raw, never, preset=policy)
    assert returned(expected)[:5] == returned(trim(engine, format, raw, never, preset=policy))[:5]
    later = longer(format, before + iterations + 3)
    assert returned(trim(spared, format, later, never, preset=policy)) == returned(
        trim(engine, format, later, never, preset=policy)
    )


@formats
def test_every_place(format: str) -> None:
    """At whichever look the first call of a run ends, its retry answers what an undisturbed process does."""
    raw = longer(format, 16)
    expected = returned(trim(Engine(limit=LIMIT), format, raw, never))
    count = Late(1 << 30)
    trim(Engine(limit=LIMIT), format, raw, count)
    assert count.looks > 12
    for at in range(1, count.looks + 1):
        engine = Engine(limit=LIMIT)
        with pytest.raises(CallCancelled):
            trim(engine, format, raw, Late(at, CallCancelled))
        assert expected == returned(trim(engine, format, raw, never))


def test_a_long_call_can_end_while_originals_are_stored() -> None:
    """Where all has been read and decided, what is left of a long call may still take long: it can end there, too."""
    raw = longer(OPENAI_CHAT, 16)
    expected = returned(trim(Engine(limit=LIMIT), OPENAI_CHAT, raw, never))
    there: list[int] = []

    class Where(Late):
        """Notes which looks come while originals are stored."""

        def __call__(self) -> None:
            """Look."""
            super().__call__()
            if any(frame.function == "_put_originals" for frame in inspect.stack(0)):
                there.append(self.looks)

    trim(Engine(limit=LIMIT), OPENAI_CHAT, raw, Where(1 << 30))
    assert len(there) > 3
    for at in there:
        engine = Engine(limit=LIMIT)
        with pytest.raises(DeadlinePassed):
            trim(engine, OPENAI_CHAT, raw, Late(at))
        assert expected == returned(trim(engine, OPENAI_CHAT, raw, never))


def test_what_an_interrupted_call_kept_is_forgotten_with_its_run() -> None:
    """A call that ends keeps a draft; where its retry comes to nothing, the end of the run still frees all."""
    raw = longer(OPENAI_CHAT, 16)
    engine = Engine(limit=LIMIT)
    for number in range(20):
        with pytest.raises(CallCancelled):
            trim(engine, OPENAI_CHAT, raw, Late(10, CallCancelled), run_id=f"run-{number}")
        with pytest.raises(InvalidRequest):
            trim(engine, OPENAI_CHAT, b"{", never, run_id=f"run-{number}")
        trim(engine, OPENAI_CHAT, raw, never, run_id=f"run-{number}", dry_run=True)
        engine.runs.end("promises", f"run-{number}")
    totals = engine.runs.totals()
    assert (0, 0, 0) == (len(engine.runs), totals.stash.runs, totals.memory_bytes)


def test_a_message_of_many_texts_can_end_between_them() -> None:
    """The rules look at some texts at a time, and a retry does not look at them again."""
    parts = [{"type": "text", "text": f"number {number}"} for number in range(3 * masking.TOGETHER_TEXTS)]
    raw = body(OPENAI_CHAT, [{"role": "user", "content": parts}])
    looks = Late(1 << 30)
    trim(Engine(limit=LIMIT), OPENAI_CHAT, raw, looks)
    assert looks.looks >= 3
    engine, whole = Engine(limit=LIMIT), Engine(limit=LIMIT)
    with pytest.raises(DeadlinePassed):
        trim(engine, OPENAI_CHAT, raw, Late(3))
    rest = steps(lambda: trim(engine, OPENAI_CHAT, raw, never), "guard")
    assert rest < 0.7 * steps(lambda: trim(whole, OPENAI_CHAT, raw, never), "guard")


def test_retries_come_to_an_end() -> None:
    """A prompt that takes far longer than the deadline is answered after some retries: none begins again."""
    raw = body(OPENAI_CHAT, [{"role": "user", "content": f"number {number}"} for number in range(400)])
    engine = Engine(limit=LIMIT)
    looks = Late(1 << 30)
    trim(Engine(limit=LIMIT), OPENAI_CHAT, raw, looks)
    for _ in range(2 * looks.looks // 100 + 2):
        try:
            trim(engine, OPENAI_CHAT, raw, Late(120))
        except DeadlinePassed:
            continue
        return
    raise AssertionError("no retry came to an end")


def test_nothing_is_read_twice() -> None:
    """The retry of a call that ended while it read takes the rest of the steps only."""
    raw = body(OPENAI_CHAT, [{"role": "user", "content": f"number {number}"} for number in range(400)])

    def whole(engine: Engine) -> int:
        return steps(lambda: trim(engine, OPENAI_CHAT, raw, never), "prompt")

    engine = Engine(limit=LIMIT)
    with pytest.raises(DeadlinePassed):
        trim(engine, OPENAI_CHAT, raw, Late(350))
    assert whole(engine) < whole(Engine(limit=LIMIT)) // 3


GUARDS = (
    GuardOptions(actions=("secrets=off", "personal=off", "lookalikes=off")),
    GuardOptions(),
    GuardOptions(mode="enforce"),
)
guards = pytest.mark.parametrize("guard", GUARDS, ids=("off", "audit", "enforce"))


def guarded(engine: Engine, raw: bytes, check: Callable[[], None]) -> tuple[object, ...]:
    """What a call answers, and what it says of the values in the prompt."""
    answer = trim(engine, OPENAI_CHAT, raw, check)
    return *returned(answer), sorted(map(repr, answer.guard.findings)), engine.runs.totals().vault


@guards
@pytest.mark.parametrize("within", ["prompt", "guard"])
def test_nothing_is_guarded_twice(guard: GuardOptions, within: str) -> None:
    """The same with values in the prompt: neither are its strings walked nor its texts searched again."""
    raw = with_values(400)
    expected = guarded(Engine(limit=LIMIT, guard=guard), raw, never)
    engine, whole = Engine(limit=LIMIT, guard=guard), Engine(limit=LIMIT, guard=guard)
    with pytest.raises(DeadlinePassed):
        trim(engine, OPENAI_CHAT, raw, Late(350))
    rest = steps(lambda: trim(engine, OPENAI_CHAT, raw, never), within)
    if within == "prompt" or guard is not GUARDS[0]:
        assert rest < steps(lambda: trim(whole, OPENAI_CHAT, raw, never), within) // 3
    again = Engine(limit=LIMIT, guard=guard)
    with pytest.raises(DeadlinePassed):
        trim(again, OPENAI_CHAT, raw, Late(350))
    assert expected == guarded(again, raw, never)


@guards
def test_every_place_with_values(guard: GuardOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """At whichever look a call ends, also while the guard searches: the same prompt, the same findings and values."""
    monkeypatch.setattr(masking, "TOGETHER", TOGETHER)
    monkeypatch.setattr(masking, "TOGETHER_BYTES", 400)
    raw, grown = with_values(24), with_values(40)
    for before in (None, raw):
        spared = Engine(limit=LIMIT, guard=guard)
        count = Late(1 << 30)
        if before is not None:
            guarded(spared, before, never)
        expected = guarded(spared, grown, count)
        for at in range(1, count.looks + 1):
            engine = Engine(limit=LIMIT, guard=guard)
            if before is not None:
                guarded(engine, before, never)
            with pytest.raises(CallCancelled):
                trim(engine, OPENAI_CHAT, grown, Late(at, CallCancelled))
            assert expected == guarded(engine, grown, never)


def test_searching_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search of a prompt that takes far longer than the deadline goes on where the last call ended."""
    monkeypatch.setattr(masking, "TOGETHER", TOGETHER)
    raw = with_values(400)
    engine = Engine(limit=LIMIT, guard=GUARDS[2])
    monkeypatch.setattr("prompt_sidecar.engine.steps.received.TOGETHER", 1)
    for _ in range(400):
        try:
            answer = guarded(engine, raw, Late(6))
        except DeadlinePassed:
            continue
        assert guarded(Engine(limit=LIMIT, guard=GUARDS[2]), raw, never) == answer
        return
    raise AssertionError("no retry came to an end")


def test_an_originals_promise() -> None:
    """What a call that ended has recorded can be had once its retry has come."""
    raw = longer(ANTHROPIC_MESSAGES, 16)
    engine = Engine(limit=LIMIT)
    count = Late(1 << 30)
    trim(Engine(limit=LIMIT), ANTHROPIC_MESSAGES, raw, count)
    with pytest.raises(DeadlinePassed):
        trim(engine, ANTHROPIC_MESSAGES, raw, Late(count.looks - 1))
    answer = trim(engine, ANTHROPIC_MESSAGES, raw, never)
    assert answer.trimmed.trims
    for each in answer.trimmed.trims:
        assert engine.retrieve(each.stash_id).page.content


def test_a_run_that_is_busy() -> None:
    """A call whose run is held by another ends at its deadline."""
    engine = Engine(limit=LIMIT)
    trim(engine, OPENAI_CHAT, longer(OPENAI_CHAT, 2), never)
    run = engine.runs.table.begun("promises", "run-1")
    with run.lock, pytest.raises(DeadlinePassed):
        trim(engine, OPENAI_CHAT, longer(OPENAI_CHAT, 3), Late(3))


def test_a_changed_prompt_after_an_end() -> None:
    """An agent that goes on with another prompt than the one that was not answered is answered."""
    first, other = longer(OPENAI_CHAT, 14), json.loads(longer(OPENAI_CHAT, 14))
    messages = other["messages"] if isinstance(other, dict) else other
    messages[20] = {"role": "user", "content": "Something else. " * 40}
    raw = json.dumps(other).encode()
    for at in range(30, 60, 3):
        engine = Engine(limit=LIMIT)
        try:
            trim(engine, OPENAI_CHAT, first, Late(at))
        except DeadlinePassed:
            answer = trim(engine, OPENAI_CHAT, raw, never)
            assert answer.prompt.body is not None
            assert answer.fits == trim(Engine(limit=LIMIT), OPENAI_CHAT, raw, never).fits


def test_drafts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest draft goes where there is no room for all; that is counted, and its call is answered all the same."""
    raw = body(OPENAI_CHAT, [{"role": "user", "content": f"number {number}"} for number in range(60)])
    monkeypatch.setattr(drafts, "DRAFT_BYTES", 3 * len(raw))
    engines = Engine(limit=LIMIT)
    assert 0 == engines.runs.totals().draft_bytes
    for run_id in ("one", "two"):
        with pytest.raises(DeadlinePassed):
            trim(engines, OPENAI_CHAT, raw, Late(40), run_id=run_id)
    assert 1 == engines.runs.totals().bounds["run.drafts"]
    assert len(raw) <= engines.runs.totals().draft_bytes <= 3 * len(raw)
    for run_id in ("one", "two"):
        assert trim(engines, OPENAI_CHAT, raw, never, run_id=run_id).fits
    assert 0 == engines.runs.totals().draft_bytes


def test_the_newest_draft_is_kept_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the retries of a large prompt would all begin at its beginning, and none would be answered in time."""
    raw = body(OPENAI_CHAT, [{"role": "user", "content": f"number {number}"} for number in range(60)])
    monkeypatch.setattr(drafts, "DRAFT_BYTES", len(raw))
    engine, answer = Engine(limit=LIMIT), None
    for _ in range(20):
        try:
            answer = trim(engine, OPENAI_CHAT, raw, Late(40))
        except DeadlinePassed:
            continue
        break
    assert answer is not None
    assert 0 == engine.runs.totals().draft_bytes


def test_a_draft_goes_with_its_run() -> None:
    """Of a run that was ended after a call that had to end nothing is kept."""
    raw = body(OPENAI_CHAT, [{"role": "user", "content": f"number {number}"} for number in range(60)])
    engine = Engine(limit=LIMIT)
    with pytest.raises(DeadlinePassed):
        trim(engine, OPENAI_CHAT, raw, Late(40))
    assert engine.runs.totals().draft_bytes
    engine.runs.end("promises", "run-1")
    gc.collect()  # the raised error holds the run by its frames
    assert 0 == engine.runs.totals().draft_bytes


@formats
@pytest.mark.parametrize("kept", [0, 3])
def test_the_retry_of_a_history_written_anew(format: str, kept: int) -> None:
    """It says as much of the prompt before, most of which is gone, as a call that had not to end before."""
    other = json.loads(json.dumps(history(format, 20)).replace("Step ", "Stage "))
    first, then = body(format, history(format, 14)), body(format, [*history(format, 14)[:kept], *other[kept:]])

    def grown() -> Engine:
        engine = Engine(limit=LIMIT)
        trim(engine, format, first, never)
        return engine

    expected, count = trim(grown(), format, then, never), Late(1 << 30)
    trim(grown(), format, then, count)
    assert 0 < expected.cache.kept < expected.cache.rewritten
    for at in range(count.looks, 1, -5):
        engine = grown()
        with pytest.raises(DeadlinePassed):
            trim(engine, format, then, Late(at))
        assert returned(expected) == returned(trim(engine, format, then, never))
