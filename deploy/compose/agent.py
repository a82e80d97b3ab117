"""A scripted agent that never tires: runs that read a made-up code base, so that the dashboards have something to show.

Usage: agent.py TARGET [--runs N] [--pause SECONDS]

Each run sends its growing history, goes on as a model would (reads files, at times looks back by id or by search),
tells what a provider would have counted, and ends. One run in five never calls EndRun, one in ten sends a prompt that
is not valid: what goes wrong in practice shows as well. What it says that a provider counted is made up.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from prompt_sidecar.v1 import run_pb2, service_pb2_grpc, tool_pb2, trim_pb2, usage_pb2

DEADLINE: Final = 10.0
SIZE: Final = 64 << 20
WINDOW: Final = 32_000
"""Small, so that a run meets it within a minute."""
MODELS: Final = ("gpt-4o", "claude-sonnet-4-5", "a-model-of-mine")
WORDS: Final = (
    *(
        "account",
        "batch",
        "budget",
        "cache",
        "caller",
        "clock",
        "column",
        "cursor",
        "deadline",
        "digest",
        "entry",
        "event",
    ),
    *("field", "filter", "frame", "handle", "index", "invoice", "key", "ledger", "limit", "lock", "message", "metric"),
    *("node", "offset", "order", "packet", "parser", "path", "policy", "queue", "record", "reply", "retry", "route"),
    *("schema", "scope", "session", "shard", "span", "stash", "state", "store", "table", "task", "tree", "window"),
)


@dataclass(slots=True)
class Run:
    """One run: its history as an OpenAI chat, and what the sidecar told of it."""

    stub: service_pb2_grpc.SidecarServiceStub
    name: str
    random: random.Random
    model: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """Ids of originals that the model has seen."""

    def step(self) -> None:
        """Send the prompt as an agent does before each model call, and let the model call one tool."""
        answer = self.stub.TrimPrompt(
            trim_pb2.TrimPromptRequest(
                run_id=self.name,
                json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=json.dumps(self.messages).encode()),
                model=self.model,
                context_window=WINDOW,
                accept_bytes=SIZE,
            ),
            timeout=DEADLINE,
        )
        self.shown = [entry.stash_id for entry in answer.stash_entries]
        self._report(answer)
        call = f"call-{len(self.messages)}"
        name, arguments = self._chosen()
        self.messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                ],
            }
        )
        self.messages.append({"role": "tool", "tool_call_id": call, "content": self._use(name, arguments)})

    def _chosen(self) -> tuple[str, dict[str, Any]]:
        """Return the tool that the model calls; sometimes one of the sidecar's."""
        dice = self.random.random()
        if dice < 0.08 and self.shown:
            return "recall_elided_content", {"id": self.random.choice(self.shown)}
        if dice < 0.16:
            return "search_conversation_history", {"query": " ".join(self.random.sample(WORDS, 3))}
        return "read_file", {"path": f"src/{self.random.choice(WORDS)}.py"}

    def _use(self, name: str, arguments: dict[str, Any]) -> str:
        if name == "read_file":
            lines = range(self.random.randint(20, 400))
            return "\n".join(f"{line}: {' = '.join(self.random.sample(WORDS, 4))}" for line in lines)
        asked = tool_pb2.CallToolRequest(run_id=self.name, name=name, arguments_json=json.dumps(arguments))
        return str(self.stub.CallTool(asked, timeout=DEADLINE).content)

    def _report(self, answer: trim_pb2.TrimPromptResponse) -> None:
        real = round(answer.tokens.after * self.random.uniform(1.02, 1.06))
        cached = answer.cache.kept_prefix_tokens if self.random.random() < 0.95 else 0
        self.stub.ReportUsage(
            usage_pb2.ReportUsageRequest(
                run_id=self.name,
                model=self.model,
                input_tokens=real,
                cached_tokens=min(cached, real),
                output_tokens=self.random.randint(20, 400),
                revision=answer.revision,
            ),
            timeout=DEADLINE,
        )


def begin(stub: service_pb2_grpc.SidecarServiceStub, number: int, dice: random.Random) -> Run:
    """Return a run with its system prompt and task."""
    run = Run(stub, f"agent-{time.time_ns():x}-{number}", dice, dice.choice(MODELS))
    run.messages = [
        {"role": "system", "content": "You review a code base. Read what you need, then answer."},
        {"role": "user", "content": f"Where is the {dice.choice(WORDS)} of the {dice.choice(WORDS)} written?"},
    ]
    return run


def finish(run: Run, number: int) -> None:
    """End a run as agents do: most say so, every tenth sends one more prompt that is not valid, some just stop."""
    if number % 10 == 1:
        broken = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=b"not JSON")
        try:
            run.stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id=run.name, json=broken), timeout=DEADLINE)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
    if run.random.random() < 0.8:
        run.stub.EndRun(run_pb2.EndRunRequest(run_id=run.name), timeout=DEADLINE)


def main() -> int:
    """Work until told to stop, or through the asked number of runs; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", help="where the sidecar listens, such as 127.0.0.1:7717")
    parser.add_argument("--runs", type=int, default=0, help="stop after so many; 0: never (default)")
    parser.add_argument("--pause", type=float, default=0.5, metavar="SECONDS", help="between prompts (default: 0.5)")
    parser.add_argument("--seed", type=int, default=None, help="make the same choices each time")
    options = parser.parse_args()
    dice = random.Random(options.seed)  # noqa: S311, choices of a play, no secret
    sizes = [("grpc.max_receive_message_length", SIZE), ("grpc.max_send_message_length", SIZE)]
    with grpc.insecure_channel(options.target, options=sizes) as channel:
        stub = service_pb2_grpc.SidecarServiceStub(channel)
        number = 0
        while not options.runs or number < options.runs:
            number += 1
            run = begin(stub, number, dice)
            try:
                for _ in range(dice.randint(20, 60)):
                    run.step()
                    time.sleep(options.pause)
                finish(run, number)
            except grpc.RpcError as error:
                # The sidecar restarts or is stopped: a real agent would send its prompt untrimmed meanwhile.
                sys.stderr.write(f"agent: {error.code().name}; trying again\n")
                if options.runs:
                    return 1
                time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
