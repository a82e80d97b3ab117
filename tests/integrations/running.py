"""Runs an agent in its framework's environment, between a real sidecar and the scripted provider."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from prompt_sidecar.client import Client
from tests.client.provider import TOKENS
from tests.client.serving import PATIENT
from tests.doors.grpc.serving import serving
from tests.integrations.environments import ready
from tests.integrations.upstream import ANSWER, STEPS, WINDOW, Upstream
from tests.lab.harness.components import ROOT
from tests.lab.harness.environments import Environment

PATIENCE: Final = 300.0
"""Seconds for an agent's run; it takes less than ten."""
RUN: Final = "run"


def variables(home: Path, **more: str) -> dict[str, str]:
    """The environment variables of a program: none of this process's settings, and loopback without a proxy."""
    return {
        "PATH": os.defpath,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "sidecar"), str(ROOT)]),
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        **more,
    }


def run(environment: Environment, program: str, words: Mapping[str, Any], home: Path) -> Any:
    """Run an agent to its end; return what it told."""
    command = [str(environment.python), "-m", f"tests.integrations.programs.{program}", json.dumps(words)]
    done = subprocess.run(
        command, env=variables(home), capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=home
    )
    assert 0 == done.returncode, done.stderr[-4_000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def sidecar() -> Iterator[tuple[str, Client]]:
    """A real sidecar's address and a client of it."""
    with serving() as served, Client(served.address, deadline=PATIENT) as client:
        yield served.address, client


def long_run(name: str, program: str, home: Path, *, recall: bool = True, **words: Any) -> tuple[Any, Upstream, Any]:
    """Run an agent that makes 32 calls over a window of twelve; check what holds for each framework.

    Returns:
        What it told, the provider, and the run's figures.
    """
    environment = ready(name)
    with Upstream() as there, sidecar() as (address, client):
        settings = {
            "stream": False,
            "options": {},
            **words,
            "sidecar": address,
            "upstream": there.url,
            "window": WINDOW,
        }
        result = run(environment, program, settings, home)
        figures: Any = client.get_run(RUN)
    assert [] == there.defects
    assert 0 == there.refused
    assert ANSWER == result["answer"]
    calls = STEPS + 1 + recall
    assert calls == len(there.bodies)
    assert 0 == result["untrimmed"]
    assert figures.usage.reports == calls, f"{figures.usage.reports} of {calls} reported"
    expected = [calls * TOKENS[name] for name in ("input", "cached", "output")]
    usage = figures.usage
    assert expected == [usage.input_tokens, usage.cached_tokens, usage.output_tokens]
    if recall:
        assert "the build number of iteration" in there.recalled
    else:
        assert not there.asked
    return result, there, figures


def without_a_sidecar(name: str, program: str, home: Path, **words: Any) -> Any:
    """Run an agent of three calls whose sidecar is not there; return what it told."""
    environment = ready(name)
    with Upstream(steps=3) as there:
        settings = {"stream": False, "options": {}, **words, "sidecar": "127.0.0.1:1", "upstream": there.url}
        result = run(environment, program, {**settings, "window": WINDOW}, home)
    assert [] == there.defects
    assert ANSWER == result["answer"]
    assert 4 == result["untrimmed"]
    return result


def refused_run(name: str, program: str, home: Path, **words: Any) -> None:
    """Run an agent whose provider takes less than the agent says; check that it does not see the refusals."""
    environment = ready(name)
    with Upstream(most_bytes=42_000) as there, sidecar() as (address, client):
        settings = {
            "stream": False,
            "options": {},
            **words,
            "sidecar": address,
            "upstream": there.url,
            "window": 60_000,
        }
        result = run(environment, program, settings, home)
        figures: Any = client.get_run(RUN)
    assert [] == there.defects
    assert ANSWER == result["answer"]
    assert 1 <= there.refused <= 3
    assert there.refused == figures.usage.refusals
    assert figures.usage.learned_limit
