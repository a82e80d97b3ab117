"""The stash by itself: originals in and out, before and after they are compressed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter, time

from prompt_sidecar.recall.holding import COMPRESS_FROM, Held
from prompt_sidecar.recall.stash import COMPRESS_AT_ONCE, WAITING_BYTES, Stash
from tests.lab.harness.figures import Section
from tests.lab.harness.synthetic import Writer

SIZES = (500, 2_000, 10_000, 50_000, 1_000_000)
MIB = 1024 * 1024


def stash(rounds: int) -> Section:
    """Tell what an original costs on its way in, raw and compressed out, and what compression saves."""
    rows = []
    facts: dict[str, object] = {}
    for size in SIZES:
        count = max(min(rounds * 20, WAITING_BYTES // size - 1), 3)
        figures = _figures([Writer(number).text(size).encode() for number in range(count)])
        smaller = figures.pop("smaller")
        rows.append([f"{size:,}", *(f"{value * 1e6:,.1f}" for value in figures.values()), f"{smaller:.2f}x"])
        facts[str(size)] = {name: round(value * 1e6, 2) for name, value in figures.items()} | {
            "smaller": round(smaller, 3)
        }
    return Section(
        "stash",
        "Stash: microseconds for each original, medians",
        ["bytes", "put", "get, raw", "compress, in the background", "get, compressed", "smaller by"],
        rows,
        facts,
        [
            f"from {COMPRESS_FROM:,} bytes originals are compressed (zstd 1) by housekeeping, not by the call",
            f"from {COMPRESS_AT_ONCE:,} bytes at once, which the put then takes",
        ],
    )


def _figures(originals: list[bytes]) -> dict[str, float]:
    """Seconds of each step for one original, and by what factor compression makes them smaller."""
    held = Stash(256 * MIB, 256 * MIB, 3_600, time)
    ids = [f"id-{number}" for number in range(len(originals))]

    def put(stash_id: str, original: bytes) -> None:
        held.put("run", "owner", stash_id, original, "text/plain")

    puts = [_timed(partial(put, *pair)) for pair in zip(ids, originals, strict=True)]
    raw = [_timed(partial(held.get, "run", stash_id)) for stash_id in ids]
    began = perf_counter()
    held.compress_some(1 << 40)
    squeezed = (perf_counter() - began) / len(originals)
    packed = [_timed(partial(held.get, "run", stash_id)) for stash_id in ids]
    last = held.get("run", ids[-1])
    assert isinstance(last, Held)
    assert last.original == originals[-1]
    totals = held.totals()
    return {
        "put_us": median(puts),
        "get_us": median(raw),
        "compress_us": squeezed,
        "get_compressed_us": median(packed),
        "smaller": totals.original_bytes / totals.held_bytes,
    }


def _timed(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began
