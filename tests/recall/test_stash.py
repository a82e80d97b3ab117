"""The stash: distinct outcomes, sliding time to live, counted evictions, compression that changes no byte."""

from __future__ import annotations

import random
import threading

import pytest

from prompt_sidecar.recall import stash as stash_module
from prompt_sidecar.recall.holding import COMPRESS_FROM, Cause, StoredOriginal
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.recall.stash import COMPRESS_AT_ONCE, WAITING_BYTES, Stash

TEXT = "text/plain"


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Where it stands."""
        return self.now


def make(total: int = 1_000, run: int = 1_000, *, clock: Clock | None = None) -> tuple[Stash, Clock]:
    """A stash with a time to live of 60 seconds."""
    clock = clock or Clock()
    return Stash(total, run, 60.0, clock), clock


def lines(size: int) -> bytes:
    """Text of about the given size that compresses as logs do."""
    return b"".join(b"line %d: the quick brown fox\n" % number for number in range(size // 25 + 1))[:size]


def test_hit_returns_the_bytes_and_the_type() -> None:
    """What was put comes back byte for byte."""
    stash, _ = make()
    assert stash.put("r", "o", "a", b"\xff\x00 not text", "application/json") is True
    assert StoredOriginal(b"\xff\x00 not text", "application/json") == stash.get("r", "a")


def test_renewing_is_putting_again_without_the_bytes() -> None:
    """What is there lives on and is evicted last; what is not there, or has expired, has to be put."""
    stash, clock = make(run=20)
    assert not stash.renew("r", "a")
    stash.put("r", "o", "a", b"1234567890", TEXT)
    stash.put("r", "o", "b", b"1234567890", TEXT)
    clock.now = 59
    assert stash.renew("r", "a")
    stash.put("r", "o", "c", b"1234567890", TEXT)
    assert Outcome.EVICTED == stash.get("r", "b")
    clock.now = 118
    assert StoredOriginal(b"1234567890", TEXT) == stash.get("r", "a")
    clock.now = 178
    assert not stash.renew("r", "a")
    assert Outcome.EXPIRED == stash.get("r", "a")


def test_outcomes_are_distinguished() -> None:
    """A run never seen, a made-up id, another run's id, an expired and an evicted one: each has its own outcome."""
    stash, clock = make(run=10)
    stash.put("r", "o", "expired", b"12345", TEXT)
    clock.now = 60
    stash.put("r", "o", "evicted", b"1234567890", TEXT)
    stash.put("r", "o", "alive", b"1234567890", TEXT)
    assert Outcome.RUN_UNKNOWN == stash.get("other", "alive")
    stash.touch_run("other")
    assert Outcome.NOT_FOUND == stash.get("other", "alive")
    assert Outcome.EXPIRED == stash.get("r", "expired")
    assert Outcome.EVICTED == stash.get("r", "evicted")
    assert StoredOriginal(b"1234567890", TEXT) == stash.get("r", "alive")
    assert {"hit": 1, "expired": 1, "evicted": 1, "not_found": 0, "run_unknown": 0} == stash.figures("r").retrievals
    assert 1 == stash.totals().retrievals[Outcome.RUN_UNKNOWN]


def test_same_id_again_keeps_the_first_bytes() -> None:
    """A retry renews the time to live and changes nothing."""
    stash, clock = make()
    stash.put("r", "o", "a", b"first", TEXT)
    clock.now = 59
    assert stash.put("r", "o", "a", b"second", "application/json") is True
    clock.now = 118
    assert StoredOriginal(b"first", TEXT) == stash.get("r", "a")
    assert 5 == stash.figures("r").held_bytes


def test_retrieval_slides_the_time_to_live() -> None:
    """An original lives on as long as it is fetched, and dies at the time to live after that."""
    stash, clock = make()
    stash.put("r", "o", "a", b"x", TEXT)
    for now in (59, 118, 177):
        clock.now = now
        assert isinstance(stash.get("r", "a"), StoredOriginal)
    clock.now = 237
    assert Outcome.EXPIRED == stash.get("r", "a")


def test_received_renews_the_living_and_wakes_no_dead() -> None:
    """Receiving the content again renews what lives at that moment, whether or not the dead were swept."""
    stash, clock = make()
    stash.put("r", "o", "old", b"x", TEXT)
    clock.now = 30
    stash.put("r", "o", "new", b"y", TEXT)
    clock.now = 70
    stash.received("r")
    clock.now = 120
    assert Outcome.EXPIRED == stash.get("r", "old")
    assert isinstance(stash.get("r", "new"), StoredOriginal)


