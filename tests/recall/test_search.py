"""Search as its caller sees it: what is found, in which order, what is refused, and what the answer says."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.recall.found import SearchLimits, SearchOutcome, SearchQuery, SearchResult
from prompt_sidecar.recall.search import search
from tests.recall.test_history import RUN, Recorder, no_check, text


def count(text: str) -> int:
    """Tokens, roughly."""
    return -(-len(text) // 3)


def ask(
    run: Recorder,
    query: SearchQuery | str,
    limits: SearchLimits | None = None,
    last_iteration: int = 9,
    visible: Iterable[str] = (),
) -> SearchResult:
    """Search a run."""
    numbers = itertools.count(482_113)
    return search(
        run.history,
        SearchQuery(query) if isinstance(query, str) else query,
        limits or SearchLimits(),
        last_iteration=last_iteration,
        count=count,
        nonce=lambda: f"{next(numbers)}",
        check=no_check,
        visible=frozenset(visible),
    )


def ids(found: SearchResult) -> list[str]:
    """What was found, best first."""
    return [snippet.item.stash_id for snippet in found.snippets]


def test_a_snippet_is_verbatim_with_its_place() -> None:
    """A snippet is quoted verbatim with where it stands, and the answer tells what was searched."""
    run = Recorder()
    original = "".join(f"line {number} of the log\n" for number in range(1, 200)) + "status: ENOENT at /etc/fstab\n"
    item = run.put("abcdefghjk", original, 3, call_id="call_9")
    run.put("other", "nothing of the kind", 4)
    found = ask(run, "ENOENT fstab")
    (snippet,) = found.snippets
    assert SearchOutcome.FOUND == found.outcome
    assert item == snippet.item
    assert original[snippet.start_byte : snippet.end_byte] == snippet.text
    assert "status: ENOENT at /etc/fstab\n" in snippet.text
    assert (200, 200) == (snippet.last_line, snippet.total_lines)
    assert original.count("\n", 0, snippet.start_byte) + 1 == snippet.first_line
    assert count(snippet.text) == snippet.tokens
    assert snippet.score > 0
    assert "1 of 1 matching item shown; iterations 1-9 were searched." == found.message
    assert (1, 1, 9, 0, 0) == (
        found.matching_items,
        found.first_iteration,
        found.last_iteration,
        found.gone_items,
        found.terms_left_out,
    )
    assert count(found.rendered) == found.rendered_tokens
    assert snippet.text in found.rendered
    assert found.rendered.startswith(found.message)


def test_nothing_found_is_reported() -> None:
    """The answer names what was searched, and that only something else would help."""
    run = Recorder()
    run.put("a", "alpha")
    found = ask(run, "omega")
    assert (SearchOutcome.NOTHING_FOUND, [], 0) == (found.outcome, ids(found), found.matching_items)
    assert (
        "Nothing found; iterations 1-9 were searched. The same query will find nothing again; other words might."
        == found.message
    )
    assert found.message == found.rendered
    filtered = ask(run, SearchQuery("alpha", roles=frozenset({Role.USER}), first_iteration=4, last_iteration=4))
    assert (
        "Nothing found; iteration 4 within the filters was searched. "
        "The same query will find nothing again; other words or wider filters might." == filtered.message
    )
    beyond = ask(run, SearchQuery("alpha", first_iteration=20))
    assert beyond.message.startswith("Nothing found; no such iteration is indexed, only 1-9. ")
    assert "no word" in ask(run, "of the").message
    assert SearchOutcome.NOTHING_FOUND == ask(Recorder(), "alpha").outcome


@pytest.mark.parametrize(
    ("query", "field", "accepted"),
    [
        (SearchQuery(""), "query", "1 to 4,096 bytes"),
        (SearchQuery(" \n\t"), "query", "1 to 4,096 bytes"),
        (SearchQuery("secret " * 150_000), "query", "1,050,000 bytes"),
        (SearchQuery("é" * 2_049), "query", "4,098 bytes"),
        (SearchQuery("x", max_snippets=51), "max_snippets", "1 to 50"),
        (SearchQuery("x", snippet_tokens=4_001), "snippet_tokens", "16 to 4,000"),
        (SearchQuery("x", snippet_tokens=15), "snippet_tokens", "16 to 4,000"),
        (SearchQuery("x", total_tokens=50_001), "total_tokens", "256 to 50,000"),
        (SearchQuery("x", total_tokens=255), "total_tokens", "256 to 50,000"),
        (SearchQuery("x", first_iteration=-1), "first_iteration", "1 or more"),
        (SearchQuery("x", first_iteration=7, last_iteration=6), "last_iteration", "7 (first_iteration) or more"),
    ],
)
def test_a_query_out_of_bounds_is_refused_by_name(query: SearchQuery, field: str, accepted: str) -> None:
    """What is out of its bounds is refused by name, with what is accepted, before any work and without its text."""
    run = Recorder()
    run.put("a", "secret")
    with pytest.raises(InvalidRequest, match="accepted") as refused:
        ask(run, query)
    assert field == refused.value.field
    assert accepted in refused.value.message
    assert "secret" not in refused.value.message
    assert 0 == run.reads


def test_of_many_terms_the_rarest_count() -> None:
    """Terms that stand nowhere take no room; of the others the commonest are left out, and the answer says so."""
    run = Recorder()
    for number in range(10):
        run.put(f"{number}", "common " + ("rare" if number == 4 else "filler"))
    limits = SearchLimits(query_terms=2)
    found = ask(run, "common filler unknown words everywhere rare", limits)
    assert (1, "4") == (found.terms_left_out, ids(found)[0])
    assert "The rarest terms of the query counted; 1 more did not." in found.message
    assert 0 == ask(run, "common rare unknown words", limits).terms_left_out


def test_equals_stand_by_recency() -> None:
    """Of items that match equally well the newest comes first."""
    run = Recorder()
    for number in (3, 1, 2):
        run.put(f"{number}", f"needle in stack{number}", number)
    assert ["3", "2", "1"] == ids(ask(run, "needle"))


def test_the_same_text_is_shown_once() -> None:
    """A result that came again and again takes one place, of the newest, and tells how many older ones there are."""
    run = Recorder()
    for number in range(7):
        run.put(f"{number}", "needle: all is well", number + 1)
    run.put("other", "needle: all is broken now", 4)
    found = ask(run, SearchQuery("needle", max_snippets=2))
    assert ["6", "other"] == ids(found)
    assert [6, 0] == [snippet.repeats for snippet in found.snippets]
    assert (8, "2 of 8 matching items shown; iterations 1-9 were searched.") == (found.matching_items, found.message)
    assert "also in 6 older items" in found.rendered


@pytest.mark.parametrize(
    "query",
    [
        "abcdefghjk",
        "  abcdefghjk ",
        "call_one",
        "what was [abcdefghjk]?",
        'result of "call_one", please',
        "id=abcdefghjk",
    ],
)
def test_an_exact_id_comes_first(query: str) -> None:
    """A stash id or call id, alone or among words, finds its item before all that matches by words."""
    run = Recorder()
    run.put("abcdefghjk", "first line\n" + text(1), 2, call_id="call_one")
    run.put("x", "please result what was", 3, call_id="call_two")
    run.put("y", "they spoke of abcdefghjk and call_one", 4)
    found = ask(run, query)
    assert ("abcdefghjk", 0.0) == (ids(found)[0], found.snippets[0].score)
    assert found.snippets[0].text.startswith("first line\n")
    assert "y" in ids(found)
    assert found.matching_items == len(found.snippets)


def test_an_exact_id_with_words_shows_where_they_stand() -> None:
    """Beside an id, other words choose the part of the item that is shown."""
    run = Recorder()
    run.put("abcdefghjk", text(1, 2_000) + "\nthe needle\n" + text(2, 2_000), 2)
    found = ask(run, "needle in abcdefghjk")
    assert (["abcdefghjk"], 1) == (ids(found), found.matching_items)
    assert "the needle\n" in found.snippets[0].text


def test_call_ids_that_repeat_or_say_little() -> None:
    """Of items with one call id the newest comes first; the empty one names nothing; a short one only by itself."""
    run = Recorder()
    for number in range(3):
        run.put(f"{number}", f"text {number}", number + 1, call_id="call_again")
    run.put("empty", "nothing", 4)
    run.put("short", "nothing", 5, call_id="7")
    assert ["2", "1", "0"] == ids(ask(run, "call_again"))
    assert ["short"] == ids(ask(run, "7"))
    assert [] == ids(ask(run, "line 7"))


def test_an_exact_id_is_held_to_the_filters() -> None:
    """Filters hold for items that the query names as well."""
    run = Recorder()
    run.put("abcdefghjk", "text", 2)
    assert [] == ids(ask(run, SearchQuery("abcdefghjk", first_iteration=3)))
    assert ["abcdefghjk"] == ids(ask(run, SearchQuery("abcdefghjk", last_iteration=3)))


def test_filters_hold() -> None:
    """Only what passes all filters is found, counted and shown."""
    run = Recorder()
    for number in range(1, 9):
        run.put(f"{number}", f"needle {number}", number, tool="ls" if number % 2 else "cat")
    query = SearchQuery("needle", tools=frozenset({"ls"}), first_iteration=2, last_iteration=6)
    found = ask(run, query)
    assert (["5", "3"], 2, 2, 6) == (ids(found), found.matching_items, found.first_iteration, found.last_iteration)
    assert ["3"] == ids(ask(run, replace(query, stash_ids=frozenset({"3", "4"}))))


def test_what_expired_or_was_evicted_is_reported() -> None:
    """An item whose original is gone is not shown; the answer counts it and says that it will not come back."""
    run = Recorder(run_bytes=10_000)
    run.put("old", "needle old", 1)
    run.put("named", "needle by name", 1, call_id="call_named")
    ask(run, "needle")
    run.clock.now = 60
    run.put("new", "needle new", 2)
    found = ask(run, "needle")
    assert (["new"], 1, 2) == (ids(found), found.matching_items, found.gone_items)
    assert (
        "1 of 1 matching item shown; iterations 1-9 were searched. "
        "2 items that match have expired or been evicted, for good." == found.message
    )
    lost = ask(run, "call_named")
    assert (SearchOutcome.NOTHING_FOUND, 0, 1) == (lost.outcome, lost.matching_items, lost.gone_items)
    assert "1 item that matches has expired or been evicted, for good." in lost.message
    run.stash.put(RUN, "owner", "big", b"x" * 9_995, "text/plain")
    assert ([], 3) == (ids(ask(run, "needle")), ask(run, "needle").gone_items)
    run.stash.put(RUN, "owner", "old", b"needle old", "text/plain")
    run.history.record_again("old")
    assert ["old"] == ids(ask(run, "needle"))


def test_many_that_are_gone_hide_none_that_live() -> None:
    """Behind a thousand better matches that expired, the live one is found."""
    run = Recorder()
    for number in range(1_000):
        run.put(f"{number}", "needle needle", 1)
    ask(run, "needle")
    run.clock.now = 60
    run.put("live", "a needle in a long, long text about other things altogether", 2)
    found = ask(run, "needle")
    assert (["live"], 1, 1_000) == (ids(found), found.matching_items, found.gone_items)


def test_an_abandoned_branch_stays_searchable() -> None:
    """What the agent did before it rewrote its history is found, though the run's iterations start over."""
    run = Recorder()
    run.put("abandoned", "needle", 8)
    run.put("present", "needle again", 3)
    assert {"abandoned", "present"} == set(ids(ask(run, "needle", last_iteration=3)))


