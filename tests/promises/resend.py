"""What an agent may send in place of its untrimmed history, all of which must give the same answer.

It may adopt the prompt it got, with or without the sidecar's own text, or hold a mix of what it had and what it got;
and it may have parsed and re-written any of these in its own language.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from prompt_sidecar.facts.trim_calls import TrimAnswer
from tests.oracle.alignment import alignment
from tests.oracle.respell import SPELLINGS
from tests.oracle.runs import Run, body_of
from tests.promises.judge import prompt_of


def variants(run: Run, sent_slices: Sequence[bytes], answer: TrimAnswer, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield bodies that stand for the same history as the sent one, each with a name."""
    assert answer.prompt.body is not None
    sent = body_of(run.format, sent_slices, system=run.system)
    yield "untrimmed", sent
    yield "trimmed", answer.prompt.body
    plain = without_own_text(answer)
    yield "trimmed, without own text", body_of(run.format, plain, system=run.system)
    mix = mixed(run, sent_slices, answer, seed)
    yield "mixed", body_of(run.format, mix, system=run.system)
    for name, spell in SPELLINGS.items():
        yield f"untrimmed, {name}", spell(sent)
        yield f"trimmed, {name}", spell(answer.prompt.body)
        yield f"mixed, {name}", spell(body_of(run.format, mix, system=run.system))


def without_own_text(answer: TrimAnswer) -> list[bytes]:
    """Return the answered messages that are not the sidecar's own."""
    assert answer.prompt.body is not None
    own = {piece.message_index for piece in answer.prompt.own_text}
    return [piece for place, piece in enumerate(prompt_of(answer.prompt.body).slices) if place not in own]


def mixed(run: Run, sent_slices: Sequence[bytes], answer: TrimAnswer, seed: int) -> list[bytes]:
    """Return the messages of an agent that holds some as they were and some as it got them, by chance."""
    assert answer.prompt.body is not None
    chance = random.Random(seed)
    got = prompt_of(answer.prompt.body)
    own = {piece.message_index for piece in answer.prompt.own_text if piece.message_index >= 0}
    matched = alignment(run.format, [json.loads(piece) for piece in sent_slices], got.messages, own)
    shown = {old: got.slices[new] for new, old in matched.pairs}
    whole = chance.random() < 0.5
    pieces = []
    for old, piece in enumerate(sent_slices):
        if old in shown:
            pieces.append(piece if chance.random() < 0.5 else shown[old])
        elif whole:
            pieces.append(piece)
    return pieces


def adopted(answer: TrimAnswer, *, own_text: bool) -> list[bytes]:
    """Return the messages that an agent holds which keeps what it got."""
    assert answer.prompt.body is not None
    return list(prompt_of(answer.prompt.body).slices) if own_text else without_own_text(answer)
