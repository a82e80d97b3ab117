"""What is refused: only what a user's rule refuses. All else is masked, or goes on as it came and is reported."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from typing import Any, Final

import pytest

from prompt_sidecar.app import build_runs
from prompt_sidecar.config.settings import Settings
from prompt_sidecar.errors import GuardRefused, RunUnknown
from prompt_sidecar.facts.guard_calls import UNANSWERED_CALL
from prompt_sidecar.guard.forms import fake
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.guard.rules import faults
from prompt_sidecar.v1 import conversation_pb2 as pb
from tests.engine.runs.making import ANTHROPIC_MESSAGES, OPENAI_CHAT
from tests.guard.planting import secrets
from tests.oracle.data import need
from tests.promises.engine import Engine, counter

KEY = "ghp_" + fake(36)
ENFORCE = GuardOptions(mode="enforce", restore=("deploy:github_token",), scan_seconds=60)
REFUSE = GuardOptions(mode="enforce", actions=("github_token=refuse",), scan_seconds=60)
SAYS = f"The key is {KEY}."
SIGNATURE = base64.b64encode(b"signed" * 20).decode()
USER: Final = {"role": "user", "content": "Deploy."}


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


# -- reasoning -------------------------------------------------------------------------------------------------------


def _answer_with(format: str, part: Any) -> tuple[str, dict[str, Any]]:
    """A format, and a prompt in which the model's first turn has a part or members with reasoning."""
    if format == "gemini_contents":
        model = {"role": "model", "parts": [part, {"text": "ok"}]}
        return format, {"contents": [{"role": "user", "parts": [{"text": "Deploy."}]}, model]}
    if format == "openai_responses":
        answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
        return format, {"store": False, "input": [USER, part, answer]}
    if format == OPENAI_CHAT:
        return format, {"messages": [USER, {"role": "assistant", "content": "ok", **part}]}
    text = {"text": "ok"} if format == "bedrock_converse" else {"type": "text", "text": "ok"}
    user = {"role": "user", "content": [{"text": "Deploy."}]} if format == "bedrock_converse" else USER
    return format, {"messages": [user, {"role": "assistant", "content": [part, text]}]}


SIGNED: Final = [
    _answer_with(ANTHROPIC_MESSAGES, {"type": "thinking", "thinking": SAYS, "signature": SIGNATURE}),
    _answer_with("gemini_contents", {"text": SAYS, "thought": True, "thoughtSignature": SIGNATURE}),
    _answer_with("gemini_contents", {"text": SAYS, "thought": True, "thought_signature": SIGNATURE}),
    _answer_with(
        "gemini_contents", {"functionCall": {"name": "f", "args": {"x": SAYS}}, "thoughtSignature": SIGNATURE}
    ),
    _answer_with("bedrock_converse", {"reasoningContent": {"reasoningText": {"text": SAYS, "signature": SIGNATURE}}}),
    _answer_with(
        OPENAI_CHAT, {"reasoning_details": [{"type": "reasoning.text", "text": SAYS, "signature": SIGNATURE}]}
    ),
    _answer_with(OPENAI_CHAT, {"thinking_blocks": [{"type": "thinking", "thinking": SAYS, "signature": SIGNATURE}]}),
    _answer_with(
        OPENAI_CHAT,
        {
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "f", "arguments": json.dumps({"x": SAYS})},
                    "extra_content": {"google": {"thought_signature": SIGNATURE}},
                }
            ]
        },
    ),
    _answer_with(
        "ai_sdk", {"type": "reasoning", "text": SAYS, "providerOptions": {"anthropic": {"signature": SIGNATURE}}}
    ),
]
UNSIGNED: Final = [
    _answer_with(ANTHROPIC_MESSAGES, {"type": "thinking", "thinking": SAYS, "signature": ""}),
    _answer_with(ANTHROPIC_MESSAGES, {"type": "thinking", "thinking": SAYS}),
    _answer_with("gemini_contents", {"text": SAYS, "thought": True}),
    _answer_with("bedrock_converse", {"reasoningContent": {"reasoningText": {"text": SAYS}}}),
    _answer_with(OPENAI_CHAT, {"reasoning_content": SAYS}),
    _answer_with(OPENAI_CHAT, {"reasoning": SAYS}),
    _answer_with(OPENAI_CHAT, {"reasoning_details": [{"type": "reasoning.text", "text": SAYS}]}),
    _answer_with(OPENAI_CHAT, {"reasoning_details": [{"type": "reasoning.summary", "summary": SAYS}]}),
    _answer_with(
        "openai_responses",
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": SAYS}],
            "content": [{"type": "reasoning_text", "text": SAYS}],
            "encrypted_content": SIGNATURE,
        },
    ),
    _answer_with("ai_sdk", {"type": "reasoning", "text": SAYS}),
    _answer_with(
        "ai_sdk",
        {"type": "reasoning", "text": SAYS, "providerOptions": {"openai": {"reasoningEncryptedContent": SIGNATURE}}},
    ),
]


