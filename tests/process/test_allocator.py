"""Threads share a few of glibc's arenas, unless the environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from prompt_sidecar.calls.memory import MemoryGate
from prompt_sidecar.process.allocator import ARENAS, free_blocks, share_arenas
from prompt_sidecar.telemetry.readings import process

_BLOCK: Final = 60_000
"""Bytes: more than the interpreter's own allocator takes, and less than what the C library maps by itself."""

ALLOCATING: Final = """
import ctypes, threading
from prompt_sidecar.process.allocator import share_arenas

shared = share_arenas()
together = threading.Barrier(12)

def allocate():
    together.wait()
    blocks = [bytes(1_000 + size) for size in range(1_000)]
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
print(shared)
"""


def _arenas(**variables: str) -> tuple[bool, int]:
    """Whether arenas are shared, and how many twelve threads have."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
    }
    command = [sys.executable, "-c", ALLOCATING]
    done = subprocess.run(
        command, env=environment | {"PYTHONMALLOC": "malloc"} | variables, capture_output=True, text=True, check=True
    )
    return done.stdout.strip() == "True", done.stderr.count("Arena ")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is looked at")
def test_threads_share_arenas() -> None:
    """As many as the sidecar sets; the environment's number where it has one."""
    if not share_arenas() and "MALLOC_ARENA_MAX" not in os.environ:
        pytest.skip("the C library is not glibc")
    assert (True, ARENAS) == _arenas()
    assert (False, 5) == _arenas(MALLOC_ARENA_MAX="5")
    assert (False, 4) == _arenas(GLIBC_TUNABLES="glibc.malloc.arena_max=4")


def test_free_blocks_are_known() -> None:
    """What is freed below a block in use stays with the C library, which says so."""
    blocks = [bytearray(_BLOCK) for _ in range(200)]
    above = bytearray(_BLOCK)
    before = free_blocks()
    del blocks
    kept = free_blocks() - before
    assert above
    assert 0 == before or kept > 100 * _BLOCK  # 0: another C library


def test_free_blocks_are_a_figure_of_the_process() -> None:
    """Next to what is resident."""
    found = process(MemoryGate().figures())
    assert {("resident",), ("baseline",), ("limit",), ("free",)} == set(found)
    assert (0 == free_blocks()) == (0 == found["free",])