def test_missing_names_the_expired_until_they_are_put_again() -> None:
    """What expired can be stored again; what was evicted is not asked for again."""
    stash, clock = make(run=3)
    stash.put("r", "o", "a", b"x", TEXT)
    stash.put("r", "o", "b", b"x", TEXT)
    assert () == stash.missing("r")
    clock.now = 60
    assert ("a", "b") == stash.missing("r")
    stash.put("r", "o", "a", b"x", TEXT)
    assert ("b",) == stash.missing("r")
    stash.put("r", "o", "c", b"xyz", TEXT)
    assert ("b",) == stash.missing("r")
    assert Outcome.EVICTED == stash.get("r", "a")
    assert () == stash.missing("never seen")


def test_only_what_exceeds_a_runs_budget_cannot_be_held() -> None:
    """The whole budget can be filled by one original; a byte more is refused and changes nothing."""
    stash, _ = make(total=100, run=10)
    stash.put("r", "o", "a", b"kept", TEXT)
    assert stash.can_hold(10) is True
    assert stash.can_hold(11) is False
    assert stash.put("r", "o", "b", bytes(11), TEXT) is False
    assert isinstance(stash.get("r", "a"), StoredOriginal)
    assert Outcome.NOT_FOUND == stash.get("r", "b")


def test_a_total_smaller_than_a_runs_budget_bounds_the_run() -> None:
    """An original that passes the total is refused as one that passes the run's budget is."""
    stash, _ = make(total=5, run=10)
    assert stash.can_hold(6) is False
    assert stash.put("r", "o", "a", b"123456", TEXT) is False
    assert stash.put("r", "o", "a", b"12345", TEXT) is True


def test_the_newest_never_evicts_itself() -> None:
    """An original as large as everything takes the place of everything."""
    stash, _ = make(total=12, run=10)
    for run in ("r", "s", "t"):
        stash.put(run, run, "a", b"1234", TEXT)
    stash.put("r", "r", "b", b"1234567890", TEXT)
    assert StoredOriginal(b"1234567890", TEXT) == stash.get("r", "b")
    assert 10 == stash.totals().held_bytes
    assert {Cause.EXPIRED: 0, Cause.RUN_BUDGET: 1, Cause.TOTAL_BUDGET: 2} == stash.totals().lost


def test_the_total_takes_from_the_owners_own_idle_runs_first() -> None:
    """Then from other owners' runs, longest idle first, and from the run itself only when nobody else has anything."""
    stash, _ = make(total=6, run=6)
    for run, owner in (("mine-1", "me"), ("yours-1", "you"), ("yours-2", "you"), ("mine-2", "me")):
        stash.put(run, owner, "a", b"x", TEXT)
    stash.get("yours-1", "a")
    stash.put("now", "me", "a", b"xx", TEXT)
    order = []
    for step, _ in enumerate(("mine-1", "mine-2", "yours-2", "yours-1")):
        stash.put("now", "me", f"more-{step}", b"x", TEXT)
        order.append([run for run in ("mine-1", "mine-2", "yours-1", "yours-2") if stash.figures(run).evicted])
    assert [
        ["mine-1"],
        ["mine-1", "mine-2"],
        ["mine-1", "mine-2", "yours-2"],
        ["mine-1", "mine-2", "yours-1", "yours-2"],
    ] == order
    assert 0 == stash.figures("now").evicted


