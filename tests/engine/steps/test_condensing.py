"""Results condensed when they are first seen: in every format, once, and the same wherever a run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pytest

from prompt_sidecar.calls import headers
from prompt_sidecar.facts.trim_calls import EditOperation, TrimAnswer
from prompt_sidecar.facts.untrimmed import Untrimmed
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.trim.condense import calls as reading
from prompt_sidecar.trim.entries import Action, Reason
from prompt_sidecar.trim.revision import RULES, seal, unseal
from tests.promises.engine import KEY, Engine

WINDOW: Final = 200_000
RED: Final = "".join(f"\x1b[31mFAIL\x1b[0m src/case_{number}.ts: expected {number * 7}\n" for number in range(60))
PLAIN: Final = RED.replace("\x1b[31m", "").replace("\x1b[0m", "")
LONG: Final = RED * 40
FOUND: Final = "".join(f"src/app/config/settings.py:{number}:    value_{number} = {number}\n" for number in range(90))
SHORT: Final = FOUND.replace("src/app/config/settings.py", "src/a.py")
SAFE: Final = {"condense": "safe"}

Prompt = Callable[[str, str, str], list[Any]]
"""What an agent holds of a call: of an id, a command and a result."""


@dataclass(frozen=True)
class Shape:
    """A format: how a call and its result stand in it, and where the result's text is."""

    field: str
    call: Callable[[str, str, str], list[Any]]
    text: Callable[[Any], str]


def _chat(key: str, command: str, text: str) -> list[Any]:
    call = {"id": key, "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": key, "content": text},
    ]


def _anthropic(key: str, command: str, text: object) -> list[Any]:
    use = {"type": "tool_use", "id": key, "name": "bash", "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": key, "content": text}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def _anthropic_blocks(key: str, command: str, text: str) -> list[Any]:
    mark = {"type": "ephemeral"}
    return _anthropic(key, command, [{"type": "text", "text": text, "cache_control": mark}])


def _responses(key: str, command: str, text: object) -> list[Any]:
    arguments = json.dumps({"command": command})
    return [
        {"type": "function_call", "call_id": key, "name": "bash", "arguments": arguments},
        {"type": "function_call_output", "call_id": key, "output": text},
    ]


def _gemini(key: str, command: str, text: str) -> list[Any]:
    call = {"id": key, "name": "bash", "args": {"command": command}}
    answer = {"id": key, "name": "bash", "response": {"output": text, "status": "1"}}
    return [
        {"role": "model", "parts": [{"functionCall": call}]},
        {"role": "user", "parts": [{"functionResponse": answer}]},
    ]


