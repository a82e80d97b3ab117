"""The scripted providers refuse what their pages say and take what they say: judged alone, without a sidecar."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.conformance.bound_thinking import BoundThinking, Enforcement
from tests.conformance.conversations import ANTHROPIC, GEMINI, RESPONSES, Conversation, dumps, made
from tests.conformance.providers import Cause, Provider, Reply
from tests.conformance.reasoning_items import ReasoningItems
from tests.conformance.thought_signatures import ThoughtSignatures
from tests.conformance.turn_thinking import TurnThinking

Body = dict[str, Any]
Edit = Callable[[Body], None]


def thought(text: str = "") -> dict[str, Any]:
    """A thinking block as a recording has it."""
    return {"type": "thinking", "thinking": text, "signature": "A" * 60}


def call(name: str) -> dict[str, Any]:
    """A call of a tool."""
    return {"type": "tool_use", "id": name, "name": "read", "input": {"path": name, "lines": 40}}


def result(name: str, text: str = "what the file says") -> dict[str, Any]:
    """Its result."""
    return {"type": "tool_result", "tool_use_id": name, "content": text}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    """A message of the user's."""
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    """A message of the model's."""
    return {"role": "assistant", "content": list(blocks)}


def answer_of(text: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": text}


ANSWERS = (
    assistant(thought("first"), call("a")),
    assistant(thought(), thought("an update"), call("b")),
    assistant({"type": "redacted_thinking", "data": "B" * 60}, answer_of("Done so far.")),
    assistant(thought("last"), call("c"), call("d")),
)
GIVEN = (
    user(answer_of("Go.")),
    user(result("a")),
    user(result("b")),
    user(answer_of("Now the rest.")),
    user(result("c"), result("d")),
)
"""A conversation of four answers; a tool-use loop, words of the user, another loop that goes on."""


def talk(provider: Provider, body: Body | None = None, answers: Sequence[Any] = ANSWERS) -> Body:
    """Have the conversation with a provider; return the next request. None of it is refused."""
    body = body or {
        "model": "claude-fable-5-1",
        "thinking": {"type": "adaptive"},
        "system": "You are careful.",
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    }
    body = copy.deepcopy(body) | {"messages": [GIVEN[0]]}
    for given, answer in zip(GIVEN[1:], answers, strict=True):
        reply = provider.ask(dumps(body), [dumps(answer)])
        assert [] == list(reply.refusals)
        body["messages"] = [*body["messages"], *map(json.loads, reply.messages), given]
    assert [] == list(provider.ask(dumps(body), ()).refusals)
    return copy.deepcopy(body)


def asked(provider: Provider, body: Body, edit: Edit) -> Reply:
    """Send a request that an edit was made to."""
    body = copy.deepcopy(body)
    edit(body)
    return provider.ask(dumps(body), ())


def content(body: Body, message: int) -> Any:
    """The blocks of one message."""
    return body["messages"][message]["content"]


def without(*messages: int) -> Edit:
    """Remove the thinking of some messages."""

    def edit(body: Body) -> None:
        for message in messages:
            blocks = [block for block in content(body, message) if "thinking" not in block["type"]]
            body["messages"][message]["content"] = blocks

    return edit


def change(message: int, block: int, **members: Any) -> Edit:
    """Change members of one block."""
    return lambda body: content(body, message)[block].update(members)


def both(*edits: Edit) -> Edit:
    """Several edits."""

    def edit(body: Body) -> None:
        for each in edits:
            each(body)

    return edit


def turned(value: Any) -> Any:
    """The same value with the members of each object in reverse order."""
    if isinstance(value, list):
        return [turned(inner) for inner in value]
    if isinstance(value, dict):
        return {name: turned(value[name]) for name in reversed(value)}
    return value


def refused(reply: Reply) -> tuple[str, str] | None:
    """The cause and the place that the provider names."""
    return (reply.refusals[0].cause.value, reply.refusals[0].place) if reply.refusals else None


VALID: dict[str, Edit] = {
    "messages at the end": lambda body: body["messages"].extend(
        [assistant(answer_of("Ok.")), user(answer_of("Go on."))]
    ),
    "other parameters": lambda body: body.update(max_tokens=9, output_config={"effort": "low"}, metadata={}),
    "cache marks": both(
        change(0, 0, cache_control={"type": "ephemeral"}),
        change(2, 0, cache_control={"type": "ephemeral"}),
        lambda body: body["tools"][0].update(cache_control={"type": "ephemeral"}),
    ),
    "the order of keys": lambda body: body.update(turned(body)),
    "a string in place of one block of text": lambda body: body["messages"][0].update(content="Go."),
    "one turn in two messages": lambda body: body["messages"].__setitem__(
        slice(8, 9), [user(result("c")), user(result("d"))]
    ),
    "a deferred tool that nothing refers to": lambda body: body["tools"].append({"name": "x", "defer_loading": True}),
    "thinking removed from the start": without(1),
    "thinking removed from the end": without(5, 7),
    "all thinking removed": without(1, 3, 5, 7),
    "an edit, and no thinking after it": both(without(3, 5, 7), change(2, 0, content="[elided]")),
    "a changed system prompt, and no thinking": both(without(1, 3, 5, 7), lambda body: body.update(system="New.")),
}
INVALID: dict[str, tuple[Edit, str, str]] = {
    "system": (lambda body: body.update(system="You are careless."), "prefix", "messages.1.content.0"),
    "system as blocks with one more": (
        lambda body: body.update(system=[answer_of("You are careful."), answer_of("More.")]),
        "prefix",
        "messages.1.content.0",
    ),
    "a tool more": (lambda body: body["tools"].append({"name": "x"}), "prefix", "messages.1.content.0"),
    "a tool's description": (lambda body: body["tools"][0].update(description="x"), "prefix", "messages.1.content.0"),
    "no tools": (lambda body: body.pop("tools"), "prefix", "messages.1.content.0"),
    "the first message": (change(0, 0, text="Go!"), "prefix", "messages.1.content.0"),
    "a result cut": (change(2, 0, content="[elided]"), "prefix", "messages.3.content.0"),
    "the arguments of a call": (lambda body: content(body, 1)[1]["input"].clear(), "prefix", "messages.3.content.0"),
    "a mark inside arguments": (
        lambda body: content(body, 1)[1]["input"].update(cache_control=1),
        "prefix",
        "messages.3.content.0",
    ),
    "what the model said": (change(5, 1, text="Done."), "prefix", "messages.7.content.0"),
    "a text more in an earlier turn": (
        lambda body: content(body, 4).append(answer_of("A reminder.")),
        "prefix",
        "messages.5.content.0",
    ),
    "an iteration dropped": (
        lambda body: body["messages"].__delitem__(slice(1, 3)),
        "prefix",
        "messages.1.content.0",
    ),
    "a system message more": (
        lambda body: body["messages"].insert(5, {"role": "system", "content": "Be quick."}),
        "prefix",
        "messages.6.content.0",
    ),
    "thinking removed from the middle": (without(3), "chain", "messages.5.content.0"),
    "one block of the middle removed": (lambda body: content(body, 3).pop(0), "chain", "messages.3.content.0"),
    "thinking moved": (
        lambda body: content(body, 3).insert(0, content(body, 3).pop(1)),
        "chain",
        "messages.3.content.0",
    ),
    "thinking after its call": (
        lambda body: content(body, 1).append(content(body, 1).pop(0)),
        "prefix",
        "messages.1.content.1",
    ),
    "an edit, and the thinking after it removed but for the last": (
        both(without(3, 5), change(2, 0, content="[elided]")),
        "prefix",
        "messages.7.content.0",
    ),
    "readable thinking edited": (change(1, 0, thinking="firsT"), "forged", "messages.1.content.0"),
    "a signature cut": (change(1, 0, signature="A"), "forged", "messages.1.content.0"),
    "a redacted block edited": (change(5, 0, data="x"), "forged", "messages.5.content.0"),
}


@pytest.mark.parametrize("edit", VALID.values(), ids=VALID)
def test_bound_thinking_takes(edit: Edit) -> None:
    """What the page calls valid is accepted."""
    provider = BoundThinking()
    assert None is refused(asked(provider, talk(provider), edit))


@pytest.mark.parametrize(("edit", "cause", "place"), INVALID.values(), ids=INVALID)
def test_bound_thinking_refuses(edit: Edit, cause: str, place: str) -> None:
    """What the page calls invalid is refused, at the first block that it concerns."""
    provider = BoundThinking()
    assert (cause, place) == refused(asked(provider, talk(provider), edit))


def test_the_newest_thinking_goes_whole_or_not_at_all() -> None:
    """A part of the latest assistant message's thinking may not be removed; all of it is a remark where calls wait."""
    answers = (*ANSWERS[:3], assistant(thought("one"), answer_of("So."), thought("two"), call("c"), call("d")))
    for place in (0, 2):
        provider = BoundThinking()
        body = talk(provider, answers=answers)
        reply = asked(provider, body, lambda body, place=place: content(body, 7).pop(place))  # type: ignore[misc]
        assert "newest" == reply.refusals[0].cause
    provider = BoundThinking()
    reply = asked(provider, talk(provider, answers=answers), without(7))
    assert ([], ["newest"]) == (list(reply.refusals), [remark.cause for remark in reply.remarks])


def goes_on(provider: BoundThinking, body: Body, answer: Any, given: Any) -> Body:
    """The request after one more answer."""
    reply = provider.ask(dumps(body), [dumps(answer)])
    assert [] == list(reply.refusals)
    return body | {"messages": [*body["messages"], *map(json.loads, reply.messages), given]}


def test_thinking_after_a_cut_is_bound_to_the_cut_prompt() -> None:
    """What is produced under a trimmed prompt is valid with it, and refused in the untrimmed history."""
    provider = BoundThinking()
    whole = talk(provider)
    cut = copy.deepcopy(whole)
    both(without(3, 5, 7), change(2, 0, content="[elided]"))(cut)
    later = goes_on(provider, cut, assistant(thought("new"), call("e")), user(result("e")))
    assert None is refused(provider.ask(dumps(later), ()))
    untrimmed = whole | {"messages": [*whole["messages"], *later["messages"][-2:]]}
    assert ("prefix", "messages.9.content.0") == refused(provider.ask(dumps(untrimmed), ()))


def test_thinking_that_was_removed_may_not_come_back() -> None:
    """It invalidates what was produced while it was gone, though no word before that has changed."""
    provider = BoundThinking()
    whole = talk(provider)
    bare = copy.deepcopy(whole)
    without(5, 7)(bare)
    later = goes_on(provider, bare, assistant(thought("new"), call("e")), user(result("e")))
    assert None is refused(provider.ask(dumps(later), ()))
    back = whole | {"messages": [*whole["messages"], *later["messages"][-2:]]}
    assert ("chain", "messages.9.content.0") == refused(provider.ask(dumps(back), ()))


def test_a_deferred_tool_counts_from_where_it_is_referred_to() -> None:
    """Changing it before that is no change of the prefix; afterwards it is."""
    provider = BoundThinking()
    tools: list[Body] = [{"name": "read"}, {"name": "late", "defer_loading": True, "description": "x"}]
    head: Body = {"model": "claude-fable-5-1", "tools": tools}
    added = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "late"}}
    offered = {"role": "system", "content": [added]}
    body = head | {"messages": [GIVEN[0]]}
    body = goes_on(provider, body, ANSWERS[0], GIVEN[1])
    changed = [tools[0], tools[1] | {"description": "y"}]
    assert None is refused(provider.ask(dumps(body | {"tools": changed}), ()))
    body["messages"] = [*body["messages"], offered]
    body = goes_on(provider, body, ANSWERS[1], GIVEN[2])
    assert ("prefix", "messages.4.content.0") == refused(provider.ask(dumps(body | {"tools": changed}), ()))


