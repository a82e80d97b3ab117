"""What cannot be masked does not leave: the prompt is refused, and nothing of it was recorded."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from prompt_sidecar.app import build_runs
from prompt_sidecar.config.settings import Settings
from prompt_sidecar.errors import GuardRefused, RunUnknown
from prompt_sidecar.guard.options import GuardOptions
from tests.guard.planting import secrets
from tests.promises.engine import Engine, counter
from tests.runs.making import ANTHROPIC_MESSAGES, OPENAI_CHAT

KEY = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
ENFORCE = GuardOptions(mode="enforce", restore=("deploy:github_token",))


def chat(*contents: object) -> bytes:
    """A prompt of user messages."""
    return json.dumps({"messages": [{"role": "user", "content": content} for content in contents]}).encode()


def refused(engine: Engine, format: str, body: bytes) -> str:
    """The refusal's message, of a run that has stayed unknown."""
    with pytest.raises(GuardRefused) as error:
        engine.trim(format, body)
    with pytest.raises(RunUnknown):
        engine.figures()
    assert KEY not in error.value.message
    return error.value.message


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"user","content":"%s","content":"b"}' % KEY.encode(),
        b'{"role":"user","content":"\\ud83d"}',
        b'{"role":"user","content":"%s","of":1e400}' % KEY.encode(),
    ],
)
def test_a_message_that_can_be_read_in_two_ways(message: bytes) -> None:
    """What stands in it cannot be told; under audit it passes as it is."""
    body = b'{"messages":[{"role":"user","content":"x"},' + message + b"]}"
    assert "json.body.messages[1]" in refused(Engine(limit=5_000, guard=ENFORCE), OPENAI_CHAT, body)
    assert message in (Engine(limit=5_000).trim(OPENAI_CHAT, body).body or b"")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": f"The key is {KEY}.", "signature": "c2ln"},
        {"type": "image", "source": {"type": "url", "url": f"https://h.example/?token={KEY}"}},
    ],
)
def test_a_find_where_nothing_can_be_masked(block: dict[str, Any]) -> None:
    """Reasoning, and addresses that the provider fetches."""
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [block]}]
    body = json.dumps({"messages": messages, "model": "m"}).encode()
    assert "github_token" in refused(Engine(limit=5_000, guard=ENFORCE), ANTHROPIC_MESSAGES, body)
    looked = Engine(limit=5_000).trim(ANTHROPIC_MESSAGES, body)
    assert ["observed"] == [finding.action.value for finding in looked.findings]


def test_a_known_value_where_nothing_can_be_masked() -> None:
    """Also where no rule finds it."""
    secret = "FaKe0rNoTrEaL1bUt"
    known = {"role": "user", "content": f"postgres://app:{secret}@db.internal/orders"}
    thinking = {"type": "thinking", "thinking": f"It is x{secret}x.", "signature": "c2ln"}
    body = json.dumps({"messages": [known, {"role": "assistant", "content": [thinking]}]}).encode()
    assert "url_password" in refused(Engine(limit=5_000, guard=ENFORCE), ANTHROPIC_MESSAGES, body)


def test_no_room_in_the_vault() -> None:
    """A mask is not made whose value cannot be kept."""
    options = GuardOptions(mode="enforce", run_vault_bytes=65_536, vault_bytes=1 << 20)
    chance = random.Random(1)
    many = "\n".join(secrets(chance, 1)[0][1] for _ in range(200))
    assert "guard.run_vault_bytes" in refused(Engine(limit=500_000, guard=options), OPENAI_CHAT, chat(many))


def test_a_refusal_changes_nothing_of_a_known_run() -> None:
    """Values of the refused prompt are forgotten; the run goes on."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    engine.trim(OPENAI_CHAT, chat("hello"))
    other = KEY[:-1] + "Q"
    with pytest.raises(GuardRefused):
        engine.trim(OPENAI_CHAT, b'{"messages":[{"role":"user","content":"hello"},{"role":"user","content":"%s"},'
                    b'{"role":"user","content":"\\ud83d"}]}' % other.encode())  # fmt: skip
    assert 0 == engine.runs.totals().vault.values
    assert engine.trim(OPENAI_CHAT, chat("hello", KEY)).findings
    assert 1 == engine.runs.totals().vault.values


def test_what_the_provider_itself_needs_is_only_observed() -> None:
    """Tools and their credentials stand in other members of the body."""
    tools = [{"type": "mcp", "server_url": "https://h.example", "authorization": KEY}]
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": tools}).encode()
    answer = Engine(limit=5_000, guard=ENFORCE).trim(OPENAI_CHAT, body)
    assert KEY.encode() in (answer.body or b"")
    assert [("github_token", "observed", -1)] == [
        (finding.rule, finding.action.value, finding.message_index) for finding in answer.findings
    ]


def test_settings_of_a_caller_and_of_a_sidecar_that_only_observes() -> None:
    """A caller may have another mode; where the sidecar only observes, nothing is masked."""
    settings = Settings(guard=ENFORCE, callers={"other": {"guard.mode": "audit"}})
    for asked, caller, masks in ((settings, "promises", True), (settings, "other", False),
                                 (replace(settings, mode="observe"), "promises", False)):  # fmt: skip
        engine = Engine(limit=5_000)
        engine.runs = build_runs(asked, counter())
        answer = engine.trim(OPENAI_CHAT, chat(KEY), caller=caller)
        assert masks == (KEY.encode() not in (answer.body or b""))
        assert ["masked" if masks else "observed"] == [finding.action.value for finding in answer.findings]
