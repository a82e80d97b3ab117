"""Agents that talk to a sidecar over the wire: it may be down for a while, or be killed.

What they keep, and why that matters, is told in `agents.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import orjson

from prompt_sidecar.client import Client
from prompt_sidecar.v1 import policy_pb2, service_pb2_grpc, trim_pb2
from tests.cli.running import program
from tests.client.serving import PATIENT
from tests.conformance import agents
from tests.conformance.agents import RESTARTS, Agent
from tests.conformance.conversations import Conversation
from tests.doors.grpc.serving import WIDE, Serving, serving
from tests.promises.engine import KEY


class Switch(grpc.GenericRpcHandler):
    """Stands between a client and a server: hands calls on, or says UNAVAILABLE as nobody's port does."""

    def __init__(self) -> None:
        self.served: Serving | None = None
        self.up = True

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Every method."""
        method = handler_call_details.method

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            if not self.up or self.served is None:
                context.abort(grpc.StatusCode.UNAVAILABLE, "nobody is here")
            assert self.served is not None
            call: Any = self.served.channel.unary_unary(method)
            try:
                answered: bytes = call(request)
            except grpc.RpcError as error:
                failure: Any = error
                context.abort(failure.code(), str(failure.details()))
            return answered

        return grpc.unary_unary_rpc_method_handler(answer)


class Through(Agent):
    """A Python agent with the client of this project, whose sidecar is down for some turns.

    The client gives back what is to be sent all the same. In the last of those times the sidecar loses its memory too.
    """

    down: Sequence[tuple[float, int]] = ((0.2, 1), (0.45, 3), (0.8, 2))
    """When it is down: the share of the run at which it begins, and for how many turns."""
    native = False
    """Whether prompts are objects rather than bytes."""

    def __init__(self, run: Conversation, preset: str, limit: int) -> None:
        self.run, self.limit, self.preset = run, limit, preset
        self.history: list[bytes] = []
        self.turn = 0
        self.untrimmed = 0
        self.stack = ExitStack()
        self.switch = Switch()
        self.server = self.stack.enter_context(ExitStack())
        self.switch.served = self.server.enter_context(serving())
        pool = self.stack.enter_context(ThreadPoolExecutor(4))
        front = grpc.server(pool, handlers=[self.switch], options=WIDE)
        port = front.add_insecure_port("127.0.0.1:0")
        front.start()
        self.stack.callback(lambda: front.stop(0).wait())
        self.client = self.stack.enter_context(Client(f"127.0.0.1:{port}", deadline=PATIENT))

    def prompt(self, given: Sequence[bytes]) -> bytes:
        """Ask the client, which asks a sidecar that is there or not."""
        self.history += given
        windows = [(int(share * len(self.run.steps)), turns) for share, turns in self.down]
        self.switch.up = not any(start <= self.turn < start + turns for start, turns in windows)
        if self.turn == sum(windows[-1]):
            self.server.close()
            self.switch.served = self.server.enter_context(serving())
        self.turn += 1
        body = self.run.body(self.history)
        prompt: Any = orjson.loads(body) if self.native else body
        made = self.client.trim(
            "run",
            prompt,
            format=self.run.format,  # type: ignore[arg-type]
            model=self.run.model,
            context_window=self.limit,
            output_reserve=0,
            policy={"preset": self.preset},
        )
        self.untrimmed += not made.trimmed
        return orjson.dumps(made.prompt) if self.native else bytes(made.prompt)

    def took(self, answer: Sequence[bytes]) -> None:
        """Append it."""
        self.history += answer

    def close(self) -> None:
        """End client, servers and processes."""
        self.stack.close()


class ThroughNative(Through):
    """The same with prompts as objects, which the client patches."""

    native = True


class ThroughLate(Through):
    """The same; the sidecar is not up yet when the run begins."""

    down = ((0.0, 2), (0.6, 1))


class Killed(Agent):
    """Talks to a sidecar in a process of its own, which is killed with SIGKILL and started anew."""

    def __init__(self, run: Conversation, preset: str, limit: int) -> None:
        self.run, self.limit, self.preset = run, limit, preset
        self.history: list[bytes] = []
        self.turn = 0
        self.stack = ExitStack()
        self.socket = Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "s"
        self.start()

    def start(self) -> None:
        """Start a process, and connect to it."""
        settings = {"KEY": KEY.decode(), "LOG__FORMAT": "text"}
        self.process = self.stack.enter_context(program("--listen", "", "--socket", str(self.socket), **settings))
        self.process.wait_for("ready: listening on")
        channel = self.stack.enter_context(grpc.insecure_channel(f"unix:{self.socket}", options=WIDE))
        self.stub = service_pb2_grpc.SidecarServiceStub(channel)

    def prompt(self, given: Sequence[bytes]) -> bytes:
        """Ask this turn's process."""
        self.history += given
        if self.turn in [int(share * len(self.run.steps)) for share in RESTARTS[1::2]]:
            self.process.process.kill()
            self.process.end()
            self.start()
        self.turn += 1
        sent = trim_pb2.JsonPrompt(
            format=trim_pb2.Format.Value(f"FORMAT_{self.run.format.upper()}"), body=self.run.body(self.history)
        )
        named = policy_pb2.Policy(preset=policy_pb2.Preset.Value(f"PRESET_{self.preset.upper()}"))
        request = trim_pb2.TrimPromptRequest(
            run_id="run",
            json=sent,
            model=self.run.model,
            context_window=self.limit,
            output_reserve=0,
            policy=named,
            accept_bytes=1 << 30,
        )
        return self.stub.TrimPrompt(request).json_body

    def took(self, answer: Sequence[bytes]) -> None:
        """Append it."""
        self.history += answer

    def close(self) -> None:
        """End client, servers and processes."""
        self.stack.close()


WIRED: Mapping[str, Callable[[Conversation, str, int], Agent]] = {
    "client": Through,
    "client-native": ThroughNative,
    "client-late": ThroughLate,
    "killed": Killed,
}
"""These agents by name. They are slower."""
STYLES: Mapping[str, Callable[[Conversation, str, int], Agent]] = {**agents.STYLES, **WIRED}
"""All agents, by the names that the program takes."""
