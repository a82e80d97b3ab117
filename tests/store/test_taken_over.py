"""A long run that a replica takes over: it answers searches from what it has indexed so far, and says what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from prompt_sidecar.facts.archived import Original
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.recall_calls import SearchCall
from prompt_sidecar.recall.found import SearchQuery, SearchResult
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.store.shared import SharedPlace
from prompt_sidecar.v1 import search_pb2, trim_pb2
from tests.cli.running import PATIENCE
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, body, history, result_text, send
from tests.promises.engine import CALLER, RUN_ID, Engine
from tests.store.sharing import Stepped, Valkey, one_kind, replica
from tests.store.test_killed import Replica, shared

ITERATIONS = 150
QUERY = "value_3 module_140 unused"
LONG = 3_000
"""Iterations of a run of 8 MB, of which no machine indexes all in the half second that a search has for it."""


def grown(valkey: Valkey) -> Engine:
    """A replica that has seen a run and has written all of it."""
    engine, archive = replica(valkey)
    send(engine, OPENAI_CHAT, ITERATIONS)
    archive.drain()
    return engine


def hurried(engine: Engine, query: str = QUERY) -> SearchResult:
    """A search whose caller has no time left: it indexes a step and answers."""
    return engine.runs.recalling.search(SearchCall(CALLER, RUN_ID, SearchQuery(query), seconds=0.0), lambda: None)


def comparable(found: SearchResult) -> SearchResult:
    """What is found, without the nonce, and without what only the replica that was sent the prompt knows of it."""
    snippets = [replace(snippet, tokens=0) for snippet in found.snippets]
    return replace(found, rendered="", rendered_tokens=0, snippets=snippets)


def expected_of(valkey: Valkey) -> SearchResult:
    """What a replica answers that indexes all that is stored at once."""
    engine, _ = replica(valkey)
    return comparable(engine.search(QUERY))


@one_kind
def test_each_search_gets_further(valkey: Valkey) -> None:
    """Retries that have no time end with what a replica finds that had all the time; the store is read once."""
    grown(valkey)
    expected = expected_of(valkey)
    second, archive = replica(valkey)
    left = []
    while (found := hurried(second)).not_indexed_items:
        assert "not indexed yet: search again" in found.message
        left.append(found.not_indexed_items)
        assert len(left) < 10_000
    assert left == sorted(left, reverse=True)
    assert len(left) > 10
    assert expected == comparable(found)
    before = archive.store
    hurried(second)
    assert before == archive.store


def test_the_rest_is_indexed_between_calls(valkey: Valkey) -> None:
    """After a search the background fetches and indexes all that is left, and needs the run's lock for none of it."""
    grown(valkey)
    expected = expected_of(valkey)
    second, _ = replica(valkey)
    assert hurried(second).not_indexed_items
    run = second.runs.table.known(CALLER, RUN_ID)
    assert run is not None
    with run.lock:
        while second.runs.work_off():
            pass
    assert 0 == run.history.waiting_bytes
    assert expected == comparable(hurried(second))


def test_an_id_is_found_at_once(valkey: Valkey) -> None:
    """A call's id and a stash id find their items in the first search that has no time."""
    first = grown(valkey)
    snippet = first.search(f"call_{ITERATIONS - 1}").snippets[0]
    for name in (f"call_{ITERATIONS - 1}", snippet.item.stash_id):
        second, _ = replica(valkey)
        found = hurried(second, name)
        assert found.not_indexed_items
        assert snippet.item.stash_id in [one.item.stash_id for one in found.snippets]
        assert 0 == found.gone_items


def test_a_run_that_was_forgotten_is_not_fetched(valkey: Valkey) -> None:
    """Nothing of a run that was ended is read in the background any more."""
    grown(valkey)
    second, archive = replica(valkey)
    hurried(second)
    second.runs.end(CALLER, RUN_ID)
    archive.drain()
    before = archive.store
    while second.runs.work_off():
        pass
    assert before == archive.store
    assert 0 == second.runs.totals().stash.entries


class LatePlace(SharedPlace):
    """A run's place whose originals come after something else has happened."""

    __slots__ = ()

    def originals(self, stash_ids: Sequence[str]) -> Mapping[str, Original]:
        """As they are stored."""
        found = super().originals(stash_ids)
        assert isinstance(self._archive, Late)
        self._archive.meanwhile()
        return found


class Late(Stepped):
    """An archive that takes its time with originals."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def find(self, run_key: bytes, caller_key: bytes) -> SharedPlace:
        """See `Archive.find`."""
        return LatePlace(self, super().find(run_key, caller_key).run)


ENDS: Mapping[str, Callable[[Engine], object]] = {
    "ended": lambda engine: engine.runs.end(CALLER, RUN_ID),
    "forgotten": lambda engine: send(engine, OPENAI_CHAT, 1, run_id="another"),
    "begun again": lambda engine: (engine.runs.end(CALLER, RUN_ID), send(engine, OPENAI_CHAT, 1)),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("retrieved", [False, True])
def test_originals_that_come_too_late_are_not_kept(
    valkey: Valkey, end: Callable[[Engine], object], *, retrieved: bool
) -> None:
    """Nobody would forget what is fetched for a run that is over by then, and another of its name must not have it."""
    first = grown(valkey)
    name = f"call_{ITERATIONS - 1}"
    stash_id = first.search(name).snippets[0].item.stash_id
    archive = Late(valkey.url)
    second = Engine(limit=LIMIT, policy=ROOM, archive=archive, limits=Limits(runs=1))
    after = Engine(limit=LIMIT, policy=ROOM, limits=Limits(runs=1))
    send(after, OPENAI_CHAT, 1)
    end(after)
    archive.meanwhile = partial(end, second)
    if retrieved:
        assert Outcome.HIT != second.retrieve(stash_id).outcome
    else:
        hurried(second, name)
    expected, found = after.runs.stash.totals(), second.runs.stash.totals()
    assert (expected.runs, expected.entries) == (found.runs, found.entries)


@one_kind
def test_real_servers(valkey: Valkey, tmp_path: Path) -> None:
    """A server dies with a run of 8 MB: the next one's first search says what it left out, and a later one finds it."""
    with ExitStack() as stack:
        first = Replica(stack, tmp_path / "first", **shared(valkey))
        second = Replica(stack, tmp_path / "second", **shared(valkey))
        raw = body(OPENAI_CHAT, history(OPENAI_CHAT, LONG))
        assert len(raw) > 8_000_000
        prompt = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=raw)
        first.stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id="r", json=prompt, context_window=200_000))
        first.kill()

        query = f"module_{LONG - 1} value_{LONG - 1}"
        asked = search_pb2.SearchHistoryRequest(run_id="r", query=query, snippet_tokens=2_000)
        found = second.stub.SearchHistory(asked, timeout=PATIENCE)
        assert found.not_indexed_items
        assert LONG == found.last_not_indexed_iteration
        assert "not indexed yet" in found.message
        assert found.last_iteration < found.first_not_indexed_iteration
        while found.not_indexed_items:
            left = found.not_indexed_items
            found = second.stub.SearchHistory(asked)
            assert found.not_indexed_items < left
        assert search_pb2.SEARCH_OUTCOME_FOUND == found.outcome
        assert result_text(LONG - 1) in [snippet.text for snippet in found.snippets]
        assert (1, LONG) == (found.first_iteration, found.last_iteration - 1)
