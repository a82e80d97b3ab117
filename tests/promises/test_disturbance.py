"""What may happen to a run besides its turns, and must not change its decisions.

Evictions, expiry, dry runs and side calls change no later prompt; a changed limit is carried to a fresh process by the
revision; a rewritten history keeps the decisions about what it shares with the old one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from hashlib import sha256

import pytest

from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.trim_calls import RevisionUse, TrimAnswer
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.trim.entries import Action
from tests.oracle.runs import Run, Shape, body_of, dumps, synthetic, turns
from tests.oracle.shapes import FORMATS
from tests.oracle.tokens import count_prompt
from tests.oracle.validity import new_defects
from tests.promises.checks import adopt_complaints
from tests.promises.engine import Engine
from tests.promises.judge import judge, prompt_of, same_answer
from tests.promises.replay import replay
from tests.promises.resend import without_own_text

formats = pytest.mark.parametrize("format", FORMATS)
presets = pytest.mark.parametrize("preset", ["cache_first", "fit_only"])

TWO_HOURS = 7_200.0
"""Seconds: past the time to live of an hour."""


@cache
def _run(format: str) -> tuple[Run, int]:
    run = synthetic(5, format, Shape(iterations=30, median=1_500))
    return run, int(0.4 * count_prompt({"messages": list(run.messages)}))


def _send(engine: Engine, run: Run, length: int, **fields: object) -> TrimAnswer:
    return engine.trim(run.format, body_of(run.format, run.slices()[:length], system=run.system), **fields)


def _decisions(engine: Engine, run: Run, disturb: Callable[[int], object] = lambda _: None) -> list[bytes]:
    """Digest what a replay decides: trims and history, our own text aside; something happens before each turn."""
    digests = []
    for length in turns(run.messages):
        disturb(length)
        answer = _send(engine, run, length)
        digests.append(sha256(repr((list(answer.trimmed.trims), without_own_text(answer))).encode()).digest())
    return digests


def _largest(run: Run) -> int:
    """Bytes of the largest message, which is the largest original that there can be."""
    return max(map(len, run.slices()))


@presets
@formats
def test_eviction_changes_no_decision(format: str, preset: str) -> None:
    """With room for a few originals only, decisions are the same, and what is gone is said to be evicted.

    The registry alone may differ: at batch points it drops what cannot be fetched any more.
    """
    run, limit = _run(format)
    small = Engine(limit=limit, preset=preset, limits=Limits(run_stash_bytes=_largest(run)))
    assert _decisions(Engine(limit=limit, preset=preset), run) == _decisions(small, run)
    last = _send(small, run, len(run.messages))
    outcomes = {small.retrieve(trim.stash_id).outcome for trim in last.trimmed.trims}
    assert Outcome.EVICTED in outcomes
    assert outcomes <= {Outcome.HIT, Outcome.EVICTED}


@presets
@formats
def test_expiry_changes_no_decision(format: str, preset: str) -> None:
    """Hours between turns change nothing; content that is received again lives again."""
    run, limit = _run(format)
    slow = Engine(limit=limit, preset=preset)

    def wait(_: int) -> None:
        slow.clock.now += TWO_HOURS

    assert _decisions(Engine(limit=limit, preset=preset), run) == _decisions(slow, run, wait)
    last = _send(slow, run, len(run.messages))
    assert {Outcome.HIT} == {slow.retrieve(trim.stash_id).outcome for trim in last.trimmed.trims}
    slow.clock.now += TWO_HOURS
    assert {Outcome.HIT} & {slow.retrieve(trim.stash_id).outcome for trim in last.trimmed.trims} == set()


@presets
@formats
def test_looking_changes_nothing(format: str, preset: str) -> None:
    """Dry runs, side calls on slices of the history, and retries leave no trace in later prompts."""
    run, limit = _run(format)
    engine = Engine(limit=limit, preset=preset)
    slices = run.slices()

    def look(length: int) -> None:
        _send(engine, run, length, dry_run=True)
        _send(engine, run, len(slices), dry_run=True)
        half = max(1, length // 2)
        engine.trim(format, body_of(format, slices[:half], system=run.system), side_call=True)
        engine.trim(format, body_of(format, slices[half:length] or slices[:1], system=run.system), side_call=True)

    assert _decisions(Engine(limit=limit, preset=preset), run) == _decisions(engine, run, look)


@presets
@formats
def test_a_dry_run_reports_what_would_be(format: str, preset: str) -> None:
    """A dry run names the same trims as the call that it stands for."""
    run, limit = _run(format)
    engine = Engine(limit=limit, preset=preset)
    for length in turns(run.messages)[::5]:
        tried = _send(engine, run, length, dry_run=True)
        assert list(tried.trimmed.trims) == list(_send(engine, run, length).trimmed.trims)


@presets
@formats
def test_revision_carries_a_changed_limit(format: str, preset: str) -> None:
    """A fresh process that is sent the revision makes the edits of one that saw the limit change."""
    run, limit = _run(format)
    old = Engine(limit=limit, preset=preset)
    lengths = turns(run.messages)
    revision = b""
    for place, length in enumerate(lengths):
        window = int(limit * 1.5) if place < len(lengths) // 2 else limit
        answer = _send(old, run, length, context_window=window)
        if revision and place % 3 == 0:
            fresh = Engine(limit=limit, preset=preset)
            again = _send(fresh, run, length, context_window=window, revision=revision)
            assert [] == same_answer(answer, again), f"turn {place}"
            assert RevisionUse.APPLIED is again.revision_use
            assert {Outcome.HIT} >= {fresh.retrieve(trim.stash_id).outcome for trim in again.trimmed.trims}
        revision = answer.prompt.revision


@presets
@formats
def test_a_revision_of_another_key_is_not_used(format: str, preset: str) -> None:
    """A revision that this key did not sign, or that was changed, is said to be mismatched."""
    run, limit = _run(format)
    length = turns(run.messages)[-1]
    signed = _send(Engine(limit=limit, preset=preset, key=b"k" * 32), run, length).prompt.revision
    assert (
        RevisionUse.MISMATCHED is _send(Engine(limit=limit, preset=preset), run, length, revision=signed).revision_use
    )
    own = bytearray(_send(Engine(limit=limit, preset=preset), run, length).prompt.revision)
    own[len(own) // 2] ^= 1
    broken = _send(Engine(limit=limit, preset=preset), run, length, revision=bytes(own))
    assert RevisionUse.MISMATCHED is broken.revision_use


@presets
@formats
def test_divergence_keeps_the_shared_prefix(format: str, preset: str) -> None:
    """An agent that goes back and on another way keeps the bytes of what both ways share, and gets a valid prompt."""
    run, limit = _run(format)
    engine = Engine(limit=limit, preset=preset)
    lengths = turns(run.messages)
    for length in lengths:
        _send(engine, run, length)
    back = lengths[len(lengths) // 2]
    other = [*run.slices()[:back], dumps({"role": "user", "content": "Try another way."})]
    sent = body_of(format, other, system=run.system)
    branch = Run("branch", format, [*run.messages[:back], {"role": "user", "content": "Try another way."}], run.system)
    verdict = judge(branch, prompt_of(sent), engine.trim(format, sent))
    assert () == verdict.complaints


@presets
@formats
def test_divergence_of_an_adopted_prompt(format: str, preset: str) -> None:
    """An agent that keeps what it got may branch anywhere in it too, even right after what was dropped."""
    run = synthetic(6, format, Shape(iterations=40, defects=False, odd_ids=0))
    for kept in range(1, 12):
        engine = Engine(limit=2_000, preset=preset)
        for length in turns(run.messages):
            answer = _send(engine, run, length)
        assert any(trim.action is Action.DROPPED for trim in answer.trimmed.trims)
        held = [json.loads(piece) for piece in without_own_text(answer)]
        branch = Run("branch", format, [*held[:kept], {"role": "user", "content": "Try another way."}], run.system)
        sent = prompt_of(branch.body())
        answered = engine.trim(format, branch.body())
        assert answered.prompt.body is not None
        got = prompt_of(answered.prompt.body)
        own = {piece.message_index for piece in answered.prompt.own_text}
        assert not new_defects(format, sent.decoded, got.decoded, own), f"{kept} messages kept"


@presets
@formats
def test_adopting_where_ids_are_empty_or_reused(format: str, preset: str) -> None:
    """Trimmed messages may look alike to the byte; an agent that adopts them is still answered the same."""
    run = synthetic(266, format, Shape(iterations=40, parallel=1, odd_ids=1.0, bare=0, images=0, reasoning=0))
    result = replay(run, preset, 1_000)
    for how in ("own text", "no own text", "mixed"):
        assert [] == adopt_complaints(result, how), how


@formats
def test_pages_join_to_the_original(format: str) -> None:
    """An original read page by page is the original, and each page keeps to its tokens."""
    run, limit = _run(format)
    engine = Engine(limit=limit)
    answer = _send(engine, run, len(run.messages))
    for trim in list(answer.trimmed.trims)[:: max(1, len(answer.trimmed.trims) // 10)]:
        pieces: list[bytes] = []
        page = engine.retrieve(trim.stash_id, page_tokens=100)
        pieces.append(page.page.content)
        while page.page.more:
            assert page.page.content_tokens <= 100
            page = engine.retrieve(trim.stash_id, page_tokens=100, offset=page.page.next_offset)
            assert page.page.content
            pieces.append(page.page.content)
        assert engine.original(trim.stash_id) == b"".join(pieces)
