"""Models that bind their thinking to what precedes it work behind the door: their provider refuses nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.client.provider import Says
from tests.conformance.bound_thinking import BoundThinking
from tests.doors.http.agents import TOOL, Agent, log_of
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_sdks import CALLS, OURS, STREAMED, Script
from tests.doors.http.upstream import scripted

MODEL = "claude-opus-5-5"
WINDOW = {"x-prompt-sidecar-context-window": "4700"}
SEARCH = ("own-1", OURS[1], {"query": "x"})
ASKED = {"role": "user", "content": "Which build failed?"}


def _thought(text: str) -> dict[str, str]:
    return {"type": "thinking", "thinking": text, "signature": "s" * 300}


def _thinking(says: Says, thought: str) -> Says:
    return replace(says, blocks=[_thought(thought)])


def _agent(here: Proxied, history: list[Any], *, stream: bool) -> Agent:
    return Agent("anthropic_messages", stream, here.url, history, headers=WINDOW, model=MODEL)


@STREAMED
def test_sixty_calls_over_the_limit(stream: bool) -> None:
    """Trimmed again and again, with hidden and mixed turns: what thinking is sent is valid, and some is sent."""
    script = Script()

    def model(body: Any) -> Says:
        return _thinking(script(body), f"Thought {script.turns}.")

    with proxied(model) as here:
        here.upstream.thinking = BoundThinking()
        agent = _agent(here, [ASKED], stream=stream)
        while (heard := agent.ask()).calls:
            agent.answer(heard, log_of)

    assert [] == here.upstream.defects
    assert "All builds were looked at." == heard.text
    assert script.turns == len(here.upstream.sent) > CALLS + 10
    assert max(len(each.raw) for each in here.upstream.sent) < 25_000
    assert sum(b'"thinking"' in each.raw for each in here.upstream.sent) > CALLS // 4


@STREAMED
def test_a_hidden_turns_thinking_is_not_shown(stream: bool) -> None:
    """It comes back with the turn, before the thinking that it precedes."""
    hidden = _thinking(Says("", [SEARCH]), "Hidden.")
    theirs = _thinking(Says("Mine.", [("call-1", TOOL, {})]), "Shown.")
    both = _thinking(Says("Both.", [("own-2", OURS[1], {"query": "y"}), ("call-2", TOOL, {})]), "Mixed.")
    with proxied(scripted(hidden, theirs, both, hidden, _thinking(Says("Done."), "Last."), Says("Bye."))) as here:
        here.upstream.thinking = BoundThinking()
        agent = _agent(here, [ASKED], stream=stream)
        while (heard := agent.ask()).calls:
            agent.answer(heard, log_of)
        agent.history.append(ASKED)
        agent.ask()

    assert [] == here.upstream.defects
    held, sent = json.dumps(agent.history), json.dumps(here.upstream.bodies[-1])
    assert "Hidden." not in held
    assert all(thought in held for thought in ("Shown.", "Mixed.", "Last."))
    assert [2, 1, 1, 1] == [sent.count(thought) for thought in ("Hidden.", "Shown.", "Mixed.", "Last.")]


@STREAMED
def test_thinking_behind_a_hidden_turn_that_is_lost_is_removed(stream: bool) -> None:
    """A new sidecar does not know what the thinking is bound to; what is thought then is valid again."""
    history: list[Any] = [ASKED]
    thinking = BoundThinking()
    hidden = _thinking(Says("", [SEARCH]), "Hidden.")
    first = [hidden, _thinking(Says("", [("call-1", TOOL, {})]), "Before.")]
    then = [_thinking(Says("", [("call-2", TOOL, {})]), "After."), _thinking(Says("Done."), "Last.")]
    for number, script in enumerate((first, then)):
        with proxied(scripted(*script)) as here:
            here.upstream.thinking = thinking
            agent = _agent(here, history, stream=stream)
            heard = agent.ask()
            agent.answer(heard, log_of)
            if number:
                assert "Done." == agent.ask().text
        assert [] == here.upstream.defects

    texts = [json.dumps(body) for body in here.upstream.bodies]
    assert not any("Before." in text or "Hidden." in text for text in texts)
    assert "After." in texts[1]
