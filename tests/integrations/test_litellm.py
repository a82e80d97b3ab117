"""The real proxy of LiteLLM with the callback, between the SDKs of openai and anthropic and the scripted provider."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.client import Client, RunUnknown
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.doors.grpc.lifecycle import GrpcDoor
from prompt_sidecar.doors.http.lifecycle import HttpDoor
from tests.client.histories import history
from tests.client.provider import TOKENS
from tests.client.serving import PATIENT, sdk
from tests.client.test_sdks import FORMATS
from tests.doors.grpc.serving import runs
from tests.doors.http.serving import opened, options
from tests.doors.http.upstream import Upstream as ScriptedUpstream
from tests.integrations.environments import ready
from tests.integrations.running import PATIENCE, run, sidecar, variables
from tests.integrations.test_httpx import agent, keywords
from tests.integrations.test_httpx_masks import QUESTION, arguments, calls, check
from tests.integrations.test_masked import VALUE, masking
from tests.integrations.upstream import ANSWER, STEPS, WINDOW, Upstream
from tests.lab.harness.processes import free_port

KEY = "sk-master"
PREFIX = hashlib.sha256(b"litellm_proxy_master_key").hexdigest()[:32]
"""Of the runs of the master key, as LiteLLM names it."""
MODELS = {"openai_chat": "chat", "openai_responses": "chat", "anthropic_messages": "claude"}
CALLBACK = """
from prompt_sidecar.client import Client
from prompt_sidecar.integrations.litellm import SidecarCallback

callback = SidecarCallback(Client({target!r}, deadline=60.0), context_window={window}, output_reserve=500)
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy, what stands behind it, and a client of its sidecar."""

    url: str
    upstream: Upstream
    client: Client

    def figures(self, run: str) -> Any:
        """The figures of a run of the master key."""
        return self.client.get_run(f"{PREFIX}:{run}").usage

    def reported(self, run: str, reports: int) -> Any:
        """Wait until so many reports have arrived, as LiteLLM logs in the background; return the figures."""
        until = time.monotonic() + PATIENCE
        while True:
            figures = self.figures(run)
            if (figures and figures.reports >= reports) or time.monotonic() > until:
                return figures
            threading.Event().wait(0.05)


@contextmanager
def proxy(
    folder: Path, upstream: Upstream | ScriptedUpstream, target: str, configuration: str = "", **more: str
) -> Iterator[str]:
    """Start the proxy; give its address."""
    environment = ready("litellm")
    (folder / "sidecar.py").write_text(CALLBACK.format(target=target, window=WINDOW))
    models = [
        {"model_name": "chat", "litellm_params": {"model": "openai/scripted", "api_base": f"{upstream.url}/v1"}},
        {"model_name": "claude", "litellm_params": {"model": "anthropic/scripted", "api_base": upstream.url}},
    ]
    for each in models:
        each["litellm_params"] |= {"api_key": "k", "max_retries": 0}  # type: ignore[operator]
    settings: dict[str, Any] = {
        "model_list": models,
        "litellm_settings": {"callbacks": "sidecar.callback", "telemetry": False},
        "router_settings": {"num_retries": 0},
    }
    if configuration:
        settings = {"model_list": models, **json.loads(configuration)}
    (folder / "config.yaml").write_text(json.dumps(settings))  # YAML takes JSON
    port = free_port()
    words = ["--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    given = variables(folder, LITELLM_MASTER_KEY=KEY, LITELLM_LOCAL_MODEL_COST_MAP="True", **more)
    given["PATH"] = f"{environment.python.parent}{os.pathsep}{given['PATH']}"
    log = (folder / "proxy.log").open("w+")
    command = [str(environment.python.parent / "litellm"), *words]
    with log, subprocess.Popen(command, cwd=folder, env=given, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            until = time.monotonic() + PATIENCE
            while not answers(f"{url}/health/liveliness"):
                assert process.poll() is None, (folder / "proxy.log").read_text()[-4_000:]
                assert time.monotonic() < until, "the proxy never answered"
                threading.Event().wait(0.1)
            yield url
        finally:
            process.kill()


def answers(url: str) -> bool:
    """Whether something answers there."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENT) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """One proxy for the tests of this file; it takes some ten seconds to start."""
    ready("litellm")
    folder = tmp_path_factory.mktemp("proxy")
    with Upstream() as upstream, sidecar() as (address, client), proxy(folder, upstream, address) as url:
        yield Proxy(url, upstream, client)


@pytest.fixture
def through(running: Proxy) -> Proxy:
    """The proxy, with a provider that begins its script."""
    running.upstream.begin()
    return running


def called(format: str, url: str, *, stream: bool, **headers: str) -> Callable[..., Any]:
    """A function that calls the model through the proxy, and returns the whole answer."""
    if format == "anthropic_messages":
        model = sdk("anthropic").Anthropic(base_url=url, api_key=KEY, max_retries=0, default_headers=headers)
    else:
        model = sdk("openai").OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, default_headers=headers)

    def call(**given: Any) -> Any:
        words = {**given, "model": MODELS[format]}
        if format == "anthropic_messages":
            if not stream:
                return model.messages.create(**words)
            with model.messages.stream(**words) as streamed:
                return streamed.get_final_message()
        if format == "openai_responses":
            if not stream:
                return model.responses.create(**words)
            with model.responses.stream(**words) as streamed:
                return streamed.until_done().get_final_response()
        if not stream:
            return model.chat.completions.create(**words)
        with model.chat.completions.stream(**words, stream_options={"include_usage": True}) as streamed:
            return streamed.until_done().get_final_completion()

    return call


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("format", FORMATS)
def test_an_agent_behind_the_proxy(format: str, stream: bool, through: Proxy) -> None:
    """32 calls over a window of twelve: each prompt fits and is valid, and each answer's usage is reported."""
    run, calls = f"{format}-{stream}", STEPS + 1
    response = agent(format, called(format, through.url, stream=stream, **{"x-prompt-sidecar-run": run}))

    assert ([], 0) == (through.upstream.defects, through.upstream.refused)
    assert calls == len(through.upstream.bodies)
    assert ANSWER in response.model_dump_json()
    assert "id=" not in json.dumps(through.upstream.bodies[-1])
    assert all(bool(body.get("stream")) is stream for body in through.upstream.bodies)
    figures = through.reported(run, calls)
    assert calls == figures.reports
    expected = [calls * TOKENS[name] for name in ("input", "cached", "output")]
    assert expected == [figures.input_tokens, figures.cached_tokens, figures.output_tokens]


