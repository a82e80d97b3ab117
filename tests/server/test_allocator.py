"""What the sidecar sets in glibc's allocator, unless the environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from prompt_sidecar.server.allocator import ARENAS, LARGE_BYTES, map_large_blocks, share_arenas

ALLOCATING: Final = """
import ctypes, threading
from prompt_sidecar.server.allocator import share_arenas

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


FREEING: Final = """
import ctypes
from prompt_sidecar.server.allocator import map_large_blocks

done = map_large_blocks()
del (block := [bytearray(16_000_000)])[:]  # glibc would take this for the size of a large block from now on
blocks = [bytearray(SIZE) for _ in range(16)]
ctypes.CDLL(None).malloc_stats()
print(done)
"""


def _mapped(size: int, **variables: str) -> tuple[bool, int]:
    """Whether large blocks are mapped, and how many blocks at most were, of 16 of one size behind a larger one."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))
    }
    command = [sys.executable, "-c", FREEING.replace("SIZE", str(size))]
    done = subprocess.run(
        command, env=environment | {"PYTHONMALLOC": "malloc"} | variables, capture_output=True, text=True, check=True
    )
    most = next(line for line in done.stderr.splitlines() if line.startswith("max mmap regions"))
    return done.stdout.strip() == "True", int(most.split("=")[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is looked at")
def test_large_blocks_are_mapped_whatever_was_freed_before() -> None:
    """Each by itself, so that each goes back when it is freed; smaller ones are not."""
    if not map_large_blocks() and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        pytest.skip("the C library is not glibc")
    done, most = _mapped(LARGE_BYTES)
    assert done
    assert most >= 16
    assert _mapped(LARGE_BYTES // 2)[1] < 16
    assert (False, True) == ((found := _mapped(LARGE_BYTES, MALLOC_MMAP_THRESHOLD_="33554432"))[0], found[1] < 16)
