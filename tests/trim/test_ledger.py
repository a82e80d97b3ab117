"""The ledger: its sums are sums, its heap gives the largest, and groups know who must go with them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import Action, Ageing, Entry, Reason
from prompt_sidecar.trim.ledger import Ledger
from tests.trim.histories import Fold, few, histories, limits, plain, record_of


def taken(messages: list[plain]) -> Ledger:
    """A ledger of these messages, nothing decided."""
    ledger = Ledger()
    for index, message in enumerate(messages):
        ledger.append(record_of(message, index))
    return ledger


def partners(messages: list[plain]) -> list[tuple[int, int]]:
    """The slow twin of pairing: for each answer the message of the newest open call with its id."""
    found: list[tuple[int, int]] = []
    open_calls: list[tuple[str, int]] = []
    for index, message in enumerate(messages):
        open_calls += [(call, index) for call in message.calls]
        for answer in message.answers:
            fitting = [place for place, (call, _) in enumerate(open_calls) if call == answer]
            if fitting:
                found.append((open_calls.pop(fitting[-1])[1], index))
    return found


def group_of(ledger: Ledger, index: int) -> int:
    """The group of a message, by looking for it."""
    return max((number for number, group in enumerate(ledger.groups) if group.start <= index), default=-1)


@few
@given(histories())
def test_a_group_begins_with_an_assistant_block(messages: list[plain]) -> None:
    """A group begins with an assistant block; its members are what follows up to the next one."""
    ledger = taken(messages)
    starts = [
        index
        for index, message in enumerate(messages)
        if message.role is Role.ASSISTANT and (index == 0 or messages[index - 1].role is not Role.ASSISTANT)
    ]
    assert starts == [group.start for group in ledger.groups]
    assert len(starts) + 1 == ledger.iteration
    assert [group_of(ledger, index) for index in range(len(messages))] == [record.group for record in ledger.records]
    members = [index for group in range(len(starts)) for index in ledger.messages.members(group)]
    assert list(range(starts[0] if starts else len(messages), len(messages))) == members


@few
@given(histories())
def test_a_group_reaches_to_the_last_answer_of_its_calls(messages: list[plain]) -> None:
    """A group reaches to the last answer of its calls, and counts the calls that nothing has answered."""
    ledger = taken(messages)
    pairs = partners(messages)
    for number, group in enumerate(ledger.groups):
        members = ledger.messages.members(number)
        answered = [answer for call, answer in pairs if call in members]
        calls = sum(len(messages[index].calls) for index in members)
        assert max([number, *(group_of(ledger, answer) for answer in answered)]) == group.reach
        assert calls - len(answered) == group.unanswered
        assert any(messages[index].pinned for index in members) == group.pinned


@few
@given(histories(), st.data())
def test_a_unit_holds_all_answers_to_its_calls(messages: list[plain], data: st.DataObject) -> None:
    """A unit is closed: no answer to a call in it stands after it."""
    ledger = taken(messages)
    if not ledger.groups:
        return
    first = data.draw(st.integers(0, len(ledger.groups) - 1))
    end = ledger.messages.pairs.unit_end(first)
    for call, answer in partners(messages):
        if first <= group_of(ledger, call) <= end:
            assert group_of(ledger, answer) <= end


@few
@given(histories())
def test_totals_of_what_arrived(messages: list[plain]) -> None:
    """Tokens and images of a history are those of its messages."""
    ledger = taken(messages)
    assert sum(record.tokens for record in ledger.records) == ledger.decisions.total
    assert sum(kind is ItemKind.IMAGE for message in messages for kind, _ in message.items) == ledger.messages.media
    assert sum(len(message.items) for message in messages if not message.holdable) == ledger.messages.not_holdable
    assert {entry.stash_id for record in ledger.records for entry in record.entries} == set(ledger.messages.by_id)


def candidates(ledger: Ledger) -> list[tuple[int, int, int]]:
    """The slow twin of the heap: results that may still be elided, largest first, of equals the oldest."""
    return sorted(
        (-entry.tokens, entry.message, entry.item)
        for record in ledger.records
        if record.group >= 0 and not record.pinned and not record.dropped
        for entry in record.entries
        if entry.kind is ItemKind.RESULT and entry.action is not Action.CLIPPED
    )


def popped(ledger: Ledger) -> list[tuple[int, int, int]]:
    """Everything that the heap gives."""
    found: list[Entry] = []
    while (entry := ledger.queues.pop_largest()) is not None:
        found.append(entry)
    return [(-entry.tokens, entry.message, entry.item) for entry in found]


@few
@given(histories(), st.data())
def test_the_largest_first(messages: list[plain], data: st.DataObject) -> None:
    """After any decisions the heap gives each result once, largest first, as a sort does."""
    ledger = taken(messages)
    results = ledger.queues.by_age[Ageing.RESULTS].entries
    for entry in results:
        match data.draw(st.sampled_from(["leave", "leave", "shrink", "clip", "drop", "pin"])):
            case "shrink":
                ledger.decisions.decide(entry, Action.ELIDED, None, entry.tokens // 2, Reason.FIT)
                ledger.queues.largest.offer(entry)
            case "clip":
                ledger.decisions.decide(entry, Action.CLIPPED, None, 1, Reason.FIT)
            case "drop":
                if not ledger.records[entry.message].dropped:
                    ledger.decisions.drop_record(entry.message, 1)
            case "pin":
                ledger.pin(entry.message)
    assert sum(record.tokens for record in ledger.records if not record.dropped) == ledger.decisions.total
    expected = candidates(ledger)
    assert expected == list(dict.fromkeys(popped(ledger)))


@few
@given(histories(), limits)
def test_trimmed_items_have_an_action_or_were_dropped(messages: list[plain], limit: int) -> None:
    """What is trimmed is what has an action, and every item of a message that was dropped."""
    fold = Fold(messages, limit)
    fold.take()
    expected = [
        (entry.message, entry.item)
        for record in fold.ledger.records
        for entry in record.entries
        if record.dropped or entry.action is not None
    ]
    assert expected == [(entry.message, entry.item) for _, entry in fold.ledger.trimmed()]


@few
@given(histories(), st.data())
def test_units_as_they_grow(messages: list[plain], data: st.DataObject) -> None:
    """A unit that is asked for again and again while messages come is what a walk over all its groups finds."""
    ledger = Ledger()
    first = data.draw(st.integers(0, 3))
    for index, message in enumerate(messages):
        ledger.append(record_of(message, index, ledger.chain))
        if first < len(ledger.groups):
            if data.draw(st.integers(0, 9)) == 0:
                first = data.draw(st.integers(0, len(ledger.groups) - 1))
            end, at = first, first
            while at <= end:
                end = max(end, ledger.groups[at].reach)
                at += 1
            assert end == ledger.messages.pairs.unit_end(first)


@given(st.lists(st.integers(0, 29), max_size=40), st.integers(1, 30))
def test_records_that_are_left(dropped: list[int], length: int) -> None:
    """The next record that is not dropped, and the last before, are found whatever was dropped in whatever order."""
    ledger = Ledger()
    for index in range(length):
        ledger.append(record_of(plain(Role.USER, ((ItemKind.TEXT, "a"),)), index))
    for index in dropped:
        if index < length and not ledger.records[index].dropped:
            ledger.decisions.drop_record(index, 1)
        live = [place for place, record in enumerate(ledger.records) if not record.dropped]
        for at in range(length):
            assert min((place for place in live if place >= at), default=length) == ledger.decisions.next_live(at)
            assert max((place for place in live if place < at), default=-1) == ledger.decisions.live_before(at)
    assert ledger.decisions.total == ledger.decisions.tokens_between(0, length)
