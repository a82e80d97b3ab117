"""`make run-pages`: let agents work with the real program, and photograph its pages of runs for docs/images."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Final
from urllib.request import ProxyHandler, build_opener

from prompt_sidecar.v1 import policy_pb2, service_pb2_grpc
from tests.doors.admin.browser import PATIENCE, look
from tests.lab.harness.agents import Agent, Habits
from tests.lab.harness.facts import Facts
from tests.lab.harness.pictures import CHROMIUM, IMAGES, NO_BROWSER, save
from tests.lab.harness.servers import LOCAL, sidecar
from tests.lab.harness.tables import sorry
from tests.oracle.runs import Shape, synthetic
from tests.oracle.shapes import ANTHROPIC_MESSAGES, OPENAI_CHAT

COLOURS: Final = 128
"""Of a picture's palette."""
HEIGHTS: Final = {"runs.png": 560, "run.png": 1_290}
"""Pixels: of the page of a run down to the first recalls."""
SHAPE: Final = Shape(iterations=60, median=2_000, parallel=2, defects=False)
FIRST, LEAN = policy_pb2.PRESET_CACHE_FIRST, policy_pb2.PRESET_LEAN
AGENTS: Final = (
    ("release-notes", ANTHROPIC_MESSAGES, Habits("claude-sonnet-4-5", 48_000, LEAN)),
    ("triage-inbox", OPENAI_CHAT, Habits("gpt-4o", 24_000, FIRST, searches=0.3)),
    ("upgrade-django", ANTHROPIC_MESSAGES, Habits("claude-opus-4-1", 40_000, FIRST, mistakes=0.1)),
    ("fix-flaky-test", OPENAI_CHAT, Habits("gpt-4.1", 40_000, FIRST, recalls=0.3)),
)
"""Runs, the one that is photographed last."""


def make() -> int:
    """Make the pictures; return the exit code."""
    if CHROMIUM is None:
        return sorry("run-pages", NO_BROWSER)
    with sidecar({"TELEMETRY__METRICS_LISTEN": "", "ADMIN__LISTEN": LOCAL}) as served:
        site = served.found(r"pages of runs at (http://\S+)/runs")
        _work(served.stub)
        with build_opener(ProxyHandler({})).open(f"{site}/runs.json", timeout=PATIENCE) as answer:
            newest = json.load(answer)["runs"][0]["key"]
        _photograph(f"{site}/runs", IMAGES / "runs.png", 1_400)
        _photograph(f"{site}/runs/{newest}", IMAGES / "run.png", 1_200)
    return 0


def _work(stub: service_pb2_grpc.SidecarServiceStub) -> None:
    for seed, (name, format, habits) in enumerate(AGENTS):
        agent = Agent(stub, 0, name, habits, synthetic(seed, format, SHAPE), random.Random(seed), Facts())
        for new in agent.prompts():
            agent.turn(new)


def _photograph(address: str, path: Path, width: int) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        seen = look(address, Path(folder), width)
    if seen.problems:
        raise SystemExit(f"{address}: {seen.problems}")
    save(seen.picture, path, COLOURS, height=HEIGHTS[path.name])
    print(f"wrote {path.name}")


if __name__ == "__main__":
    sys.exit(make())
