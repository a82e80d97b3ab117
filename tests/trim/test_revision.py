"""Revisions: they come back as they went, and only if this key signed them."""

from __future__ import annotations

import zlib
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim.entries import Ageing
from prompt_sidecar.trim.ids import sign
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.revision import MAX_STATE_BYTES, Revision, apply_state, pack_state, run_digest, seal, unseal
from tests.trim.histories import decisions, evaluated, few, histories, plain
from tests.trim.test_oldest import LIMIT, history
from tests.trim.test_residue import DROPPING

KEY = b"key"
REVISION = Revision(run_digest(b"run"), 3, b"c" * 16, [b"o" * 16], b"state")

revisions = st.builds(
    Revision,
    run=st.binary(min_size=8, max_size=8),
    length=st.integers(0, 2**31),
    chain=st.binary(max_size=16),
    own=st.lists(st.binary(max_size=16), max_size=3),
    state=st.binary(max_size=50),
)


@given(revisions, st.binary(max_size=80))
def test_round_trip(revision: Revision, key: bytes) -> None:
    """What was sealed is opened by the key that sealed it."""
    assert revision == unseal(key, seal(key, revision))


@few
@given(st.data())
def test_a_changed_revision_is_not_opened(data: st.DataObject) -> None:
    """One changed, missing or added byte anywhere, and it is nobody's."""
    sealed = bytearray(seal(KEY, REVISION))
    place = data.draw(st.integers(0, len(sealed) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "insert", "remove"])):
        case "flip":
            sealed[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del sealed[place:]
        case "insert":
            sealed.insert(place, data.draw(st.integers(0, 255).filter(lambda byte: byte != sealed[place])))
        case "remove":
            del sealed[place]
    if bytes(sealed) != seal(KEY, REVISION):
        assert None is unseal(KEY, bytes(sealed))


@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    """Whatever is sent as a revision, it is refused and raises nothing."""
    assert None is unseal(KEY, raw)


def test_another_key() -> None:
    """A revision of another deployment is nobody's here."""
    assert None is unseal(b"other", seal(KEY, REVISION))
    assert None is unseal(b"", seal(KEY, REVISION))


def test_a_signature_of_something_else() -> None:
    """A tag over other content does not open what it stands before."""
    content = msgspec.msgpack.encode(REVISION)
    assert None is unseal(KEY, sign(KEY, content + b"x") + content)


def test_run_digest_tells_no_key() -> None:
    """What a revision says of its run is no part of the run's key."""
    key = bytes(range(32))
    assert 8 == len(run_digest(key))
    assert run_digest(key) not in key


@few
@given(histories(most=10), st.integers(60, 1_500))
def test_decisions_round_trip(messages: list[plain], limit: int) -> None:
    """A ledger that takes a state has the decisions of the one that gave it, and goes on as that one would."""
    one = evaluated(messages, limit)
    other = Ledger()
    for record in one.fresh():
        other.append(record)
    assert apply_state(other, pack_state(one.ledger))
    assert decisions(one.ledger) == decisions(other)
    assert one.ledger.total == other.total
    for ageing in Ageing:
        assert one.ledger.queues[ageing].done == other.queues[ageing].done
    leaves = [[entry.leaves for record in each.records for entry in record.entries] for each in (one.ledger, other)]
    assert leaves[0] == leaves[1]
    names = ("drop_done", "batch_end", "batch_group", "batches", "evaluated", "words", "newest_words", "words_done")
    for name in names:
        assert getattr(one.ledger, name) == getattr(other, name), name


def test_a_state_of_an_earlier_version() -> None:
    """System messages that it left of dropped iterations are dropped; thinking bound to its prompts is not kept."""
    one = evaluated(history(), LIMIT, DROPPING)
    dropped = next(index for index, record in enumerate(one.ledger.records) if record.dropped)
    of_group = list(one.ledger.members(one.ledger.records[dropped].group))
    place = of_group[-1]  # as if the last message of a dropped iteration were an instruction
    now, before = Ledger(), Ledger()
    for ledger in (now, before):
        for index, record in enumerate(one.fresh()):
            system = replace(record, role=Role.SYSTEM, tied=True, answers=())
            ledger.append(system if index == place else record)
    entries, drops, rest = _parts(pack_state(one.ledger))
    left = [list(each) for first, end, *how in drops for each in _without(first, end, place, how)]
    assert apply_state(now, pack_state(one.ledger))
    assert apply_state(before, zlib.compress(msgspec.msgpack.encode([entries, left, *rest[:-1]])))
    assert (True, True) == (now.records[place].dropped, before.records[place].dropped)
    assert (False, True) == (now.moved, before.moved)
    assert now.total == before.total


def _parts(packed: bytes) -> tuple[list[object], list[list[int]], list[object]]:
    entries, drops, *rest = msgspec.msgpack.decode(zlib.decompress(packed))
    return entries, drops, rest


def _without(first: int, end: int, place: int, how: list[int]) -> list[tuple[int, ...]]:
    spans = [(first, min(end, place)), (max(first, place + 1), end)] if first <= place < end else [(first, end)]
    return [(start, stop, *how) for start, stop in spans if start < stop]


def test_a_state_that_is_too_large() -> None:
    """A state that inflates past its bound is not taken."""
    assert not apply_state(Ledger(), zlib.compress(b"\0" * (MAX_STATE_BYTES + 1)))
