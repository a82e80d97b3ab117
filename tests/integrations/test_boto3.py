"""An agent on Amazon's SDK behind the HTTP door, in an environment of its own, by its variables alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.calls.options import ServerOptions
from tests.client.histories import FACT
from tests.client.provider import Says
from tests.doors.grpc.test_callers import certificates
from tests.doors.http.path_models import WAYS, PathUpstream
from tests.doors.http.serving import proxied
from tests.doors.http.test_path_recall import own_results
from tests.doors.http.test_sdks import CALLS, OURS, Script
from tests.doors.http.upstream import scripted
from tests.integrations.environments import ready
from tests.integrations.running import run

__all__ = ["certificates"]

EACH_WAY = pytest.mark.parametrize("name", ["bedrock", "bedrock-stream"], ids=["whole", "streamed"])


def _run(name: str, model: Callable[[Any], Says], folder: Path, home: Path) -> tuple[Any, PathUpstream]:
    """Run the agent, which sends a bearer key over TLS alone; return what it told, and the provider."""
    environment = ready("boto3")
    there = PathUpstream(model, WAYS[name])
    server = ServerOptions(tls_certificate=str(folder / "server.pem"), tls_key=str(folder / "server.key"))
    with proxied(scripted(), server=server) as here:
        here.upstream.other = there
        base = f"https://localhost:{here.door.port}"
        words = {"base": base, "authority": str(folder / "ca.pem"), "stream": name == "bedrock-stream"}
        return run(environment, "boto3_agent", words, home), there


@EACH_WAY
def test_a_long_run(name: str, certificates: Path, tmp_path: Path) -> None:
    """Each prompt fits and is valid, the SDK reads each answer, and the model recalls without the agent."""
    script = Script()
    agent, there = _run(name, script, certificates, tmp_path)

    assert [] == there.defects
    assert "All builds were looked at." == agent["answer"]
    assert CALLS == agent["answered"]
    assert not agent["recalls"]
    assert 20 * script.turns == agent["output"]
    assert {WAYS[name].path} == set(there.paths)
    assert script.turns == len(there.bodies) > CALLS + 10
    assert max(map(len, there.raw)) < 25_000 < agent["kept"]
    assert any(FACT in text for body in there.bodies for text in own_results(body))


@EACH_WAY
def test_an_error_in_a_hidden_turn(name: str, certificates: Path, tmp_path: Path) -> None:
    """The SDK raises its own error for it, also in a stream that has begun."""
    own = Says("A moment.", [("own-1", OURS[1], {"query": "x"})])
    agent, there = _run(name, scripted(own, Says("overloaded", status=503)), certificates, tmp_path)

    assert "overloaded" in agent["error"]
    assert 2 == len(there.bodies), json.dumps(there.bodies)
