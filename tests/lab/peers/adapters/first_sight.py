"""What an adapter that makes single results smaller does: each result as the last message, once, when it is new.

A prompt of the job ends with the result in question. The library is given what it needs to judge it, as a chat in
OpenAI's form: the last words of the user, the call, and the result. What it makes of the result is the whole prompt
that is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from tests.lab.peers.adapters.wire import Job, Message, Trimmed

Compress = Callable[[list[Message]], Sequence[Message]]
"""Returns the messages, as many as it is given."""


def each_result(job: Job, compress: Compress) -> Iterator[Trimmed]:
    """Compress the result at the end of each prompt of the job."""
    for length in job.lengths:
        *before, result = job.messages[:length]
        sent = [*_user(before), *_call(before, result), dict(result)]
        start = time.perf_counter()
        made = compress(sent)
        seconds = time.perf_counter() - start
        yield Trimmed([{**result, "content": made[-1]["content"]}], seconds, native=True)


def _user(before: Sequence[Message]) -> list[Message]:
    """The last message of the user."""
    return next(([dict(message)] for message in reversed(before) if message["role"] == "user"), [])


def _call(before: Sequence[Message], result: Message) -> list[Message]:
    """The call that a result answers, in a message of its own."""
    for message in reversed(before):
        for call in message.get("tool_calls") or ():
            if call["id"] == result["tool_call_id"]:
                return [{"role": "assistant", "content": "", "tool_calls": [call]}]
    return []
