"""Tools of agents built with frameworks get the values that the guard has masked, and models see none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.trim.presets import preset
from tests.client.provider import Says
from tests.doors.grpc.serving import Server, core_of
from tests.doors.http.upstream import Upstream, scripted
from tests.integrations.environments import ready
from tests.integrations.running import run

VALUE: Final = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
GUARD: Final = GuardOptions(mode="enforce", restore=("deploy:github_token",))
PROGRAMS: Final = {
    "langchain": "langchain_agent",
    "openai-agents": "openai_agents_agent",
    "pydantic-ai": "pydantic_ai_agent",
}


def calls_with_a_mask(body: Any) -> Says:
    """Calls of the tool that may have the value, and of one that may not, with the mask in the prompt."""
    found = re.search("⟦github_token:[a-z0-9]+⟧", json.dumps(body, ensure_ascii=False))
    assert found is not None
    return Says("", [("c1", "deploy", {"token": f"a {found[0]} b"}), ("c2", "show", {"text": found[0]})])


@contextmanager
def masking() -> Iterator[str]:
    """Run a sidecar that masks; give its address."""
    server = Server(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600))
    policy = preset("cache_first")
    server.start(core_of(Runs, rules=Rules(CallerRules(policy)), guard=GUARD))
    try:
        yield server.addresses[0]
    finally:
        server.stop(0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_tools_get_values(name: str, stream: bool, tmp_path: Path) -> None:
    """Those that the settings name. Another tool gets the mask, and the agent's own history keeps masks in calls."""
    environment = ready(name)
    with Upstream(scripted(calls_with_a_mask, Says("Done."))) as there, masking() as address:
        words = {"stream": stream, "options": {}, "api": "openai_chat", "sidecar": address, "upstream": there.url}
        question = f"Deploy with {VALUE}."
        result = run(environment, PROGRAMS[name], {**words, "window": 100_000, "question": question}, tmp_path)
        sent = [each.raw for each in there.sent]

    assert [] == there.defects
    assert "Done." == result["answer"]
    assert f"a {VALUE} b" == result["got"]["deploy"]
    assert result["got"]["show"].startswith("⟦github_token:")
    assert f"a {VALUE} b" not in result["held"]
    assert 2 == len(sent)
    assert [] == [body for body in sent if VALUE.encode() in body]


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_the_sidecar_tools_get_what_the_model_wrote(name: str, tmp_path: Path) -> None:
    """A mask that nobody knows stays, and the agent goes on."""
    mask = "⟦github_token:aaaaaaaaaa⟧"
    calls = Says("", [("c1", "deploy", {"token": mask})])
    environment = ready(name)
    with Upstream(scripted(calls, Says("Done."))) as there:
        words = {"stream": False, "options": {}, "api": "openai_chat", "sidecar": "127.0.0.1:1", "upstream": there.url}
        result = run(environment, PROGRAMS[name], {**words, "window": 100_000, "question": "Deploy."}, tmp_path)

    assert "Done." == result["answer"]
    assert {"deploy": mask} == result["got"]
