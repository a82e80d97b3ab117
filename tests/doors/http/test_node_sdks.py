"""The providers' official SDKs for Node work through the door by a base URL alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.agents import FORMATS, TOOL
from tests.doors.http.serving import proxied
from tests.doors.http.test_sdks import OURS, STREAMED
from tests.integrations.npm import installed

NODE = Path(__file__).parent / "node"
CALLS = 15


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent, with its packages beside it."""
    return installed(NODE, tmp_path_factory) / "agent.mjs"


class _Model:
    """Calls the agent's tool; once something was elided, recalls it, once."""

    def __init__(self) -> None:
        self.calls = 0
        self.recalled = ""

    def __call__(self, body: Any) -> Says:
        text = json.dumps(body)
        found = re.search(r"\\u2014 id=(\w{10})", text)
        if found and not self.recalled:
            self.recalled = found[1]
            return Says("I look that up.", [("own-1", OURS[0], {"id": self.recalled})])
        if self.calls == CALLS:
            return Says("All builds were looked at.")
        self.calls += 1
        return Says(f"Step {self.calls}.", [(f"call-{self.calls}", TOOL, {})])


@pytest.mark.parametrize("format", FORMATS)
@STREAMED
def test_a_run_over_the_limit_with_a_recall(agent: Path, format: str, stream: bool) -> None:
    """It is trimmed, the recall is answered by the sidecar, and the agent sees nothing of either."""
    model = _Model()
    with proxied(model) as here:
        addresses = {"OPENAI_BASE_URL": f"{here.url}/v1", "ANTHROPIC_BASE_URL": here.url}
        keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
        ended = subprocess.run(
            ["node", str(agent), format, str(stream).lower()], env=os.environ | addresses | keys,
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    assert [] == here.upstream.defects
    assert 0 == ended.returncode, ended.stderr
    held = ended.stdout
    assert "All builds were looked at." in held
    assert CALLS == sum(f"The log of call-{number}:" in held for number in range(1, CALLS + 1))
    assert model.recalled
    assert "own-1" not in held
    assert not any(name in held for name in OURS)
    answered = [json.dumps(body) for body in here.upstream.bodies if "own-1" in json.dumps(body)]
    assert "The log of call-" in answered[0]
    assert CALLS + 2 == len(here.upstream.sent)
    assert max(len(each.raw) for each in here.upstream.sent) < len(held)


def test_no_package_is_pinned_by_address() -> None:
    """The pins hold versions and hashes, and no registry's address."""
    pins = (NODE / "npm-shrinkwrap.json").read_text()
    assert '"resolved"' not in pins
    assert pins.count('"integrity"') == pins.count('"node_modules/')
