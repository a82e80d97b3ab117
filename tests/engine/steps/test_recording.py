"""The record: everything that was said is found, whether or not it was trimmed, and nothing else is."""

from __future__ import annotations

import json

import pytest

from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.recall_calls import SearchCall
from prompt_sidecar.facts.task_calls import CreateTasksCall
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall.found import SearchOutcome, SearchQuery, SearchResult
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.outcome import Outcome
from tests.engine.runs.making import (
    FORMATS,
    LIMIT,
    OPENAI_CHAT,
    ROOM,
    Engine,
    body,
    grown,
    history,
    result_text,
    send,
)
from tests.promises.engine import CALLER, RUN_ID

formats = pytest.mark.parametrize("format", FORMATS)
TO_LIVE = Limits().time_to_live


@formats
def test_every_result_is_found_and_fetched_whole(format: str) -> None:
    """Each result of the run is found by its words and fetched by its id: by a snippet, or named as in the prompt."""
    engine, answer = grown(format, 12)
    trimmed = {trim.stash_id for trim in answer.trimmed.trims}
    found_trimmed = 0
    for number in range(12):
        found = engine.search(f"value_{number} unused name", roles=frozenset({Role.TOOL}))
        item = best(found, number + 1)
        assert (SearchOutcome.FOUND, "read") == (found.outcome, item.tool)
        assert result_text(number).encode() == engine.original(item.stash_id)
        assert (item.stash_id in trimmed) == (found.snippets[0].item is item)
        found_trimmed += item.stash_id in trimmed
    assert 0 < found_trimmed < 12


def best(found: SearchResult, iteration: int) -> HistoryItem:
    """The item of that iteration, which stands first: among the snippets, or among what is in the prompt."""
    firsts = [*(one.item for one in found.snippets[:1]), *(one.item for one in found.in_prompt[:1])]
    (item,) = (first for first in firsts if first.iteration == iteration)
    return item


@formats
def test_calls_and_texts_are_found(format: str) -> None:
    """A call is found by its arguments, what the model said and what the user asked by their words."""
    engine, _ = grown(format, 12)
    call = engine.search("module_3.py", roles=frozenset({Role.ASSISTANT})).snippets[0].item
    assert (ItemKind.ARGUMENTS, "read", 4, "call_3") == (call.kind, call.tool, call.iteration, call.call_id)
    snippet = engine.search("Step 2", roles=frozenset({Role.ASSISTANT})).snippets[0]
    assert ("Step 2: I read the next module.", ItemKind.TEXT, 3) == (
        snippet.text,
        snippet.item.kind,
        snippet.item.iteration,
    )
    asked = engine.search("Find the bug").snippets[0]
    assert (Role.USER, "Find the bug.") == (asked.item.role, asked.text)


@formats
def test_an_id_finds_its_item(format: str) -> None:
    """An exact stash id or call id as the query finds its item first."""
    engine, answer = grown(format, 12)
    trimmed = answer.trimmed.trims[0].stash_id
    assert trimmed == engine.search(trimmed).snippets[0].item.stash_id
    assert {"call_7"} == {snippet.item.call_id for snippet in engine.search("call_7").snippets[:2]}


@formats
def test_system_text_and_our_own_are_not_recorded(format: str) -> None:
    """Neither the agent's instructions nor anything that the sidecar wrote is found."""
    engine, answer = grown(format, 12)
    adopted = engine.trim(format, answer.prompt.body or b"")  # the agent goes on from what it got, our own text in it
    assert [] != adopted.prompt.own_text
    for words in ("You are careful", "registry elided clipped context window", "largest first"):
        assert SearchOutcome.NOTHING_FOUND == engine.search(words).outcome


@formats
def test_adopting_records_nothing_twice(format: str) -> None:
    """Trimmed messages that come back are known: nothing of them is a new item."""
    engine, answer = grown(format, 12)
    before = engine.figures().history.items
    engine.trim(format, answer.prompt.body or b"")
    assert before == engine.figures().history.items


