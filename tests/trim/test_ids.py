"""Stash ids: the same for the same occurrence and key, another for anything else."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.trim.ids import ID_CHARACTERS, mint, run_key, sign

names = st.text(max_size=8)
keys = st.binary(max_size=100)


def test_ids_are_those_of_earlier_versions() -> None:
    """Ids outlive a process: another way to mint them would orphan every id in a prompt."""
    key = run_key(b"key", "caller", "run-1")
    assert "4yjsyae485" == mint(key, 3, 0, b"i" * 16)


@given(keys, names, names, st.tuples(st.integers(0, 10**6), st.integers(0, 10**3)), st.binary(min_size=16, max_size=16))
def test_an_id_has_ten_plain_characters(
    key: bytes, caller: str, run: str, place: tuple[int, int], identity: bytes
) -> None:
    """Ten characters that nobody misreads, and the same ones every time."""
    found = mint(run_key(key, caller, run), *place, identity)
    assert re.fullmatch(r"[abcdefghjkmnpqrstvwxyz0-9]{10}", found)
    assert ID_CHARACTERS == len(found)
    assert found == mint(run_key(key, caller, run), *place, identity)


def test_all_parts_count() -> None:
    """Key, caller, run, place, item and identity: each makes another id, and none runs into the next."""
    found = {
        mint(run_key(key, caller, run), message, item, identity)
        for key, caller, run, message, item, identity in itertools.product(
            (b"", b"k", b"k" * 64, b"k" * 65),
            ("", "a", "ab"),
            ("", "b", "bc"),
            (1, 11),
            (1, 11),
            (b"i" * 16, b"j" * 16),
        )
    }
    assert 4 * 3 * 3 * 2 * 2 * 2 == len(found)


@given(names, names, names, names)
def test_callers_do_not_run_into_runs(one: str, run_of_one: str, other: str, run_of_other: str) -> None:
    """Two names of caller and run have one key only if they are the same two names."""
    same = (one, run_of_one) == (other, run_of_other)
    assert same == (run_key(b"k", one, run_of_one) == run_key(b"k", other, run_of_other))


def test_a_signature_depends_on_key_and_content() -> None:
    """A tag is 16 bytes, of key and content."""
    assert 16 == len(sign(b"k", b"c"))
    assert 4 == len({sign(key, content) for key in (b"k", b"l" * 80) for content in (b"c", b"d")})