def _goes_on(format: str, body: dict[str, Any]) -> None:
    """Add an answer of the model and a user's message."""
    messages = body.get("messages") or body.get("contents") or body["input"]
    part = "parts" if format == "gemini_contents" else "content"
    text: Any = [{"text": "Go on."}] if format in {"gemini_contents", "bedrock_converse"} else "Go on."
    messages += [
        {"role": "model" if part == "parts" else "assistant", part: text},
        {"role": "user", part: text},
    ]


@pytest.mark.parametrize(("format", "body"), SIGNED)
def test_a_value_in_signed_reasoning(format: str, body: dict[str, Any]) -> None:
    """It is reported once, the part goes on as it came, and so do the turns after it."""
    body = json.loads(json.dumps(body))
    engine = Engine(limit=50_000, guard=ENFORCE)
    findings = []
    for _ in range(4):
        sent = json.dumps(body).encode()
        answer = engine.trim(format, sent, recall_unavailable=True)
        assert KEY.encode() in (answer.prompt.body or b"")
        assert SIGNATURE.encode() in (answer.prompt.body or b"")
        found = [(each.rule, each.action.value) for each in answer.guard.findings]
        findings += [each for each in found if each[0] != UNANSWERED_CALL]  # some go on without the result of a call
        _goes_on(format, body)
    assert [("github_token", "observed")] == findings


@pytest.mark.parametrize(("format", "body"), UNSIGNED)
def test_a_value_in_unsigned_reasoning(format: str, body: dict[str, Any]) -> None:
    """It is masked as any other text, and what encrypts another text stays."""
    engine = Engine(limit=50_000, guard=ENFORCE)
    answer = engine.trim(format, json.dumps(body).encode(), recall_unavailable=True)
    text = (answer.prompt.body or b"").decode()
    assert KEY not in text
    assert "⟦github_token:" in text
    assert (SIGNATURE in json.dumps(body)) == (SIGNATURE in text)
    assert {"masked"} == {each.action.value for each in answer.guard.findings}


@pytest.mark.parametrize("encrypted", ["", SIGNATURE])
def test_typed_reasoning(encrypted: str) -> None:
    """With what only the provider reads it is signed, without it is text."""
    reasoning = pb.Part(reasoning=pb.Reasoning(text=SAYS, encrypted=encrypted))
    sent = [
        pb.Message(role=pb.ROLE_USER, parts=[pb.Part(text="Deploy.")]).SerializeToString(),
        pb.Message(role=pb.ROLE_ASSISTANT, parts=[reasoning, pb.Part(text="ok")]).SerializeToString(),
    ]
    answer = Engine(limit=50_000, guard=ENFORCE).trim("conversation", b"", messages=sent, recall_unavailable=True)
    assert bool(encrypted) == any(KEY.encode() in each for each in answer.prompt.messages or ())
    assert ["observed" if encrypted else "masked"] == [each.action.value for each in answer.guard.findings]


def test_the_recorded_run_whose_thinking_holds_a_value() -> None:
    """Its later turns are answered, and its thinking goes on as it came."""
    case = json.loads(need("failing/secret_in_thinking.json").read_bytes())
    body, engine = case["body"], Engine(limit=50_000, guard=GuardOptions(mode="enforce"))
    thinking = body["messages"][1]["content"][0]
    for turn in range(4):
        answer = engine.trim(ANTHROPIC_MESSAGES, json.dumps(body).encode(), recall_unavailable=True)
        assert thinking == json.loads(answer.prompt.body or b"")["messages"][1]["content"][0]
        assert ([] if turn else ["observed"]) == [each.action.value for each in answer.guard.findings]
        _goes_on(ANTHROPIC_MESSAGES, body)


