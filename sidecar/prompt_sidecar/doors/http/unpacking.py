"""A compressed body is unpacked in worker threads, with memory for what it becomes before it becomes it.

Nobody knows how large it will be. So it counts as a small piece of work for its first megabyte, and as a large one from
there on; and as it grows, so does what is reserved of the process's memory for all that is made of it.
"""

from __future__ import annotations

from prompt_sidecar.calls.call_pool import LARGE
from prompt_sidecar.calls.work import CallWorkers
from prompt_sidecar.doors.http.encodings import PackedBody


async def unpacked(
    work: CallWorkers, body: bytes, encoding: str, most: int, copies: int, *, padded: bool = False
) -> bytes | None:
    """Return a body without its encoding; None: it has none that is known, or is damaged.

    Args:
        work: runs it.
        body: as it came.
        encoding: the one that it is said to have.
        most: as of `PackedBody`; what is returned may have a byte more.
        copies: times that what it becomes is in memory.
        padded: as of `PackedBody`.

    Raises:
        TooLarge: there is no memory for what it becomes; reading has ended.
        CallCancelled: the agent has gone.
    """
    with work.shared.use_cases.memory.growing() as reserved:
        packed = PackedBody(body, encoding, most, padded=padded, hold=lambda size: reserved.resize(copies * size))
        await work.run_whole(lambda: packed.go_on(LARGE, work.go_on), size=len(body))
        if not packed.over:
            await work.run_whole(lambda: packed.go_on(most + 1, work.go_on), size=most)
        return packed.plain()
