"""A provider's compaction: what stands before it stays as it came, and counts only where the model reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from prompt_sidecar.facts.trim_calls import RevisionUse, TrimAnswer
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.entries import Action
from prompt_sidecar.trim.presets import PRESETS
from prompt_sidecar.trim.revision import seal, unseal
from tests.engine.runs.making import ANTHROPIC_MESSAGES, Engine, facts, result_text
from tests.oracle.data import need
from tests.promises.engine import KEY

AI_SDK, RESPONSES = "ai_sdk", "openai_responses"
LIMIT = 6_000
BOUND = "claude-fable-5-1"
SUMMARY = "The first modules were read; none of them has the bug."
BLOCK = {"type": "compaction", "content": SUMMARY}
ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAA" * 100}


def anthropic(number: int, *blocks: Any) -> list[Any]:
    """An iteration of Anthropic's: some blocks and a call, and its result of some 1,100 tokens as Claude counts."""
    use = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"src/module_{number}.py"}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result_text(number)}
    return [{"role": "assistant", "content": [*blocks, use]}, {"role": "user", "content": [result]}]


def ai_sdk(number: int, *parts: Any) -> list[Any]:
    """The same of the AI SDK's."""
    call = {"type": "tool-call", "toolCallId": f"c{number}", "toolName": "read", "input": {"path": f"{number}.py"}}
    output = {"type": "text", "value": result_text(number)}
    result = {"type": "tool-result", "toolCallId": f"c{number}", "toolName": "read", "output": output}
    return [{"role": "assistant", "content": [*parts, call]}, {"role": "tool", "content": [result]}]


def responses(number: int, *items: Any) -> list[Any]:
    """The same of OpenAI's."""
    call = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": f'{{"n": {number}}}'}
    return [*items, call, {"type": "function_call_output", "call_id": f"c{number}", "output": result_text(number)}]


SDK_BLOCK = {"type": "text", "text": SUMMARY, "providerOptions": {"anthropic": {"type": "compaction"}}}
MAKERS = {ANTHROPIC_MESSAGES: (anthropic, BLOCK), AI_SDK: (ai_sdk, SDK_BLOCK), RESPONSES: (responses, ITEM)}


def made(format: str, *iterations: int, compacts: tuple[int, ...] = (), block: Any = None) -> list[Any]:
    """A history of these iterations; those of `compacts` begin with a compaction."""
    make, usual = MAKERS[format]
    messages: list[Any] = [{"role": "user", "content": "Find the bug."}]
    for number in iterations:
        messages += make(number, *([block or usual] if number in compacts else ()))
    return messages


def body(format: str, messages: list[Any], **members: Any) -> bytes:
    """A request body."""
    name = "input" if format == RESPONSES else "messages"
    model = {"model": "gpt-5.4", "store": False} if format == RESPONSES else {"model": "made-up"}
    return json.dumps({**model, "max_tokens": 100, name: messages, **members}).encode()


def returned(answer: TrimAnswer) -> list[Any]:
    """The messages that are sent on, without the sidecar's own."""
    found = json.loads(answer.prompt.body or b"{}")
    messages = found.get("input") or found["messages"]
    return [each for each in messages if each.get("role") not in {"system", "developer"}]


def turns(engine: Engine, format: str, messages: list[Any], **fields: Any) -> list[TrimAnswer]:
    """The answers to a history that is sent as it grows."""
    ends = [at for at, each in enumerate(messages) if at and each.get("role") in {"user", "tool"}]
    ends = ends or [at for at, each in enumerate(messages) if str(each.get("type")).endswith("_output")]
    return [engine.trim(format, body(format, messages[: at + 1]), **fields) for at in (*ends, len(messages) - 1)]


@pytest.mark.parametrize("model", ["made-up", BOUND])
@pytest.mark.parametrize("format", [ANTHROPIC_MESSAGES, AI_SDK])
def test_what_the_provider_drops_counts_nothing(format: str, model: str) -> None:
    """Before the block nothing counts or is trimmed, whether or not a process saw the run grow; it goes on alike."""
    messages = made(format, *range(24), compacts=(10,))
    first = 1 + 2 * 10
    grown = Engine(limit=LIMIT, model=model)
    for end in range(1, len(messages) + 1, 2):
        answer = grown.trim(format, body(format, messages[:end]))
        fresh = Engine(limit=LIMIT, model=model).trim(format, body(format, messages[:end]))
        assert facts(fresh).prompt.body == facts(answer).prompt.body
        assert list(fresh.trimmed.trims) == list(answer.trimmed.trims)
        if end <= first:
            continue
        assert answer.fits
        assert messages[:first] == returned(answer)[:first]
        assert all(trim.message_index >= first for trim in answer.trimmed.trims)
        if end == first + 2:
            assert abs(answer.tokens.after - answer.tokens.own_text - answer.tokens.before) <= 1
            assert answer.tokens.before < 3_000
            assert not answer.trimmed.trims
    assert messages[first]["content"][0] == returned(answer)[first]["content"][0]
    assert any(trim.action is Action.DROPPED or trim.action is Action.CLIPPED for trim in answer.trimmed.trims)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_no_preset_trims_before_it(preset: str) -> None:
    """Not even where everything old is trimmed at each call."""
    messages = made(ANTHROPIC_MESSAGES, *range(24), compacts=(10,))
    engine = Engine(limit=LIMIT, preset=preset)
    for end in range(17, len(messages) + 1, 2):
        answer = engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages[:end]))
    assert messages[:21] == returned(answer)[:21]
    assert all(trim.message_index >= 21 for trim in answer.trimmed.trims)