def test_a_signed_call_whose_mask_was_replaced_by_its_value() -> None:
    """The provider gets what it signed: the mask, also in JSON in a string. What the model wrote by itself stays."""
    user = {"role": "user", "parts": [{"text": f"Deploy with {KEY}."}]}
    engine = Engine(limit=50_000, guard=ENFORCE)
    first = json.loads(engine.trim("gemini_contents", json.dumps({"contents": [user]}).encode()).prompt.body or b"")
    mask = first["contents"][0]["parts"][0]["text"].removeprefix("Deploy with ").removesuffix(".")

    def call(token: str) -> dict[str, Any]:
        nested = json.dumps({"header": f'say "{token}"', "own": own}, ensure_ascii=False)
        arguments = {"token": f"a {token}", "body": nested}
        return {"functionCall": {"name": "deploy", "args": arguments}, "thoughtSignature": SIGNATURE}

    own = KEY[:-1] + "Q"
    result = {"functionResponse": {"name": "deploy", "response": {"result": "ok"}}}
    for process in (engine, Engine(limit=50_000, guard=ENFORCE)):
        contents = [user, {"role": "model", "parts": [call(KEY)]}, {"role": "user", "parts": [result]}]
        answer = process.trim("gemini_contents", json.dumps({"contents": contents}).encode())
        sent_on = json.loads(answer.prompt.body or b"")["contents"][1]["parts"][0]
        assert call(mask) == sent_on
    assert {"masked", "observed"} == {each.action.value for each in answer.guard.findings if each.message_index == 1}


# -- other places ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"user","content":"%s","content":"b"}' % KEY.encode(),
        b'{"role":"user","content":"b","content":"%s"}' % KEY.encode(),
        b'{"role":"user","content":[{"type":"text","text":"%s","text":"b"}]}' % KEY.encode(),
        b'{"role":"user","content":"\\ud83d %s"}' % KEY.encode(),
        b'{"role":"user","content":"\\ud83d","content":"\\ud83d\\ude00 %s\\ude00"}' % KEY.encode(),
        b'{"role":"user","content":"%s","of":1e400}' % KEY.encode(),
        b'{"role":"user","content":"%s","of":%s,"of":1}' % (KEY.encode(), b"9" * 5_000),
    ],
)
def test_a_message_that_can_be_read_in_two_ways(message: bytes) -> None:
    """It is masked in both, at every turn; under audit it passes as it is."""
    body = b'{"messages":[{"role":"user","content":"x"},' + message + b"]}"
    engine = Engine(limit=5_000, guard=ENFORCE)
    for _ in range(2):
        made = engine.trim(OPENAI_CHAT, body, recall_unavailable=True).prompt.body or b""
        start, end = message.split(KEY.encode())
        assert start + "⟦github_token:".encode() in made
        assert "⟧".encode() + end in made
        assert KEY.encode() not in made
    edits = Engine(limit=5_000, guard=ENFORCE).trim(OPENAI_CHAT, body, edits=True, recall_unavailable=True).prompt.edits
    assert [True] == ["⟦github_token:".encode() in each.value for each in edits if each.pointer == "/messages/1"]
    assert message in (Engine(limit=5_000).trim(OPENAI_CHAT, body).prompt.body or b"")


def test_a_system_prompt_that_can_be_read_in_two_ways() -> None:
    """It is masked in both."""
    system = b'[{"type":"text","text":"%s","text":"\\ud83d"}]' % KEY.encode()
    body = b'{"system":%s,"messages":[{"role":"user","content":"x"}]}' % system
    made = Engine(limit=5_000, guard=ENFORCE).trim(ANTHROPIC_MESSAGES, body, recall_unavailable=True).prompt.body or b""
    assert KEY.encode() not in made
    assert "⟦github_token:".encode() in made


def test_an_address_that_the_provider_fetches() -> None:
    """It is reported, and goes on at every turn."""
    block = {"type": "image", "source": {"type": "url", "url": f"https://h.example/?token={KEY}"}}
    body = json.dumps({"messages": [{"role": "user", "content": [block]}], "model": "m"}).encode()
    engine = Engine(limit=5_000, guard=ENFORCE)
    answer = engine.trim(ANTHROPIC_MESSAGES, body)
    assert ["observed"] == [finding.action.value for finding in answer.guard.findings]
    assert KEY.encode() in (engine.trim(ANTHROPIC_MESSAGES, body).prompt.body or b"")


def test_a_known_value_in_signed_reasoning() -> None:
    """It is reported where no rule finds it, too, and not twice where one does."""
    secret = "FaKe0rNoTrEaL1bUt"
    url = f"postgres://app:{secret}@db.internal/orders"
    known = {"role": "user", "content": url}
    for text, count in ((f"It is x{secret}x.", 1), (f"It is {url}.", 1), (f"x{secret}x {url}", 2)):
        thinking = {"type": "thinking", "thinking": text, "signature": SIGNATURE}
        body = json.dumps({"messages": [known, {"role": "assistant", "content": [thinking]}]}).encode()
        answer = Engine(limit=5_000, guard=ENFORCE).trim(ANTHROPIC_MESSAGES, body)
        assert [("url_password", "masked", 1), ("url_password", "observed", count)] == [
            (each.rule, each.action.value, each.count) for each in answer.guard.findings
        ]


