"""One sidecar with all doors, and an agent at each, that bring about what an alert is for.

What the agents do is the same at each door: send the prompts of a run, have the model called, say what the provider
counted, ask for originals. So an alert that fires through one door alone shows what another door does not count.
"""

from __future__ import annotations

import http.client
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import grpc

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.doors.envoy.door import SERVICE, EnvoyDoor
from prompt_sidecar.doors.envoy.options import EnvoyOptions
from prompt_sidecar.doors.envoy.v1 import ext_proc_pb2 as wire
from prompt_sidecar.doors.grpc.lifecycle import GrpcDoor
from prompt_sidecar.doors.http.lifecycle import HttpDoor
from prompt_sidecar.engine.runs.metering import Rules
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.v1 import retrieve_pb2, service_pb2_grpc, trim_pb2, usage_pb2
from tests.client.provider import Says
from tests.doors.envoy.test_door import body as envoy_body
from tests.doors.envoy.test_door import headers as envoy_headers
from tests.doors.grpc.serving import PATIENCE, WIDE, core_of
from tests.doors.http.serving import KEY, options
from tests.doors.http.upstream import Upstream
from tests.telemetry.watched import Figures, Telling, telling

WINDOW: Final = 4_500
TOOL: Final = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
Messages = list[dict[str, Any]]


class Counted(Protocol):
    """What the provider says that a prompt took, for its body's bytes."""

    def __call__(self, size: int) -> dict[str, int]:
        """Return input, cached and output tokens."""
        ...


def as_sent(size: int) -> dict[str, int]:
    """Close to what the sidecar estimates of these prompts, and nothing of it from the cache."""
    return {"input": max(size // 5, 1), "cached": 0, "output": 5}


@dataclass
class Sidecar:
    """A sidecar with all doors, its provider, and what it tells."""

    telemetry: Telling
    core: Runs
    called: grpc.Channel
    http: str
    envoy: grpc.Channel
    upstream: Upstream
    counted: Counted = as_sent
    says: list[Says] = field(default_factory=list)
    """Turns of the model that come before it says that it is done."""

    def scrape(self) -> Figures:
        """What it tells now."""
        return self.telemetry.scrape()

    def answer(self, body: Any) -> Says:
        """What the model answers."""
        tokens = self.counted(len(json.dumps(body)))
        if self.says:
            says = self.says.pop(0)
            return Says(says.text, says.calls, says.status, tokens=tokens)
        return Says("Done.", tokens=tokens)


@dataclass
class Agent(ABC):
    """An agent at a door; each prompt that it sends is answered by the model."""

    sidecar: Sidecar
    run: str = "run"
    returned: bytes = b""
    """What the sidecar made of the last prompt."""

    @abstractmethod
    def prompt(self, messages: Messages) -> None:
        """Send a prompt and take the answer, or the refusal."""

    @abstractmethod
    def recall(self, stash_id: str, messages: Messages) -> None:
        """Have the model ask for an original."""

    def body(self, messages: Messages) -> bytes:
        """The prompt as a provider takes it."""
        return json.dumps({"model": "scripted", "messages": messages, "tools": [TOOL]}).encode()


class ByGrpc(Agent):
    """It calls TrimPrompt, then the provider, then ReportUsage."""

    @property
    def stub(self) -> service_pb2_grpc.SidecarServiceStub:
        """The service."""
        return service_pb2_grpc.SidecarServiceStub(self.sidecar.called)

    def prompt(self, messages: Messages) -> None:
        """See `Agent`."""
        sent = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=self.body(messages))
        with suppress(grpc.RpcError):
            answer = self.stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id=self.run, json=sent), timeout=PATIENCE)
            self.returned = answer.json_body
            took = self.sidecar.counted(len(answer.json_body))
            self.stub.ReportUsage(
                usage_pb2.ReportUsageRequest(
                    run_id=self.run,
                    input_tokens=took["input"],
                    cached_tokens=took["cached"],
                    output_tokens=took["output"],
                ),
                timeout=PATIENCE,
            )

    def recall(self, stash_id: str, messages: Messages) -> None:  # noqa: ARG002 - as `Agent` has it
        """See `Agent`."""
        self.stub.RetrieveContent(
            retrieve_pb2.RetrieveContentRequest(run_id=self.run, stash_id=stash_id), timeout=PATIENCE
        )


