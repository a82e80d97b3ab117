"""What control groups allow and hold back is read, of either version, wherever the process stands in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from prompt_sidecar.process.cgroups import memory_limit, processor


@pytest.mark.parametrize(
    ("content", "limit"),
    [("268435456\n", 268_435_456), ("max\n", 0), ("9223372036854771712\n", 0), ("nonsense", 0), (None, 0)],
)
@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_the_containers_limit(file: str, content: str | None, limit: int, tmp_path: Path) -> None:
    """As either version of cgroups tells it; none where it says that there is none, or says nothing."""
    (tmp_path / "memory").mkdir()
    if content is not None:
        (tmp_path / file).write_text(content, encoding="ascii")
    assert limit == memory_limit(tmp_path, tmp_path / "missing")


@pytest.mark.parametrize(
    ("own", "limit"),
    [
        ("0::/system.slice/sidecar.service\n", 300_000_000),
        ("9:cpu:/system.slice\n4:memory,hugetlb:/agents/one\n", 100_000_000),
        ("9:cpu:/agents\n0::/\n", 0),
        ("0::/../../elsewhere\n", 0),
        ("not a group\n", 0),
    ],
)
def test_the_limit_of_a_service(own: str, limit: int, tmp_path: Path) -> None:
    """MemoryMax of systemd is in the service's own group, and a group above it may allow less."""
    for file, content in {
        "system.slice/sidecar.service/memory.max": "1342177280",
        "system.slice/memory.max": "300000000",
        "memory/agents/one/memory.limit_in_bytes": "100000000",
        "memory/agents/memory.limit_in_bytes": "9223372036854771712",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content + "\n", encoding="ascii")
    groups = tmp_path / "own"
    groups.write_text(own, encoding="ascii")
    assert limit == memory_limit(tmp_path, groups)


@pytest.mark.parametrize(
    ("files", "own", "limit", "throttled"),
    [
        ({"cpu.max": "150000 100000", "cpu.stat": "usage_usec 9\nthrottled_usec 2500000"}, "", 1.5, 2.5),
        ({"cpu.max": "max 100000", "cpu.stat": "usage_usec 9"}, "", 0.0, 0.0),
        (
            {
                "cpu/cpu.cfs_quota_us": "50000",
                "cpu/cpu.cfs_period_us": "100000",
                "cpu/cpu.stat": "throttled_time 7000000",
            },
            "",
            0.5,
            0.007,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "", 0.0, 0.0),
        ({"pods/cpu.max": "200000 100000", "pods/one/cpu.max": "max 100000"}, "0::/pods/one\n", 2.0, 0.0),
        ({"cpu/one/cpu.cfs_quota_us": "300", "cpu/one/cpu.cfs_period_us": "100"}, "3:cpu,cpuacct:/one\n", 3.0, 0.0),
        ({"cpu.max": "1 0", "cpu.stat": "throttled_usec"}, "", 0.0, 0.0),
        ({"cpu.max": "", "cpu.stat": "\u0000"}, "0::/../..\n", 0.0, 0.0),
    ],
    ids=["v2", "no limit", "v1", "v1, no limit", "above", "v1, own group", "nonsense", "empty"],
)
def test_the_processor(files: dict[str, str], own: str, limit: float, throttled: float, tmp_path: Path) -> None:
    """Cores by the least limit on the way up; seconds that the group was stopped; zeros where nothing is said."""
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content + "\n", encoding="ascii")
    groups = tmp_path / "own"
    groups.write_text(own, encoding="ascii")
    found = processor(tmp_path, groups)
    assert (limit, throttled) == pytest.approx((found.limit, found.throttled))
