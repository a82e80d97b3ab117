"""Reasoning in every format that has it: its items, what is left of a message without it, its original."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import OPAQUE_TOKENS, ItemKind
from prompt_sidecar.providers.claude import binds_thinking
from prompt_sidecar.v1 import conversation_pb2 as pb
from tests.prompt.reading import identity

SIGNED = "c2lnbmF0dXJl" * 20
LABEL = "[reasoning removed — 7 bytes]"

Made = Mapping[str, Any]


def _typed(*parts: pb.Part) -> bytes:
    return pb.Message(role=pb.ROLE_ASSISTANT, parts=parts).SerializeToString(deterministic=True)


def _json(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


THINKING = {"type": "thinking", "thinking": "I look.", "signature": SIGNED}
SAYS = {"type": "text", "text": "Done."}
CASES: Mapping[str, tuple[str, bytes, bytes, bytes, list[str]]] = {
    "anthropic": (
        "anthropic_messages",
        _json({"role": "assistant", "content": [THINKING, {"type": "redacted_thinking", "data": SIGNED}, SAYS]}),
        _json({"role": "assistant", "content": [SAYS]}),
        _json(THINKING),
        ["I look."],
    ),
    "anthropic alone": (
        "anthropic_messages",
        _json({"role": "assistant", "content": [THINKING, THINKING]}),
        _json({"role": "assistant", "content": [{"type": "text", "text": LABEL}]}),
        _json(THINKING),
        ["I look.", "I look."],
    ),
    "bedrock": (
        "bedrock_converse",
        _json(
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "I look.", "signature": SIGNED}}},
                    {"text": "Done."},
                ],
            }
        ),
        _json({"role": "assistant", "content": [{"text": "Done."}]}),
        _json({"reasoningContent": {"reasoningText": {"text": "I look.", "signature": SIGNED}}}),
        ["I look."],
    ),
    "gemini": (
        "gemini_contents",
        _json({"role": "model", "parts": [{"text": "I look.", "thought": True}, {"text": "Done."}]}),
        _json({"role": "model", "parts": [{"text": "Done."}]}),
        _json({"text": "I look.", "thought": True}),
        ["I look."],
    ),
    "chat": (
        "openai_chat",
        _json({"role": "assistant", "reasoning_content": "I look.", "content": "Done."}),
        _json({"role": "assistant", "content": "Done."}),
        _json("I look."),
        ["I look."],
    ),
    "chat alone": (
        "openai_chat",
        _json({"role": "assistant", "reasoning_content": "I look."}),
        _json({"role": "assistant", "content": LABEL}),
        _json("I look."),
        ["I look."],
    ),
    "chat alone with null": (
        "openai_chat",
        _json({"role": "assistant", "content": None, "reasoning": "I look."}),
        _json({"role": "assistant", "content": LABEL}),
        _json("I look."),
        ["I look."],
    ),
    "ai sdk": (
        "ai_sdk",
        _json(
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "text": "I look.", "providerOptions": {"anthropic": {"signature": SIGNED}}},
                    SAYS,
                ],
            }
        ),
        _json({"role": "assistant", "content": [SAYS]}),
        _json({"type": "reasoning", "text": "I look.", "providerOptions": {"anthropic": {"signature": SIGNED}}}),
        ["I look."],
    ),
    "typed": (
        "conversation",
        _typed(pb.Part(reasoning=pb.Reasoning(text="I look.", encrypted=SIGNED)), pb.Part(text="Done.")),
        _typed(pb.Part(text="Done.")),
        _json({"text": "I look.", "encrypted": SIGNED}),
        ["I look."],
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Format, bytes, bytes, bytes, list[str]]:
    """A format, a message with reasoning and without it, the original of its first block, and the texts in all."""
    name, raw, without, original, texts = CASES[request.param]
    return FORMATS[name], raw, without, original, texts


def test_a_reasoning_block_is_an_item_with_its_weight(case: tuple[Format, bytes, bytes, bytes, list[str]]) -> None:
    """A block is an item with the weight of what is encrypted in it; each readable text is another."""
    form, raw, _, original, texts = case
    items = [item for item in form.read(raw, "f").items if item.kind is ItemKind.REASONING]
    assert texts == [item.text for item in items if not item.raw_json]
    assert all(item.opaque == round(len(item.text) * OPAQUE_TOKENS) for item in items if item.raw_json)
    if items[0].raw_json:
        assert json.loads(original) == json.loads(form.original(raw, items[0]))
    assert b"I look." == form.original(raw, items[int(items[0].raw_json)])
    assert ItemKind.OPAQUE not in {item.kind for item in form.read(raw, "f").items}


def test_a_message_without_its_reasoning(case: tuple[Format, bytes, bytes, bytes, list[str]]) -> None:
    """Without its reasoning a message is as it was, or a label where nothing else is left."""
    form, raw, without, _, _ = case
    items = [item for item in form.read(raw, "f").items if item.kind is ItemKind.REASONING]
    assert without == form.write(raw, dict.fromkeys(items, LABEL))
    assert form.read(raw, "f").identity != form.read(without, "f").identity


def test_a_reasoning_item_is_a_message() -> None:
    """In Responses a whole item, whose id says that others may need it; its summary and its text can be read."""
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "I look."}],
        "content": [{"type": "reasoning_text", "text": "Where?"}],
        "encrypted_content": SIGNED,
        "metadata": {"turn_id": "t1"},
    }
    message = FORMATS["openai_responses"].read(_json(item), "f")
    assert {ItemKind.REASONING} == {each.kind for each in message.items}
    assert ["I look.", "Where?"] == [each.text for each in message.items if not each.raw_json]
    assert _json(item) == FORMATS["openai_responses"].original(_json(item), message.items[0])
    assert message.identified
    del item["id"]
    assert not FORMATS["openai_responses"].read(_json(item), "f").identified


def test_signatures_of_calls() -> None:
    """In Gemini a call's signature is weighed as encrypted text, and its part stays as it is."""
    call = {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": SIGNED}
    message = FORMATS["gemini_contents"].read(_json({"role": "model", "parts": [call]}), "f")
    assert round(len(SIGNED) * OPAQUE_TOKENS) == message.opaque
    assert message.items[0].fixed


@pytest.mark.parametrize("value", [[], {}, 7, None, ["thinking"]])
def test_odd_shapes(value: Any) -> None:
    """A member of another shape than the provider's is no error, and no reasoning that could be removed wrongly."""
    for form, message in (
        ("anthropic_messages", {"role": "assistant", "content": [{"type": "thinking", "thinking": value}]}),
        ("anthropic_messages", {"role": "assistant", "content": [{"type": value}]}),
        ("anthropic_messages", {"role": "user", "content": [THINKING]}),
        ("bedrock_converse", {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": value}}]}),
        ("openai_chat", {"role": "assistant", "content": "x", "reasoning_details": value}),
        ("openai_responses", {"type": "reasoning", "summary": value}),
        ("ai_sdk", {"role": "assistant", "content": [{"type": "reasoning", "providerOptions": value}]}),
        ("gemini_contents", {"role": "model", "parts": [{"text": value, "thought": True}]}),
    ):
        assert identity(FORMATS[form], message)


BOUND = [
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5-20261001",
    "us.anthropic.claude-haiku-5-5-v1:0",
    "anthropic/claude-opus-5.5",
    "claude-opus-6",
    "claude-something-7",
]
UNBOUND = [
    "claude-fable-5",
    "claude-opus-5",
    "claude-opus-4-8",
    "claude-sonnet-4-5-20250929",
    "us.anthropic.claude-sonnet-4-20250514-v1:0",
    "claude-3-7-sonnet-latest",
    "claude-3-opus-20240229",
    "anthropic.claude-v2:1",
    "gpt-5.4",
    "kimi-k2",
    "",
]


@pytest.mark.parametrize("model", [*BOUND, *UNBOUND])
def test_models_that_bind_their_thinking(model: str) -> None:
    """The provider's list, dates and gateways' spellings aside; a later Claude model is taken to bind its thinking."""
    assert (model in BOUND) == binds_thinking(model)
