"""The journal of a run says what its answers said, in bounds, without text, and only where somebody can look."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.engine.runs.journal import BOUND, ID_CHARACTERS
from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.facts.journals import RunJournal
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.prompt.formats import FORMATS as ALL_FORMATS
from tests.engine.runs.making import FORMATS, LIMIT, OPENAI_CHAT, ROOM, Engine, grown, send
from tests.guard.planting import planted, secrets, serialised, turns
from tests.promises.engine import CALLER, RUN_ID

ENFORCE = GuardOptions(mode="enforce")


def read(engine: Engine) -> RunJournal:
    """The journal of the engine's run."""
    journal = engine.runs.journal(engine.runs.summaries(1)[0].key, 1)
    assert journal is not None
    return journal


@pytest.mark.parametrize("format", FORMATS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=6, deadline=None)
def test_entries_say_the_same_as_the_answers(format: str, seed: int) -> None:
    """Of generated runs: tokens, cuts, cache breaks and findings of each prompt, and their sums; and no secret."""
    chance = random.Random(seed)
    values = secrets(chance)
    body = planted(format, chance, 8, values)
    engine = Engine(limit=chance.choice([3_000, 100_000]), guard=ENFORCE, journal_entries=1_000, policy=ROOM)
    answers = [engine.trim(format, serialised(step)) for step in turns(body, ALL_FORMATS[format].messages_field)]

    journal = read(engine)

    assert [
        (each.iteration, each.tokens.before, each.tokens.after, each.tokens.limit, each.fits, each.news.cache_break)
        for each in answers
    ] == [
        (each.iteration, each.before, each.after, each.limit, each.fits, each.cache_break) for each in journal.prompts
    ]
    assert [_trimmed(each) for each in answers] == [
        {(part.action, part.reason): (part.items, part.tokens) for part in each.trimmed} for each in journal.prompts
    ]
    assert [_found(each) for each in answers] == [
        {(part.rule, part.action): part.count for part in each.findings} for each in journal.prompts
    ]
    line = journal.summary
    assert (CALLER, RUN_ID, len(answers)) == (line.caller, line.run_id, line.prompts)
    assert sum(len(each.news.trims) for each in answers) == line.trimmed
    assert sum(each.news.cache_break is not None for each in answers) == line.breaks
    assert sum(finding.count for each in answers for finding in each.guard.findings) == line.findings
    assert sum(each.tokens.before for each in answers) == line.sent_total
    assert sum(each.tokens.after for each in answers) == line.returned_total
    assert not [value for value, _ in values if value in repr(journal)]


def _trimmed(answer: TrimAnswer) -> dict[object, tuple[int, int]]:
    items = Counter((trim.action, trim.reason) for trim in answer.news.trims)
    return {
        key: (count, sum(trim.tokens_saved for trim in answer.news.trims if (trim.action, trim.reason) == key))
        for key, count in items.items()
    }


def _found(answer: TrimAnswer) -> dict[object, int]:
    found: Counter[object] = Counter()
    for finding in answer.guard.findings:
        found[finding.rule, finding.action] += finding.count
    return dict(found)


def test_recalls_and_refusals_are_in_it() -> None:
    """Ids with what came of them, searches without their query, and refused prompts by reason."""
    engine, answer = grown(OPENAI_CHAT, 12, journal_entries=100)
    stash_id = answer.trimmed.trims[0].stash_id
    engine.retrieve(stash_id)
    engine.call("recall_elided_content", {"id": "z" * 500})
    engine.search("unused name value_3")
    with pytest.raises(InvalidJson):
        engine.trim(OPENAI_CHAT, b"{")

    journal = read(engine)

    asked = [(each.stash_id, each.outcome) for each in journal.recalls]
    assert [(stash_id, "hit"), ("z" * ID_CHARACTERS, "not_found"), ("", "found")] == asked
    assert {answer.iteration} == {each.iteration for each in journal.recalls}
    assert {"INVALID_JSON": 1} == journal.refusals
    line = journal.summary
    assert (2, 1, 1) == (line.recalls, line.searches, line.refused)


def test_it_holds_no_text() -> None:
    """Nothing of messages, arguments or queries: only names of runs, callers, rules, and ids."""
    engine, answer = grown(OPENAI_CHAT, 12, journal_entries=100)
    engine.retrieve(answer.trimmed.trims[0].stash_id)
    engine.search("unused name")
    shown = repr(read(engine))
    assert not [word for word in ("module", "unused", "Find the bug", "Step", "careful") if word in shown]


def test_the_oldest_entries_give_way() -> None:
    """Of each kind the newest are kept; the sums count all, and each that went reached the bound."""
    engine, answer = grown(OPENAI_CHAT, 12, journal_entries=4)
    for _ in range(6):
        engine.retrieve(answer.trimmed.trims[0].stash_id)

    journal = read(engine)

    assert 4 == len({each.iteration for each in journal.prompts})
    assert (4, 4) == (len(journal.prompts), len(journal.recalls))
    assert (13, 6) == (journal.summary.prompts, journal.summary.recalls)
    assert 9 + 2 == journal.forgotten == engine.runs.totals().bounds[BOUND]


def test_it_counts_as_memory_and_goes_before_any_run() -> None:
    """Its bytes are in the estimate; where memory is short the entries of an idle run go, and its originals stay."""
    plain, _ = grown(OPENAI_CHAT, 12)
    engine, answer = grown(OPENAI_CHAT, 12, journal_entries=100)
    send(plain, OPENAI_CHAT, 12)
    send(engine, OPENAI_CHAT, 12)
    assert plain.runs.totals().memory_bytes + 13 * 400 < engine.runs.totals().memory_bytes

    engine, answer = grown(OPENAI_CHAT, 12, journal_entries=100, limits=Limits(memory_bytes=100_000))
    engine.run_id = "another"
    send(engine, OPENAI_CHAT, 12)
    engine.run_id = RUN_ID

    idle = next(each for each in engine.runs.summaries(10) if each.run_id == RUN_ID)
    journal = engine.runs.journal(idle.key, 10)
    assert journal is not None
    assert ((), 13) == (journal.prompts, journal.forgotten)
    assert 13 == journal.summary.prompts
    assert engine.original(answer.trimmed.trims[0].stash_id) is not None


def test_nothing_is_kept_where_nobody_can_look() -> None:
    """Without a place to show them there are no entries, and no sums."""
    engine, answer = grown(OPENAI_CHAT, 12)
    engine.retrieve(answer.trimmed.trims[0].stash_id)
    journal = read(engine)
    assert ((), (), 0, 0) == (journal.prompts, journal.recalls, journal.summary.prompts, journal.summary.recalls)


def test_the_runs_seen_last_come_first() -> None:
    """As many as are asked for; a key that none of them has is nobody's, and looking does not make a run seen."""
    engine = Engine(limit=LIMIT, journal_entries=4)
    for name in ("first", "second", "third"):
        engine.run_id = name
        engine.clock.now += 1
        send(engine, OPENAI_CHAT, 1)
    lines = engine.runs.summaries(2)
    assert ["third", "second"] == [each.run_id for each in lines]
    assert engine.runs.journal("0" * 24, 100) is None
    assert engine.runs.journal(lines[1].key, 100) is not None
    assert ["third", "second"] == [each.run_id for each in engine.runs.summaries(2)]
    assert 3 == len({each.key for each in engine.runs.summaries(100)})