def test_the_dead_make_room_before_the_living(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expired original counts as expired, and spares a living one, even if no sweep has come by."""
    monkeypatch.setattr(stash_module, "PUT_SLICE", 0)
    stash, clock = make(total=2, run=2)
    stash.put("idle", "you", "a", b"x", TEXT)
    clock.now = 30
    stash.put("mine", "me", "a", b"x", TEXT)
    clock.now = 60
    stash.put("now", "me", "a", b"x", TEXT)
    assert Outcome.EXPIRED == stash.get("idle", "a")
    assert isinstance(stash.get("mine", "a"), StoredOriginal)
    assert {Cause.EXPIRED: 1, Cause.RUN_BUDGET: 0, Cause.TOTAL_BUDGET: 0} == stash.totals().lost


def test_the_dead_of_a_full_run_count_as_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's budget that meets a dead entry first evicts nothing."""
    monkeypatch.setattr(stash_module, "PUT_SLICE", 0)
    stash, clock = make(run=1)
    stash.put("r", "o", "a", b"x", TEXT)
    clock.now = 60
    stash.put("r", "o", "b", b"x", TEXT)
    assert (Outcome.EXPIRED, 1, 0) == (stash.get("r", "a"), stash.figures("r").expired, stash.figures("r").evicted)


def test_sweep_is_bounded_and_reaches_everything() -> None:
    """A slice takes off no more than it may; slices one after another take off all that is dead, and only that."""
    stash, clock = make(total=100_000, run=100_000)
    for number in range(600):
        clock.now = number / 10
        stash.put(f"run-{number % 7}", "o", str(number), b"x", TEXT)
    clock.now = 90.0
    slices = []
    while swept := stash.sweep():
        slices.append(swept)
    assert [256] == slices[:1]
    assert 301 <= sum(slices) <= 301 + 7
    assert 299 == stash.totals().entries


def test_sweep_finds_what_a_renewal_put_off() -> None:
    """A run that was received again is visited again when it is due."""
    stash, clock = make()
    stash.put("r", "o", "a", b"x", TEXT)
    clock.now = 50
    stash.received("r")
    clock.now = 100
    stash.sweep()
    assert 1 == stash.totals().entries
    clock.now = 110
    stash.sweep()
    assert 0 == stash.totals().entries
    assert 0 == stash.totals().held_bytes


def test_a_renewed_run_that_comes_due_holds_up_nothing() -> None:
    """A put that needs room, and the smallest sweep, look at a renewed run once and go on to what is dead behind it."""
    stash, clock = make(total=3, run=3)
    stash.put("renewed", "you", "a", b"x", TEXT)
    stash.put("idle", "you", "a", b"x", TEXT)
    clock.now = 50
    stash.received("renewed")
    stash.put("now", "me", "a", b"x", TEXT)
    clock.now = 60
    assert [1, 1, 0] == [stash.sweep(1) for _ in range(3)]
    assert {Cause.EXPIRED: 1, Cause.RUN_BUDGET: 0, Cause.TOTAL_BUDGET: 0} == stash.totals().lost
    clock.now = 100
    stash.received("now")
    clock.now = 110
    stash.put("now", "me", "b", b"xxx", TEXT)
    assert isinstance(stash.get("now", "b"), StoredOriginal)


def test_a_full_stash_with_a_renewed_run_due_still_takes_a_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making room ends even when the first run that is due has nothing dead."""
    monkeypatch.setattr(stash_module, "PUT_SLICE", 0)
    stash, clock = make(total=2, run=2)
    stash.put("renewed", "you", "a", b"x", TEXT)
    clock.now = 50
    stash.received("renewed")
    stash.put("now", "me", "a", b"x", TEXT)
    clock.now = 60
    stash.put("now", "me", "b", b"x", TEXT)
    assert Outcome.EVICTED == stash.get("renewed", "a")
    assert 2 == stash.figures("now").entries


def test_forget_leaves_nothing() -> None:
    """A forgotten run is unknown, its bytes are free, and its losses stay in the totals."""
    stash, _ = make(run=3)
    stash.put("r", "o", "a", b"xxx", TEXT)
    stash.put("r", "o", "b", b"xxx", TEXT)
    stash.forget("r")
    stash.forget("r")
    assert Outcome.RUN_UNKNOWN == stash.get("r", "b")
    totals = stash.totals()
    assert (0, 0, 0, 0, 1) == (
        totals.runs, totals.entries, totals.held_bytes, totals.original_bytes, totals.lost[Cause.RUN_BUDGET],
    )  # fmt: skip


def test_tombstones_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run remembers the newest of its lost ids; the oldest become not found."""
    monkeypatch.setattr(stash_module, "RUN_TOMBSTONES", 2)
    stash, _ = make(run=1)
    for stash_id in "abcd":
        stash.put("r", "o", stash_id, b"x", TEXT)
    assert ["not_found", "evicted", "evicted"] == [stash.get("r", stash_id) for stash_id in "abc"]
    assert 3 == stash.figures("r").evicted


def test_entries_are_bounded_like_bytes() -> None:
    """Empty originals cost memory too: their number has budgets of its own."""
    stash = Stash(100, 100, 60.0, Clock(), run_entries=2, total_entries=3)
    for run in "rs":
        for stash_id in "abc":
            stash.put(run, run, stash_id, b"", TEXT)
    assert (1, 2) == (stash.figures("r").entries, stash.figures("s").entries)
    assert {Cause.EXPIRED: 0, Cause.RUN_BUDGET: 2, Cause.TOTAL_BUDGET: 1} == stash.totals().lost


def test_a_clock_that_steps_back_kills_nothing() -> None:
    """Time never runs backwards inside the stash."""
    stash, clock = make()
    clock.now = 100
    stash.put("r", "o", "a", b"x", TEXT)
    clock.now = 0
    stash.put("r", "o", "b", b"x", TEXT)
    assert 0 == stash.sweep()
    clock.now = 159
    assert isinstance(stash.get("r", "b"), StoredOriginal)


@pytest.mark.parametrize("size", [COMPRESS_FROM - 1, COMPRESS_FROM, 10_000, COMPRESS_AT_ONCE, COMPRESS_AT_ONCE + 1])
def test_compression_changes_no_byte(size: int) -> None:
    """Before and after compression the same bytes come back; held bytes shrink from the threshold on."""
    stash, _ = make(total=10_000_000, run=10_000_000)
    original = lines(size)
    stash.put("r", "o", "a", original, TEXT)
    assert StoredOriginal(original, TEXT) == stash.get("r", "a")
    stash.compress_some(10_000_000)
    assert StoredOriginal(original, TEXT) == stash.get("r", "a")
    figures = stash.figures("r")
    assert size == figures.original_bytes
    assert (figures.held_bytes < size) is (size >= COMPRESS_FROM)


def test_what_does_not_shrink_is_held_as_it_is() -> None:
    """Random bytes and images are not held compressed for nothing."""
    stash, _ = make(total=10_000, run=10_000)
    original = random.Random(1).randbytes(5_000)
    stash.put("r", "o", "a", original, TEXT)
    assert 5_000 == stash.compress_some()
    assert 0 == stash.compress_some()
    assert 5_000 == stash.figures("r").held_bytes
    assert StoredOriginal(original, TEXT) == stash.get("r", "a")


def test_waiting_for_compression_is_bounded() -> None:
    """Without a timer, puts compress the oldest themselves once enough waits; evicted ones no longer wait."""
    stash, _ = make(total=20_000_000, run=20_000_000)
    for number in range(60):
        stash.put("r", "o", str(number), lines(100_000), TEXT)
        assert stash.totals().waiting_bytes <= WAITING_BYTES
    assert 6_000_000 == stash.figures("r").original_bytes
    assert stash.figures("r").held_bytes < 4_800_000
    stash.forget("r")
    assert (0, 0) == (stash.totals().waiting_bytes, stash.totals().held_bytes)
    assert 0 == stash.compress_some()


def test_threads_agree() -> None:
    """Put, get, compress and sweep from four threads: no wrong byte, and the figures add up."""
    stash, _ = make(total=400_000, run=200_000)
    failures: list[str] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(300):
            number = chance.randrange(40)
            run = f"run-{number % 4}"
            original = lines(1_000 + 500 * number)
            stash.put(run, run, str(number), original, TEXT)
            answer = stash.get(run, str(number))
            if isinstance(answer, StoredOriginal) and answer.original != original:
                failures.append(str(number))
            stash.compress_some(chance.randrange(20_000))
            stash.sweep()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failures
    totals = stash.totals()
    figures = [stash.figures(f"run-{number}") for number in range(4)]
    assert totals.held_bytes == sum(each.held_bytes for each in figures)
    assert totals.original_bytes == sum(each.original_bytes for each in figures)
    assert totals.held_bytes <= 400_000
    assert max(each.held_bytes for each in figures) <= 200_000


def test_runs_that_were_forgotten_leave_nothing() -> None:
    """However many runs come and are forgotten within a time to live, no note of them piles up."""
    stash, clock = make()
    stash.put("kept", "o", "id", b"original", TEXT)
    for number in range(100):
        stash.put(f"{number}", "o", "id", b"original", TEXT)
        stash.forget(f"{number}")
        assert len(stash._deadlines) <= 2  # noqa: SLF001 - what is kept is the point
    clock.now = 60
    while stash.sweep():
        pass
    assert (0, 1) == (stash.totals().entries, stash.totals().lost[Cause.EXPIRED])
    assert 0 == len(stash._deadlines)  # noqa: SLF001


def test_the_last_run_that_is_forgotten_leaves_nothing() -> None:
    """Nor does what was noted of the others, as no memory goes back to the system with something left in it."""
    stash, _ = make()
    for number in range(10):
        stash.put(f"{number}", "o", "id", b"original", TEXT)
    for number in range(10):
        stash.forget(f"{number}")
    assert 0 == len(stash._deadlines)  # noqa: SLF001 - what is kept is the point
