"""A proxy that passes each reply of a server on so many seconds later, without slowing what is behind it in the queue.

`python -m tests.lab.bench.delaying PORT SECONDS` prints its own port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import PIPE, Popen

from tests.lab.bench.processes import PATIENCE, ROOT

PIECE = 65_536


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Copy one direction until its end."""
    loop, waiting = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def write() -> None:
        while True:
            due, piece = await waiting.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                return
            writer.write(piece)
            await writer.drain()

    writing = asyncio.create_task(write())
    with suppress(OSError):
        while piece := await reader.read(PIECE):
            waiting.put_nowait((loop.time() + seconds, piece))
    waiting.put_nowait((loop.time() + seconds, b""))
    with suppress(OSError):
        await writing
    writer.close()


async def serve(port: int, seconds: float) -> None:
    """Serve until standard input ends."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copied(reader, there_writer, 0.0), _copied(there_reader, writer, seconds))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """Run the proxy of a port in a process of its own; its port."""
    command = [sys.executable, "-m", "tests.lab.bench.delaying", str(port), str(seconds)]
    with Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield int(process.stdout.readline())
        process.stdin.close()
        process.wait(PATIENCE)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
