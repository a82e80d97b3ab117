"""What stands beside a match is found with it: the result of a call, the answer to a question; long answers yield."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall.found import SearchQuery
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.lending import LENGTH, Lender, divisor, lent
from tests.recall.test_history import RUN, Recorder
from tests.recall.test_search import ask, ids


def _call(run: Recorder, call_id: str, arguments: str, result: str, iteration: int) -> None:
    """Record a call and its result."""
    raw = arguments.encode()
    name = f"{call_id}-call"
    run.stash.put(RUN, "owner", name, raw, "application/json")
    run.history.record(
        HistoryItem(
            name,
            Role.ASSISTANT,
            ItemKind.ARGUMENTS,
            "read",
            call_id,
            iteration,
            iteration,
            len(raw),
            "application/json",
        )
    )
    run.put(f"{call_id}-result", result, iteration, call_id=call_id)


def _talk(run: Recorder, *texts: str) -> None:
    """Record messages of user and model in turn; their ids are their places."""
    for place, text in enumerate(texts):
        role = Role.ASSISTANT if place % 2 else Role.USER
        run.put(f"{place}", text, place + 1, tool="", role=role)


def test_the_result_of_a_call_that_matches_comes_before_others() -> None:
    """Of results with the same words, that of the call for the path that is asked for, though it is older."""
    run = Recorder()
    _call(run, "first", '{"path": "src/harbour.py"}', "def load(value): return value", 1)
    _call(run, "second", '{"path": "src/orchard.py"}', "def load(value): return value or None", 2)
    found = ids(ask(run, "harbour load"))
    assert found.index("first-result") < found.index("second-result")


def test_the_answer_to_a_question_that_matches_is_found() -> None:
    """An answer without any word of the query is found beside the question, and its start is shown."""
    run = Recorder()
    _talk(run, "Hello.", "Hello to you.", "When was the harbour dredged?", "In March, by two ships.", "Thanks.", "Bye.")
    found = ask(run, "harbour dredged")
    assert ["2", "3", "1"] == ids(found)
    assert ("In March, by two ships.", 0.0) == (found.snippets[1].text, found.snippets[1].score)
    assert 3 == found.matching_items


def test_an_answer_is_held_to_the_filters() -> None:
    """What stands beside a match is left out where a filter leaves it out."""
    run = Recorder()
    _talk(run, "When was the harbour dredged?", "In March, by two ships.")
    assert ["0"] == ids(ask(run, SearchQuery("harbour", roles=frozenset({Role.USER}))))
    assert ["0"] == ids(ask(run, SearchQuery("harbour", last_iteration=1)))


def test_messages_with_a_call_between_are_no_neighbours() -> None:
    """Only messages that follow one another lend; results lend to no other result."""
    run = Recorder()
    run.put("asked", "When was the harbour dredged?", 1, tool="", role=Role.USER)
    _call(run, "call", "{}", "nothing here", 2)
    run.put("answered", "In March.", 3, tool="", role=Role.ASSISTANT)
    assert ["asked"] == ids(ask(run, "harbour"))


def test_calls_without_ids_are_no_pairs() -> None:
    """Results without a call id, as some formats have, lend nothing to each other."""
    run = Recorder()
    for place in range(3):
        run.put(f"{place}", f"harbour {place}", place + 1)
    assert ["2", "1", "0"] == ids(ask(run, "harbour"))


def test_a_long_answer_yields_to_a_short_message() -> None:
    """With the same words in its best passage, the long answer of the model comes second, though it is newer."""
    run = Recorder()
    short = "the harbour was dredged in March by two ships, which came from the north, and all were glad of it"
    run.put("short", short, 1, tool="", role=Role.USER)
    _call(run, "call", "{}", "nothing here", 2)
    long = "\n\n".join([short, *(" ".join(f"word{number}x{place}" for place in range(80)) for number in range(20))])
    run.put("long", long, 3, tool="", role=Role.ASSISTANT)
    assert ["short", "long"] == ids(ask(run, "harbour dredged"))
    run.put("result", long, 4, call_id="other")
    assert ids(ask(run, "harbour dredged")).index("result") < 2


@given(st.integers(0, 10_000), st.sampled_from(Role), st.sampled_from(ItemKind))
def test_only_long_answers_are_divided(passages: int, role: Role, kind: ItemKind) -> None:
    """By 1 + LENGTH ln(passages) if the model wrote the text, else by 1."""
    item = HistoryItem("id", role, kind, "", "", 1, 1, 10, "text/plain")
    answer = role is Role.ASSISTANT and kind is ItemKind.TEXT and passages > 1
    assert math.isclose(1 + LENGTH * math.log(passages) if answer else 1.0, divisor(item, passages))


def test_the_best_lender_counts_once() -> None:
    """Of several lenders the one whose share is largest, by its own score alone."""
    scores = {1: 5.0, 2: 4.0}
    lenders = {0: [Lender(1, 0.8), Lender(2, 0.3), Lender(3, 1.0)]}
    assert math.isclose(4.0, lent(0, scores, lenders))
    assert 0.0 == lent(5, scores, lenders)


@given(st.lists(st.sampled_from(["harbour", "dredged", "ships", "x", "y"]), min_size=2, max_size=12))
def test_a_rebuilt_index_ranks_alike(words: list[str]) -> None:
    """After the index was dropped and made again, and in another history of the same items, all scores are equal."""
    texts = [" ".join([*words[place:], f"own{place}"]) for place in range(len(words))]
    first, second = Recorder(), Recorder()
    for run in (first, second):
        _talk(run, *texts)
    found = ask(first, "harbour ships own1")
    first.history.drop_index()
    again = ask(first, "harbour ships own1")
    other = ask(second, "harbour ships own1")
    assert found.rendered == again.rendered == other.rendered
