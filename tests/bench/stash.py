"""The stash by itself: originals in and out, before and after they are compressed."""

from __future__ import annotations

from statistics import median
from time import perf_counter, time

from sidecar.recall.holding import COMPRESS_FROM, Held
from sidecar.recall.stash import Stash
from tests.bench.figures import Section
from tests.bench.synthetic import Writer

SIZES = (500, 2_000, 10_000, 50_000, 1_000_000)
MIB = 1024 * 1024


def stash(rounds: int) -> Section:
    """Tell what an original costs on its way in, raw and compressed out, and what compression saves."""
    rows = []
    facts: dict[str, object] = {}
    for size in SIZES:
        count = max(min(rounds * 20, 20 * MIB // size), 5)
        originals = [Writer(number).text(size).encode() for number in range(count)]
        held = Stash(256 * MIB, 256 * MIB, 3_600, time)
        put = [
            _timed(lambda n=n: held.put("run", "owner", f"id-{n}", originals[n], "text/plain")) for n in range(count)
        ]
        raw = [_timed(lambda n=n: held.get("run", f"id-{n}")) for n in range(count)]
        before = held.totals().held_bytes
        began = perf_counter()
        while held.totals().waiting_bytes:
            held.compress_some()
        squeezed = (perf_counter() - began) / count
        after = held.totals().held_bytes
        packed = [_timed(lambda n=n: held.get("run", f"id-{n}")) for n in range(count)]
        last = held.get("run", f"id-{count - 1}")
        assert isinstance(last, Held) and last.original == originals[-1]
        figures = [median(put), median(raw), squeezed, median(packed)]
        rows.append([f"{size:,}", *(f"{value * 1e6:,.1f}" for value in figures), f"{before / after:.2f}x"])
        names = ("put_us", "get_us", "compress_us", "get_compressed_us")
        facts[str(size)] = dict(zip(names, (round(value * 1e6, 2) for value in figures), strict=True)) | {
            "smaller": round(before / after, 3)
        }
    return Section(
        "stash",
        "Stash: microseconds for each original, medians",
        ["bytes", "put", "get, raw", "compress, in the background", "get, compressed", "smaller by"],
        rows,
        facts,
        [f"originals of {COMPRESS_FROM:,} bytes and more are compressed (zstd 1) by housekeeping, not by the call"],
    )


def _timed(work: object) -> float:
    assert callable(work)
    began = perf_counter()
    work()
    return perf_counter() - began
