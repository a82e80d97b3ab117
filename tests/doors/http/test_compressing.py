"""What headroom's users rely on: as many messages as they sent, and originals by hash."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiohttp.test_utils import make_mocked_request

from prompt_sidecar.browsers import Sites, Visitors
from prompt_sidecar.calls.readiness import Readiness, State
from prompt_sidecar.doors.http.compressing import HASH, CompressConfig, Hashes
from prompt_sidecar.doors.http.front import Front
from prompt_sidecar.doors.http.routes import route
from prompt_sidecar.guard.options import GuardOptions
from tests.client.histories import FACT, history, result
from tests.client.serving import PATIENT
from tests.conformance.table import CASES
from tests.doors.grpc.serving import runs
from tests.doors.http.serving import opened, options, proxied
from tests.doors.http.test_gateways import SECRET, post
from tests.doors.http.upstream import scripted
from tests.oracle import data

BUDGET: Final = 5_000


@pytest.fixture
def url() -> Iterator[str]:
    """A door without providers."""
    with opened(options("http://127.0.0.1:9"), runs()) as door:
        yield door.address


def get(url: str) -> tuple[int, Any]:
    """Get JSON; return the status and the answer."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENT) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def _asked(messages: Any, **config: Any) -> Any:
    return {"model": "gpt-4o", "messages": messages, "token_budget": BUDGET, **({"config": config} if config else {})}


@pytest.mark.parametrize("format", ["openai_chat", "anthropic_messages"])
@pytest.mark.parametrize("turns", [10, 30, 120])
@pytest.mark.parametrize("hashes", [False, True])
def test_as_many_messages_come_back(format: str, turns: int, url: str, *, hashes: bool) -> None:
    """Valid for their provider, each in the place and role of the one that was sent."""
    messages = history(format, turns)
    status, answer = post(f"{url}/v1/compress", _asked(messages, **({"mode": "ccr"} if hashes else {})))

    assert 200 == status
    assert [each["role"] for each in messages] == [each["role"] for each in answer["messages"]]
    assert [] == CASES[format].defects({"messages": answer["messages"], "model": "gpt-4o", "max_tokens": 1})
    assert answer["tokens_after"] < answer["tokens_before"]
    assert hashes == bool(answer["ccr_hashes"])
    assert hashes == ("hash=" in json.dumps(answer["messages"]))
    assert "id=" not in json.dumps(answer["messages"])


@pytest.mark.parametrize("frozen", [0, 1, 9, 10_000])
def test_frozen_messages_come_back_as_they_were_sent(frozen: int, url: str) -> None:
    """Also when they were trimmed in a call before, and when more are frozen than there are."""
    messages = history("openai_chat", 30)
    post(f"{url}/v1/compress", _asked(messages))
    answer = post(f"{url}/v1/compress", _asked(messages, mode="ccr", frozen_message_count=frozen))[1]

    assert len(messages) == len(answer["messages"])
    assert messages[:frozen] == answer["messages"][:frozen]
    assert (frozen < 1_000) == (messages != answer["messages"])


def test_originals_come_back_by_hash(url: str) -> None:
    """Of each hash that is named; all of them stand in the messages."""
    messages = history("openai_chat", 30)
    answer = post(f"{url}/v1/compress", _asked(messages, mode="ccr"))[1]
    made = json.dumps(answer["messages"])
    originals = []
    for each in answer["ccr_hashes"]:
        assert f"hash={each}" in made
        for status, found in (get(f"{url}/v1/retrieve/{each}?query=x"), post(f"{url}/v1/retrieve", {"hash": each})):
            assert (200, each) == (status, found["hash"])
        originals.append(found["original_content"])

    assert set(filter(lambda text: FACT in text, originals)) <= {result(number) for number in range(31)}
    assert any(message["content"] in originals for message in messages if message["role"] == "tool")


@pytest.mark.parametrize("turns", [30, 120])
def test_what_was_given_may_be_sent_back(turns: int, url: str) -> None:
    """It comes back as it is, so that the provider's cache stays warm, and its hashes stay good."""
    messages = history("openai_chat", turns)
    first = post(f"{url}/v1/compress", _asked(messages, mode="ccr"))[1]
    again = post(f"{url}/v1/compress", _asked(first["messages"], mode="ccr"))[1]

    assert first["messages"] == again["messages"]
    assert first["ccr_hashes"] == again["ccr_hashes"]


def test_hashes_of_others_are_text(url: str) -> None:
    """One that no run has, one of another run, and one that a tool has made up, come back as they came."""
    known = post(f"{url}/v1/compress", _asked(history("openai_chat", 30), mode="ccr"))[1]["ccr_hashes"][0]
    texts = [f"hash={known}", "hash=" + "6" * 24, "hash=" + b"abcdefghjk".hex() + "0000", "id=abcdefghjk"]
    messages = [{"role": "user", "content": text} for text in texts]
    answer = post(f"{url}/v1/compress", _asked(messages, mode="ccr"), **{"x-prompt-sidecar-run": "other"})[1]

    assert messages == answer["messages"]
    assert [] == answer["ccr_hashes"]


@pytest.mark.parametrize("path", ["", "zz", "0" * 24, "0" * 12, b"abcdefghjk".hex() + "ffff", "%00", "a/b"])
def test_a_hash_that_is_unknown_is_not_found(path: str, url: str) -> None:
    """As headroom answers it."""
    assert (404 if path else 400) == get(f"{url}/v1/retrieve/{path}")[0]
    assert (404 if path else 400) == post(f"{url}/v1/retrieve", {"hash": path})[0]


