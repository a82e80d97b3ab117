"""A small agent in Python with the sidecar at its side.

    python agent.py TARGET LOG [SECONDS]

TARGET is 127.0.0.1:7717 or unix:///path, LOG the file that its tool reads, SECONDS the deadline of each call. Where the
sidecar is down, slow or refuses, `prompt_sidecar.client` gives a prompt back that fits without it, and counts it.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

from prompt_sidecar.client import Client, ClientError, Run

LABEL = re.compile(r"content \w+ — id=(\w+)")
LOG_TOOL = {
    "type": "function",
    "function": {
        "name": "read_log",
        "description": "Read a day's log.",
        "parameters": {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]},
    },
}


def model(turn: int, *, messages: list[Any], **_: Any) -> dict[str, Any]:
    """Stand in for the provider: read twelve days, recall what the first label in the prompt stands for, be done."""
    label = LABEL.search(json.dumps(messages, ensure_ascii=False))
    if turn <= 12:
        name, arguments = "read_log", json.dumps({"day": turn})
    elif turn == 13 and label:
        name, arguments = "recall_elided_content", json.dumps({"id": label[1]})
    else:
        return {"role": "assistant", "content": "I have read all twelve days."}
    function = {"name": name, "arguments": arguments}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def read_log(path: str, *, day: int) -> str:
    """The agent's own tool."""
    return f"Log of day {day}\n{Path(path).read_text(encoding='utf-8')}"


def recall(run: Run, name: str, arguments: str) -> str:
    """One of the sidecar's tools; what it answers goes to the model unchanged, as it carries a tag."""
    try:
        return run.client.call_tool(run.id, name, arguments).content
    except ClientError:
        return "This tool does not answer now. Go on without it."


def work(run: Run, log: str) -> dict[str, Any]:
    """Run the agent to its end; return what it tells of itself."""
    offered = run.tools()  # none if there is no sidecar: the run goes on without
    recalls = {tool["function"]["name"] for tool in offered}
    if not recalls:
        run.options["recall_unavailable"] = True
    history: list[Any] = [{"role": "user", "content": "What happened in these twelve days?"}]
    iterations, recalled = 0, False
    while True:
        iterations += 1
        prompt = run.openai_chat(model="gpt-4o", messages=history, tools=[LOG_TOOL, *offered])
        last = run.last
        assert last is not None
        print(f"iteration {iterations}: {'trimmed' if last.trimmed else f'untrimmed ({last.reason})'}", flush=True)
        answer = model(
            iterations, **prompt
        )  # a real agent: openai.chat.completions.create(**prompt), run.report(answer)
        history.append(answer)  # its own history stays untrimmed
        for call in answer.get("tool_calls", ()):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            content = recall(run, name, arguments) if name in recalls else read_log(log, **json.loads(arguments))
            recalled = recalled or (name in recalls and "Log of day 1\n" in content)
            history.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        if not answer.get("tool_calls"):
            trimmed, untrimmed = run.client.trimmed, run.client.untrimmed
            counted = {"iterations": iterations, "trimmed": trimmed, "untrimmed": untrimmed}
            return {**counted, "recalled": recalled, "finished": True}


def main(target: str, log: str, seconds: str = "2") -> None:
    """Connect, run, tell."""
    with Client(target, deadline=float(seconds)) as client:
        with client.run(f"run-{uuid.uuid4()}", context_window=16_000, output_reserve=1_000) as run:
            result = work(run, log)
        print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
