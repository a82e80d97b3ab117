"""Models that take system messages before all others only, or none: where our own text stands for them."""

from __future__ import annotations

import json
from typing import Any

from prompt_sidecar.facts.trim_calls import OwnTextKind, OwnTextPlace, TrimAnswer
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, Engine, history, slices


def body(model: str, messages: list[Any]) -> bytes:
    """A request to a model."""
    return json.dumps({"model": model, "messages": messages}).encode()


def roles(answer: TrimAnswer) -> list[str]:
    """The roles of the returned messages."""
    return [message["role"] for message in slices(answer.prompt.body)]


def test_before_all_others() -> None:
    """Directives and registry follow the agent's own system messages; there is no note at the tail."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    kinds: set[OwnTextKind] = set()
    for number in range(30):
        messages = history(OPENAI_CHAT, number)
        answer = engine.trim(OPENAI_CHAT, body("mistral-large-latest", messages))
        found = roles(answer)
        leading = found.index("user")
        assert "system" not in found[leading:]
        assert list(range(1, leading)) == [piece.message_index for piece in answer.prompt.own_text]
        assert messages[0] == slices(answer.prompt.body)[0]
        kinds |= {piece.kind for piece in answer.prompt.own_text}
        again = engine.trim(OPENAI_CHAT, answer.prompt.body or b"")
        assert answer.prompt.body == again.prompt.body, "what is sent back is known as ours"
        fresh = Engine(limit=LIMIT, policy=ROOM).trim(OPENAI_CHAT, body("mistral-large-latest", messages))
        assert answer.prompt.body == fresh.prompt.body
    assert {OwnTextKind.DIRECTIVES, OwnTextKind.REGISTRY} == kinds
    assert b"other iterations dropped]" in (answer.prompt.body or b""), "a clipped result counts them"


def test_a_bare_array() -> None:
    """The request's model tells it where the body does not."""
    raw = json.dumps(history(OPENAI_CHAT, 12)).encode()
    answer = Engine(limit=LIMIT, policy=ROOM).trim(OPENAI_CHAT, raw, model="codestral-latest")
    assert "system" not in roles(answer)[roles(answer).index("user") :]
    assert OwnTextKind.REGISTRY in {piece.kind for piece in answer.prompt.own_text}


def test_the_prefix_that_is_kept() -> None:
    """While nothing is trimmed anew the whole prompt is kept; a registry that changes changes all after the head."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    before = ""
    for number in range(20):
        answer = engine.trim(OPENAI_CHAT, body("mistral-large-latest", history(OPENAI_CHAT, number)))
        registry = "".join(piece.text for piece in answer.prompt.own_text if piece.kind is OwnTextKind.REGISTRY)
        if number and registry == before and not answer.cache.batch_point:
            assert answer.cache.first_changed >= len(slices(answer.prompt.body)) - 2
            assert answer.cache.kept > 0
        elif number and registry != before:
            assert answer.cache.first_changed <= 2, "the system message and the directives"
        before = registry
    assert before


def test_none_at_all() -> None:
    """A model that refuses system messages gets none: the agent is handed the texts."""
    messages = history(OPENAI_CHAT, 12)[1:]
    answer = Engine(limit=LIMIT, policy=ROOM).trim(OPENAI_CHAT, body("o1-mini", messages))
    assert answer.trimmed.trims
    assert "system" not in roles(answer)
    assert {OwnTextPlace.CALLER} == {piece.place for piece in answer.prompt.own_text}
    assert OwnTextKind.REGISTRY in {piece.kind for piece in answer.prompt.own_text}


def test_own_messages_are_developer_messages_where_the_agents_are() -> None:
    """Beside a developer's message ours are developer messages, also after they came back."""
    messages = history(OPENAI_CHAT, 12)
    messages[0]["role"] = "developer"
    engine = Engine(limit=LIMIT, policy=ROOM)
    answer = engine.trim(OPENAI_CHAT, body("gpt-5", messages))
    assert answer.prompt.own_text
    assert "system" not in roles(answer)
    assert {"developer"} == {
        slices(answer.prompt.body)[piece.message_index]["role"] for piece in answer.prompt.own_text
    }
    assert answer.prompt.body == engine.trim(OPENAI_CHAT, answer.prompt.body or b"").prompt.body