@pytest.mark.parametrize(
    "config",
    [
        {"mode": "fast"},
        {"mode": 1},
        {"frozen_message_count": -1},
        {"frozen_message_count": True},
        {"frozen_message_count": "1"},
        [],
        "ccr",
    ],
)
def test_a_wrong_configuration_is_refused(config: Any, url: str) -> None:
    """With the values that are accepted."""
    status, answer = post(f"{url}/v1/compress", {"messages": history("openai_chat", 2), "config": config})

    assert 400 == status
    assert "config" in answer["error"]["message"]


def test_frozen_messages_are_masked() -> None:
    """What the guard would change goes nowhere as it came."""
    messages = [{"role": "user", "content": f"Deploy with {SECRET}."}, *history("openai_chat", 30)]
    with proxied(scripted(), guard=GuardOptions(mode="enforce")) as here:
        answer = post(f"{here.url}/v1/compress", _asked(messages, mode="ccr", frozen_message_count=5))[1]
        whole = post(f"{here.url}/v1/compress", _asked(messages))[1]

    assert len(messages) == len(answer["messages"])
    assert SECRET not in json.dumps([answer, whole])
    assert messages[1:5] == answer["messages"][1:5]
    assert answer["messages"][0] == whole["messages"][0]


def test_hashes_end_with_their_run() -> None:
    """And count in its budget until then."""
    core = runs()
    with opened(options("http://127.0.0.1:9"), core) as door:
        named = {"x-prompt-sidecar-run": "run"}
        answer = post(f"{door.address}/v1/compress", _asked(history("openai_chat", 30), mode="ccr"), **named)[1]
        each = answer["ccr_hashes"][0]
        assert 200 == get(f"{door.address}/v1/retrieve/{each}")[0]
        core.end("local", "run")
        assert 404 == get(f"{door.address}/v1/retrieve/{each}")[0]


def test_the_runs_of_hashes_are_bounded() -> None:
    """The one used longest ago goes; runs whose digits are the same are told apart by their callers."""
    kept = Hashes(b"k" * 32, 3)
    given: dict[str, str] = {}
    for number in range(5):
        hashes = kept.of(("local", str(number)))
        hashes.write(b"id=abcdefghjk", ["abcdefghjk"])
        (given[str(number)],) = hashes.given

    assert [False, False, True, True, True] == [bool(kept.find("local", each)[1]) for each in given.values()]
    assert ("abcdefghjk", []) == kept.find("other", given["4"])
    assert [0, 400] == [kept.kept_bytes(("local", each)) for each in ("0", "4")]
    kept.forget(("local", "4"))
    kept.forget_all("local")
    assert [0] * 5 == [kept.kept_bytes(("local", each)) for each in given]
    assert not any(kept.find("local", each)[1] for each in given.values())


def test_probes_are_answered_without_a_provider() -> None:
    """As those of headroom's proxy, before anybody has to say who asks."""
    with opened(options("http://127.0.0.1:9"), runs()) as door:
        health = {"service": "prompt-sidecar", "status": "healthy", "ready": True}
        assert (200, health) == get(f"{door.address}/health")
        assert (200, health) == get(f"{door.address}/readyz")


@pytest.mark.parametrize("state", State)
def test_probes_tell_the_state_of_the_process(state: State) -> None:
    """By the status of `/readyz` too."""
    readiness = Readiness()
    readiness.become(state)
    visitors = Visitors("http", "http.hosts", Sites.of((), private_names=True))
    front = Front(visitors, readiness, trims_sockets=True)
    found = []
    for path in ("/health", "/readyz"):
        request = make_mocked_request("GET", path, {"host": "127.0.0.1"})
        reply = front.reply(request, route("GET", path, {}, {}), "passed_through")
        assert reply is not None
        found.append(reply.response)
        health = json.loads(reply.response.text or "")
        assert ("healthy" if state is State.SERVING else state.name.lower()) == health["status"]

    assert [200, 200 if state is State.SERVING else 503] == [each.status for each in found]


def test_what_config_says() -> None:
    """A mode without hashes is one, as the sidecar has no markers then."""
    assert (
        CompressConfig()
        == CompressConfig.of(None)
        == CompressConfig.of({})
        == CompressConfig.of({"mode": "lossy_inline"})
    )
    assert CompressConfig(hashes=True, frozen=2) == CompressConfig.of(
        {"mode": "ccr", "frozen_message_count": 2, "other": 1}
    )


def test_results_without_their_calls_are_trimmed(url: str) -> None:
    """As LiteLLM's guardrail sends them; each in its place, and as in the call before."""
    before: Any = []
    for turns in (20, 24, 28):
        messages = [message for message in history("openai_chat", turns) if message["role"] == "tool"]
        answer = post(f"{url}/v1/compress", _asked(messages, mode="ccr"))[1]

        assert [each["tool_call_id"] for each in messages] == [each["tool_call_id"] for each in answer["messages"]]
        assert BUDGET >= answer["tokens_after"] > 0
        assert sum(one == two for one, two in zip(before, answer["messages"], strict=False)) >= len(before) - 8
        before = answer["messages"]


def test_a_recorded_request() -> None:
    """Of LiteLLM's shape: 301 messages come back, ten of them as they were, and each hash is good."""
    asked = json.loads(data.need("failing/compress_message_count.json").read_text())
    with opened(options("http://127.0.0.1:9"), runs()) as door:
        answer = post(door.address + asked["post"], asked["body"])[1]
        found = [get(f"{door.address}/v1/retrieve/{each}")[0] for each in answer["ccr_hashes"]]

    sent = asked["body"]["messages"]
    assert len(sent) == len(answer["messages"])
    assert sent[:10] == answer["messages"][:10]
    assert found
    assert {200} == set(found)
    assert all(map(HASH.fullmatch, answer["ccr_hashes"]))