def test_the_prefix_starts_at_the_latest_compaction() -> None:
    """What stands before a compaction block is no part of it."""
    provider = BoundThinking()
    body: Body = {"model": "claude-fable-5-1", "system": "x", "messages": [GIVEN[0]]}
    body = goes_on(provider, body, assistant({"type": "compaction", "content": "all"}, thought(), call("a")), GIVEN[1])
    body["messages"][0] = user(answer_of("Something else."))
    assert None is refused(provider.ask(dumps(body), ()))


def test_a_request_chooses_refusal_or_dropping() -> None:
    """A request may ask for a refusal or for dropping; older accounts are not checked, and are told."""
    edit = INVALID["a result cut"][0]

    def binding(behaviour: str) -> Edit:
        return lambda body: body["thinking"].update(block_binding={"prefix_mismatch_behavior": behaviour})

    old = BoundThinking(Enforcement.RECORD)
    body = talk(old)
    reply = asked(old, body, edit)
    assert ([], ["prefix"] * 4) == (list(reply.refusals), [remark.cause.value for remark in reply.remarks])
    assert "prefix" == asked(old, body, both(edit, binding("error"))).refusals[0].cause
    dropping = asked(old, body, both(edit, binding("drop_block")))
    assert [] == list(dropping.refusals)
    places = ["messages.3.content.0", "messages.3.content.1", "messages.5.content.0", "messages.7.content.0"]
    assert places == list(dropping.dropped)


