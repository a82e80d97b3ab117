"""Small results stay whole at cuts as long as their iteration is in the prompt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import SMALL, Action, Entry
from prompt_sidecar.trim.policy import Policy
from tests.trim.histories import Fold, opened, plain

LIMIT = 16_000
MIDDLE = 600
NONE_HELD = Policy().override({"fit_keep_oldest": 0.0, "fit_residue_high": 0.5})
"""Without the oldest results, and with room for what is left of iterations, so that hardly any is dropped."""


def history(sizes: Sequence[int], *, words: bool = False) -> list[plain]:
    """A task, then a call with a result of so many tokens for each size; `words`: a user speaks after each."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "Find the bug."),))]
    for number, size in enumerate(sizes):
        call = (f"c{number}",)
        made += [
            plain(Role.ASSISTANT, ((ItemKind.ARGUMENTS, '{"path": "a"}'),), calls=call),
            plain(Role.TOOL, ((ItemKind.RESULT, (f"{number:04d}" * size)[1:]),), answers=call),
        ]
        made += [plain(Role.USER, ((ItemKind.TEXT, "Go on."),))] if words else []
    return made


def fold(sizes: Sequence[int], policy: Policy = NONE_HELD, *, since_9: bool = True) -> Fold:
    """An evaluated history of such results."""
    made = Fold(history(sizes), LIMIT, policy, since_9=since_9)
    made.take()
    return made


def results(of: Fold) -> list[Entry]:
    """The entries of results, by iteration."""
    return [entry for record in of.ledger.records for entry in record.entries if entry.kind is ItemKind.RESULT]


MIXED = [SMALL, MIDDLE] * 24


def test_small_results_stay() -> None:
    """Results that are older and larger than these are clipped, and those of one token more."""
    for least, stays in ((SMALL, True), (SMALL + 1, False)):
        made = fold([least if size == SMALL else size for size in MIXED])
        assert made.ledger.registry.batches
        old = results(made)[:20]
        assert {Action.CLIPPED} == {entry.action for entry in old if entry.full_tokens == MIDDLE}
        assert stays == ({None} == {entry.action for entry in old if entry.full_tokens == least})


def test_they_go_with_their_iteration() -> None:
    """What is left of iterations is bounded as before, small results included."""
    made = fold([SMALL // 2] * 400, NONE_HELD.override({"fit_residue_high": 0.04}))
    assert made.used() <= LIMIT
    entries = results(made)
    assert not [entry for entry in entries[:-3] if entry.action is not None and not _dropped(made, entry)][1:]
    assert _dropped(made, entries[2])


def _dropped(of: Fold, entry: Entry) -> bool:
    return of.ledger.records[entry.message].dropped


def test_the_last_resort() -> None:
    """Where iterations must stay for a user's words, small results are clipped too, before the prompt is too long."""
    made = Fold(history([SMALL] * 130, words=True), LIMIT, alternating=True)
    made.take()
    assert made.used() <= LIMIT
    assert Action.CLIPPED in {entry.action for entry in results(made)[:5]}


def test_a_run_that_began_before() -> None:
    """Small results are clipped in their turn, as its earlier cuts did."""
    before = fold(MIXED, since_9=False)
    assert Action.CLIPPED is results(before)[2].action


@pytest.mark.parametrize("length", [31, 47, 62])
def test_another_process_goes_on_alike(length: int) -> None:
    """From a revision the same is decided: the queue of small results is not part of it."""
    whole = history(MIXED * 2)
    known = Fold(whole, LIMIT, NONE_HELD)
    known.take(length)
    fresh = Fold(whole, LIMIT, NONE_HELD, ledger=opened(Fold(whole[:length], LIMIT, NONE_HELD, ledger=known.ledger)))
    for each in (known, fresh):
        each.take()
    assert [entry.action for entry in results(known)] == [entry.action for entry in results(fresh)]
