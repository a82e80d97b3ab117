"""Calls that must leave no trace: dry runs, side calls, answers too large, calls cancelled on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.errors import CallCancelled, RunUnknown, TooLarge
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from tests.engine.runs.making import (
    FORMATS,
    LIMIT,
    OPENAI_CHAT,
    ROOM,
    Engine,
    body,
    facts,
    grown,
    history,
    ids,
    send,
    slices,
)

formats = pytest.mark.parametrize("format", FORMATS)


def pair(format: str, iterations: int = 12) -> tuple[Engine, Engine]:
    """Two engines that were sent the same."""
    return grown(format, iterations)[0], grown(format, iterations)[0]


def same_from_here(format: str, spared: Engine, engine: Engine) -> None:
    """Two engines give the same answers, figures and originals from here on."""
    assert spared.runs.stash.totals() == engine.runs.stash.totals()
    for iterations in (13, 14, 20):
        one, other = (send(each, format, iterations) for each in (spared, engine))
        assert facts(one) == facts(other)
        assert [spared.original(i) for i in ids(one)] == [engine.original(i) for i in ids(other)]
    assert spared.runs.figures("promises", "run-1") == engine.runs.figures("promises", "run-1")


@formats
def test_dry_run(format: str) -> None:
    """A dry run answers what would be answered, and the run is as it was."""
    spared, engine = pair(format)
    for iterations in (13, 20):
        send(engine, format, iterations, dry_run=True)
    dry = send(engine, format, 13, dry_run=True)
    same_from_here(format, spared, engine)
    real = send(grown(format)[0], format, 13)
    assert (real.tokens.before, real.trimmed.trims) == (dry.tokens.before, dry.trimmed.trims)


@formats
def test_dry_run_of_an_unknown_run(format: str) -> None:
    """A dry run begins no run and stores nothing."""
    engine = Engine(limit=LIMIT)
    assert send(engine, format, 20, dry_run=True).trimmed.trims
    assert (0, 0) == (len(engine.runs), engine.runs.stash.totals().entries)
    with pytest.raises(RunUnknown):
        engine.runs.figures("promises", "run-1")


@formats
@pytest.mark.parametrize("spare", [0, -1])
def test_answer_too_large(format: str, spare: int) -> None:
    """An answer larger than the caller accepts is refused before anything changes."""
    spared, engine = pair(format)
    for _ in range(2):
        with pytest.raises(TooLarge) as caught:
            send(engine, format, 20, accept_bytes=2_000 + spare)
        assert "accept_bytes" == caught.value.field
    same_from_here(format, spared, engine)


@formats
def test_answer_too_large_for_an_unknown_run(format: str) -> None:
    """A first call that is refused leaves no run behind, here or in the stash."""
    engine = Engine(limit=LIMIT)
    for number in range(3):
        with pytest.raises(TooLarge):
            send(engine, format, 20, accept_bytes=2_000, run_id=f"run-{number}")
    assert (0, 0) == (len(engine.runs), engine.runs.stash.totals().runs)


@formats
def test_a_near_answer_is_the_same_answer(format: str) -> None:
    """What a caller accepts decides whether it is answered, never what."""
    spared, engine = (Engine(limit=LIMIT, policy=ROOM) for _ in range(2))
    for iterations in range(16):
        one = send(spared, format, iterations)
        size = len(one.prompt.body or b"") + 40_000  # enough for this answer, not for what one of its size may take
        assert facts(one) == facts(send(engine, format, iterations, accept_bytes=size)), iterations
    assert one.trimmed.stash_entries


@formats
def test_side_call(format: str) -> None:
    """A side call shows a slice with the run's decisions, and the run is as it was."""
    spared, engine = pair(format)
    _, answer = grown(format)
    known = history(format, 12)
    returned = {json.dumps(message) for message in slices(answer.prompt.body)}
    asked = [*known[5:19], {"role": "user", "content": "Is this right?"}]
    side = engine.trim(format, body(format, asked), side_call=True)
    same_from_here(format, spared, engine)
    shown = slices(side.prompt.body)
    assert len(asked) == len(shown)
    assert asked[-1] == shown[-1]
    for sent, got in zip(asked, shown, strict=True):
        assert got == sent or json.dumps(got) in returned
    assert shown != asked
    assert ((), b"") == (tuple(side.prompt.own_text), side.prompt.revision)
    assert set(ids(side)) <= set(ids(answer))
    assert side.tokens.after < side.tokens.before


@formats
def test_side_call_of_an_unknown_run(format: str) -> None:
    """Without a run there are no decisions: the slice comes back byte for byte, and no run begins."""
    engine = Engine(limit=LIMIT)
    raw = body(format, history(format, 20))
    for spelled in (raw, raw.replace(b"}, {", b"} ,\n\t{")):
        assert spelled == engine.trim(format, spelled, side_call=True).prompt.body
    assert 0 == len(engine.runs)


@formats
def test_side_call_edits(format: str) -> None:
    """Edits of a side call name the messages that it would replace."""
    engine, _ = grown(format)
    raw = body(format, history(format, 12)[2:])
    whole = slices(engine.trim(format, raw, side_call=True).prompt.body)
    sent = slices(raw)
    for edit in engine.trim(format, raw, side_call=True, edits=True).prompt.edits:
        sent[int(edit.pointer.rpartition("/")[2])] = json.loads(edit.value)
    assert whole == sent


@pytest.fixture(autouse=True)
def _asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little time has passed."""
    monkeypatch.setattr("prompt_sidecar.engine.runs.pace.ASK_EVERY", 0.0)


class Stop:
    """A check that raises at one of its calls."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0

    def __call__(self) -> None:
        """Count, and raise when it is time."""
        self.calls += 1
        if self.calls == self.at:
            raise CallCancelled("the caller is gone")


def trim(engine: Engine, format: str, raw: bytes, check: Stop, **fields: Any) -> TrimAnswer:
    """Trim with a check of one's own."""
    values: dict[str, Any] = {
        "context_window": LIMIT,
        "output_reserve": 0,
        "preset": "cache_first",
        "accept_bytes": 1 << 30,
    }
    call = TrimCall(caller="promises", run_id="run-1", format=format, body=raw, **(values | fields))
    return engine.runs.trim(call, check)


@formats
def test_cancelled_at_any_check(format: str) -> None:
    """Wherever a call is cancelled, the run goes on as if it had not come."""
    raw = body(format, history(format, 15))
    count = Stop(0)
    trim(grown(format)[0], format, raw, count)
    assert count.calls > 5
    for at in range(1, count.calls + 1):
        spared, engine = pair(format)
        with pytest.raises(CallCancelled):
            trim(engine, format, raw, Stop(at))
        same_from_here(format, spared, engine)


def test_cancelled_first_call() -> None:
    """A run whose first call is cancelled has not been seen."""
    engine = Engine(limit=LIMIT)
    with pytest.raises(CallCancelled):
        trim(engine, OPENAI_CHAT, body(OPENAI_CHAT, history(OPENAI_CHAT, 3)), Stop(1))
    assert 0 == len(engine.runs)


def test_a_long_text_is_counted_with_checks() -> None:
    """Counting one long new message looks at the check on the way, so that a gone caller costs little."""
    messages = [*history(OPENAI_CHAT, 1), {"role": "user", "content": "word and word again " * 60_000}]
    count = Stop(0)
    trim(Engine(limit=LIMIT), OPENAI_CHAT, body(OPENAI_CHAT, messages), count)
    assert count.calls > len(messages) + 5