def _bedrock(key: str, command: str, text: str) -> list[Any]:
    use = {"toolUseId": key, "name": "bash", "input": {"command": command}}
    return [
        {"role": "assistant", "content": [{"toolUse": use}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": key, "content": [{"text": text}]}}]},
    ]


def _sdk(key: str, command: str, text: str) -> list[Any]:
    call = {"type": "tool-call", "toolCallId": key, "toolName": "bash", "input": {"command": command}}
    output = {"type": "text", "value": text}
    result = {"type": "tool-result", "toolCallId": key, "toolName": "bash", "output": output}
    return [{"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]


SHAPES: Final[Mapping[str, tuple[str, Shape]]] = {
    "openai_chat": ("openai_chat", Shape("messages", _chat, lambda it: str(it["content"]))),
    "anthropic_messages": (
        "anthropic_messages",
        Shape("messages", _anthropic, lambda it: str(it["content"][0]["content"])),
    ),
    "anthropic blocks": (
        "anthropic_messages",
        Shape("messages", _anthropic_blocks, lambda it: str(it["content"][0]["content"][0]["text"])),
    ),
    "openai_responses": ("openai_responses", Shape("input", _responses, lambda it: str(it["output"]))),
    "responses list": (
        "openai_responses",
        Shape(
            "input",
            lambda key, command, text: _responses(key, command, [{"type": "input_text", "text": text}]),
            lambda it: str(it["output"][0]["text"]),
        ),
    ),
    "gemini_contents": (
        "gemini_contents",
        Shape("contents", _gemini, lambda it: str(it["parts"][0]["functionResponse"]["response"]["output"])),
    ),
    "bedrock_converse": (
        "bedrock_converse",
        Shape("messages", _bedrock, lambda it: str(it["content"][0]["toolResult"]["content"][0]["text"])),
    ),
    "ai_sdk": ("ai_sdk", Shape("messages", _sdk, lambda it: str(it["content"][0]["output"]["value"]))),
}
TASK: Final[Mapping[str, Any]] = {
    "gemini_contents": {"role": "user", "parts": [{"text": "Fix the tests."}]},
    "bedrock_converse": {"role": "user", "content": [{"text": "Fix the tests."}]},
}
BARE: Final[Mapping[str, object]] = {"own_text_max_tokens": 0, "note_max_tokens": 0}
"""Without our own text, so that a prompt of which nothing is changed is returned as it was sent."""
shapes = pytest.mark.parametrize(("format", "shape"), SHAPES.values(), ids=SHAPES)


def history(format: str, shape: Shape, calls: int, text: str = RED, command: str = "make test") -> list[Any]:
    """A task, and so many calls: the last but one's result may be condensed, the others are short."""
    messages = [TASK.get(format, {"role": "user", "content": "Fix the tests."})]
    for number in range(calls):
        messages += shape.call(f"call_{number}", command, text if number == 0 else f"done {number}")
    return messages


def bare(
    policy: Mapping[str, object] | None = None, *, preset: str = "cache_first", guard: GuardOptions | None = None
) -> Engine:
    """A process that writes no text of its own."""
    return Engine(limit=WINDOW, preset=preset, policy={**BARE, **(policy or {})}, guard=guard or GuardOptions())


def raw(shape: Shape, messages: list[Any], **spelled: Any) -> bytes:
    """The body of a prompt."""
    return json.dumps({"model": "gpt-4o", shape.field: messages}, **spelled).encode()


def messages_of(answer: TrimAnswer, shape: Shape) -> list[Any]:
    """The messages that were returned."""
    found: list[Any] = json.loads(answer.prompt.body or b"")[shape.field]
    return found


def texts(answer: TrimAnswer, shape: Shape) -> list[str]:
    """The texts that condensed results have in a prompt."""
    found = []
    for each in messages_of(answer, shape):
        try:
            found.append(shape.text(each))
        except (KeyError, IndexError, TypeError):
            continue
    return [text for text in found if text.rsplit("\n", 1)[-1].startswith("[condensed")]


@shapes
def test_a_result_is_condensed_once(format: str, shape: Shape) -> None:
    """When it is first seen, with its original in reach; later prompts have the same bytes."""
    engine = bare()
    first = engine.trim(format, raw(shape, history(format, shape, 1)))
    (trim,) = first.trimmed.trims
    assert (Action.CONDENSED, Reason.CONDENSE) == (trim.action, trim.reason)
    assert [f"{PLAIN}[condensed — id={trim.stash_id}]"] == texts(first, shape)
    assert first.tokens.before - first.tokens.after == trim.tokens_saved
    assert RED.encode() == engine.original(trim.stash_id)
    for calls in (2, 3, 4):
        answer = engine.trim(format, raw(shape, history(format, shape, calls)))
        assert texts(first, shape) == texts(answer, shape)
        assert answer.cache.first_changed >= 2 * calls - 2
        assert not answer.news.trims


def test_a_condensed_prompt_is_trimmed() -> None:
    """It is told as trimmed, and counted, though nothing is hidden; without condensing there was no need."""
    shape = SHAPES["openai_chat"][1]
    sent = raw(shape, history("openai_chat", shape, 3))
    answer, plain = (bare({"condense": level}).trim("openai_chat", sent) for level in ("exact", "off"))
    assert answer.untrimmed is None
    assert "1" == headers.facts(answer)["x-prompt-sidecar-trims"]
    assert not answer.trimmed.cuts
    assert not answer.trimmed.compacted
    assert Untrimmed.NO_NEED is plain.untrimmed
    assert "0" == headers.facts(plain)["x-prompt-sidecar-trims"]


@shapes
def test_whoever_sees_it_makes_the_same_bytes(format: str, shape: Shape) -> None:
    """The agent sends its own history or what it got, spelled otherwise, to this process or to one that is new."""
    engine = bare()
    first = engine.trim(format, raw(shape, history(format, shape, 5)))
    got = messages_of(first, shape)
    untrimmed = history(format, shape, 5)
    for revision in (b"", first.prompt.revision):
        for spelled in ({}, {"indent": 1}, {"ensure_ascii": False, "sort_keys": True}):
            for held, into in ((untrimmed, engine), (untrimmed, bare()), (got, engine)):
                answer = into.trim(format, raw(shape, held, **spelled), revision=revision)
                assert texts(first, shape) == texts(answer, shape)
                assert list(first.trimmed.trims) == list(answer.trimmed.trims)
    adopted = bare().trim(format, raw(shape, got))  # it knows nothing: the text is the agent's
    assert got == messages_of(adopted, shape)
    assert not adopted.trimmed.trims


@shapes
def test_edits_of_what_an_agent_holds(format: str, shape: Shape) -> None:
    """Asked for edits: a raw history gets the condensed result each time, one that has it gets nothing."""
    engine = bare()
    first = engine.trim(format, raw(shape, history(format, shape, 1)), edits=True)
    (edit,) = first.prompt.edits
    assert (EditOperation.REPLACE, f"/{shape.field}/2") == (edit.operation, edit.pointer)
    adopted = [*history(format, shape, 1)[:2], json.loads(edit.value)]
    for calls in (2, 3):
        sent = history(format, shape, calls)
        answer = engine.trim(format, raw(shape, sent), edits=True)
        assert [edit] == list(answer.prompt.edits)
        patched = [*adopted, *sent[3:]]
        for spelled in ({}, {"indent": 1}, {"ensure_ascii": False, "sort_keys": True}):
            answer = engine.trim(format, raw(shape, patched, **spelled), edits=True)
            assert not answer.prompt.edits
            assert list(first.trimmed.trims) == list(answer.trimmed.trims)
        fresh = bare().trim(format, raw(shape, patched), edits=True, revision=first.prompt.revision)
        assert not fresh.prompt.edits
        assert RED.encode() == engine.original(first.trimmed.trims[0].stash_id)


def test_edits_of_a_history_that_only_grows() -> None:
    """New messages alone: the edits are for the untrimmed history, so each answer has the condensed result."""
    shape = SHAPES["openai_chat"][1]
    engine = bare()
    sent = history("openai_chat", shape, 1)
    first = engine.trim("openai_chat", raw(shape, sent), edits=True)
    revision = first.prompt.revision
    for calls in (2, 3, 4):
        new = history("openai_chat", shape, calls)[len(sent) :]
        sent += new
        answer = engine.trim("openai_chat", raw(shape, new), edits=True, base_revision=revision)
        assert list(first.prompt.edits) == list(answer.prompt.edits)
        revision = answer.prompt.revision


@shapes
def test_what_was_condensed_shrinks_further(format: str, shape: Shape) -> None:
    """The cap, and later cuts, start from the condensed text; a fresh process with the revision goes on alike."""
    policy = {"cap_text_bytes": 20_000}
    engine = bare(policy)
    first = engine.trim(format, raw(shape, history(format, shape, 1, LONG)))
    (trim,) = first.trimmed.trims
    assert (Action.ELIDED, Reason.CAP) == (trim.action, trim.reason)
    (text,) = texts(first, shape)
    assert "\x1b" not in text
    assert len(text.encode()) <= 20_000
    assert LONG.encode() == engine.original(trim.stash_id)
    news = {each.action: each.tokens_saved for each in first.news.trims}
    assert trim.tokens_saved == sum(news.values())
    assert news[Action.CONDENSED] == sum(first.news.condensed.values()) > 0
    small = engine.trim(format, raw(shape, history(format, shape, 9, LONG)), context_window=4_000)
    (again,) = [each for each in small.trimmed.trims if each.stash_id == trim.stash_id]
    assert again.tokens_saved > trim.tokens_saved
    sent = raw(shape, history(format, shape, 9, LONG))
    fresh = bare(policy)
    answer = fresh.trim(format, sent, context_window=4_000, revision=small.prompt.revision)
    assert small.prompt.body == answer.prompt.body
    assert LONG.encode() == fresh.original(trim.stash_id)


def test_the_call_says_what_it_is() -> None:
    """The same text from a command that reads a file stays as it is."""
    shape = SHAPES["openai_chat"][1]
    rows = json.dumps([{"id": number, "state": "ok", "name": f"job-{number}"} for number in range(90)], indent=1)
    for command, condensed in (("curl jobs", True), ("cat jobs.json", False), ("sed -n 1,90p jobs.json", False)):
        sent = raw(shape, history("openai_chat", shape, 2, rows, command))
        answer = bare(SAFE).trim("openai_chat", sent)
        assert condensed == bool(texts(answer, shape)), command
        assert condensed or answer.prompt.body == sent


@pytest.mark.parametrize("padding", [0, 2_000])
def test_the_call_of_an_earlier_prompt(padding: int) -> None:
    """What a call says holds for a long result that comes prompts later, or instead of a short one after a rewind."""
    shape = SHAPES["openai_chat"][1]
    rows = json.dumps([{"id": number, "state": "ok", "name": f"job-{number}"} for number in range(90)], indent=1)
    for command, condensed in (("curl jobs", True), ("cat jobs.json", False)):
        task, call, result = history("openai_chat", shape, 1, rows, f"{command} # {'x' * padding}")
        short = {**result, "content": "again, please"}
        more = shape.call("call_1", "true", "done")
        engine = bare(SAFE)
        for before in ([task, call], [task, call, short], [task, call, short, *more]):
            engine.trim("openai_chat", raw(shape, before))
            answer = engine.trim("openai_chat", raw(shape, [task, call, result]))
            assert condensed == bool(texts(answer, shape)), command
            assert answer.prompt.body == bare(SAFE).trim("openai_chat", raw(shape, [task, call, result])).prompt.body


def test_calls_of_short_results_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all calls, arguments are worked out only of those that a result long enough to be condensed answers."""
    shape, read = SHAPES["openai_chat"][1], []

    def counted(tool: str, arguments: str) -> reading.SourceCall:
        read.append(arguments)
        return call_of(tool, arguments)

    call_of = reading.call_of
    monkeypatch.setattr(reading, "call_of", counted)
    engine = bare()
    for made in (1, 3, 6):
        engine.trim("openai_chat", raw(shape, history("openai_chat", shape, made)))
    assert read == ['{"command": "make test"}']


@shapes
def test_a_call_with_half_an_emoji(format: str, shape: Shape) -> None:
    """A prompt whose command has a lone surrogate is answered, and its result condensed where it may be edited."""
    sent = raw(shape, history(format, shape, 2, command="make test # \ud83d"))
    answer = bare().trim(format, sent)
    assert [f"{PLAIN}[condensed — id={trim.stash_id}]" for trim in answer.trimmed.trims] == texts(answer, shape)
    assert texts(answer, shape)


@pytest.mark.parametrize(
    "policy",
    [
        {"condense": "off"},
        {"condense_skip_tools": ["bash"]},
        {"never_trim_tools": ["bash"]},
    ],
    ids=str,
)
def test_a_policy_without(policy: dict[str, object]) -> None:
    """The prompt is returned as it was sent."""
    shape = SHAPES["openai_chat"][1]
    sent = raw(shape, history("openai_chat", shape, 2))
    assert sent == bare(policy).trim("openai_chat", sent).prompt.body


@pytest.mark.parametrize("preset", ["lean", "fit_only", "cap_only"])
def test_other_presets(preset: str) -> None:
    """They are what they were written to be."""
    shape = SHAPES["openai_chat"][1]
    sent = raw(shape, history("openai_chat", shape, 2))
    assert sent == bare(preset=preset).trim("openai_chat", sent).prompt.body


def test_passed_tests_are_counted_where_the_policy_says_so() -> None:
    """Passed tests are counted where the policy says so."""
    shape = SHAPES["openai_chat"][1]
    passed = "".join(f"(pass) suite > case number {number} does what it should [1ms]\n" for number in range(60))
    sent = raw(shape, history("openai_chat", shape, 2, f"{passed}(fail) c > d\n 60 pass\n 1 fail\n"))
    assert sent == bare().trim("openai_chat", sent).prompt.body
    engine = bare({"condense": "safe"})
    (text,) = texts(engine.trim("openai_chat", sent), shape)
    assert "[59 more lines of passed tests left out]" in text
    assert "(fail) c > d" in text


def test_a_model_that_cannot_recall() -> None:
    """Only what can be read back is taken out, and no id is shown."""
    shape = SHAPES["openai_chat"][1]
    sent = raw(shape, history("openai_chat", shape, 2))
    answer = bare(SAFE).trim("openai_chat", sent, recall_unavailable=True)
    assert sent == answer.prompt.body
    sent = raw(shape, history("openai_chat", shape, 2, FOUND, "rg value_ src"))
    (text,) = texts(bare(SAFE).trim("openai_chat", sent, recall_unavailable=True), shape)
    assert text.endswith("\n[condensed]")


def test_nothing_is_lost_with_it() -> None:
    """It stands in no registry, no note and no count of what was cut; search and recall have the original."""
    shape = SHAPES["openai_chat"][1]
    engine = Engine(limit=WINDOW)
    answer = engine.trim("openai_chat", raw(shape, history("openai_chat", shape, 3)))
    (trim,) = answer.trimmed.trims
    assert not answer.trimmed.stash_entries
    assert not answer.trimmed.compacted
    assert not answer.trimmed.cuts
    assert not answer.news.advertised
    assert not any("clipped" in piece.text and "1 item" in piece.text for piece in answer.prompt.own_text)
    figures = engine.figures()
    assert (0, 1, trim.tokens_saved) == (figures.trimmed_items, figures.condensed_items, figures.condensed_tokens)
    assert RED.encode() == engine.original(trim.stash_id)
    found = engine.search("case_41.ts")
    assert trim.stash_id in {snippet.item.stash_id for snippet in found.snippets}


def test_a_revision_that_was_made_without() -> None:
    """A run that began uncondensed keeps what the model has seen; what is new is condensed."""
    shape = SHAPES["openai_chat"][1]
    before = bare({"condense": "off"})
    sent = history("openai_chat", shape, 3)
    revision = before.trim("openai_chat", raw(shape, sent)).prompt.revision
    sent += shape.call("call_9", "make test", RED)
    answer = bare().trim("openai_chat", raw(shape, sent), revision=revision)
    assert sent[:-1] == messages_of(answer, shape)[: len(sent) - 1]
    assert len(texts(answer, shape)) == 1


def test_lines_of_a_search_stay_whole() -> None:
    """By default what grep found is returned as it came, to be quoted and searched for; with `safe` it is grouped.

    Where the path is half of what was found it is grouped by default, too.
    """
    shape = SHAPES["openai_chat"][1]
    sent = raw(shape, history("openai_chat", shape, 2, SHORT, "rg -n value_ src"))
    assert sent == bare().trim("openai_chat", sent).prompt.body
    (text,) = texts(bare(SAFE).trim("openai_chat", sent), shape)
    assert text.startswith("src/a.py\n0:")
    sent = raw(shape, history("openai_chat", shape, 2, FOUND, "rg -n value_ src"))
    (text,) = texts(bare().trim("openai_chat", sent), shape)
    assert text.startswith("src/app/config/settings.py\n0:")


def test_a_run_of_earlier_rules_goes_on_with_its_reductions() -> None:
    """A run that began when `exact` grouped what grep found does so to its end, in any process that goes on with it."""
    shape = SHAPES["openai_chat"][1]
    sent = history("openai_chat", shape, 3)
    opened = unseal(KEY, bare().trim("openai_chat", raw(shape, sent)).prompt.revision)
    assert opened is not None
    assert RULES == opened.began_under
    before = seal(KEY, msgspec.structs.replace(opened, began_under=8, version=8))
    sent += shape.call("call_9", "rg -n value_ src", SHORT)
    answer = bare().trim("openai_chat", raw(shape, sent), revision=before)
    assert texts(answer, shape)[-1].startswith("src/a.py\n0:")
    sent += shape.call("call_10", "rg -n value_ src", SHORT)
    fresh = bare().trim("openai_chat", raw(shape, sent), revision=answer.prompt.revision)
    assert messages_of(answer, shape) == messages_of(fresh, shape)[: len(sent) - 2]
    grouped = [text.partition("\n[condensed")[0] for text in texts(fresh, shape)[1:]]
    assert (2, 1) == (len(grouped), len(set(grouped)))
    assert 1 == len(texts(bare().trim("openai_chat", raw(shape, sent)), shape))


def test_a_policy_that_changes() -> None:
    """What was decided stays, here and in a process that has the revision."""
    shape = SHAPES["openai_chat"][1]
    engine = bare()
    sent = history("openai_chat", shape, 3)
    first = engine.trim("openai_chat", raw(shape, sent))
    sent += shape.call("call_9", "make test", RED)
    fresh = bare()
    for into in (engine, fresh):
        answer = into.trim(
            "openai_chat", raw(shape, sent), policy={**BARE, "condense": "off"}, revision=first.prompt.revision
        )
        assert texts(first, shape) == texts(answer, shape)


def test_documents_stay() -> None:
    """A document in a result is cited by its places."""
    shape = SHAPES["anthropic_messages"][1]
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": RED}}
    search = {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": RED}]}
    for block in (document, search):
        sent = raw(shape, [TASK.get("", {"role": "user", "content": "x"}), *_anthropic("a", "make", [block])])
        assert sent == bare().trim("anthropic_messages", sent).prompt.body


def test_a_single_result() -> None:
    """What a terminal would not show goes; structured content and a resource stay."""
    block = {"type": "text", "text": RED}
    resource = {"type": "resource", "resource": {"uri": "file:///x", "text": RED}}
    result = {"content": [block, resource], "structuredContent": {"rows": [1, 2]}}
    engine = bare()
    answer = engine.trim("mcp_tool_result", json.dumps(result).encode())
    back = json.loads(answer.prompt.body or b"")
    (trim,) = answer.trimmed.trims
    assert f"{PLAIN}[condensed — id={trim.stash_id}]" == back["content"][0]["text"]
    assert (resource, result["structuredContent"]) == (back["content"][1], back["structuredContent"])
    assert RED.encode() == engine.original(trim.stash_id)


def test_structured_content_that_a_text_repeats() -> None:
    """The text stays, as the structured content would go with it."""
    rows = [{"id": number, "state": "ok", "name": f"job-{number}"} for number in range(90)]
    result = {"content": [{"type": "text", "text": json.dumps({"rows": rows})}], "structuredContent": {"rows": rows}}
    sent = json.dumps(result).encode()
    assert sent == bare().trim("mcp_tool_result", sent).prompt.body


def test_masked_since() -> None:
    """A process that masks goes on from a revision of one that did not: condensed again, from the masked text."""
    shape = SHAPES["openai_chat"][1]
    key = "AKIA" + "Q7ZP2LXN4RBT6WVM"
    text = RED + f"key {key}\n" + RED
    sent = history("openai_chat", shape, 3, text)
    first = bare().trim("openai_chat", raw(shape, sent))
    answers = []
    for _ in range(2):
        masking = bare(guard=GuardOptions(mode=ENFORCE))
        answers.append(masking.trim("openai_chat", raw(shape, sent), revision=first.prompt.revision))
    one, other = answers
    (masked,) = texts(one, shape)
    assert key not in masked
    assert "\x1b" not in masked
    assert masked.endswith(first.trimmed.trims[0].stash_id + "]")
    assert one.prompt.body == other.prompt.body
    fresh = bare(guard=GuardOptions(mode=ENFORCE)).trim("openai_chat", raw(shape, sent))
    assert [masked.rpartition("\n")[0]] == [text.rpartition("\n")[0] for text in texts(fresh, shape)]
