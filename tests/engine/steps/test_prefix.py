"""What an answer says of the prompt before: whether its messages were rewritten, and how much of it stays."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import OwnTextKind, OwnTextPlace, TrimAnswer
from prompt_sidecar.tokens.weigh import PER_MESSAGE
from tests.engine.runs.making import ANTHROPIC_MESSAGES, FORMATS, OPENAI_CHAT, Engine, body, history, slices
from tests.promises.engine import counter

POLICY = {"registry_share": 0.02}
LIMIT = 6_000
LEADING = "mistral-large-latest"
"""A model that takes system messages only before all others."""
VARIANTS = [(OPENAI_CHAT, "gpt-4o"), (OPENAI_CHAT, LEADING), (ANTHROPIC_MESSAGES, "claude-sonnet-4-5")]


def whole(answer: TrimAnswer) -> list[Any]:
    """Everything that a provider's cache sees, in its order: what stands before the messages, then each of them."""
    value = json.loads(answer.prompt.body or b"")
    tail = sum(piece.place is OwnTextPlace.TAIL for piece in answer.prompt.own_text)
    messages = slices(answer.prompt.body)
    return [value.get("system"), *messages[: len(messages) - tail]]


def turns(format: str, iterations: int, large: dict[int, int], **policy: object) -> list[TrimAnswer]:
    """The answers to a growing history; `large`: iterations whose results are so many times as long."""
    engine = Engine(limit=LIMIT, policy=POLICY | policy)
    return [engine.trim(format, body(format, grown(format, number, large))) for number in range(iterations)]


def grown(format: str, iterations: int, large: dict[int, int]) -> list[Any]:
    """A history in which some results are larger."""
    messages = history(format, iterations)
    for number, times in large.items():
        if number < iterations:
            message = messages[len(history(format, number + 1)) - 1]
            of = message if format == OPENAI_CHAT else message["content"][0]
            of["content"] *= times
    return messages


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("policy", [{}, {"fit_keep_oldest": 0.0}, {"fit_stage": "largest_first"}])
def test_a_batch_point_is_where_old_messages_change(format: str, policy: dict[str, object]) -> None:
    """Also where a result new to the run is so large that it alone is elided: that rewrites nothing."""
    answers = turns(format, 30, {1: 12, 9: 8, 10: 8, 20: 12}, **policy)
    rewritten = [False]
    for before, after in pairwise(answers):
        rewritten.append(whole(after)[: len(whole(before))] != whole(before))
    assert rewritten == [answer.cache.batch_point for answer in answers]
    assert rewritten[2] is False
    assert answers[2].trimmed.trims
    assert answers[2].trimmed.compacted
    assert sum(rewritten) == answers[-1].cache.batch_points
    assert any(rewritten)


@pytest.mark.parametrize("format", FORMATS)
def test_a_first_prompt_rewrites_nothing(format: str) -> None:
    """However long it is: there was no prompt before."""
    answer = Engine(limit=LIMIT, policy=POLICY).trim(format, body(format, history(format, 30)))
    assert answer.cache.batch_points
    assert not answer.cache.batch_point


@pytest.mark.parametrize("policy", [{}, {"fit_keep_oldest": 0.0}, {"fit_residue_high": 0.02}])
@pytest.mark.parametrize(("format", "model"), VARIANTS)
def test_the_kept_prefix_is_what_both_prompts_begin_with(format: str, model: str, policy: dict[str, object]) -> None:
    """Counted anew, by itself, with our own text in it: registry and placeholder too, where they stay."""
    engine = Engine(limit=16_000, policy=POLICY | policy, model=model)
    before: list[Any] = []
    with_registry = False
    for number in range(60):
        messages = grown(format, number, {7: 6, 12: 8} if policy else {})
        answer = engine.trim(format, body(format, messages))
        now = whole(answer)
        same = next((at for at, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), len(before))
        if number:
            assert same - 1 == answer.cache.first_changed
            assert counted(format, model, answer, now[:same]) == answer.cache.kept
            registry = [piece for piece in answer.prompt.own_text if piece.kind is OwnTextKind.REGISTRY]
            with_registry |= answer.cache.batch_point and any(piece.message_index < same - 1 for piece in registry)
        before = now
    assert with_registry or policy or (format, model) == VARIANTS[0]


def counted(format: str, model: str, answer: TrimAnswer, prefix: list[Any]) -> int:
    """Tokens of the beginning of a prompt, as a sidecar that never saw the run counts them."""
    system, *messages = prefix or [None]
    if not prefix or not messages:
        return 0
    raw = body(format, messages, system=system)
    fresh = Engine(limit=1_000_000, model=model).trim(format, raw, recall_unavailable=True, dry_run=True)
    # Ours is reckoned as messages wherever it stands; the directives every process knows for ours.
    around = PER_MESSAGE * sum(piece.message_index < 0 for piece in answer.prompt.own_text)
    directives, framing = answer.prompt.own_text[0], 0 if around else PER_MESSAGE
    return fresh.tokens.before + counter().count(directives.text, answer.tokens.encoding) + framing + around


