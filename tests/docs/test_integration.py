"""docs/integration.md: its agent sends only what is new, and its figures are those of a recorded run."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from prompt_sidecar.v1 import trim_pb2
from tests.docs.pages import ROOT, blocks
from tests.doors.grpc.serving import PATIENCE, Serving, serving
from tests.oracle.data import need
from tests.oracle.runs import body_of, recorded, turns

PAGE = (ROOT / "docs" / "integration.md").read_text(encoding="utf-8")
WINDOW_SHARE = 0.3
"""Of a run's final size, as the page has it."""
BYTES_A_TOKEN = 4
FIGURES = re.compile(r"requests take ([\d.]+) MB instead of ([\d.]+)\s+and answers ([\d.]+) MB\s+instead of ([\d.]+)\s")


def agent_of(served: Serving) -> Any:
    """The page's agent, with a server."""
    (block,) = [block for block in blocks("python") if block.page == "docs/integration.md"]
    names: dict[str, Any] = {}
    exec(compile(block.code, str(block), "exec"), names)
    return names["DeltaAgent"](served.stub, "run")


def body(turns: int) -> dict[str, Any]:
    """A chat with this many calls of a tool, each with a result that the cap elides."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What failed?"}]
    for turn in range(turns):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": f'{{"day":{turn}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": f"{turn} GET /items 200\n" * 4_000})
    return {"model": "gpt-4o", "messages": messages}


def whole(served: Serving, sent: dict[str, Any]) -> Any:
    """What a run of its own is answered that sends all and gets all."""
    request = trim_pb2.TrimPromptRequest(
        run_id="run",
        json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=json.dumps(sent).encode()),
    )
    return json.loads(served.stub.TrimPrompt(request, timeout=PATIENCE).json_body)


def test_the_agent_makes_the_prompts_of_one_that_sends_all() -> None:
    """At each call, and also where another process takes over in the middle of the run."""
    with serving() as one, serving() as other, serving() as third:
        agent = agent_of(one)
        for turn in range(1, 6):
            assert whole(third, body(turn)) == agent.prompt(body(turn))
            if turn == 3:
                agent.stub = other.stub


def test_the_figures_are_those_of_the_recorded_run() -> None:
    """Megabytes of requests and answers, sent whole and as deltas with edits."""
    run = recorded(need("runs/claude-code-large.anthropic.json.gz"))
    slices, lengths = run.slices(), turns(run.messages)
    assert f"run of {len(lengths)} calls" in PAGE
    sums = {mode: traffic(run, slices, lengths, edits=mode == "edits") for mode in ("whole", "edits")}
    (requests, answers), (few, changes) = sums["whole"], sums["edits"]
    figures = FIGURES.search(PAGE)
    assert figures
    # Ids and revisions are of another key each time, so their sizes differ by a little.
    assert pytest.approx([few, requests, changes, answers], abs=0.1) == [float(figure) for figure in figures.groups()]


def traffic(run: Any, slices: list[bytes], lengths: list[int], *, edits: bool) -> tuple[float, float]:
    """Megabytes that all requests and all answers of a run take."""
    sent = received = known = 0
    revision = b""
    with serving() as served:
        for length in lengths:
            request = trim_pb2.TrimPromptRequest(
                run_id="run",
                json=trim_pb2.JsonPrompt(
                    format=trim_pb2.FORMAT_ANTHROPIC_MESSAGES,
                    body=body_of(run.format, slices[known:length], system=run.system),
                ),
                context_window=int(len(run.body()) / BYTES_A_TOKEN * WINDOW_SHARE),
                accept_bytes=1 << 30,
            )
            if edits:
                request.base_revision, request.response_mode = revision, trim_pb2.RESPONSE_MODE_EDITS
            answer = served.stub.TrimPrompt(request, timeout=PATIENCE)
            if edits:
                revision, known = answer.revision, length
            sent += request.ByteSize()
            received += answer.ByteSize()
    return sent / 1e6, received / 1e6
