"""The endpoints for gateways: what headroom's users call, and LiteLLM's Generic Guardrail API."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from prompt_sidecar.http.lifecycle import HttpDoor
from prompt_sidecar.server.lifecycle import Server
from prompt_sidecar.server.options import ServerOptions
from prompt_sidecar.telemetry.observer import Observer
from tests.client.histories import history
from tests.client.serving import PATIENT
from tests.http.serving import KEY, options
from tests.programs.conformance.table import CASES
from tests.server.serving import runs


@pytest.fixture
def url() -> Iterator[str]:
    """A door without providers: no gateway's request reaches one.

    Each test has its own, as conversations that begin in the same way are one run.
    """
    with _served() as address:
        yield address


@contextmanager
def _served(observer: Observer | None = None) -> Iterator[str]:
    server = Server(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600), observer)
    door = HttpDoor(options("http://127.0.0.1:9"), KEY)
    server.start(runs())
    door.start(server.shared)
    try:
        yield door.address
    finally:
        door.stop(10)
        server.stop(0)


class Requests(Observer):
    """Keeps the route and outcome of each request."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def requested(self, route: str, outcome: str, status: int, hidden: int) -> None:
        """Keep it."""
        del status, hidden
        self.seen.append((route, outcome))


def test_requests_are_counted_as_what_they_are() -> None:
    """Not as requests that pass through to a provider."""
    counted = Requests()
    with _served(counted) as address:
        post(f"{address}/v1/compress", {"messages": history("openai_chat", 2)})
        post(f"{address}/v1/compress", {"messages": "no"})
        post(f"{address}/beta/litellm_basic_guardrail_api", guarded(input_type="response"))

    assert [("compress", "answered"), ("compress", "refused"), ("guardrail", "answered")] == counted.seen


def post(url: str, body: Any, **headers: str) -> tuple[int, Any]:
    """Send JSON; return the status and the answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, raw, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=PATIENT) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.parametrize("format", ["openai_chat", "anthropic_messages"])
def test_compress(format: str, url: str) -> None:
    """Messages come back trimmed to the budget, valid for their provider, with the figures that users read."""
    messages = history(format, 30)
    asked = {"messages": messages, "model": "gpt-4o", "token_budget": 5_000}
    status, answer = post(f"{url}/v1/compress", asked)

    assert 200 == status
    assert answer["tokens_before"] > 5_000 >= answer["tokens_after"]
    assert answer["tokens_saved"] == answer["tokens_before"] - answer["tokens_after"]
    assert answer["compression_ratio"] == pytest.approx(answer["tokens_after"] / answer["tokens_before"])
    assert [] == CASES[format].defects({"messages": answer["messages"], "model": "gpt-4o", "max_tokens": 1})
    assert "id=" not in json.dumps(answer["messages"])


def test_a_conversation_keeps_its_run(url: str) -> None:
    """What was trimmed stays as it was at the next call, so that the provider's cache stays warm."""
    answers = []
    for length in range(12, 32):
        asked = {"messages": history("openai_chat", length), "token_budget": 5_000}
        answers.append(post(f"{url}/v1/compress", asked)[1]["messages"])
    kept = [before == after[: len(before)] for before, after in itertools.pairwise(answers)]

    assert sum(kept) > len(kept) * 0.7


def test_compress_bypassed_and_refused(url: str) -> None:
    """The header of headroom's users passes messages through; what is no request is refused with its reason."""
    messages = history("openai_chat", 30)
    bypassed = post(
        f"{url}/v1/compress", {"messages": messages, "token_budget": 5_000}, **{"x-headroom-bypass": "true"}
    )
    assert messages == bypassed[1]["messages"]
    wrong: tuple[Any, ...] = ({"messages": "no"}, [], b"{", {"messages": messages, "token_budget": -1})
    for body in wrong:
        status, answer = post(f"{url}/v1/compress", body)
        assert 400 == status
        assert answer["error"]["message"]


def guarded(**more: Any) -> dict[str, Any]:
    """A request as LiteLLM sends it."""
    return {
        "input_type": "request",
        "texts": [],
        "structured_messages": history("openai_chat", 30),
        "model": "unknown-model",
        "request_data": {"user_api_key_hash": "a" * 64},
        "request_headers": {"X-Prompt-Sidecar-Run": "run"},
        **more,
    }


def test_the_guardrail_returns_trimmed_messages(url: str) -> None:
    """A request whose messages exceed the window comes back trimmed; one that fits, and an answer, are left alone."""
    long = [message for _ in range(12) for message in history("openai_chat", 30)]
    status, answer = post(f"{url}/beta/litellm_basic_guardrail_api", guarded(model="gpt-4", structured_messages=long))
    assert (200, "GUARDRAIL_INTERVENED") == (status, answer["action"])
    assert len(json.dumps(answer["structured_messages"])) < len(json.dumps(long)) / 4
    assert [] == CASES["openai_chat"].defects({"messages": answer["structured_messages"], "model": "gpt-4"})

    for request in (
        guarded(structured_messages=history("openai_chat", 2), request_headers={}),
        guarded(input_type="response"),
    ):
        assert (200, {"action": "NONE"}) == post(f"{url}/beta/litellm_basic_guardrail_api", request)