def test_thinking_after_dropped_blocks_stays_valid() -> None:
    """What is produced while blocks are dropped stays valid as long as nothing before it changes again."""
    provider = BoundThinking(Enforcement.DROP)
    body = talk(provider)
    INVALID["a result cut"][0](body)
    body = goes_on(provider, body, assistant(thought("new"), call("e")), user(result("e")))
    assert 4 == len(provider.ask(dumps(body), ()).dropped)


def test_a_model_that_checks_nothing_binds_nothing() -> None:
    """Its requests are not checked, nor is what it produced; what another model bound is checked there again."""
    provider = BoundThinking()
    body = talk(provider)
    edit = INVALID["a result cut"][0]
    older = copy.deepcopy(body) | {"model": "claude-opus-4-6"}
    edit(older)
    older = goes_on(provider, older, assistant(thought("new"), call("e")), user(result("e")))
    assert ("prefix", "messages.3.content.0") == refused(provider.ask(dumps(older | {"model": body["model"]}), ()))
    without(3, 5, 7)(older)
    assert None is refused(provider.ask(dumps(older | {"model": body["model"]}), ()))


# -- older Claude ----------------------------------------------------------------------------------------------------


OLDER = {"model": "claude-opus-4-6", "thinking": {"type": "adaptive"}, "system": "You are careful."}
OLDER_VALID: dict[str, Edit] = {
    "a changed system prompt": lambda body: body.update(system="New."),
    "results cut": both(change(2, 0, content="[elided]"), change(4, 0, content="[elided]")),
    "arguments cut beside thinking": lambda body: content(body, 7)[1]["input"].clear(),
    "closed turns without thinking": without(1, 3, 5),
    "some of it, anywhere": without(3),
    "iterations of closed turns dropped": lambda body: body["messages"].__delitem__(slice(1, 3)),
    "no thinking where it is off": both(without(1, 3, 5, 7), lambda body: body.update(thinking={"type": "disabled"})),
}
OLDER_INVALID: dict[str, tuple[Edit, str]] = {
    "the current turn's thinking": (without(7), "newest"),
    "edited thinking": (change(7, 0, thinking="x"), "forged"),
    "edited thinking of a closed turn": (change(1, 0, thinking="x"), "forged"),
    "thinking of another answer": (lambda body: content(body, 7).insert(0, content(body, 1)[0]), "newest"),
}


