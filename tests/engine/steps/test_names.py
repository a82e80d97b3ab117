"""Names of what is hidden in returned prompts: what they name is found, and they come and go with the registry only."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import OwnTextKind, TrimAnswer
from prompt_sidecar.trim.names import NAMES_OF_MESSAGE
from prompt_sidecar.trim.own_text import NAMES_HEADER
from tests.engine.runs import making
from tests.engine.runs.making import FORMATS, OPENAI_CHAT, Engine, body, slices

LIMIT = 20_000
POLICY = {"registry_share": 0.02, "fit_keep_oldest": 0.0}
"""Room for names, and a registry that is written anew at each cut in every format."""
ITERATIONS = 60


def history(format: str, iterations: int) -> list[Any]:
    """A history whose model notes something at each step, in words that are clipped when they are old."""
    text = json.dumps(making.history(format, iterations))
    noted: list[Any] = json.loads(
        re.sub(r"Step (\d+): I read the next module", r"I noted finding_\1 and part/\1", text)
    )
    return noted


def names(answer: TrimAnswer) -> list[str]:
    """The names in the registry."""
    lines = [
        line
        for piece in answer.prompt.own_text
        if piece.kind is OwnTextKind.REGISTRY
        for line in piece.text.split("\n")
    ]
    return lines[lines.index(NAMES_HEADER) + 1].split(" ") if NAMES_HEADER in lines else []


def shown(answer: TrimAnswer) -> str:
    """All that is returned but our own text."""
    own = {piece.message_index for piece in answer.prompt.own_text}
    return json.dumps([message for place, message in enumerate(slices(answer.prompt.body)) if place not in own])


def grown(format: str, **fields: Any) -> tuple[Engine, list[TrimAnswer]]:
    """An agent that sends its own history, and the answers."""
    engine = Engine(limit=LIMIT, policy=POLICY)
    return engine, [engine.trim(format, body(format, history(format, n)), **fields) for n in range(ITERATIONS)]


@pytest.mark.parametrize("format", FORMATS)
def test_names_are_of_what_is_hidden_and_found(format: str) -> None:
    """At a batch point none of them stands in the prompt, and search finds each one's place."""
    engine, answers = grown(format)
    first, *_ = [answer for answer in answers if names(answer)]
    assert first.cache.batch_point
    assert [] == [name for name in names(first) if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", shown(first))]
    assert all(engine.search(name).snippets for name in names(first))
    assert [] == [name for name in names(first) if name in {trim.stash_id for trim in first.trimmed.trims}]


@pytest.mark.parametrize("format", FORMATS)
def test_names_stay_between_batch_points(format: str) -> None:
    """They change only where the registry does."""
    _, answers = grown(format)
    for before, answer in pairwise(answers):
        assert answer.cache.batch_point or names(before) == names(answer)
    assert any(names(answer) and not answer.cache.batch_point for answer in answers)


def test_names_follow_the_history() -> None:
    """In a format whose registry moves with the batches the list names what was hidden since."""
    _, answers = grown(OPENAI_CHAT)
    lists = {tuple(names(answer)) for answer in answers if names(answer)}
    assert len(lists) > 1


@pytest.mark.parametrize("format", FORMATS)
def test_a_fresh_process_writes_the_same_names(format: str) -> None:
    """From the untrimmed history, and from that with a revision under another limit."""
    _, answers = grown(format)
    whole = body(format, history(format, ITERATIONS - 1))
    fresh = Engine(limit=LIMIT, policy=POLICY).trim(format, whole)
    assert names(answers[-1])
    assert answers[-1].prompt.own_text == fresh.prompt.own_text
    other = Engine(limit=LIMIT + 200, policy=POLICY).trim(format, whole, revision=answers[-1].prompt.revision)
    assert names(answers[-1]) == names(other)


@pytest.mark.parametrize("format", FORMATS)
def test_an_agent_that_adopts_prompts(format: str) -> None:
    """It gets the names that one gets who keeps the history: they were collected when the messages were new."""
    engine, answers = Engine(limit=LIMIT, policy=POLICY), []
    prompt: list[Any] = history(format, 0)
    for number in range(ITERATIONS):
        answers.append(engine.trim(format, body(format, prompt)))
        prompt = slices(answers[-1].prompt.body) + history(format, number + 1)[len(history(format, number)) :]
    assert [names(answer) for answer in grown(format)[1]] == [names(answer) for answer in answers]


@pytest.mark.parametrize("format", FORMATS)
def test_a_model_that_cannot_recall_gets_no_names(format: str) -> None:
    """Nor anything else of ours."""
    _, answers = grown(format, recall_unavailable=True)
    assert not any(answer.prompt.own_text for answer in answers)


@pytest.mark.parametrize("format", FORMATS)
def test_no_registry_no_names(format: str) -> None:
    """Without room nothing is listed."""
    engine = Engine(limit=LIMIT, policy=POLICY | {"registry_share": 0.0})
    answer = engine.trim(format, body(format, history(format, ITERATIONS)))
    assert answer.trimmed.trims
    assert not names(answer)


def test_a_message_of_many_names_is_counted_once() -> None:
    """That the bound on the names of one message was reached is told with the message, and not again."""
    engine = Engine(limit=LIMIT, policy=POLICY)
    many = " ".join(f"name_{number}" for number in range(NAMES_OF_MESSAGE))
    messages = [*history(OPENAI_CHAT, 1), {"role": "assistant", "content": many}, {"role": "user", "content": "Go on."}]
    cut = [engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, messages)).news.names_cut for _ in range(2)]
    assert [1, 0] == cut
