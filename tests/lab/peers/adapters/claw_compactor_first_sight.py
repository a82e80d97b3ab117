"""Claw Compactor on each result when it is new: `FusionEngine.compress_messages` with its defaults."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

from tests.lab.peers.adapters.first_sight import each_result
from tests.lab.peers.adapters.wire import Ending, Job, Message, Trimmed, serve


def claw_compactor(job: Job, _: list[Message], __: Ending) -> Iterator[Trimmed]:
    """Compress each result, all by one engine."""
    engine: Any = importlib.import_module("claw_compactor.fusion.engine").FusionEngine()

    def compress(messages: list[Message]) -> Sequence[Message]:
        made: Sequence[Message] = engine.compress_messages(messages)["messages"]
        return made

    return each_result(job, compress)


if __name__ == "__main__":
    serve(f"claw-compactor {version('claw-compactor')}", claw_compactor)
