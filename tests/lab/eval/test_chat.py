"""The client comes through what passes, gives up on what does not, and gives the key to nobody."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import pytest

from tests.lab.eval.chat import MOST_PAUSE, TRIES, Address, Chat, ChatError
from tests.lab.eval.endpoint import KEY, MODEL, NO_JSON, Endpoint, Rules

BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}]}
RAW = json.dumps(BODY).encode()


def chat(endpoint: Endpoint, pauses: list[float], **other: str) -> Chat:
    """A client of the endpoint that notes its pauses in place of making them."""
    address = Address(**({"base_url": endpoint.base_url, "model": MODEL, "key": KEY} | other))
    return Chat(address, 10.0, pauses.append)


def test_an_answer_has_its_tokens() -> None:
    """An answer comes with its tokens."""
    with Endpoint(Rules()) as endpoint:
        reply = chat(endpoint, []).ask(RAW)
    assert ("What would you like to know?", False) == (reply.text, reply.cut)
    assert reply.tokens_in
    assert reply.tokens_out


def test_no_usage() -> None:
    """An endpoint that does not count is told apart from one that counts nought."""
    with Endpoint(Rules(), counts=False) as endpoint:
        reply = chat(endpoint, []).ask(RAW)
    assert (None, None) == (reply.tokens_in, reply.tokens_out)


def test_troubles_that_pass() -> None:
    """A rate limit and overloads are waited out: the one for as long as it says, the others ever longer."""
    pauses: list[float] = []
    with Endpoint(Rules(), troubles=(429, 500, 503, 502)) as endpoint:
        client = chat(endpoint, pauses)
        client.ask(RAW)
    assert 4 == client.tried_again
    assert 0.0 == pauses[0]
    assert all(least <= pause <= 2 * least for least, pause in zip((1.0, 2.0, 4.0), pauses[1:], strict=True))


def test_troubles_that_stay() -> None:
    """There is an end to trying."""
    pauses: list[float] = []
    with Endpoint(Rules(), troubles=[503] * 99) as endpoint:
        with pytest.raises(ChatError, match=f"HTTP 503.*at {TRIES} tries") as error:
            chat(endpoint, pauses).ask(RAW)
        assert TRIES == endpoint.requests
    assert not error.value.hopeless
    assert sum(pauses) <= 31.0


@pytest.mark.parametrize("asked", ["9999", "nan", "soon", "-1", "1e9", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_asked_pause(asked: str) -> None:
    """No answer makes the eval wait for long."""
    pauses: list[float] = []
    with Endpoint(Rules(), troubles=(429,), retry_after=asked) as endpoint:
        chat(endpoint, pauses).ask(RAW)
    assert 0 <= pauses[0] <= MOST_PAUSE


@pytest.mark.parametrize(
    ("other", "status", "hopeless"),
    [({"key": "another-key-than-that"}, 401, True), ({"base_url": ""}, 404, True), ({}, 400, False)],
)
def test_a_refusal_is_not_tried_again(other: dict[str, str], status: int, hopeless: bool) -> None:
    """What is refused is not tried again; a wrong key and a wrong place will not get better. The key is not told."""
    body = RAW if other else json.dumps(BODY | {"messages": []}).encode()
    with Endpoint(Rules()) as endpoint:
        address = {"base_url": f"{endpoint.base_url}/elsewhere"} if "base_url" in other else other
        with pytest.raises(ChatError, match=f"^HTTP {status}: ") as error:
            chat(endpoint, [], **address).ask(body)
        assert 1 == endpoint.requests
    assert hopeless is error.value.hopeless
    assert other.get("key", KEY) not in str(error.value)


def test_a_redirect_does_not_get_the_key() -> None:
    """A redirect is not followed: the key would go along."""
    with Endpoint(Rules(), troubles=(HTTPStatus.FOUND,)) as endpoint:
        with pytest.raises(ChatError, match="HTTP 302"):
            chat(endpoint, []).ask(RAW)
        assert 1 == endpoint.requests


def test_cut_answer() -> None:
    """An answer that is no completion is told, not tried again: it was paid for."""
    with Endpoint(Rules(), troubles=(NO_JSON,)) as endpoint, pytest.raises(ChatError, match="no chat completion"):
        chat(endpoint, []).ask(RAW)


def test_nobody_there() -> None:
    """Where nothing listens it says so, in the end."""
    with Endpoint(Rules()) as endpoint:
        gone = endpoint.base_url
    pauses: list[float] = []
    with pytest.raises(ChatError, match=r"no answer: .*refused"):
        Chat(Address(gone, MODEL), 1.0, pauses.append).ask(RAW)
    assert TRIES - 1 == len(pauses)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (Address("http://127.0.0.1:1/v1", "m"), ""),
        (Address("https://models.example/v1/", "m", "k"), ""),
        (Address("models.example/v1", "m"), "EVAL_BASE_URL"),
        (Address("file:///etc/hostname", "m"), "EVAL_BASE_URL"),
        (Address("http://me:secret@models.example/v1", "m"), "EVAL_BASE_URL"),
        (Address("http://models.example/v1", ""), "EVAL_MODEL"),
        (Address("http://models.example/v1", "m", "a\nb"), "EVAL_API_KEY"),
    ],
)
def test_a_wrong_address_is_named_by_its_variable(address: Address, message: str) -> None:
    """A wrong address is told by the variable that holds it, and without what it holds."""
    assert message == address.problem()[: len(message)]
    assert bool(message) is bool(address.problem())
    assert "secret" not in address.problem()


@pytest.mark.parametrize("end", ["", "/", "/chat/completions", "/chat/completions/"])
def test_completions_have_one_url(end: str) -> None:
    """However the base ends, completions are asked for at one place."""
    assert "http://a/v1/chat/completions" == Address(f"http://a/v1{end}", "m").url