@formats
def test_a_call_that_changes_nothing_records_nothing(format: str) -> None:
    """A dry run, a side call and an answer that would be too large leave the record as it was."""
    engine, _ = grown(format, 2)
    before = engine.figures().history
    send(engine, format, 3, dry_run=True)
    send(engine, format, 3, side_call=True)
    with pytest.raises(Exception, match="accepts"):
        send(engine, format, 12, accept_bytes=1_000)
    assert before == engine.figures().history


@formats
def test_a_rewritten_history_stays_searchable(format: str) -> None:
    """What an agent has taken out of its own history is found beside what took its place."""
    engine, _ = grown(format, 6)
    other = history(format, 6)
    other[-2:] = history(format, 7)[-2:]
    engine.trim(format, body(format, other))
    assert result_text(5).encode() == engine.original(engine.search("value_5 unused").snippets[0].item.stash_id)
    shown = max(engine.search("value_6 unused").snippets, key=lambda snippet: snippet.score)  # after what is hidden
    assert result_text(6).encode() == engine.original(shown.item.stash_id)


@formats
def test_what_expired_is_found_again_once_it_has_come_again(format: str) -> None:
    """Expired items are told as gone; the agent's next prompt brings them back, to be fetched and to be found."""
    engine, _ = grown(format, 6)
    assert SearchOutcome.FOUND == engine.search("value_2 unused").outcome
    engine.clock.now += TO_LIVE + 1
    gone = engine.search("value_2 unused")
    assert SearchOutcome.NOTHING_FOUND == gone.outcome
    assert gone.gone_items > 0
    send(engine, format, 7)
    again = engine.search("value_2 unused")
    assert result_text(2).encode() == engine.original(again.snippets[0].item.stash_id)


@formats
def test_a_run_that_was_not_seen_is_unknown(format: str) -> None:
    """Recall of a run whose prompt has not come is RUN_UNKNOWN, also where it has tasks already."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    assert SearchOutcome.RUN_UNKNOWN == engine.search("anything").outcome
    engine.runs.recalling.create_tasks(CreateTasksCall(CALLER, RUN_ID, ["one"]))
    assert SearchOutcome.RUN_UNKNOWN == engine.search("anything").outcome
    assert Outcome.RUN_UNKNOWN == engine.retrieve("abcdefghjk").outcome
    send(engine, format, 1)
    assert SearchOutcome.FOUND == engine.search("module_0.py").outcome


@formats
def test_another_callers_run_is_not_searched(format: str) -> None:
    """The same run id of another caller is another run."""
    engine, _ = grown(format, 3)
    engine.trim(format, body(format, history(format, 0)), caller="other")
    call = SearchCall("other", engine.run_id, SearchQuery("warning"))
    assert SearchOutcome.NOTHING_FOUND == engine.runs.recalling.search(call, lambda: None).outcome
    assert SearchOutcome.FOUND == engine.search("warning").outcome


def test_indexing_goes_on_in_the_background() -> None:
    """Slices of background work index all that waits; a search then has nothing left to index."""
    engine, _ = grown(OPENAI_CHAT, 12)
    assert engine.figures().history.waiting_bytes > 0
    while engine.runs.work_off():
        pass
    figures = engine.figures().history
    assert (0, True) == (figures.waiting_bytes, figures.passages > 0)


def test_the_memory_budget_drops_the_index_first_and_loses_nothing() -> None:
    """A run that must give up its caches makes its index again at the next search."""
    engine = Engine(limit=LIMIT, policy=ROOM, limits=Limits(memory_bytes=1_048_576))
    send(engine, OPENAI_CHAT, 12)
    assert SearchOutcome.FOUND == engine.search("value_2").outcome
    for number in range(40):
        text = json.dumps([{"role": "user", "content": f"other run {number} " + "x" * 40_000}]).encode()
        engine.trim(OPENAI_CHAT, text, run_id=f"other-{number}", context_window=100_000)
    assert 0 == engine.figures().history.passages
    found = engine.search("value_2 unused")
    assert result_text(2).encode() == engine.original(found.snippets[0].item.stash_id)