def test_only_the_newest_counts() -> None:
    """An earlier block is dropped with all that stands before the newest."""
    messages = made(ANTHROPIC_MESSAGES, *range(12), compacts=(4, 10))
    answer = Engine(limit=LIMIT).trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages))
    after = Engine(limit=LIMIT).trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages[21:]))
    assert after.tokens.before == answer.tokens.before
    assert not answer.trimmed.trims


def test_one_that_failed_is_none() -> None:
    """A block without content changes nothing."""
    failed = {"type": "compaction", "content": None}
    messages = made(ANTHROPIC_MESSAGES, *range(12), compacts=(10,), block=failed)
    answer = Engine(limit=LIMIT).trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages))
    assert answer.tokens.before > LIMIT
    assert any(trim.message_index < 21 for trim in answer.trimmed.trims)


def test_what_stands_before_it_in_its_message() -> None:
    """It counts for nothing either, and is not trimmed; what stands behind it is."""
    used = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": result_text(50)}}
    thought = {"type": "thinking", "thinking": result_text(51), "signature": "c2lnbmF0dXJl" * 50}
    before = [thought, {"type": "text", "text": result_text(52)}, used]
    after = {"type": "text", "text": result_text(53)}
    plain = [{"role": "user", "content": "Go on."}, *anthropic(1, BLOCK, after)]
    mixed = [{"role": "user", "content": "Go on."}, *anthropic(1, *before, BLOCK, after)]
    one, other = (
        Engine(limit=LIMIT).trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, each)) for each in (plain, mixed)
    )
    assert one.tokens.before == other.tokens.before
    for number in range(2, 14):
        mixed += anthropic(number)
    answer = Engine(limit=LIMIT, preset="lean").trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, mixed))
    assert mixed[0] == returned(answer)[0]
    sent = returned(answer)[1]["content"]
    assert [*before, BLOCK] == sent[:4]
    assert after != sent[4]


def test_the_agent_goes_back_before_it() -> None:
    """Then everything counts again."""
    messages = made(ANTHROPIC_MESSAGES, *range(12), compacts=(10,))
    engine = Engine(limit=LIMIT)
    engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages))
    back = body(ANTHROPIC_MESSAGES, messages[:19])
    answer = engine.trim(ANTHROPIC_MESSAGES, back)
    assert Engine(limit=LIMIT).trim(ANTHROPIC_MESSAGES, back).prompt.body == answer.prompt.body
    assert answer.tokens.before > LIMIT
    assert answer.trimmed.trims


def test_the_agent_leaves_out_what_stands_before_it() -> None:
    """The same prompt but for that, as the API offers."""
    messages = made(ANTHROPIC_MESSAGES, *range(24), compacts=(10,))
    engine = Engine(limit=LIMIT)
    for end in range(19, 25, 2):
        engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages[:end]))
    answer = engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages[21:]))
    assert answer.fits
    assert BLOCK == returned(answer)[0]["content"][0]


def test_tools_are_loaded_again_by_it() -> None:
    """Of what was loaded before, only what the block says is in force."""
    tools = [
        {"name": name, "description": result_text(number)[:2_000], "input_schema": {}, "defer_loading": True}
        for number, name in enumerate(("get", "list"))
    ]
    found = {"type": "tool_result", "tool_use_id": "q", "content": [
        {"type": "tool_reference", "tool_name": name} for name in ("get", "list")
    ]}  # fmt: skip
    search = [
        {"role": "user", "content": "Find it."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "q", "name": "ToolSearch", "input": {}}]},
        {"role": "user", "content": [found]},
    ]
    changes = [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "get"}}]
    tokens = []
    for block in (BLOCK, BLOCK | {"tool_changes": changes}):
        engine = Engine(limit=100_000)
        engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, search, tools=tools))
        grown = [*search, *anthropic(1, block)]
        tokens.append(engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, grown, tools=tools)).tokens.before)
    definition = Engine(limit=100_000).trim(
        ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, search[:1], tools=[tools[0] | {"defer_loading": False}])
    )
    without = Engine(limit=100_000).trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, search[:1]))
    added = definition.tokens.before - without.tokens.before
    assert abs(tokens[1] - tokens[0] - added) < 0.1 * added


