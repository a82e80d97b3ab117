"""Revisions: they come back as they went, and only if this key signed them."""

from __future__ import annotations

import zlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.trim.ids import sign
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.revision import MAX_STATE_BYTES, RULES, Revision, apply_state, run_digest, seal, unseal
from tests.trim.histories import decisions, evaluated, few, histories, limits, opened, plain, revision
from tests.trim.states import state_of

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


def test_rules_that_are_not_known() -> None:
    """A revision of later rules, or of ones that are no longer read, is nobody's."""
    for version in {*range(256)} - {5, 6, 7, 8, 9, RULES}:
        assert None is unseal(KEY, seal(KEY, msgspec.structs.replace(REVISION, version=version)))


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
@given(histories(most=10), limits)
def test_decisions_round_trip(messages: list[plain], limit: int) -> None:
    """A ledger that takes a revision has the decisions of the one that gave it, and what follows from them."""
    one = evaluated(messages, limit)
    other = opened(one)
    assert decisions(one.ledger) == decisions(other)
    assert state_of(one.ledger) == state_of(other)


def test_a_state_that_is_too_large() -> None:
    """A state that inflates past its bound is not taken."""
    assert not apply_state(Ledger(), revision(zlib.compress(b"\0" * (MAX_STATE_BYTES + 1))))
