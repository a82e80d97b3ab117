"""Prompts that end in the model's own words, and texts that end in half of a character."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client.provider import Says
from tests.doors.http.agents import TOOL
from tests.doors.http.path_models import WAYS, PathAgent, PathUpstream
from tests.doors.http.serving import proxied
from tests.doors.http.test_sdks import OURS
from tests.doors.http.upstream import scripted

BEDROCK = ["bedrock", "bedrock-stream"]
LOG = "a line of\nthe log\n"
RECALL = ("own-1", OURS[0], {"id": "none"})


@pytest.mark.parametrize("name", BEDROCK)
def test_a_hidden_turn_goes_on_from_the_models_own_words(name: str) -> None:
    """Roles alternate, so the call is in the message that the agent began."""
    with proxied(scripted()) as here:
        there = PathUpstream(scripted(Says("of the disk.", [RECALL]), Says("It is full.")), WAYS[name])
        here.upstream.other = there
        agent = PathAgent(WAYS[name], here.url)
        agent.add_user_text("Why did it fail?")
        agent.history.append({"role": "assistant", "content": [{"text": "Because"}]})
        status, _, headers = agent.ask()

    assert ([], 200, 2) == (there.defects, status, len(there.bodies))
    assert "1" == headers.get("x-prompt-sidecar-hidden-turns", "1")
    *_, message, result = there.bodies[1]["messages"]
    assert ["Because", "of the disk."] == [block["text"] for block in message["content"] if "text" in block]
    assert ["own-1"] == [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
    assert ["own-1"] == [block["toolResult"]["toolUseId"] for block in result["content"]]


@pytest.mark.parametrize("name", ["gemini", "bedrock"])
def test_half_a_character_does_not_keep_a_prompt_from_being_trimmed(name: str) -> None:
    """Agents cut results at any place; what is cut so is trimmed as any other."""
    with proxied(scripted()) as here:
        there = PathUpstream(lambda _: Says("Go on."), WAYS[name])
        here.upstream.other = there
        agent = PathAgent(WAYS[name], here.url)
        agent.add_user_text("Why did it fail?")
        for number in range(1, 24):
            arguments: Any = {"number": number}
            half = "half of \ud83d" if number == 3 else ""
            agent.take(Says(f"Step {number}.", [(f"call-{number}", TOOL, arguments)]), LOG * 60 + half)
        status, _, headers = agent.ask()

    assert (200, "true") == (status, headers["x-prompt-sidecar-fits"])
    assert "x-prompt-sidecar-untrimmed" not in headers
    assert int(headers["x-prompt-sidecar-trims"]) > 0
    assert b"half of" not in there.raw[0]
    assert len(there.raw[0]) < len(agent.body()) // 2
    assert json.dumps(there.bodies[0]).count("recall_elided_content") > 0
