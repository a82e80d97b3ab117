"""The checks that recorded and synthetic runs share: what must be equal however and to whom a history is sent."""

from __future__ import annotations

import random
from collections.abc import Iterable
from hashlib import sha256

from prompt_sidecar.recall.outcome import Outcome
from tests.oracle.runs import Run, body_of, turns
from tests.promises.engine import Engine
from tests.promises.judge import same_answer
from tests.promises.replay import Replay, Turn, facts_of
from tests.promises.resend import adopted, variants

LEEWAY = 0.03
"""Share by which the sidecar's count and the oracle's may differ on a prompt: each frames a message in its own way."""

SLACK = 40
"""Tokens by which they may differ in any case, which is what counts at limits of a few messages."""


def fit_complaints(turns_: Iterable[Turn]) -> list[str]:
    """Say which prompts are over their limit with no good reason, or only under it by the sidecar's own count."""
    complaints = []
    for turn in turns_:
        name = f"turn of {turn.length} messages"
        if turn.fits and turn.counted > turn.limit * (1 + LEEWAY) + SLACK:
            complaints.append(f"{name}: said to fit {turn.limit}, counts {turn.counted}")
        own = sum(turn.verdict.entries[place][1] for place in turn.verdict.own)
        if not turn.fits and turn.protected + own <= turn.limit * (1 - LEEWAY) - SLACK:
            protected = f"protected {turn.protected}, own text {own}"
            complaints.append(f"{name}: {turn.after} over {turn.limit} ({turn.no_fit}), {protected}")
    return complaints


def resend_complaints(run: Run, preset: str, limit: int, lengths: Iterable[int], **fields: object) -> list[str]:
    """Say where a history that was sent in another way, to the engine that knows it, got another answer."""
    complaints = []
    wanted = set(lengths)
    engine = Engine(limit=limit, preset=preset, **fields)  # type: ignore[arg-type]
    slices = run.slices()
    for length in turns(run.messages):
        sent = body_of(run.format, slices[:length], system=run.system)
        answer = engine.trim(run.format, sent)
        if length not in wanted:
            continue
        for name, body in variants(run, slices[:length], answer, seed=length):
            differences = same_answer(answer, engine.trim(run.format, body))
            complaints += [f"turn of {length} messages, {name}: {difference}" for difference in differences]
    return complaints


def adopt_complaints(result: Replay, how: str) -> list[str]:
    """Say where an agent that keeps what it got was answered otherwise than one that keeps its own history.

    `how` is "own text", "no own text" or "mixed": at each turn by chance its own history or what it got.
    """
    run, chance = result.run, random.Random(7)
    engine = Engine(limit=result.limit, preset=result.preset, policy=result.engine.policy)
    slices = run.slices()
    held: list[bytes] = []
    last = 0
    complaints = []
    for turn in result.turns:
        held += slices[last : turn.length]
        if how == "mixed" and chance.random() < 0.4:
            held = slices[: turn.length]
        last = turn.length
        answer = engine.trim(run.format, body_of(run.format, held, system=run.system))
        assert answer.prompt.body is not None
        if sha256(answer.prompt.body).digest() != turn.digest:
            complaints.append(f"turn of {turn.length} messages: another body")
        if facts_of(answer) != turn.facts:
            complaints.append(f"turn of {turn.length} messages: other trims or registry")
        held = adopted(answer, own_text=how == "own text" or (how == "mixed" and chance.random() < 0.5))
        if complaints:
            break  # what an agent adopts from a wrong answer says nothing more
    return complaints


def fresh_complaints(result: Replay, places: Iterable[int], *, retrieve: int = 20) -> list[str]:
    """Say where a fresh process with the same key answers otherwise, or cannot give back an original.

    `places` are places among the turns; at each, a process begins with the untrimmed history of that turn and goes on
    for the next two.
    """
    run, slices = result.run, result.run.slices()
    complaints = []
    for place in places:
        engine = Engine(limit=result.limit, preset=result.preset, policy=result.engine.policy)
        for later, turn in enumerate(result.turns[place : place + 3]):
            answer = engine.trim(run.format, body_of(run.format, slices[: turn.length], system=run.system))
            assert answer.prompt.body is not None
            name = f"begun at turn {place}, {later} later"
            if sha256(answer.prompt.body).digest() != turn.digest:
                complaints.append(f"{name}: another body")
            if facts_of(answer) != turn.facts:
                complaints.append(f"{name}: other trims or registry")
            for trim in random.Random(place).sample(
                list(answer.trimmed.trims), min(retrieve, len(answer.trimmed.trims))
            ):
                outcome = engine.retrieve(trim.stash_id).outcome
                if outcome is not Outcome.HIT:
                    complaints.append(f"{name}: {trim.stash_id} is {outcome}")
                elif engine.original(trim.stash_id) != result.engine.original(trim.stash_id):
                    complaints.append(f"{name}: {trim.stash_id} holds other bytes")
    return complaints


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` places among `count`, evenly, the last one among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(step * (count - 1) / (most - 1)) for step in range(most)})