def test_no_room_in_the_vault() -> None:
    """What is found is masked, and the same at every turn; tools get no value of what is not kept."""
    options = GuardOptions(mode="enforce", run_vault_bytes=65_536, vault_bytes=1 << 20, restore=("*:*",))
    chance = random.Random(1)
    values = [secrets(chance, 1)[0] for _ in range(200)]
    body = chat("\n".join(text for _, text in values))
    engine = Engine(limit=500_000, guard=options)
    made = [engine.trim(OPENAI_CHAT, body, recall_unavailable=True).prompt.body or b"" for _ in range(2)]
    assert made[0] == made[1]
    assert [] == [value for value, _ in values if value.encode() in made[0]]
    totals = engine.runs.totals().vault
    assert 0 < totals.values < 200
    assert 0 < totals.refused
    restored = engine.restore("any", json.dumps({"text": made[0].decode()}).encode())
    assert 0 < restored.restored
    assert 0 < restored.unknown


# -- rules that refuse -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": KEY}]},
        {"messages": [USER], "system": KEY},
        {"messages": [USER], "tools": [{"name": "f", "description": KEY, "input_schema": {}}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": json.dumps({"a": KEY})}]}]},
        *(body for format, body in SIGNED if format == ANTHROPIC_MESSAGES),
    ],
)
def test_a_rule_that_a_user_has_set_to_refuse(body: dict[str, Any]) -> None:
    """Wherever it finds something, at each call, and nothing is recorded; under audit it only observes."""
    sent = json.dumps(body).encode()
    engine = Engine(limit=5_000, guard=REFUSE)
    for _ in range(2):
        assert "github_token" in refused(engine, ANTHROPIC_MESSAGES, sent)
    looked = Engine(limit=5_000, guard=replace(REFUSE, mode="audit")).trim(ANTHROPIC_MESSAGES, sent)
    assert {"observed"} == {each.action.value for each in looked.guard.findings}


def test_a_rule_that_refuses_goes_before_one_that_masks() -> None:
    """Also where both find something in the same place, and where the other finds more."""
    assert [] == list(faults(REFUSE))
    for text in (f"Authorization: Bearer {KEY}", f"GITHUB_TOKEN={KEY}", f"https://user:{KEY}@h.example/"):
        refused(Engine(limit=5_000, guard=REFUSE), OPENAI_CHAT, chat(text))


def test_a_refusal_changes_nothing_of_a_known_run() -> None:
    """Values of the refused prompt are forgotten; the run goes on."""
    engine = Engine(limit=5_000, guard=replace(ENFORCE, actions=("iban=refuse",)))
    engine.trim(OPENAI_CHAT, chat("hello"))
    other = KEY[:-1] + "Q"
    with pytest.raises(GuardRefused):
        engine.trim(OPENAI_CHAT, chat("hello", other, "to DE89 3704 0044 0532 0130 00"))
    assert 0 == engine.runs.totals().vault.values
    assert engine.trim(OPENAI_CHAT, chat("hello", KEY)).guard.findings
    assert 1 == engine.runs.totals().vault.values


def test_what_the_provider_itself_needs_is_only_observed() -> None:
    """Tools and their credentials stand in other members of the body."""
    tools = [{"type": "mcp", "server_url": "https://h.example", "authorization": KEY}]
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": tools}).encode()
    answer = Engine(limit=5_000, guard=ENFORCE).trim(OPENAI_CHAT, body)
    assert KEY.encode() in (answer.prompt.body or b"")
    assert [("github_token", "observed", -1)] == [
        (finding.rule, finding.action.value, finding.message_index) for finding in answer.guard.findings
    ]


def test_settings_of_a_caller_and_of_a_sidecar_that_only_observes() -> None:
    """A caller may have another mode; where the sidecar only observes, nothing is masked."""
    settings = Settings(guard=ENFORCE, callers={"other": {"guard.mode": "audit"}})
    for asked, caller, masks in ((settings, "promises", True), (settings, "other", False),
                                 (replace(settings, mode="observe"), "promises", False)):  # fmt: skip
        engine = Engine(limit=5_000)
        engine.runs = build_runs(asked, counter())
        answer = engine.trim(OPENAI_CHAT, chat(KEY), caller=caller)
        assert masks == (KEY.encode() not in (answer.prompt.body or b""))
        assert ["masked" if masks else "observed"] == [finding.action.value for finding in answer.guard.findings]
