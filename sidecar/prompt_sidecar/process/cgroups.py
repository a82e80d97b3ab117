"""The limits of the process's control groups (Linux cgroups), and how often they were reached.

A container sees its own group as the root of the cgroup file system. A systemd service sees the machine's root, and
finds its own group by the path in `/proc/self/cgroup`; groups above it may have limits too. Both versions of cgroups
are read. Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst of Linux.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from prompt_sidecar.facts.totals import ProcessCpu

CGROUPS: Final = Path("/sys/fs/cgroup")
"""Where Linux mounts control groups."""
OWN_CGROUPS: Final = Path("/proc/self/cgroup")
"""Contains the paths of the process's own groups."""
_NO_LIMIT: Final = 1 << 60
"""Limits from this value on mean that there is none."""


def memory_limit(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return the lowest memory limit in bytes, or 0 if there is none."""
    limits = []
    for group in _groups("memory", cgroups, own):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # cgroup v2 has "max" if there is no limit
                limits.append(int((group / name).read_text(encoding="ascii")))
    return min((limit for limit in limits if limit < _NO_LIMIT), default=0)


def processor(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> ProcessCpu:
    """Return the lowest limit on processor time, and for how long it has throttled the process's group."""
    limits, throttled = [], 0.0
    for group in _groups("cpu", cgroups, own):
        limits.append(_cores(group))
        throttled = max(throttled, _throttled(group))
    return ProcessCpu(min((limit for limit in limits if limit > 0), default=0.0), throttled)


def _cores(group: Path) -> float:
    """Return the limit of one group in cores, or 0 if it has none."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)  # "max" is not a number
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period"))
        return max(int(quota) / int(period), 0.0)  # -1: there is no limit
    return 0.0


def _throttled(group: Path) -> float:
    """Return the seconds for which one group was throttled."""
    with suppress(OSError, ValueError):
        pairs = (line.split() for line in (group / "cpu.stat").read_text(encoding="ascii").splitlines())
        counts = {name: int(value) for name, value in pairs}
        if "throttled_usec" in counts:
            return counts["throttled_usec"] / 1e6
        return counts.get("throttled_time", 0) / 1e9  # cgroup v1, in nanoseconds
    return 0.0


def _groups(controller: str, cgroups: Path, own: Path) -> Iterator[Path]:
    """Yield the folders of the process's groups that have this controller, and of all above them."""
    named: list[str] = []
    with suppress(OSError):
        named = own.read_text(encoding="utf-8", errors="replace").splitlines()
    seen: set[Path] = set()
    for group in ("0::/", f"1:{controller}:/", *named):
        _, controllers, path = (*group.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        root = cgroups / controller if controllers else cgroups
        inside = root / path.lstrip("/")
        for folder in (inside, *inside.parents):
            if folder.is_relative_to(root) and folder not in seen:
                seen.add(folder)
                yield folder
