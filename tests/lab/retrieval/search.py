"""The seam: texts in, a search over them out. In process by the index or by rank-bm25; by the wire by `SearchHistory`.

By the wire the texts are tool results of one run, and a real server searches them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import rank_bm25

from prompt_sidecar.prompt.items import Role
from prompt_sidecar.recall import analysis
from prompt_sidecar.recall.found import SearchLimits, SearchQuery
from prompt_sidecar.recall.index import Hit, Index
from prompt_sidecar.recall.ranking import Ranking, ranked, weigh
from prompt_sidecar.recall.rerank import CANDIDATES, Candidate, rerank, weights
from prompt_sidecar.v1 import search_pb2, trim_pb2
from prompt_sidecar.v1.conversation_pb2 import ROLE_TOOL
from tests.doors.grpc.serving import Serving, request, serving
from tests.recall.test_history import Recorder, no_check

Search = Callable[[str], Sequence[int]]
"""The numbers of the texts that a query finds, best first, each once."""
SHOWN: Final = 20
"""Texts that a query may find."""


def by_library(texts: Sequence[str], analyser: analysis.Analyser, *, plus: bool) -> Search:
    """Whole texts, ranked by rank-bm25: BM25Plus or BM25Okapi."""
    made = rank_bm25.BM25Plus if plus else rank_bm25.BM25Okapi
    library = made([analyser.terms(text) for text in texts])

    def search(query: str) -> Sequence[int]:
        scores = library.get_scores(analyser.terms(query))
        return sorted(range(len(texts)), key=lambda number: (-scores[number], -number))[:SHOWN]

    return search


def by_index(texts: Sequence[str], *, reranked: bool = True) -> Search:
    """Passages, ranked by our index; a text ranks as its best passage. `reranked`: with a second look at the best."""
    index, originals = Index(), [text.encode() for text in texts]
    for number, original in enumerate(originals):
        for _ in index.add(number, original, "text/plain"):
            pass

    def candidate(hit: Hit) -> Candidate:
        text = analysis.plain(originals[hit.item][hit.start : hit.end], "text/plain")
        return Candidate(hit.item, hit.passage, hit.score, text)

    def search(query: str) -> Sequence[int]:
        terms = analysis.query_terms(query)
        hits = index.best_of_items(terms, max(SHOWN, CANDIDATES)).hits
        found = [hit.item for hit in hits]
        if reranked:
            weighed = weights(terms, index.document_frequencies(terms), index.passages)
            again = rerank(weighed, [candidate(hit) for hit in hits[:CANDIDATES]])
            found[: len(again)] = [each.item for each in again]
        return found[:SHOWN]

    return search


def by_history(messages: Sequence[str]) -> Search:
    """Messages of a user and a model in turn, ranked by a history's search in this process."""
    run = Recorder(SearchLimits(index_bytes=_INDEX))
    for number, text in enumerate(messages):
        role = Role.ASSISTANT if number % 2 else Role.USER
        run.put(f"{number}", text, number // 2 + 1, tool="", role=role)
    run.finish()

    def search(query: str) -> Sequence[int]:
        asked = SearchQuery(query)
        weighed, _ = weigh(run.history, analysis.query_terms(query), SearchLimits().query_terms)
        found = ranked(run.history, asked, weighed, Ranking(), no_check)
        return [int(candidate.item.stash_id) for candidate in itertools.islice(found, SHOWN)]

    return search


_INDEX: Final = 1_000_000_000
"""Bytes: all of a conversation is searched."""
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
