"""The seam by the wire: the texts as tool results of one run, searched by `SearchHistory` of a real server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from prompt_sidecar.v1 import search_pb2, trim_pb2
from prompt_sidecar.v1.conversation_pb2 import ROLE_TOOL
from tests.doors.grpc.serving import Serving, request, serving
from tests.lab.retrieval.search import SHOWN, Search

_WINDOW: Final = 100_000_000
"""Tokens: nothing is to be trimmed here; search is the same either way."""
_DEADLINE: Final = 60.0
"""Seconds for a call: the first search waits until all is indexed."""


def history(texts: Sequence[str]) -> bytes:
    """A run in OpenAI's chat format whose tool results are the texts; the call ids are their numbers."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read the files."}]
    for number, text in enumerate(texts):
        call = {"id": _call(number), "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": _call(number), "content": text})
    return json.dumps(messages).encode()


@contextlib.contextmanager
def by_server(runs: Sequence[Sequence[str]]) -> Iterator[list[Search]]:
    """A search of each run's texts through one server."""
    with serving() as served:
        yield [_search(served, f"run-{number}", texts) for number, texts in enumerate(runs)]


def _search(served: Serving, run_id: str, texts: Sequence[str]) -> Search:
    prompt: trim_pb2.TrimPromptRequest = request(run_id, history(texts))
    prompt.context_window = _WINDOW
    served.stub.TrimPrompt(prompt, timeout=_DEADLINE)
    numbers = {_call(number): number for number in range(len(texts))}

    def search(query: str) -> Sequence[int]:
        asked = search_pb2.SearchHistoryRequest(run_id=run_id, query=query, roles=[ROLE_TOOL], max_snippets=SHOWN)
        while (answer := served.stub.SearchHistory(asked, timeout=_DEADLINE)).not_indexed_items:
            pass
        return [numbers[snippet.call_id] for snippet in answer.snippets]

    return search


def _call(number: int) -> str:
    return f"call_{number:05d}"
