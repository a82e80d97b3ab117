"""Masking switched on and off in the middle of a run: by a process that gets the history and a revision."""

from __future__ import annotations

import json
import random

import pytest

from prompt_sidecar.facts.trim_calls import RevisionUse
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.prompt.formats import FORMATS
from tests.guard.planting import FORMATS_WITH_HISTORIES, planted, secrets, serialised, turns
from tests.guard.test_masking import ENFORCE, everything, leaks
from tests.promises.engine import Engine

formats = pytest.mark.parametrize("format", FORMATS_WITH_HISTORIES)
seeds = pytest.mark.parametrize("seed", range(6))


@formats
@seeds
def test_on_in_the_middle_of_a_run(format: str, seed: int) -> None:
    """Decisions and ids stay, what is kept and returned is masked, and a third process goes on from there."""
    chance = random.Random(seed)
    values = secrets(chance)
    body = planted(format, chance, 10, values)
    steps = turns(body, FORMATS[format].messages_field)
    before = Engine(limit=2_500)
    for step in steps[:-1]:
        last = before.trim(format, serialised(step))
    assert last.trimmed.trims
    masking = Engine(limit=2_500, guard=ENFORCE)
    same = masking.trim(format, serialised(steps[-2]), revision=last.prompt.revision)
    assert RevisionUse.APPLIED is same.revision_use
    assert [] == leaks(values, *everything(masking, same))
    kept = {(trim.message_index, trim.item_index): trim.stash_id for trim in same.trimmed.trims}
    then = {(trim.message_index, trim.item_index): trim.stash_id for trim in last.trimmed.trims}
    assert {place: stash_id for place, stash_id in then.items() if place in kept} == {
        place: stash_id for place, stash_id in kept.items() if place in then
    }
    assert len(then.keys() - kept.keys()) <= len(then) // 2
    for stash_id in kept.values():
        assert masking.original(stash_id) is not None
    third = Engine(limit=2_500, guard=ENFORCE).trim(format, serialised(steps[-2]), revision=same.prompt.revision)
    assert RevisionUse.APPLIED is third.revision_use
    assert kept == {(trim.message_index, trim.item_index): trim.stash_id for trim in third.trimmed.trims}
    assert same.prompt.body == third.prompt.body
    grown = masking.trim(format, serialised(steps[-1]))
    assert [] == leaks(values, *everything(masking, grown))


@formats
@seeds
def test_off_is_sticky(format: str, seed: int) -> None:
    """A process that only looks goes on masking a run whose revision says that it is masked."""
    chance = random.Random(seed)
    values = secrets(chance)
    body = serialised(planted(format, chance, 6, values))
    masked = Engine(limit=3_000, guard=ENFORCE).trim(format, body)
    looking = Engine(limit=3_000, guard=GuardOptions(mode="audit"))
    answer = looking.trim(format, body, revision=masked.prompt.revision)
    assert RevisionUse.APPLIED is answer.revision_use
    assert masked.prompt.body == answer.prompt.body
    again = looking.trim(format, body)
    assert [] == leaks(values, again.prompt.body or b"", again.prompt.revision)
    assert json.loads(masked.prompt.body or b"") == json.loads(again.prompt.body or b"")
