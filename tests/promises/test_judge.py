"""The judge sees what it must: an answer that was doctored in one way is complained about, an honest one is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import NoFit, TrimAnswer
from prompt_sidecar.trim.entries import Action
from tests.oracle.runs import Run, Shape, body_of, synthetic, turns
from tests.oracle.shapes import FORMATS, OPENAI_CHAT, role_of
from tests.promises.engine import Engine
from tests.promises.judge import Prompt, judge, originals_complaints, prompt_of, same_answer

formats = pytest.mark.parametrize("format", FORMATS)


@cache
def _answer(format: str) -> tuple[Run, Prompt, TrimAnswer]:
    run = synthetic(11, format, Shape(iterations=30, defects=False, odd_ids=0, images=0))
    engine = Engine(limit=9_000)
    for length in turns(run.messages):
        body = body_of(format, run.slices()[:length], system=run.system)
        answer = engine.trim(format, body)
    return run, prompt_of(body), answer


def _doctored(answer: TrimAnswer, change: Callable[[list[Any]], None]) -> TrimAnswer:
    assert answer.prompt.body is not None
    body = json.loads(answer.prompt.body)
    change(body["messages"])
    return _with(answer, body=json.dumps(body, ensure_ascii=False).encode())


def _with(answer: TrimAnswer, **changes: Any) -> TrimAnswer:
    """An answer that returns another prompt."""
    return replace(answer, prompt=replace(answer.prompt, **changes))


def _complaints(format: str, answer: TrimAnswer) -> str:
    run, sent, _ = _answer(format)
    return "\n".join(judge(run, sent, answer).complaints)


def _last(format: str, messages: list[Any], role: str) -> int:
    own = {piece.message_index for piece in _answer(format)[2].prompt.own_text}
    return max(place for place, message in enumerate(messages) if role_of(message) == role and place not in own)


@formats
def test_an_honest_answer(format: str) -> None:
    """What the engine answered is not complained about, and it holds every kind of trim that is doctored below."""
    _, _, answer = _answer(format)
    assert "" == _complaints(format, answer)
    assert {Action.CLIPPED, Action.DROPPED} <= {trim.action for trim in answer.trimmed.trims}


@formats
def test_another_spelling_of_an_untrimmed_message(format: str) -> None:
    """One space more in a message that was not trimmed is other bytes."""
    _, sent, answer = _answer(format)
    assert answer.prompt.body is not None
    untouched = next(piece for piece in reversed(sent.slices) if piece in answer.prompt.body)
    doctored = _with(answer, body=answer.prompt.body.replace(untouched, untouched.replace(b'"role"', b' "role"', 1)))
    assert "has other bytes" in _complaints(format, doctored)


@formats
def test_a_result_taken_away(format: str) -> None:
    """A result that is gone is an unanswered call to both oracles, and gone without a trim that says so."""
    _, _, answer = _answer(format)
    role = "tool" if format == OPENAI_CHAT else "user"

    def change(messages: list[Any]) -> None:
        del messages[_last(format, messages, role)]

    if format == OPENAI_CHAT:
        answer = _with(answer, own_text=[piece for piece in answer.prompt.own_text if piece.place != "tail"])
        assert answer.prompt.body is not None
        body = json.loads(answer.prompt.body)
        answer = _with(answer, body=json.dumps(body | {"messages": body["messages"][:-1]}).encode())
    found = _complaints(format, _doctored(answer, change))
    assert "new defect: " in found
    assert "second opinion" in found
    assert "no trim says so" in found


@formats
def test_two_messages_swapped(format: str) -> None:
    """Another order is noticed."""
    _, _, answer = _answer(format)

    def change(messages: list[Any]) -> None:
        place = _last(format, messages, "assistant")
        messages[place - 1], messages[place] = messages[place], messages[place - 1]

    assert "" != _complaints(format, _doctored(answer, change))


@formats
def test_figures_that_do_not_add_up(format: str) -> None:
    """`fits` against the figures, and cache figures that are not the prompt's, are noticed."""
    _, _, answer = _answer(format)
    assert "fits is False" in _complaints(format, replace(answer, no_fit=NoFit.POLICY))
    wrong = replace(answer, cache=replace(answer.cache, kept=answer.cache.kept + 1))
    assert "kept and rewritten" in _complaints(format, wrong)


@formats
def test_wrong_originals(format: str) -> None:
    """A missing original, one that lacks a byte, and one that is another item's are noticed."""
    run, sent, answer = _answer(format)
    trims = list(answer.trimmed.trims)
    assert ["is not found"] == [
        found.split(" message ")[1].partition(" ")[2] for found in originals_complaints(run, sent, [(trims[0], None)])
    ]
    assert originals_complaints(run, sent, [(trims[0], b"no such text")])
    twice = [trim for trim in trims if trim.message_index == trims[0].message_index][:1] * 2
    text = json.dumps(sent.messages[trims[0].message_index + run.leading]).encode()
    assert originals_complaints(run, sent, [(twice[0], text + b" ")])


@formats
def test_answers_that_differ(format: str) -> None:
    """Answers are the same but for spelling, or they are not."""
    _, _, answer = _answer(format)
    respelled = _doctored(answer, lambda _: None)
    assert [] == same_answer(answer, respelled)
    assert ["trims: 1 only in the first, 0 only in the second"] == same_answer(
        answer, replace(answer, trimmed=replace(answer.trimmed, trims=list(answer.trimmed.trims)[1:]))
    )

    def change(messages: list[Any]) -> None:
        messages.append({"role": "user", "content": "more"})

    assert same_answer(answer, _doctored(answer, change))