@pytest.mark.parametrize("where", ["system", "task"])
@pytest.mark.parametrize("format", FORMATS)
def test_nothing_is_rewritten_where_nothing_helps(format: str, where: str) -> None:
    """Where the protected text is too large by itself registry and placeholder stay, and trimming costs no more."""
    words = " ".join(f"rule {number} says value_{number}." for number in range(1_200))
    engine = Engine(limit=LIMIT, policy=POLICY)
    rewritten: list[Any] = []
    ours = plain = 0.0
    before = 0
    for number in range(25):
        messages = history(format, number, task=words if where == "task" else "Find the bug.")
        if format == OPENAI_CHAT and where == "system":
            messages[0]["content"] = words
        answer = engine.trim(format, body(format, messages, system=words if where == "system" else "You are careful."))
        assert not answer.fits
        rewritten += [[piece.text for piece in answer.prompt.own_text if piece.kind is not OwnTextKind.NOTE]]
        ours += 0.1 * answer.cache.kept + 1.25 * answer.cache.rewritten
        plain += 0.1 * before + 1.25 * (answer.tokens.before - before)
        before = answer.tokens.before
    changes = [number for number, pair in enumerate(pairwise(rewritten)) if pair[0] != pair[1]]
    assert len(changes) <= 2
    assert ours < plain
    fresh = Engine(limit=LIMIT, policy=POLICY).trim(format, engine_body(format, messages, words, where))
    assert answer.prompt.body == fresh.prompt.body


def engine_body(format: str, messages: list[Any], words: str, where: str) -> bytes:
    """The last body of that run once more."""
    return body(format, messages, system=words if where == "system" else "You are careful.")


@pytest.mark.parametrize("format", FORMATS)
def test_own_text_follows_once_a_prompt_fits_again(format: str) -> None:
    """A larger window later: the next batch writes the registry anew, and the placeholder counts again."""
    engine = Engine(limit=LIMIT, policy=POLICY)
    words = " ".join(f"rule {number} says value_{number}." for number in range(900))
    for number in range(6):
        small = engine.trim(format, body(format, history(format, number, task=words)))
    assert not small.fits
    for number in range(6, 60):
        answer = engine.trim(format, body(format, history(format, number, task=words)), context_window=16_000)
    assert answer.fits
    own_texts = {piece.kind: piece.text for piece in answer.prompt.own_text}
    assert "+ earlier iterations dropped" in own_texts.get(OwnTextKind.DROPPED, "+ earlier iterations dropped")
    last = {piece.kind: piece.text for piece in small.prompt.own_text}
    assert own_texts[OwnTextKind.REGISTRY] != last.get(OwnTextKind.REGISTRY)


@pytest.mark.parametrize("format", FORMATS)
def test_recall_that_goes_and_comes_back(format: str) -> None:
    """While a model has no recall tool none of our own text stands in its prompts; then it stands as before."""
    engine, always = Engine(limit=LIMIT, policy=POLICY), Engine(limit=LIMIT, policy=POLICY)
    for number in range(20):
        sent = body(format, history(format, number))
        answer = engine.trim(format, sent, recall_unavailable=number in (0, 12, 13))
        constant = always.trim(format, sent)
        assert bool(answer.prompt.own_text) == (number not in (0, 12, 13))
        if answer.prompt.own_text:
            assert constant.prompt.own_text[0] == answer.prompt.own_text[0]
        else:
            assert 0 == answer.tokens.own_text
            assert () == tuple(answer.trimmed.stash_entries)


@pytest.mark.parametrize("kept", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("policy", [{}, {"fit_keep_oldest": 0.0}])
@pytest.mark.parametrize(("format", "model"), VARIANTS)
def test_what_a_shorter_history_keeps(format: str, model: str, policy: dict[str, object], kept: int) -> None:
    """An agent that goes back in its history has sent all of that before, with our texts as far as they stay."""
    engine = Engine(limit=LIMIT, policy=POLICY | policy, model=model)
    for number in range(14):
        before = whole(engine.trim(format, body(format, history(format, number))))
    answer = engine.trim(format, body(format, history(format, 13)[:kept]))
    now = whole(answer)
    same = next((at for at, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), len(now))

    assert same - 1 == answer.cache.first_changed
    assert counted(format, model, answer, now[:same]) == answer.cache.kept


@pytest.mark.parametrize("model", ["gpt-4o", LEADING])
def test_a_first_prompt_without_messages(model: str) -> None:
    """A system prompt alone is kept by the prompt that follows, as any other is."""
    engine = Engine(limit=LIMIT, policy=POLICY, model=model)
    messages = history(OPENAI_CHAT, 1)
    first = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, messages[:1]))
    then = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, messages))

    assert whole(first) == whole(then)[: len(whole(first))]
    assert len(whole(first)) - 1 == then.cache.first_changed
    assert first.tokens.after == then.cache.kept