def test_a_revision_of_the_run_as_it_was_before() -> None:
    """It is of decisions that are over, so the history is decided on anew; so is one by rules that counted all."""
    messages = made(ANTHROPIC_MESSAGES, *range(20), compacts=(10,))
    grown = Engine(limit=LIMIT)
    before = grown.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages[:21])).prompt.revision
    for end in range(23, len(messages) + 1, 2):
        last = grown.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages[:end]))
    whole = body(ANTHROPIC_MESSAGES, messages)
    opened = unseal(KEY, last.prompt.revision)
    assert opened is not None
    earlier = seal(KEY, msgspec.structs.replace(opened, version=6))
    for revision, use in (
        (before, RevisionUse.MISMATCHED),
        (earlier, RevisionUse.MISMATCHED),
        (last.prompt.revision, RevisionUse.APPLIED),
    ):
        answer = Engine(limit=LIMIT).trim(ANTHROPIC_MESSAGES, whole, revision=revision)
        assert use is answer.revision_use
        assert last.prompt.body == answer.prompt.body


def _window(_: list[Any]) -> list[Any]:
    """What `/responses/compact` returns: retained items, and the item."""
    words = [{"role": "user", "content": result_text(number)} for number in range(3)]
    kept = responses(1)
    kept[1]["output"] *= 3
    return [words[0], *kept, *words[1:], ITEM]


def _whole(messages: list[Any]) -> list[Any]:
    """All that was there before, as where the provider compacts on its own."""
    return [*messages, ITEM]


@pytest.mark.parametrize("compacted", [_window, _whole])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_what_the_model_reads_stays_and_counts(preset: str, compacted: Callable[[list[Any]], list[Any]]) -> None:
    """In front of OpenAI's item nothing is trimmed, however little room it leaves."""
    engine, messages = Engine(limit=LIMIT, preset=preset), made(RESPONSES, *range(4))
    turns(engine, RESPONSES, messages)
    messages = compacted(messages)
    first = len(messages)
    counted = Engine(limit=LIMIT).trim(RESPONSES, body(RESPONSES, messages)).tokens.before
    for number in range(20, 32):
        messages += responses(number)
        answer = engine.trim(RESPONSES, body(RESPONSES, messages))
        fresh = Engine(limit=LIMIT, preset=preset).trim(RESPONSES, body(RESPONSES, messages))
        assert fresh.prompt.body == answer.prompt.body
    assert counted > 2_500
    assert answer.fits or preset == "cap_only"
    sent = json.loads(answer.prompt.body or b"")["input"]
    lead = sent.index(messages[0])
    assert messages[:first] == sent[lead : lead + first]
    assert preset == "cap_only" or answer.trimmed.trims
    assert all(trim.message_index >= first for trim in answer.trimmed.trims)


def test_decisions_by_earlier_rules_stay_in_front_of_an_item() -> None:
    """A running prompt keeps its bytes: the model reads what stands there."""
    messages = made(RESPONSES, *range(12))
    grown = Engine(limit=LIMIT)
    trimmed = turns(grown, RESPONSES, messages)[-1]
    opened = unseal(KEY, trimmed.prompt.revision)
    assert opened is not None
    other = json.loads(body(RESPONSES, messages))["input"]
    other[-2] = {"type": "custom_tool_call", "call_id": "c11", "name": "read", "input": ""}
    # A revision that an earlier version made of a history with the item in it: the same decisions, the item's chain.
    with_item = [*other[:20], ITEM, *other[20:]]
    now = Engine(limit=LIMIT).trim(RESPONSES, body(RESPONSES, with_item))
    sealed = unseal(KEY, now.prompt.revision)
    assert sealed is not None
    earlier = seal(KEY, msgspec.structs.replace(sealed, state=opened.state, version=6))
    answer = Engine(limit=LIMIT).trim(RESPONSES, body(RESPONSES, with_item), revision=earlier)
    assert RevisionUse.APPLIED is answer.revision_use
    before = {(trim.message_index, trim.item_index) for trim in trimmed.trimmed.trims if trim.message_index < 20}
    assert before <= {(trim.message_index, trim.item_index) for trim in answer.trimmed.trims}
    assert any(trim.kind is ItemKind.RESULT for trim in answer.trimmed.trims)


def test_a_recorded_compaction_block() -> None:
    """All of its history was counted before, and trimmed."""
    found = json.loads(need("failing/compaction_block_counted.json").read_text())
    raw = json.dumps(found["body"]).encode()
    answer = Engine(limit=found["context_window"]).trim(ANTHROPIC_MESSAGES, raw)
    assert answer.tokens.before < 100
    assert raw == answer.prompt.body
