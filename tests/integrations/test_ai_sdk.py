"""Agents on the AI SDK for TypeScript, whose prompts are trimmed in `prepareStep` as docs/integrations.md shows."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.client import Client
from tests.client.provider import TOKENS, Says
from tests.doors.http import upstream as http_upstream
from tests.doors.http.upstream import scripted
from tests.integrations.npm import installed
from tests.integrations.running import PATIENCE, RUN, sidecar, variables
from tests.integrations.test_masked import VALUE, calls_with_a_mask, masking
from tests.integrations.upstream import ANSWER, STEPS, WINDOW, Upstream
from tests.lab.harness.components import ROOT

FOLDER = Path(__file__).parent / "ai_sdk"
APIS = ("openai_chat", "openai_responses", "anthropic_messages")
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent, with its packages beside it."""
    return installed(FOLDER, tmp_path_factory) / "agent.mjs"


def run(agent: Path, home: Path, **words: Any) -> Any:
    """Run an agent to its end; return what it told."""
    settings = {"protos": str(ROOT / "protos"), "window": WINDOW, "seconds": 60, **words}
    done = subprocess.run(
        ["node", str(agent), json.dumps(settings)],
        env=variables(home), cwd=home, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr[-4_000:]
    return json.loads(done.stdout.splitlines()[-1])


@STREAMED
@pytest.mark.parametrize("api", APIS)
def test_a_long_run(agent: Path, api: str, stream: bool, tmp_path: Path) -> None:
    """Each prompt fits and is valid, usage is reported, the model recalls once, the history stays whole."""
    with Upstream() as there, sidecar() as (address, client):
        result = run(agent, tmp_path, api=api, stream=stream, sidecar=address, upstream=there.url)
        usage = _usage(client)

    assert [] == there.defects
    assert 0 == there.refused
    assert ANSWER == result["answer"]
    assert STEPS + 2 == len(there.bodies) == usage.reports
    assert (STEPS + 2) * TOKENS["input"] == usage.input_tokens
    assert (STEPS + 2) * TOKENS["cached"] == usage.cached_tokens
    assert "the build number of iteration" in there.recalled
    assert result["kept"] > 70_000
    assert bool(result["pieces"]) is stream
    assert 0 == result["untrimmed"]


def _usage(client: Client) -> Any:
    figures: Any = client.get_run(RUN)
    return figures.usage


@STREAMED
def test_without_the_sidecar_the_agent_goes_on(agent: Path, stream: bool, tmp_path: Path) -> None:
    """Its tools are not offered, and its prompts go as they are."""
    with Upstream(steps=3) as there:
        result = run(agent, tmp_path, api="openai_chat", stream=stream, sidecar="127.0.0.1:1", upstream=there.url)

    assert [] == there.defects
    assert ANSWER == result["answer"]
    assert (4, []) == (result["untrimmed"], result["tools"])


@STREAMED
@pytest.mark.parametrize("api", APIS)
def test_tools_get_values(agent: Path, api: str, stream: bool, tmp_path: Path) -> None:
    """Those that the settings name. Another tool gets the mask, and the agent's own history keeps masks in calls."""
    words = {"api": api, "stream": stream, "window": 100_000, "question": f"Deploy with {VALUE}."}
    with http_upstream.Upstream(scripted(calls_with_a_mask, Says("Done."))) as there, masking() as address:
        result = run(agent, tmp_path, sidecar=address, upstream=there.url, **words)
        sent = [each.raw for each in there.sent]

    assert [] == there.defects
    assert "Done." == result["answer"]
    assert f"a {VALUE} b" == result["got"]["deploy"]
    assert result["got"]["show"].startswith("⟦github_token:")
    assert VALUE not in result["held"]
    assert 2 == len(sent)
    assert [] == [body for body in sent if VALUE.encode() in body]


def test_without_the_sidecar_tools_get_what_the_model_wrote(agent: Path, tmp_path: Path) -> None:
    """A mask that nobody knows stays, and the agent goes on."""
    mask = "⟦github_token:aaaaaaaaaa⟧"
    calls = Says("", [("c1", "deploy", {"token": mask})])
    words = {"api": "openai_chat", "stream": False, "sidecar": "127.0.0.1:1", "question": "Deploy."}
    with http_upstream.Upstream(scripted(calls, Says("Done."))) as there:
        result = run(agent, tmp_path, upstream=there.url, **words)

    assert "Done." == result["answer"]
    assert {"deploy": mask} == result["got"]


def test_the_page_shows_the_tested_code() -> None:
    """The module in docs/integrations.md is the file that the tests run."""
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    section = page.partition("## AI SDK")[2].partition("\n## ")[0]
    shown = re.findall(r"```js\n(.*?)```", section, re.DOTALL)

    assert (FOLDER / "sidecar.mjs").read_text(encoding="utf-8") in shown


def test_no_package_is_pinned_by_address() -> None:
    """The pins hold versions and hashes, and no registry's address."""
    pins = (FOLDER / "npm-shrinkwrap.json").read_text()
    assert '"resolved"' not in pins
    assert pins.count('"integrity"') == pins.count('"node_modules/')