def test_a_session_names_the_run_and_without_one_a_request_passes(through: Proxy) -> None:
    """LiteLLM's own session id is a run; a request without run and session is sent as it is."""
    through.upstream.most_bytes, before = 1_000_000, through.upstream.most_bytes
    try:
        words = keywords("openai_chat", history("openai_chat", 30))
        called("openai_chat", through.url, stream=False)(**words)
        session = {"x-litellm-session-id": "session-1"}
        called("openai_chat", through.url, stream=False, **session)(**words)
    finally:
        through.upstream.most_bytes = before
    sizes = [len(json.dumps(body["messages"])) for body in through.upstream.bodies]
    assert sizes[0] > 70_000
    assert sizes[1] < before
    assert 1 == through.reported("session-1", 1).reports
    with pytest.raises(RunUnknown):
        through.figures("")


def test_a_refusal_is_learned(through: Proxy) -> None:
    """The agent gets the provider's refusal; its next request is shorter.

    The provider refuses the first request whatever its size, as that follows from what earlier reports have taught.
    """
    call = called("openai_chat", through.url, stream=False, **{"x-prompt-sidecar-run": "refused"})
    words = keywords("openai_chat", history("openai_chat", 30))
    through.upstream.most_bytes, before = 0, through.upstream.most_bytes
    try:
        with pytest.raises(sdk("openai").BadRequestError):
            call(**words)
    finally:
        through.upstream.most_bytes = before
    assert 1 == through.reported("refused", 1).refusals
    call(**words)
    first, second = (len(json.dumps(body["messages"])) for body in through.upstream.bodies)
    assert second < first


GUARDRAIL = """
{"litellm_settings": {"telemetry": false}, "router_settings": {"num_retries": 0}, "guardrails": [
  {"guardrail_name": "prompt-sidecar", "litellm_params": {"guardrail": "generic_guardrail_api", "mode": "pre_call",
   "default_on": true, "api_base": "URL", "extra_headers": ["x-prompt-sidecar-run"]}}]}
"""
TOKEN = "token-that-a-custom-authentication-takes"
AUTHENTICATION = """
from litellm.proxy._types import UserAPIKeyAuth


async def authenticate(request, api_key):
    if api_key.startswith("user-"):
        return UserAPIKeyAuth(user_id=api_key)
    return UserAPIKeyAuth(api_key=api_key)
"""


def ids_of_runs(door: bool, folder: Path, upstream: Upstream) -> list[str]:
    """The ids of the runs of four requests through a proxy with a custom authentication, as operators see them."""
    (folder / "custom.py").write_text(AUTHENTICATION)
    core = runs()
    shared = DoorServices(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600))
    http = HttpDoor(options("http://127.0.0.1:9"), shared, b"k" * 32)
    process = Doors(shared, [GrpcDoor(shared), http])
    process.bind()
    process.start(core)
    settings = json.loads(GUARDRAIL.replace("URL", http.address)) if door else {}
    settings["general_settings"] = {"custom_auth": "custom.authenticate"}
    if not door:
        settings["litellm_settings"] = {"callbacks": "sidecar.callback", "telemetry": False}
    try:
        with proxy(folder, upstream, process.addresses[0], json.dumps(settings)) as url:
            for key in (TOKEN, TOKEN, "user-1-" + TOKEN, "user-2-" + TOKEN):
                headers = {"x-prompt-sidecar-run": "run"}
                model = sdk("openai").OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, default_headers=headers)
                model.chat.completions.create(**{**keywords("openai_chat", history("openai_chat", 2)), "model": "chat"})
        return sorted(each.run_id for each in core.summaries(100))
    finally:
        process.stop(0)


