"""The endpoints for gateways: what headroom's users call, and LiteLLM's Generic Guardrail API."""

from __future__ import annotations

import itertools
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.telemetry.observer import Observer
from tests.client.histories import history
from tests.client.serving import PATIENT
from tests.conformance.table import CASES
from tests.doors.grpc.serving import runs
from tests.doors.http.serving import Proxied, opened, options, proxied
from tests.doors.http.upstream import scripted


@pytest.fixture
def url() -> Iterator[str]:
    """A door without providers: no gateway's request reaches one.

    Each test has its own, as conversations that begin in the same way are one run.
    """
    with _served() as address:
        yield address


@contextmanager
def _served(observer: Observer | None = None) -> Iterator[str]:
    with opened(options("http://127.0.0.1:9"), runs(), observer) as door:
        yield door.address


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
def test_compressed_messages_are_valid_and_within_the_budget(format: str, url: str) -> None:
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


SECRET = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
GUARDRAIL = "/beta/litellm_basic_guardrail_api"


def test_what_is_masked_goes_back_though_nothing_is_trimmed() -> None:
    """Also where headroom's users ask to bypass it: what the guard would change goes on only as it is changed."""
    messages = [{"role": "user", "content": f"Deploy with {SECRET}."}]
    with proxied(scripted(), guard=GuardOptions(mode="enforce")) as here:
        guardrail = post(here.url + GUARDRAIL, guarded(structured_messages=messages))[1]
        bypassed = post(f"{here.url}/v1/compress", {"messages": messages}, **{"x-headroom-bypass": "true"})[1]

    assert "GUARDRAIL_INTERVENED" == guardrail["action"]
    for answer in (guardrail["structured_messages"], bypassed["messages"]):
        assert SECRET not in json.dumps(answer)
        assert "github_token:" in json.dumps(answer)


def test_what_a_guardrail_cannot_trim_passes_masked_where_the_guard_masks() -> None:
    """LiteLLM would fail the agent's request otherwise."""
    request = guarded(structured_messages=[{"role": 7, "content": f"Deploy with {SECRET}."}])
    counted = Requests()
    with proxied(scripted(), observer=counted) as here:
        assert (200, {"action": "NONE"}) == post(here.url + GUARDRAIL, request)
    assert [("guardrail", "failed_open")] == counted.seen

    with proxied(scripted(), guard=GuardOptions(mode="enforce")) as here:
        status, answer = post(here.url + GUARDRAIL, request)
    assert (200, "GUARDRAIL_INTERVENED") == (status, answer["action"])
    assert SECRET not in json.dumps(answer)
    assert "github_token:" in answer["structured_messages"][0]["content"]


@pytest.mark.parametrize("more", [{"structured_messages": None}, {"structured_messages": []}])
def test_texts_without_messages(more: dict[str, Any]) -> None:
    """Those of embeddings and completions are masked; without a find, and in answers, they stay."""
    with proxied(scripted(), guard=GuardOptions(mode="enforce")) as here:
        status, answer = post(here.url + GUARDRAIL, guarded(texts=["a", f"use {SECRET}"], **more))
        for texts, kind in ((["a"], "request"), ([], "request"), ([SECRET], "response")):
            plain = guarded(texts=texts, input_type=kind, **more)
            assert (200, {"action": "NONE"}) == post(here.url + GUARDRAIL, plain)
    assert (200, "GUARDRAIL_INTERVENED", "a") == (status, answer["action"], answer["texts"][0])
    assert answer["texts"][1].startswith("use ⟦github_token:")


def test_texts_that_a_rule_refuses() -> None:
    """LiteLLM is told to block the request."""
    refuse = GuardOptions(mode="enforce", actions=("github_token=refuse",))
    with proxied(scripted(), guard=refuse) as here:
        status, answer = post(here.url + GUARDRAIL, guarded(texts=[SECRET], structured_messages=None))
    assert (200, "BLOCKED") == (status, answer["action"])
    assert SECRET not in answer["blocked_reason"]


TOO_MANY: Mapping[str, bytes] = {
    "members": b'{"input_type":"request",%s,"structured_messages":[{"role":"user","content":"hi"}],"messages":[]}'
    % b",".join(b'"m%d":1' % each for each in range(300_000)),
    "messages": b'{"input_type":"request","messages":[%s{}],"structured_messages":[%s{}]}'
    % ((b"[]," * 1_000_000,) * 2),
}
"""Bodies that take many times their bytes when they are decoded."""


@pytest.mark.parametrize("body", TOO_MANY.values(), ids=TOO_MANY.keys())
def test_what_would_take_too_much_to_decode_is_refused(body: bytes) -> None:
    """A guardrail's request passes instead, but not where the guard would have had to look at it."""
    counted = Requests()
    with proxied(scripted(), observer=counted) as here:
        status, answer = post(f"{here.url}/v1/compress", body)
        assert (503, True) == (status, bool(answer["error"]["message"]))
        assert (200, {"action": "NONE"}) == post(here.url + GUARDRAIL, body)
    assert [("compress", "refused"), ("guardrail", "failed_open")] == counted.seen

    with proxied(scripted(), guard=GuardOptions(mode="enforce")) as here:
        status, answer = post(here.url + GUARDRAIL, body)
    assert (200, "BLOCKED") == (status, answer["action"])


def run_ids(here: Proxied) -> list[str]:
    """The ids of all runs, as operators see them."""
    return sorted(each.run_id for each in here.core.summaries(100))


def test_runs_of_a_guardrail_show_no_credential() -> None:
    """LiteLLM gives a custom authentication's token as it came. Those of two users never meet."""
    with proxied(scripted()) as here:
        for user in (
            {"user_api_key_hash": "token-of-a-custom-authentication"},
            {"user_api_key_hash": "another-token"},
            {"user_api_key_hash": None, "user_api_key_user_id": "one"},
            {"user_api_key_hash": "hashed-jwt-" + "a" * 64, "user_api_key_user_id": "two"},
            {"user_api_key_hash": "hashed-jwt-" + "b" * 64, "user_api_key_user_id": "two"},
        ):
            assert 200 == post(here.url + GUARDRAIL, guarded(request_data=user))[0]
        found = run_ids(here)

    assert 4 == len(found)
    assert all(re.fullmatch("[0-9a-f]{32}:run", each) for each in found)


def test_a_header_that_litellm_withholds_names_no_run() -> None:
    """LiteLLM sends `[present]` in place of values that its `extra_headers` does not let through."""
    with proxied(scripted()) as here:
        for question in ("One?", "Two?"):
            messages = [{"role": "user", "content": question}]
            headers = {"x-prompt-sidecar-run": "[present]"}
            post(here.url + GUARDRAIL, guarded(structured_messages=messages, request_headers=headers))
        found = run_ids(here)

    assert 2 == len(found)
    assert all(each.startswith("http-") for each in found)
