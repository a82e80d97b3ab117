"""Agents that go on until a ceiling refuses them, while their sidecar is killed with SIGKILL and started again.

`python -m tests.lab.ceilings` plays 1,000 runs at once. What an agent was given an answer for counts: it would have
sent that prompt to its model. A run passes its ceiling by the answers that it got beyond it, and by their tokens.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from prompt_sidecar.v1 import service_pb2_grpc
from tests.cli.running import PATIENCE
from tests.lab.harness.prompts import asked
from tests.lab.harness.servers import Server, sidecar
from tests.lab.harness.tables import options

TRANSIENT: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
"""What a call gets whose server is killed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many of what."""

    runs: int
    threads: int
    kills: int
    calls: int
    """Ceiling on the model calls of a run; 0: none."""
    tokens: int = 0
    """Ceiling on its input tokens; 0: none."""
    revisions: bool = True
    """Whether agents send back revisions. Without them the history alone says what a run has used."""
    seed: int = 1


@dataclass(slots=True)
class Agent:
    """One run; used by one thread at a time."""

    run_id: str
    messages: list[dict[str, Any]] = field(default_factory=lambda: [{"role": "user", "content": "Read all files."}])
    revision: bytes = b""
    calls: int = 0
    """Prompts that it got."""
    tokens: int = 0
    """Of them."""
    refused: str = ""
    """The error that ended it."""

    def step(self, stub: service_pb2_grpc.SidecarServiceStub, plan: Plan) -> bool:
        """Send the next prompt and pretend to call the model; whether there was an answer."""
        body = json.dumps({"model": "gpt-5", "messages": self.messages}).encode()
        request = asked(self.run_id, "openai_chat", body, revision=self.revision if plan.revisions else b"")
        try:
            answer = stub.TrimPrompt(request, wait_for_ready=True, timeout=PATIENCE)
        except grpc.RpcError as error:
            if error.code() in TRANSIENT:
                return False
            self.refused = _reason(error)
            return False
        self.calls += 1
        self.tokens += answer.tokens.after
        self.revision = answer.revision
        number = str(self.calls)
        call = {"id": number, "type": "function", "function": {"name": "read", "arguments": f'{{"file": {number}}}'}}
        self.messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": number, "content": f"Line of file {number}.\n" * 20},
        ]
        return True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all runs."""

    runs: int
    kills: int
    answers: int
    retried: int
    """Calls whose server was killed, and which were made again."""
    most_calls: int
    most_tokens: int
    reasons: frozenset[str]
    """Errors by which runs ended."""


def play(plan: Plan, folder: Path) -> Outcome:
    """Run all agents to their end, with a server on a unix socket in `folder`."""
    agents = [Agent(f"run-{number}") for number in range(plan.runs)]
    random.Random(plan.seed).shuffle(agents)
    progress, done = threading.Condition(), itertools.count(1)
    state = {"answers": 0, "retried": 0, "ended": 0}

    def work(mine: list[Agent]) -> None:
        with grpc.insecure_channel(f"unix:{folder / 's'}") as channel:
            stub = service_pb2_grpc.SidecarServiceStub(channel)
            waiting = list(mine)
            while waiting:  # one call of each in turn, so that all runs are under way at once
                for agent in waiting:
                    answered = agent.step(stub, plan)
                    with progress:
                        state["answers"] += answered
                        state["retried"] += not (answered or agent.refused)
                        progress.notify_all()
                waiting = [agent for agent in waiting if not agent.refused]
        with progress:
            state["ended"] = next(done)
            progress.notify_all()

    threads = [threading.Thread(target=work, args=(agents[at :: plan.threads],)) for at in range(plan.threads)]
    expected = plan.runs * (plan.calls or 8)
    marks = [expected * (number + 1) // (plan.kills + 1) for number in range(plan.kills)]
    with ExitStack() as stack:
        server = stack.enter_context(_server(plan, folder))
        for thread in threads:
            thread.start()
        kills = 0
        for mark in marks:
            with progress:
                reached = progress.wait_for(
                    lambda mark=mark: state["answers"] >= mark or state["ended"] == plan.threads,  # type: ignore[misc]
                    PATIENCE * 10,
                )
            assert reached
            server.kill()
            (folder / "s").unlink(missing_ok=True)
            server = stack.enter_context(_server(plan, folder))
            kills += 1
        for thread in threads:
            thread.join()
    return Outcome(
        runs=plan.runs,
        kills=kills,
        answers=state["answers"],
        retried=state["retried"],
        most_calls=max(agent.calls for agent in agents),
        most_tokens=max(agent.tokens for agent in agents),
        reasons=frozenset(agent.refused for agent in agents),
    )


def _server(plan: Plan, folder: Path) -> Server:
    settings = {
        "KEY": "k" * 32,
        "SERVER__SOCKET": str(folder / "s"),
        "TELEMETRY__METRICS_LISTEN": "",
        "CEILINGS__RUN_MODEL_CALLS": str(plan.calls),
        "CEILINGS__RUN_MODEL_CALLS_ACTION": "refuse",
        "CEILINGS__RUN_INPUT_TOKENS": str(plan.tokens),
        "CEILINGS__RUN_INPUT_TOKENS_ACTION": "refuse",
    }
    return sidecar(settings, listen="")


def _reason(error: grpc.RpcError) -> str:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info.reason
    return str(error.code())


def main() -> int:
    """Play, and print what happened; exit 1 if a run passed its ceiling by more than its call in flight."""
    parser = options("python -m tests.lab.ceilings", __doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--threads", type=int, default=32, help="calls in flight at a time")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--calls", type=int, default=8, help="ceiling on the model calls of a run")
    parser.add_argument("--tokens", type=int, default=0, help="ceiling on its input tokens; 0: none")
    parser.add_argument("--without-revisions", action="store_true", help="agents send no revision back")
    asked = parser.parse_args()
    plan = Plan(asked.runs, asked.threads, asked.kills, asked.calls, asked.tokens, not asked.without_revisions)
    with tempfile.TemporaryDirectory() as folder:
        outcome = play(plan, Path(folder))
    print(
        f"{outcome.runs:,} runs, {outcome.kills} SIGKILLs: {outcome.answers:,} answers, {outcome.retried:,} calls made "
        f"again; a run had at most {outcome.most_calls:,} calls"
        + (f" of {plan.calls:,}" if plan.calls else "")
        + f" and {outcome.most_tokens:,} tokens"
        + (f" of {plan.tokens:,}" if plan.tokens else "")
        + f"; all ended with {', '.join(sorted(outcome.reasons))}"
    )
    passed = (plan.calls and outcome.most_calls > plan.calls + 1) or outcome.reasons != {"RUN_CEILING"}
    return int(bool(passed))


if __name__ == "__main__":
    sys.exit(main())
