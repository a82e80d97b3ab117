"""Decompresses a body in worker threads, and reserves the memory for the result before each step.

The decompressed size is not known in advance. So it counts as a small piece of work for its first megabyte, and as a
large one beyond; and as the result grows, so does the memory reserved for processing it.
"""

from __future__ import annotations

from prompt_sidecar.calls.call_pool import LARGE
from prompt_sidecar.calls.work import CallWorkers
from prompt_sidecar.doors.http.encodings import PackedBody


async def unpacked(
    work: CallWorkers, body: bytes, encoding: str, most: int, copies: int, *, padded: bool = False
) -> bytes | None:
    """Return a decompressed body; None if its encoding is unknown, or it is damaged.

    Args:
        work: runs functions in worker threads.
        body: the bytes received.
        encoding: its content encoding, by its headers.
        most: as of `PackedBody`; the result may have a byte more.
        copies: how many times the result is in memory.
        padded: as of `PackedBody`.

    Raises:
        TooLarge: there is no memory for the result; decompression has ended.
        CallCancelled: the agent has disconnected.
    """
    with work.shared.use_cases.memory.growing() as reserved:
        packed = PackedBody(body, encoding, most, padded=padded, hold=lambda size: reserved.resize(copies * size))
        await work.run_whole(lambda: packed.go_on(LARGE, work.go_on), size=len(body))
        if not packed.over:
            await work.run_whole(lambda: packed.go_on(most + 1, work.go_on), size=most)
        return packed.plain()
