"""Agents that hold a part of what was dropped together, and go on from there."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.trim.entries import Action
from tests.conformance.case import Case
from tests.conformance.table import CASES
from tests.engine.runs.making import ANTHROPIC_MESSAGES, OPENAI_CHAT, body, history, slices
from tests.promises.engine import Engine
from tests.promises.played import Played

formats = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
DROPS = {"age_keep_iterations": 1, "fit_keep_oldest": 0.0, "fit_residue_high": 0.02, "fit_residue_low": 0.01}


def played(case: Case, seed: int) -> Played:
    """A run in a window so small that iterations are dropped."""
    preset = ("cache_first", "lean")[seed % 2]
    return Played(case, case.history(random.Random(seed), 9), 600, preset, bare=False, policy=DROPS)


def sent_whole(play: Played) -> tuple[Engine, TrimAnswer]:
    """An engine that was sent the whole run, and its answer."""
    engine = play.engine()
    return engine, play.trim(engine, play.raw(play.messages))


def parts(play: Played, answer: TrimAnswer) -> Iterator[tuple[list[bytes], int]]:
    """The returned messages with one that was dropped back in its place, and how many there are up to it."""
    lead = play.leading(len(play.messages))
    dropped = sorted({trim.message_index + lead for trim in answer.trimmed.trims if trim.action is Action.DROPPED})
    own = {piece.message_index for piece in answer.prompt.own_text if piece.message_index >= 0}
    returned = [each for place, each in enumerate(play.slices(answer.prompt.body or b"")) if place not in own]
    whole = play.slices(play.raw(play.messages))
    live = [place for place in range(len(whole)) if place not in dropped]
    for place in dropped:
        before = sum(each < place for each in live)
        yield [*returned[:before], whole[place], *returned[before:]], before + 1


@formats
def test_any_message_of_a_dropped_iteration_again(case: Case) -> None:
    """Whatever follows it, the agent is answered, and nothing is newly invalid."""
    tried = 0
    for seed in range(3):
        play = played(case, seed)
        _, answer = sent_whole(play)
        whole = play.slices(play.raw(play.messages))[play.leading(len(play.messages)) :]
        for messages, length in list(parts(play, answer))[seed::4]:
            for sent in (messages, [*messages[:length], whole[0]], [*messages[:length], *whole]):
                engine, _ = sent_whole(play)
                raw = play.raw(sent)
                again = play.trim(engine, raw)
                tried += 1
                if sent[length:] != whole and not case.defects(play.whole(raw)):  # else calls have the same id
                    assert [] == case.defects(play.whole(again.prompt.body or b""))
                assert again.prompt.body == play.trim(engine, raw).prompt.body
    assert tried


def test_a_call_without_its_result() -> None:
    """The call is no part of the known history any more, so a new answer to it does not lose it."""
    engine = Engine(limit=2_000, policy=DROPS)
    for number in range(12):
        answer = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, history(OPENAI_CHAT, number)))
    lost = min(trim.message_index for trim in answer.trimmed.trims if trim.action is Action.DROPPED) + 1
    whole = history(OPENAI_CHAT, 12)
    call = whole[lost]["tool_calls"][0]["id"]
    sent = [*whole[: lost + 1], {"role": "tool", "tool_call_id": call, "content": "It was interrupted."}]
    got = slices(engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, sent)).prompt.body)
    assert call in [each["id"] for message in got for each in message.get("tool_calls", ())]
    assert call in [message.get("tool_call_id") for message in got]


def test_a_call_whose_answer_comes_late() -> None:
    """A call stays while its answer is out, though the answer that it had was dropped with it."""
    engine = Engine(limit=2_000, policy=DROPS)
    messages = history(ANTHROPIC_MESSAGES, 12)
    late = {"type": "tool_use", "id": "late", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "late", "content": "It took a while."}
    messages[9]["content"].append(late)
    messages[12]["content"].append(result)
    answer = engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages))
    assert {9, 10, 11, 12} <= {trim.message_index for trim in answer.trimmed.trims if trim.action is Action.DROPPED}
    sent = [*messages[:12], {"role": "user", "content": [*messages[12]["content"][:-1], result | {"content": "No."}]}]
    got = slices(engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, sent)).prompt.body)
    assert {"late", "call_5"} <= {block.get("id") for message in got for block in message["content"]}
    assert {"late", "call_5"} <= {block.get("tool_use_id") for message in got for block in message["content"]}


@pytest.mark.parametrize("format", [ANTHROPIC_MESSAGES, OPENAI_CHAT])
@pytest.mark.parametrize("limit", [300, 700, 1_500])
def test_a_result_without_its_call(format: str, limit: int) -> None:
    """Nothing is decided about the call, whose text nobody has any more."""
    whole = history(format, 8)
    lead = 1 if format == ANTHROPIC_MESSAGES else 2
    for result in range(lead + 1, lead + 12, 2):
        engine = Engine(limit=limit, policy=DROPS)
        engine.trim(format, body(format, whole))
        sent = [*whole[:lead], whole[result], *history(format, 6, task="Find another.")]
        raw = body(format, sent)
        answer = engine.trim(format, raw)
        assert answer.prompt.body == engine.trim(format, raw).prompt.body
        assert all(engine.original(trim.stash_id) is not None for trim in answer.trimmed.trims)
