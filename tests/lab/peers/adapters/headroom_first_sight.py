"""headroom on each result when it is new: `compress` with its defaults, or `densify`, its mode for live agents."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

from tests.lab.peers.adapters.first_sight import each_result
from tests.lab.peers.adapters.wire import Ending, Job, Message, Trimmed, serve

MODEL = "gpt-4o"


def headroom(job: Job, _: list[Message], __: Ending) -> Iterator[Trimmed]:
    """Compress each result by the function that the row names."""
    function: Any = getattr(importlib.import_module("headroom.compress"), job.options["function"])

    def compress(messages: list[Message]) -> Sequence[Message]:
        made: Sequence[Message] = function(messages, model=MODEL).messages
        return made

    return each_result(job, compress)


if __name__ == "__main__":
    serve(f"headroom-ai {version('headroom-ai')}", headroom)
