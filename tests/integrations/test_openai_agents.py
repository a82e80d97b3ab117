"""Agents of the OpenAI Agents SDK, in an environment of their own, against the scripted provider."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.running import long_run, without_a_sidecar

NAME, PROGRAM = "openai-agents", "openai_agents_agent"
APIS = ("openai_chat", "openai_responses")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", APIS)
def test_a_long_run(api: str, stream: bool, tmp_path: Path) -> None:
    """Each prompt fits and is valid, usage is reported, the model recalls once, the run's own items stay whole."""
    result, _, _ = long_run(NAME, PROGRAM, tmp_path, api=api, stream=stream)

    assert result["kept"] > 70_000
    assert bool(result["pieces"]) is stream


def test_without_recall(tmp_path: Path) -> None:
    """Without the sidecar's tools the model is shown no ids."""
    _, there, _ = long_run(NAME, PROGRAM, tmp_path, api="openai_chat", options={"recall": False}, recall=False)

    assert "id=" not in str(there.bodies[-1])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_without_the_sidecar_the_agent_goes_on(stream: bool, tmp_path: Path) -> None:
    """Its tools are not offered, and its prompts go as they are."""
    assert [] == without_a_sidecar(NAME, PROGRAM, tmp_path, api="openai_responses", stream=stream)["tools"]