def test_searched_iterations_follow_a_full_index() -> None:
    """Once the oldest items are left out of the index, the answer says from where on search covers."""
    run = Recorder(SearchLimits(index_bytes=100_000))
    for number in range(1, 61):
        run.put(f"{number}", text(number), number)
    found = ask(run, "w60x5", last_iteration=60)
    assert found.first_iteration > 1
    assert f"iterations {found.first_iteration}-60 were searched" in found.message
    assert [] == ids(ask(run, "w1x5", last_iteration=60))
    assert ["1"] == ids(ask(run, "1", last_iteration=60))


def test_json_is_found_by_its_meaning_and_shown_as_it_is() -> None:
    """Escapes are undone for finding; the snippet has the original's own bytes."""
    run = Recorder()
    original = '{"text": "first\\nna\\u00efve caf\\u00e9 \\"quoted\\""}'
    run.put("json", original, 1, content_type="application/json")
    (snippet,) = ask(run, "naive café").snippets
    assert original == snippet.text


def test_the_deadline_is_looked_at() -> None:
    """A deadline that passes during indexing ends the search with the caller's own error."""
    run = Recorder()
    run.put("a", text(1, 10_000))

    def passed() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        search(
            run.history,
            SearchQuery("x"),
            SearchLimits(),
            last_iteration=1,
            count=count,
            nonce=lambda: "482113",
            check=passed,
        )