class ByHttp(Agent):
    """It sets a base URL."""

    def prompt(self, messages: Messages) -> None:
        """See `Agent`."""
        self.post("/v1/chat/completions", self.body(messages))

    def post(self, path: str, body: bytes, kind: str = "application/json") -> None:
        """Send any request."""
        connection = http.client.HTTPConnection(urlsplit(self.sidecar.http).netloc, timeout=PATIENCE)
        try:
            connection.request("POST", path, body, {"content-type": kind, "x-prompt-sidecar-run": self.run})
            connection.getresponse().read()
        finally:
            connection.close()
        self.returned = self.sidecar.upstream.sent[-1].raw if self.sidecar.upstream.sent else b""

    def recall(self, stash_id: str, messages: Messages) -> None:
        """See `Agent`."""
        self.sidecar.says.append(Says("", [("own-1", "recall_elided_content", {"id": stash_id})]))
        self.prompt(messages)


class ByEnvoy(Agent):
    """Its Envoy has the external processor look at what it sends, and at what the provider answers."""

    def prompt(self, messages: Messages) -> None:
        """See `Agent`."""
        self.post("/v1/chat/completions", self.body(messages))

    def post(self, path: str, body: bytes, kind: str = "application/json", mode: int = 2) -> None:
        """Send any request; `mode`: how Envoy gives bodies, 2: whole."""
        asked = envoy_headers(path, x_prompt_sidecar_run=self.run, content_type=kind)
        asked.protocol_config.request_body_mode = mode
        took = self.sidecar.counted(len(body))
        usage = {
            "prompt_tokens": took["input"],
            "completion_tokens": took["output"],
            "total_tokens": sum(took.values()),
        }
        usage_all = usage | {"prompt_tokens_details": {"cached_tokens": took["cached"]}}
        answer = {"choices": [{"message": {"role": "assistant", "content": "Done."}}], "usage": usage_all}
        pairs = {":status": "200", "content-type": "application/json"}
        named = [wire.HeaderValue(key=name, raw_value=value.encode()) for name, value in pairs.items()]
        answers = [
            wire.ProcessingRequest(response_headers=wire.HttpHeaders(headers=wire.HeaderMap(headers=named))),
            wire.ProcessingRequest(response_body=wire.HttpBody(body=json.dumps(answer).encode(), end_of_stream=True)),
        ]
        call = self.sidecar.envoy.stream_stream(
            f"/{SERVICE}/Process",
            request_serializer=wire.ProcessingRequest.SerializeToString,
            response_deserializer=wire.ProcessingResponse.FromString,
        )
        with suppress(grpc.RpcError):
            for _ in call(iter([asked, envoy_body(body), *answers]), timeout=PATIENCE):
                pass

    def recall(self, stash_id: str, messages: Messages) -> None:  # noqa: ARG002 - as `Agent` has it
        """Fail: no model is asked again here."""
        raise AssertionError("recall goes through another door")


AGENTS: Final[Mapping[str, type[Agent]]] = {"grpc": ByGrpc, "http": ByHttp, "envoy": ByEnvoy}
"""By door."""


@dataclass(frozen=True)
class Setting:
    """How the sidecar is set up."""

    limits: Limits = field(default_factory=lambda: Limits(default_window=WINDOW))
    rules: Rules | None = None
    guard: GuardOptions | None = None
    core: type[Runs] = Runs
    server: Mapping[str, Any] = field(default_factory=dict)
    http: Mapping[str, Any] = field(default_factory=dict)
    envoy: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def sidecar(setting: Setting) -> Iterator[Sidecar]:
    """Run one with all doors, on free ports."""
    found: list[Sidecar] = []
    core = core_of(setting.core, limits=setting.limits, rules=setting.rules, guard=setting.guard, key=KEY)
    # The provider is there before the sidecar, which it answers for.
    with telling() as telemetry, Upstream(lambda body: found[0].answer(body)) as upstream:  # noqa: PLW0108
        shared = DoorServices(
            ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600, **setting.server), telemetry.observer
        )
        by_grpc = GrpcDoor(shared)
        by_http = HttpDoor(options(upstream.url, **setting.http), shared, KEY, None)
        by_envoy = EnvoyDoor(EnvoyOptions(listen="127.0.0.1:0", **setting.envoy), shared, KEY)
        process = Doors(shared, [by_grpc, by_http, by_envoy])
        process.bind()
        process.start(core)
        try:
            with (
                grpc.insecure_channel(f"127.0.0.1:{by_grpc.port}", options=WIDE) as called,
                grpc.insecure_channel(by_envoy.address, options=WIDE) as processing,
            ):
                found.append(Sidecar(telemetry, core, called, by_http.address, processing, upstream))
                yield found[0]
        finally:
            process.stop(0)


def history(calls: int, result: str = "line of a log, nothing to see here\n" * 20) -> Messages:
    """A run of so many calls of a tool, each with a result of some two hundred tokens."""
    messages: Messages = [{"role": "user", "content": "Find the culprit."}]
    for number in range(calls):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} {result}"})
    return messages


def at_once(doing: Sequence[Callable[[], None]]) -> None:
    """Do these at the same time, and wait for all."""
    threads = [threading.Thread(target=each) for each in doing]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
