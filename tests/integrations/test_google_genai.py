"""An agent on Google's SDK behind the HTTP door, in an environment of its own, with a base URL alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.client.histories import FACT
from tests.client.provider import Says
from tests.conformance.thought_signatures import ThoughtSignatures
from tests.doors.http.agents import TOOL
from tests.doors.http.path_models import WAYS, PathUpstream
from tests.doors.http.serving import proxied
from tests.doors.http.test_path_recall import own_results
from tests.doors.http.test_sdks import OURS
from tests.doors.http.upstream import scripted
from tests.integrations.environments import ready
from tests.integrations.running import run

CALLS = 32
ANSWER = "All builds were looked at."


@pytest.mark.parametrize("by_environment", [True, False], ids=["environment", "option"])
@pytest.mark.parametrize("name", ["gemini", "gemini-sse"], ids=["whole", "streamed"])
def test_a_long_run(name: str, by_environment: bool, tmp_path: Path) -> None:
    """Each prompt fits and is valid, the SDK reads each answer, and counts the tokens of the trimmed prompt.

    The model recalls, alone and beside calls of the agent's tool, and the agent sees nothing of it.
    """
    environment = ready("google-genai")
    steps = [Says(f"Step {number}.", [("", TOOL, {"number": number})]) for number in range(1, CALLS + 1)]
    recalls = Says("I look that up.", [("", OURS[1], {"query": FACT})])
    steps.insert(31, recalls)
    steps[29] = replace(steps[29], calls=[*recalls.calls, *steps[29].calls])
    says = scripted(*steps, Says(ANSWER))
    counts: list[int] = []

    def model(body: Any) -> Says:
        answer, tokens = says(body), len(json.dumps(body)) // 4
        if answer is not recalls:
            counts.append(tokens)
        return replace(answer, tokens={"input": tokens, "cached": 0, "output": 30})

    there = PathUpstream(model, WAYS[name], provider=ThoughtSignatures())
    counted: list[int] = []

    async def other(request: web.Request) -> web.StreamResponse:
        if request.path.endswith(":countTokens"):
            counted.append(len(await request.read()))
            return web.json_response({"totalTokens": counted[-1]})
        return await there(request)

    with proxied(scripted()) as here:
        here.upstream.other = other
        words = {"base": here.url, "by_environment": by_environment, "stream": name == "gemini-sse"}
        agent = run(environment, "google_genai_agent", words, tmp_path)
        assert 1 == len(here.core)

    assert [] == there.defects
    assert ANSWER == agent["answer"]
    assert sum(counts) == agent["tokens"]
    assert CALLS + 2 == len(there.bodies)
    asked = f'"name": "{OURS[1]}", "args"'
    assert 2 == max(json.dumps(body).count(asked) for body in there.bodies)  # later cuts drop old iterations
    assert any(FACT in json.dumps(each) for body in there.bodies for each in own_results(body))
    assert not agent["recalls"]
    assert {WAYS[name].path.rpartition("/")[2]} == {path.rpartition("/")[2] for path in there.paths}
    assert max(map(len, there.raw)) < 25_000 < agent["kept"]
    assert counted == [agent["counted"]]
    assert counted[0] < 25_000
