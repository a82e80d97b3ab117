"""The rules of a trimmed prompt, for every format: valid, identical, sticky, idempotent, derived, and branching."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.trim.entries import Action, Reason
from tests.conformance.anthropic_messages import INSTRUCTED
from tests.conformance.case import Case
from tests.conformance.table import CASES
from tests.oracle.respell import shuffled
from tests.promises.played import WAYS, complaints, edited, instability, plays, resent

formats = pytest.mark.parametrize("case", [*CASES.values(), INSTRUCTED], ids=[*CASES, "anthropic_instructed"])
EXAMPLES = settings(max_examples=25)
"""A run is played turn by turn, and every original is fetched at every turn."""


def _value_of(original: bytes | None) -> str:
    """An original; of one that is raw JSON the value, whatever the order of its keys."""
    try:
        return json.dumps(json.loads(original or b""), sort_keys=True)
    except ValueError:
        return (original or b"").decode()


@formats
@EXAMPLES
@given(data=st.data())
def test_every_turn(case: Case, data: st.DataObject) -> None:
    """No defect, untouched messages byte for byte, every original there; old bytes change at batch points only."""
    play = data.draw(plays(case))
    engine, before = play.engine(), None
    for count in play.turns():
        answer = play.trim(engine, play.raw(play.messages[:count]))
        assert [] == list(complaints(play, count, answer, engine))
        if before is not None:
            assert [] == list(instability(play, before, answer))
        before = answer


@formats
@EXAMPLES
@given(data=st.data())
def test_however_it_is_sent_again(case: Case, data: st.DataObject) -> None:
    """The trimmed prompt with and without our text, and the untrimmed one, all give the same answer."""
    play = data.draw(plays(case))
    engine = play.engine()
    wanted = answer = None
    for count in play.turns():
        wanted = answer
        answer = play.trim(engine, play.raw(play.messages[:count]))
    assert answer is not None
    for how in (*WAYS, "untrimmed"):
        raw = play.raw(play.messages) if how == "untrimmed" else resent(play, answer, how)
        again = play.trim(engine, raw)
        assert (how, json.loads(answer.prompt.body or b"")) == (how, json.loads(again.prompt.body or b""))
        assert list(answer.trimmed.trims) == list(again.trimmed.trims)
    assert wanted is None or wanted.prompt.body is not None


@formats
@EXAMPLES
@given(data=st.data(), seed=st.integers(0, 99), masks=st.booleans())
def test_an_agent_that_writes_its_keys_in_another_order_each_time(
    case: Case, data: st.DataObject, seed: int, masks: bool
) -> None:
    """It is answered as one that does not, here and by a process that is new: the same cuts, ids and originals."""
    play = data.draw(plays(case))
    guard = GuardOptions(mode=ENFORCE) if masks else GuardOptions()
    plain, other = (replace(play.engine(), guard=guard) for _ in range(2))
    for count in play.turns():
        raw = play.raw(play.messages[:count])
        wanted = play.trim(plain, raw)
        answers = [play.trim(other, shuffled(raw, seed + count))]
    fresh = replace(play.engine(), guard=guard)
    answers.append(play.trim(fresh, shuffled(raw, seed - 1)))
    answers.append(play.trim(replace(fresh), shuffled(raw, seed), revision=wanted.prompt.revision))
    for answer in answers:
        assert list(wanted.trimmed.trims) == list(answer.trimmed.trims)
        assert list(wanted.trimmed.stash_entries) == list(answer.trimmed.stash_entries)
        assert json.loads(wanted.prompt.body or b"") == json.loads(answer.prompt.body or b"")
    for trim in wanted.trimmed.trims:
        originals = {_value_of(engine.original(trim.stash_id)) for engine in (plain, other, fresh)}
        assert len(originals) == 1


@formats
@EXAMPLES
@given(data=st.data())
def test_an_agent_that_goes_on_from_what_it_got(case: Case, data: st.DataObject) -> None:
    """An agent that keeps trimmed prompts is answered as one that keeps its own history."""
    play = data.draw(plays(case))
    how = data.draw(st.sampled_from(WAYS))
    keeps, adopts, sent = play.engine(), play.engine(), 0
    held: bytes | None = None
    for count in play.turns():
        wanted = play.trim(keeps, play.raw(play.messages[:count]))
        raw = play.raw(play.messages[:count])
        if held is not None:
            raw = play.raw([*play.slices(held), *play.messages[sent:count]], play.member(held))
        answer = play.trim(adopts, raw)
        assert json.loads(wanted.prompt.body or b"") == json.loads(answer.prompt.body or b"")
        held, sent = resent(play, answer, how), count


@formats
@EXAMPLES
@given(data=st.data())
def test_a_fresh_process(case: Case, data: st.DataObject) -> None:
    """A process that has never seen the run gives the same bytes and ids; so does one that has another past."""
    play = data.draw(plays(case))
    engine = play.engine()
    answer = None
    for count in play.turns():
        answer = play.trim(engine, play.raw(play.messages[:count]))
    assert answer is not None
    fresh = play.trim(play.engine(), play.raw(play.messages))
    assert answer.prompt.body == fresh.prompt.body
    assert list(answer.trimmed.trims) == list(fresh.trimmed.trims)
    assert list(answer.trimmed.stash_entries) == list(fresh.trimmed.stash_entries)


@formats
@EXAMPLES
@given(data=st.data())
def test_a_branch(case: Case, data: st.DataObject) -> None:
    """Where the history is cut back to an earlier turn, what was trimmed before that point stays trimmed."""
    play = data.draw(plays(case))
    engine, turns = play.engine(), play.turns()
    for count in turns:
        answer = play.trim(engine, play.raw(play.messages[:count]))
    cut = data.draw(st.sampled_from(turns))
    back = play.trim(engine, play.raw(play.messages[:cut]))
    assert [] == list(complaints(play, cut, back, engine))
    kept = {(trim.message_index, trim.item_index): trim for trim in back.trimmed.trims}
    lead = play.leading(cut)
    for trim in answer.trimmed.trims:
        if trim.reason is Reason.REASONING and (trim.message_index, trim.item_index) not in kept:
            continue  # its turn was finished, and is going on again: there the provider requires it
        if trim.message_index + lead < cut and trim.action in {Action.ELIDED, Action.CLIPPED}:
            assert trim.stash_id == kept[trim.message_index, trim.item_index].stash_id


@formats
@EXAMPLES
@given(data=st.data())
def test_edits_make_the_same_prompt(case: Case, data: st.DataObject) -> None:
    """The edits, applied one after the other to what was sent, give the body that is returned whole."""
    play = data.draw(plays(case))
    raw = play.raw(play.messages)
    whole = play.trim(play.engine(), raw)
    answer = play.trim(play.engine(), raw, edits=True)
    assert json.loads(whole.prompt.body or b"") == edited(raw, answer.prompt.edits)