@pytest.mark.parametrize("door", [False, True], ids=["callback", "guardrail"])
def test_a_custom_authentications_token_is_in_no_run_id(door: bool, tmp_path: Path) -> None:
    """LiteLLM hands it on as it came. Each token, and each user without one, has runs of its own."""
    with Upstream() as upstream:
        found = ids_of_runs(door, tmp_path, upstream)

    assert 3 == len(found)
    assert all(re.fullmatch("[0-9a-f]{32}:run", each) for each in found)
    if not door:
        assert hashlib.sha256(TOKEN.encode()).hexdigest()[:32] + ":run" in found


LOGGING = """
from litellm.integrations.custom_logger import CustomLogger
import json, pathlib


class Log(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        said = json.dumps(kwargs["standard_logging_object"]["response"], default=str, ensure_ascii=False)
        with pathlib.Path("logged").open("a", encoding="utf-8") as log:
            log.write(said + "\\n")


logging = Log()
"""


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ScriptedUpstream, Path]]:
    """A proxy before a sidecar that masks, its provider, and what LiteLLM has logged."""
    ready("litellm")
    folder = tmp_path_factory.mktemp("masked")
    (folder / "log.py").write_text(LOGGING)
    settings = {"callbacks": ["sidecar.callback", "log.logging"], "telemetry": False}
    configuration = json.dumps({"litellm_settings": settings, "router_settings": {"num_retries": 0}})
    with (
        ScriptedUpstream(calls) as upstream,
        masking() as address,
        proxy(folder, upstream, address, configuration) as url,
    ):
        yield url, upstream, folder / "logged"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("format", FORMATS)
def test_calls_get_values(format: str, stream: bool, masked: tuple[str, ScriptedUpstream, Path]) -> None:
    """In what leaves the proxy; what it sends and what it logs keeps masks."""
    url, upstream, log = masked
    logged = len(lines(log))
    call = called(format, url, stream=stream, **{"x-prompt-sidecar-run": f"masked-{format}-{stream}"})
    response = call(**keywords(format, QUESTION))

    check(arguments(format, response))
    assert [] == upstream.defects
    assert VALUE.encode() not in upstream.sent[-1].raw
    until = time.monotonic() + PATIENCE
    while len(lines(log)) == logged:
        assert time.monotonic() < until, "nothing was logged"
        threading.Event().wait(0.05)
    assert "github_token:" in lines(log)[-1]
    assert VALUE not in lines(log)[-1]


def lines(path: Path) -> list[str]:
    """The whole lines of a file, which need not exist."""
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


def test_the_generic_guardrail_api(tmp_path: Path) -> None:
    """LiteLLM's own guardrail, given the door's address, trims the messages of chat completions: no code at all."""
    ready("litellm")
    with opened(options("http://127.0.0.1:9"), runs()) as door, Upstream() as upstream:
        configuration = GUARDRAIL.replace("URL", door.address)
        with proxy(tmp_path, upstream, "127.0.0.1:1", configuration) as url:
            upstream.most_bytes = 10_000_000
            long = [each for _ in range(30) for each in history("openai_chat", 30)]
            call = called("openai_chat", url, stream=False, **{"x-prompt-sidecar-run": "guarded"})
            call(**keywords("openai_chat", long))
        assert [] == upstream.defects
        assert len(json.dumps(upstream.bodies[0]["messages"])) < len(json.dumps(long)) / 2


def test_a_guardrail_cannot_give_calls_back() -> None:
    """Where this fails, LiteLLM reads calls in a guardrail's answer, and masks in them can be restored by the door."""
    program = (
        "from litellm.types.proxy.guardrails.guardrail_hooks import generic_guardrail_api as api\n"
        "answer = api.GenericGuardrailAPIResponse.from_dict({'action': 'GUARDRAIL_INTERVENED', 'tool_calls': [1]})\n"
        "print('tool_calls' in api.GenericGuardrailAPIRequest.model_fields, hasattr(answer, 'tool_calls'))\n"
    )
    python = str(ready("litellm").python)
    given = variables(Path.home(), LITELLM_LOCAL_MODEL_COST_MAP="True")
    done = subprocess.run(
        [python, "-c", program], env=given, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert "True False" == done.stdout.strip()


def test_without_the_sidecar_requests_pass(tmp_path: Path) -> None:
    """Where nobody answers the callback, requests go on as they are, whole and streamed."""
    ready("litellm")
    with Upstream(steps=1) as upstream, proxy(tmp_path, upstream, "127.0.0.1:1") as url:
        for stream in (False, True):
            upstream.begin()
            response = agent(
                "openai_chat", called("openai_chat", url, stream=stream, **{"x-prompt-sidecar-run": "run"})
            )
            assert ANSWER in response.model_dump_json()
            assert [] == upstream.defects


def test_odd_pieces_and_odd_names_of_runs(tmp_path: Path) -> None:
    """What has waited of a stream goes on once and in order where a piece is odd; a request without a run passes."""
    result = run(ready("litellm"), "litellm_callback", {}, tmp_path)

    assert {"token": "⟦github_token:aaaaaaaaaa⟧ and %e2"} == json.loads("".join(result["arguments"]))
    assert [None] * 6 == result["requests"]