def test_what_is_in_the_prompt_comes_last_and_is_named() -> None:
    """Hidden items are shown first; a visible one that would have been shown gets a line with its place."""
    run = Recorder()
    run.put("seen", "\n".join(["plain"] * 4 + ["needle here", "and there: haystack"]), 7)
    run.put("hidden", "needle and some other words that are of no matter", 2)
    query = SearchQuery("needle haystack", max_snippets=1)
    assert ["seen"] == ids(ask(run, query))
    found = ask(run, query, visible=["seen", "unknown"])
    assert ["hidden"] == ids(found)
    assert 2 == found.matching_items
    (one,) = found.in_prompt
    assert ("seen", 1, 6) == (one.item.stash_id, one.first_line, one.last_line)
    assert "\nalso in the prompt: tool result of read_file, iteration 7, lines 1-6" in found.rendered
    both = ask(run, "needle haystack", visible=["seen"])
    assert ["hidden", "seen"] == ids(both)
    assert () == tuple(both.in_prompt)
    assert "also in the prompt" not in both.rendered


def test_an_id_finds_its_item_in_the_prompt_or_not() -> None:
    """Who names an item gets it first, whether or not the prompt shows it."""
    run = Recorder()
    run.put("abcdefghjk", "needle", 1)
    run.put("hidden", "needle", 2)
    assert "abcdefghjk" == ids(ask(run, "abcdefghjk", visible=["abcdefghjk"]))[0]
    assert "abcdefghjk" == ids(ask(run, "needle abcdefghjk", visible=["abcdefghjk"]))[0]


def test_lines_of_what_is_in_the_prompt_count() -> None:
    """An answer with as many of them as fit stays within its tokens, and the best are kept."""
    run = Recorder()
    for number in range(60):
        run.put(f"{number}", f"needle {number}\n{text(number)}", 1 + number // 20)
    for total in (256, 300, 500, 1_500):
        found = ask(run, SearchQuery("needle", max_snippets=25, total_tokens=total), visible=map(str, range(30, 60)))
        assert found.rendered_tokens <= total
        assert ids(found)
        assert all(int(name) < 30 for name in ids(found))
        assert [f"{number}" for number in range(59, 59 - len(found.in_prompt), -1)] == [
            one.item.stash_id for one in found.in_prompt
        ]
    assert 10 == len(found.in_prompt)
    assert found.shortened


def test_snippets_have_the_same_room_where_all_is_in_the_prompt() -> None:
    """Tokens are kept for the lines that will be written, and for no others."""
    run = Recorder()
    for number in range(5):
        run.put(f"{number}", f"needle {number}\n{text(number)}", 1 + number)
    assert ask(run, "needle") == ask(run, "needle", visible=map(str, range(5)))
