"""The scripted agent of the compose file keeps a real sidecar busy with all that the dashboards show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.running import PATIENCE, ROOT, program

AGENT = Path(__file__).parents[2] / "deploy" / "compose" / "agent.py"
METRICS = r"metrics at http://(\S+)/metrics"
READY = r"ready: listening on (\S+)"


def _agent(target: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(AGENT), target, "--pause", "0", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    """What a real sidecar counted while the agent went through twelve runs without a fault, by name and by labels."""
    with program("--listen", "127.0.0.1:0", TELEMETRY__METRICS_LISTEN="127.0.0.1:0") as server:
        metrics = server.wait_for(METRICS)[1]
        done = _agent(server.wait_for(READY)[1], "--runs", "12", "--seed", "1")
        assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
        with urlopen(f"http://{metrics}/metrics", timeout=PATIENCE) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        f"{sample.name} {' '.join(sample.labels.values())}".strip(): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.parametrize(
    "pattern",
    [
        "prompt_sidecar_prompts_total .*trimmed.*",
        "prompt_sidecar_cache_breaks_total batch_point",
        "prompt_sidecar_retrievals_total hit tool",
        "prompt_sidecar_searches_total found tool",
        "prompt_sidecar_provider_cache_total as_expected",
        "prompt_sidecar_provider_cache_total break_suspected",
        "prompt_sidecar_runs_forgotten_total ended",
        ".*TrimPrompt INVALID_ARGUMENT.*",
    ],
)
def test_it_shows(figures: dict[str, float], pattern: str) -> None:
    """Each of the stories that the dashboards tell happens within a few minutes of it."""
    found = {name: value for name, value in figures.items() if re.fullmatch(pattern, name)}

    assert found
    assert sum(found.values()) > 0


def test_it_says_when_the_sidecar_is_not_there() -> None:
    """Asked for a number of runs it ends with a status; else it would try again for ever."""
    done = _agent("127.0.0.1:1", "--runs", "1")

    assert (1, "agent: UNAVAILABLE; trying again\n") == (done.returncode, done.stderr)