@pytest.mark.parametrize("edit", OLDER_VALID.values(), ids=OLDER_VALID)
def test_turn_thinking_takes(edit: Edit) -> None:
    """Earlier turns' thinking may be absent, and what stands before thinking may change."""
    provider = TurnThinking()
    assert None is refused(asked(provider, talk(provider, OLDER), edit))


@pytest.mark.parametrize(("edit", "cause"), OLDER_INVALID.values(), ids=OLDER_INVALID)
def test_turn_thinking_refuses(edit: Edit, cause: str) -> None:
    """The turn that goes on has its thinking, whole and as it was."""
    provider = TurnThinking()
    assert cause == (refused(asked(provider, talk(provider, OLDER), edit)) or [""])[0]


def test_words_beside_the_newest_results_do_not_free_its_thinking() -> None:
    """The latest assistant turn keeps its thinking whatever the user says after its results."""
    provider = TurnThinking()
    body = talk(provider, OLDER)
    content(body, 8).append(answer_of("And be quick."))
    assert None is refused(asked(provider, body, without(1, 3, 5)))
    assert "newest" == (refused(asked(provider, body, without(7))) or [""])[0]


def test_a_tool_use_loop_is_one_turn() -> None:
    """All of its answers keep their thinking, in both modes; with manual thinking the turn begins with it."""
    for mode in ("adaptive", "enabled"):
        for first in range(3):
            provider = TurnThinking()
            body = talk(provider, OLDER | {"thinking": {"type": mode}})
            body["messages"] = body["messages"][:5]
            reply = asked(provider, body, without(1, 3) if first == 2 else without(2 * first + 1))
            assert "newest" == reply.refusals[0].cause
            opening = any(refusal.cause is Cause.OPENING for refusal in reply.refusals)
            assert (mode == "enabled" and first != 1) == opening


# -- Gemini, Responses -----------------------------------------------------------------------------------------------


def grown(provider: Provider, conversation: Conversation, steps: int) -> tuple[list[Any], list[Any]]:
    """Have so many steps of a conversation; return the messages then, and the last answer's."""
    messages: list[Any] = []
    for step in conversation.steps[:steps]:
        messages += map(json.loads, step.given)
        reply = provider.ask(conversation.body([dumps(message) for message in messages]), step.answer)
        assert [] == list(reply.refusals)
        last = [json.loads(raw) for raw in reply.messages]
        messages += last
    return messages, last


