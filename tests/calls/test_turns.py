"""Callers and their connections take turns, and who asks for little is next at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.calls.turns import LEFT, Owner, OwnerCounts, WaitingTurns

ONE, OTHER = Owner("one", "one/0"), Owner("other", "other/0")


def _take(turns: WaitingTurns[str]) -> str:
    taken = turns.take()
    assert taken is not None
    return taken[1]


def test_who_asks_for_little_is_next() -> None:
    """However many connections have a backlog: not after one turn of each, as in a round."""
    turns = WaitingTurns[str]()
    for number in range(100):
        owner = Owner(str(number), str(number))
        for _ in range(10):
            turns.add(owner, f"{number}/{len(turns)}")
    for _ in range(150):  # each has had a turn, and some a second one
        _take(turns)
    for _ in range(5):
        turns.add(ONE, "rare")
        assert "rare" == _take(turns)
        for _ in range(100):  # one for each
            _take(turns)


def test_owners_with_as_much_have_a_turn_each() -> None:
    """In the order in which they came."""
    turns = WaitingTurns[str]()
    for name in ("a0", "a1", "b0", "a2", "b1", "c0"):
        turns.add(Owner(name[0], name[0]), name)
    assert ["a0", "b0", "c0", "a1", "b1", "a2"] == [_take(turns) for _ in range(6)]
    assert turns.take() is None


def test_connections_of_one_caller_share_its_turns() -> None:
    """A caller with many connections has no more turns than one with one."""
    turns = WaitingTurns[str]()
    for number in range(6):
        turns.add(Owner("many", f"many/{number}"), f"m{number}")
        turns.add(OTHER, f"o{number}")
    assert ["m0", "o0", "m1", "o1", "m2", "o2"] == [_take(turns) for _ in range(6)]


def test_new_owners_without_end_do_not_starve_who_waits() -> None:
    """Where each call comes from an owner that was never seen, one that had a turn has its next all the same."""
    turns = WaitingTurns[str]()
    turns.add(ONE, "first")
    for number in range(10):
        turns.add(Owner(str(number), str(number)), str(number))
    assert "first" == _take(turns)
    turns.add(ONE, "second")
    seen = list[str]()
    for number in range(10, 100):
        turns.add(Owner(str(number), str(number)), str(number))
        seen.append(_take(turns))
    assert "second" in seen


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(("add", "take", "remove")))))
def test_all_that_waits_comes_out_once_and_in_its_owners_order(steps: list[tuple[str, str, str]]) -> None:
    """Whatever is taken out in between."""
    turns = WaitingTurns[int]()
    waiting: dict[Owner, list[int]] = {}
    for number, (share, connection, step) in enumerate(steps):
        owner = Owner(share, share + connection)
        has = waiting.setdefault(owner, [])
        if step == "add":
            turns.add(owner, number)
            has.append(number)
        elif step == "remove":
            assert bool(has) == turns.remove(owner, has.pop() if has else number)
        elif (taken := turns.take()) is not None:
            assert taken[1] == waiting[taken[0]].pop(0)
        else:
            assert not any(waiting.values())
        assert (has[0] if has else None) == turns.oldest(owner)
        assert sum(map(len, waiting.values())) == len(turns)
    while (taken := turns.take()) is not None:
        assert taken[1] == waiting[taken[0]].pop(0)
    assert not any(waiting.values())


def test_one_that_may_not_is_passed_over() -> None:
    """It keeps its turn."""
    turns = WaitingTurns[str]()
    turns.add(ONE, "a")
    turns.add(OTHER, "b")
    has = OwnerCounts()
    has.add(ONE, 1)
    assert (OTHER, "b") == turns.take(has, 1)
    assert turns.take(has, 1) is None
    assert "a" == _take(turns)


def test_a_caller_that_may_not_is_passed_over_at_once() -> None:
    """Its connections are not looked at, however many it has."""
    turns, has = WaitingTurns[str](), _Asked()
    for number in range(100):
        turns.add(Owner("one", f"one/{number}"), f"{number}")
    has.add(ONE, LEFT)
    turns.add(OTHER, "b")
    assert (OTHER, "b") == turns.take(has, 1)
    assert 1 == has.asked


class _Asked(OwnerCounts):
    """Counts how often it was asked what a connection has."""

    asked = 0

    def of(self, owner: Owner) -> int:
        self.asked += 1
        return super().of(owner)


def test_counts_are_of_connections_and_callers() -> None:
    """Who has most is the caller that does, and of its connections those that do."""
    counts = OwnerCounts()
    assert [] == counts.have_most()
    for name, count in (("a0", 3), ("a1", 3), ("b0", 5), ("a2", 1)):
        counts.add(Owner(name[0], name), count)
    assert [Owner("a", "a0"), Owner("a", "a1")] == counts.have_most()
    assert (3, 7, 12) == (counts.of(Owner("a", "a0")), counts.of_share("a"), counts.total)
    assert not counts.share_may("a", 1)
    assert counts.share_may("a", 2)
    assert 7 == LEFT
    counts.add(Owner("a", "a0"), -3)
    counts.add(Owner("a", "a1"), -3)
    assert [Owner("b", "b0")] == counts.have_most()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(("add", "take", "pass"))), max_size=40
    )
)
def test_who_passes_by_has_had_its_turn(steps: list[tuple[str, str, str]]) -> None:
    """Later turns are as if it had been added and taken; it passes only where that would have given it the turn."""
    fast, slow, has = WaitingTurns[int](), WaitingTurns[int](), OwnerCounts()
    for number, (share, connection, step) in enumerate(steps):
        owner = Owner(share, share + connection)
        if step == "add":
            fast.add(owner, number)
            slow.add(owner, number)
        elif step == "pass":
            left = 1 + number % 2
            passed = fast.pass_by(owner, has, left)
            assert passed == (not len(slow) and has.share_may(share, left) and has.of(owner) < left)
            if passed:
                slow.add(owner, number)
                assert (owner, number) == slow.take(has, left)
                has.add(owner, 1)
        else:
            assert slow.take() == fast.take()
            has.add(owner, -min(1, has.of(owner)))
    while (taken := slow.take()) is not None:
        assert taken == fast.take()
    assert fast.take() is None
