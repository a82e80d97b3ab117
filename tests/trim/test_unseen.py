"""Results that the model has not seen yet, those of the newest iteration, go last if there is room for them."""

from __future__ import annotations

from hypothesis import given

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import Action, Reason
from prompt_sidecar.trim.own_text import DROPPED_TOKENS
from tests.trim.histories import Fold, few, histories, limits, plain

LIMIT = 4_000


def _taken(*tokens: int) -> Fold:
    """A task, then calls with results of so many tokens, four bytes each; the last one is new."""
    messages = [plain(Role.USER, ((ItemKind.TEXT, "Find the bug."),))]
    for number, size in enumerate(tokens):
        call = (f"c{number}",)
        messages += [
            plain(Role.ASSISTANT, ((ItemKind.ARGUMENTS, "{}"),), calls=call),
            plain(Role.TOOL, ((ItemKind.RESULT, f"{number:04d}" * size),), answers=call),
        ]
    fold = Fold(messages, LIMIT)
    fold.take()
    return fold


def _actions(fold: Fold) -> list[Action | None]:
    return [entry.action for record in fold.ledger.records for entry in record.entries if entry.kind is ItemKind.RESULT]


def test_they_stay_whole_while_all_else_can_go() -> None:
    """Also where the newest iterations, which are not clipped otherwise, have to be."""
    assert [Action.CLIPPED, Action.ELIDED, None] == _actions(_taken(200, 1_500, 3_000))
    assert [Action.CLIPPED, Action.CLIPPED, None] == _actions(_taken(1_500, 1_500, 3_700))


def test_where_there_is_no_room_for_them_they_alone_are_elided() -> None:
    """Results of earlier iterations would not make room enough: they stay."""
    assert [None, None, Action.ELIDED] == _actions(_taken(200, 800, 5_000))


def test_several_share_what_room_there_is() -> None:
    """What a user said stays; the larger result is elided by half before the smaller loses anything."""
    call = ("a", "b")
    results = ((ItemKind.RESULT, "aaaa" * 2_100), (ItemKind.RESULT, "bbbb" * 1_300))
    messages = [
        plain(Role.USER, ((ItemKind.TEXT, "Find the bug."),)),
        plain(Role.ASSISTANT, ((ItemKind.TEXT, "Where?"),)),
        plain(Role.USER, ((ItemKind.TEXT, "Here. " * 400),)),
        plain(Role.ASSISTANT, ((ItemKind.ARGUMENTS, "{}"),), calls=call),
        plain(Role.TOOL, results, answers=call),
    ]
    fold = Fold(messages, LIMIT)
    fold.take()
    larger, smaller = fold.ledger.records[-1].entries
    assert (Action.ELIDED, None) == (larger.action, smaller.action)
    assert (fold.policy.fit_high - 0.01) * LIMIT < fold.used() <= fold.policy.fit_high * LIMIT


@few
@given(histories(), limits)
def test_only_for_want_of_room(messages: list[plain], limit: int) -> None:
    """Where one is trimmed, the prompt with the newest iteration as it came would not fit, whatever else had gone.

    Not even with the placeholder that would count it.
    """
    fold = Fold(messages, limit)
    known: set[tuple[int, int]] = set()
    for upto in range(1, len(messages) + 1):
        new = len(fold.ledger)
        fold.take(upto)
        if not fold.ledger.groups or fold.ledger.groups[-1].start > new:
            continue
        members = fold.ledger.messages.members(len(fold.ledger.groups) - 1)
        entries = [entry for index in members for entry in fold.ledger.records[index].entries]
        trimmed = {
            (entry.message, entry.item)
            for entry in entries
            if entry.kind is ItemKind.RESULT and entry.reason is Reason.FIT
        }
        words_went = any(record.words and record.dropped for record in fold.ledger.records)  # which goes even later
        if trimmed - known and not words_went:
            saved = sum(entry.full_tokens - entry.tokens for entry in entries)
            assert fold.used() + saved + DROPPED_TOKENS > fold.policy.fit_high * limit
        known |= trimmed