def gemini(*contents: dict[str, Any]) -> bytes:
    """A body of contents."""
    return dumps({"contents": list(contents)})


def test_signatures_of_the_current_turn() -> None:
    """The first call of each step of the current turn has its signature; text and earlier turns need none."""
    provider = ThoughtSignatures()
    go = {"role": "user", "parts": [{"text": "Go."}]}
    part = {"functionCall": {"name": "read", "args": {}}}
    reply = provider.ask(gemini(go), [dumps({"role": "model", "parts": [{"text": "So."}, part, part]})])
    called = json.loads(reply.messages[0])
    assert [False, True, False] == ["thoughtSignature" in each for each in called["parts"]]
    results = {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {}}}] * 2}
    assert None is refused(provider.ask(gemini(go, called, results), ()))
    bare = {"role": "model", "parts": [{"text": "So."}, part, part]}
    assert ("signature", "contents.1.parts.1") == refused(provider.ask(gemini(go, bare, results), ()))
    assert None is refused(provider.ask(gemini(go, bare, results, {"role": "model", "parts": [{"text": "."}]}, go), ()))
    forged = {"role": "model", "parts": [{"text": "So."}, part | {"thoughtSignature": "x"}, part]}
    assert "forged" == (refused(provider.ask(gemini(go, forged, results), ())) or [""])[0]
    moved = {"role": "model", "parts": [called["parts"][0], called["parts"][2], called["parts"][1]]}
    assert ("signature", "contents.1.parts.1") == refused(provider.ask(gemini(go, moved, results), ()))
    other = {"functionCall": {"name": "write", "args": {}}, "thoughtSignature": called["parts"][1]["thoughtSignature"]}
    moved = {"role": "model", "parts": [called["parts"][0], other]}
    assert ("signature", "contents.1.parts.1") == refused(provider.ask(gemini(go, moved, results), ()))
    cut = json.loads(reply.messages[0])
    cut["parts"][1]["functionCall"]["args"] = {"path": "…"}
    assert None is refused(provider.ask(gemini(go, cut, results), ()))


def responses(items: Sequence[Any], **members: Any) -> bytes:
    """A body of items."""
    return dumps({"input": list(items), **members})


def test_reasoning_items_and_the_items_that_need_them() -> None:
    """With ids they go together; without ids and stores reasoning may be absent."""
    answer = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
        {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "read", "arguments": "{}"},
    ]
    output = [{"type": "function_call_output", "call_id": name, "output": "x"} for name in "ab"]
    go = {"type": "message", "role": "user", "content": "Go."}
    provider = ReasoningItems()
    items = [json.loads(raw) for raw in provider.ask(responses([go]), list(map(dumps, answer))).messages]

    def judged(*kept: Any, **members: Any) -> str:
        found = refused(provider.ask(responses([go, *kept, *output], **members), ()))
        return found[0] if found else ""

    reasoning, message, first, second = items
    assert "" == judged(*items)
    assert "pairing" == judged(message, first, second)
    assert "pairing" == judged(reasoning)
    assert "pairing" == judged(reasoning, first, second)  # not the item that followed
    assert "pairing" == judged(reasoning, message, first, go, second)
    bare = [{name: value for name, value in item.items() if name != "id"} for item in items]
    assert "" == judged(*bare[1:])
    assert "" == judged(*bare)
    assert "forged" == judged(reasoning | {"encrypted_content": "x"}, message, first, second)
    del bare[0]["encrypted_content"]
    assert ("", "forged") == (judged(*bare), judged(*bare, store=False))


# -- whole conversations ---------------------------------------------------------------------------------------------


WHOLE: dict[str, tuple[Callable[[], Provider], str, str]] = {
    "bound": (BoundThinking, ANTHROPIC, "claude-fable-5-1"),
    "older": (TurnThinking, ANTHROPIC, "claude-opus-4-6"),
    "gemini": (ThoughtSignatures, GEMINI, "gemini-3-pro-preview"),
    "responses": (ReasoningItems, RESPONSES, "gpt-5.4"),
    "responses without ids": (lambda: ReasoningItems(ids=False), RESPONSES, "gpt-5.4"),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WHOLE)
def test_a_history_that_is_only_appended_to_is_accepted(name: str, seed: int) -> None:
    """Whatever a made conversation holds: the agent needs no sidecar, and the provider refuses nothing."""
    provider, format, model = WHOLE[name]
    for thinking in ("adaptive", "enabled"):
        grown(provider(), made(format, model, seed=seed, turns=40, thinking=thinking), 41)
