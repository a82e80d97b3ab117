"""Texts that a framework puts into a history in mid-run are clipped once a later one of their kind supersedes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.facts.trim_calls import Trim, TrimAnswer
from prompt_sidecar.prompt.injected import injected
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim.entries import Action, Reason
from prompt_sidecar.trim.revision import seal, unseal
from tests.promises.engine import KEY, Engine

LIMIT = 12_000
RULE = "Say what you change before you change it, and why the change is needed. "
FIRST, SECOND = 3, 24
"""Iterations before which the texts come."""
ITERATIONS = 60


def model_switch(model: str) -> str:
    """What Codex says to a model that takes over from another."""
    intro = (
        "The user was previously using a different model. Please continue the conversation according to the following"
    )
    return f"<model_switch>\n{intro} instructions:\n\nYou are {model}.\n{RULE * 60}\n</model_switch>"


def skill(name: str, body: str = RULE) -> str:
    """A skill as Codex puts it in."""
    return f"<skill>\n<name>{name}</name>\n<path>/opt/skills/{name}/SKILL.md</path>\n{body * 60}\n</skill>"


def environment(*elements: str) -> str:
    """An environment as Codex states it."""
    filler = "".join(f"  <{name}>{name * 30}</{name}>\n" for name in elements)
    return f"<environment_context>\n{filler}</environment_context>"


def notification(task: str, what: str) -> str:
    """What Claude Code says of a task in the background."""
    return f"<task-notification>\n<task-id>{task}</task-id>\n<summary>{what * 60}</summary>\n</task-notification>"


def codex(role: str, texts: Sequence[str], opening: str = environment("cwd", "shell")) -> list[dict[str, Any]]:
    """A run of Codex with the texts put in at their iterations."""
    message = {"type": "message", "role": role}
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": opening}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Find the fault."}]},
    ]
    places = dict(zip((FIRST, SECOND, SECOND + 4), texts, strict=False))
    for number in range(ITERATIONS):
        if number in places:
            items.append(message | {"content": [{"type": "input_text", "text": places[number]}]})
        call = {"call_id": f"call_{number}", "name": "shell", "arguments": json.dumps({"cmd": f"cat file_{number}.py"})}
        output = {"call_id": f"call_{number}", "output": f"line {number} of a file. " * 60}
        items += [{"type": "function_call"} | call, {"type": "function_call_output"} | output]
    return items


def claude(texts: Sequence[str]) -> list[dict[str, Any]]:
    """A run of Claude Code with the texts put in at their iterations, as messages of their own."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the fault."}]
    places = dict(zip((FIRST, SECOND, SECOND + 4), texts, strict=False))
    for number in range(ITERATIONS):
        if number in places:
            messages.append({"role": "assistant", "content": [{"type": "text", "text": f"I wait ({number})."}]})
            messages.append({"role": "user", "content": [{"type": "text", "text": places[number]}]})
        use = {
            "type": "tool_use",
            "id": f"call_{number}",
            "name": "Bash",
            "input": {"command": f"cat file_{number}.py"},
        }
        output = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": f"line {number} of a file. " * 60}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [output]}]
    return messages


def play(engine: Engine, items: Sequence[dict[str, Any]], format: str = "openai_responses") -> TrimAnswer:
    """Send every fourth prompt of a run, and the last; its answer."""
    results = "function_call_output" if format == "openai_responses" else "tool_result"
    turns = [length for length in range(1, len(items) + 1) if results in json.dumps(items[length - 1])]
    for length in turns[:-1:4]:
        engine.trim(format, body(items[:length], format))
    return engine.trim(format, body(items[: turns[-1]], format))


def body(items: Sequence[dict[str, Any]], format: str = "openai_responses") -> bytes:
    """The items as a request."""
    if format == "openai_responses":
        return json.dumps({"model": "gpt-5.4", "store": False, "input": items}, ensure_ascii=False).encode()
    request = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": items}
    return json.dumps(request, ensure_ascii=False).encode()


def superseded(answer: TrimAnswer) -> list[Trim]:
    """What was trimmed as superseded."""
    return [trim for trim in answer.trimmed.trims if trim.reason is Reason.SUPERSEDED]


CASES: dict[str, tuple[str, Callable[[Sequence[str]], list[dict[str, Any]]], Sequence[str]]] = {
    "a switch of the model": (
        "openai_responses",
        lambda texts: codex("developer", texts),
        (model_switch("one"), model_switch("two")),
    ),
    "permissions": (
        "openai_responses",
        lambda texts: codex("developer", texts),
        [f"<permissions instructions>\n{which} {RULE * 60}</permissions instructions>" for which in ("No.", "Yes.")],
    ),
    "a skill": (
        "openai_responses",
        lambda texts: codex("user", texts),
        (skill("review"), skill("review", "Be short.")),
    ),
    "a mode": (
        "openai_responses",
        lambda texts: codex("developer", texts),
        [f"<collaboration_mode># Mode: {which}\n{RULE * 60}</collaboration_mode>" for which in ("Plan", "Default")],
    ),
    "a task": ("anthropic_messages", claude, (notification("b1", "Ten passed."), notification("b1", "All passed."))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_earlier_text_is_clipped_and_the_newest_stays(name: str) -> None:
    """It becomes a label, its original comes back by id and by search, and the newest stays whole."""
    format, run, (first, second) = CASES[name]
    engine, items = Engine(limit=LIMIT), run((first, second))
    answer = play(engine, items, format)
    returned = (answer.prompt.body or b"").decode()
    [trim] = superseded(answer)
    assert Action.CLIPPED is trim.action
    assert json.dumps(first, ensure_ascii=False)[1:-1] not in returned
    assert json.dumps(second, ensure_ascii=False)[1:-1] in returned
    assert first.encode() == engine.original(trim.stash_id)
    assert trim.stash_id in returned
    assert trim.stash_id in {each.item.stash_id for each in engine.search(first[:300], max_snippets=50).snippets}


UNTOUCHED: dict[str, tuple[str, Callable[[Sequence[str]], list[dict[str, Any]]], Sequence[str]]] = {
    "the only one of its kind": ("openai_responses", lambda texts: codex("developer", texts), (model_switch("one"),)),
    "another skill": (
        "openai_responses",
        lambda texts: codex("user", texts),
        (skill("review"), skill("plan")),
    ),
    "an environment that states less later": (
        "openai_responses",
        lambda texts: codex("user", texts),
        (environment("cwd", "shell", "timezone"), environment("timezone")),
    ),
    "a user's words around it": (
        "openai_responses",
        lambda texts: codex("user", texts),
        (f"Mind this: {skill('review')}", f"{skill('review')} and go on"),
    ),
    "another role": (
        "openai_responses",
        lambda texts: codex("user", texts),
        (model_switch("one"), model_switch("two")),
    ),
    "no agent that is known": (
        "openai_responses",
        lambda texts: codex("user", texts, opening="Hello."),
        (skill("review"), skill("review")),
    ),
    "another task": ("anthropic_messages", claude, (notification("b1", "Ten."), notification("b2", "All."))),
    "another format": ("anthropic_messages", claude, (skill("review"), skill("review"))),
    "words next to it": (
        "anthropic_messages",
        claude,
        (notification("b1", "Ten.") + "\nIs that enough?", notification("b1", "All.") + "\nGo on."),
    ),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_is_not_superseded_stays(name: str) -> None:
    """A text that nothing supersedes, or that is not wholly in a framework's form, is not clipped for that."""
    format, run, texts = UNTOUCHED[name]
    answer = play(Engine(limit=LIMIT), run(texts), format)
    returned = (answer.prompt.body or b"").decode()
    assert answer.trimmed.trims
    assert [] == superseded(answer)
    assert all(json.dumps(text, ensure_ascii=False)[1:-1] in returned for text in texts)


def test_a_tools_output_is_a_tools_output() -> None:
    """A whole text of the form in a result is clipped as results are, by age, and supersedes nothing."""
    items = codex("developer", (model_switch("one"),))
    items[-21]["output"] = model_switch("two")
    answer = play(Engine(limit=LIMIT), items)
    assert [] == superseded(answer)
    assert json.dumps(model_switch("one"))[1:-1].encode() in (answer.prompt.body or b"")


def test_nothing_is_clipped_between_cuts() -> None:
    """Each prompt begins with the one before, but at a batch point: then something is clipped, and not before."""
    engine, items = Engine(limit=LIMIT), codex("developer", (model_switch("one"), model_switch("two")))
    seen = False
    for length in range(2, len(items) + 1):
        if items[length - 1]["type"] != "function_call_output":
            continue
        answer = engine.trim("openai_responses", body(items[:length]))
        now = bool(superseded(answer))
        assert now >= seen
        assert answer.cache.batch_point or now == seen
        seen = now
    assert seen


@pytest.mark.parametrize("name", CASES)
def test_another_process_decides_alike(name: str) -> None:
    """One that has never seen the run returns the same bytes, from the history alone and from a revision."""
    format, run, texts = CASES[name]
    items = run(texts)
    answer = play(Engine(limit=LIMIT), items, format)
    fresh = Engine(limit=LIMIT).trim(format, body(items, format))
    carried = Engine(limit=LIMIT).trim(format, body(items, format), revision=answer.prompt.revision)
    assert answer.prompt.body == fresh.prompt.body == carried.prompt.body


def test_a_run_of_earlier_rules_goes_on_without() -> None:
    """A run that began before these rules keeps such texts to its end, in any process that goes on with it."""
    items = codex("developer", (model_switch("one"), model_switch("two")))
    until = next(index for index, item in enumerate(items) if item.get("call_id") == "call_20") + 2
    begun = Engine(limit=LIMIT)
    revision = play(begun, items[:until]).prompt.revision
    opened = unseal(KEY, revision)
    assert opened is not None
    assert opened.supersedes
    before = seal(KEY, msgspec.structs.replace(opened, supersedes=False, version=7))
    engine = Engine(limit=LIMIT)
    engine.trim("openai_responses", body(items[:until]), revision=before)
    answer = play(engine, items)
    assert [] == superseded(answer)
    assert not superseded(Engine(limit=LIMIT).trim("openai_responses", body(items), revision=answer.prompt.revision))
    assert superseded(play(begun, items))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([*"<>/ab \n", "<skill>", "</skill>", "<name>", "</name>"]), max_size=12), st.booleans())
def test_tags_in_a_users_words(pieces: list[str], around: bool) -> None:
    """Whatever stands around an element, what is not wholly it is a user's text."""
    text = "".join(pieces)
    inner = skill("review")
    whole = text + inner if around else inner + text
    assert (injected("openai_responses", Role.USER, whole) is not None) is (
        not text or (not around and not text.strip())
    )


def test_a_branch_without_the_later_text() -> None:
    """Where the agent goes back to before the later text, what was clipped stays clipped, and nothing else goes."""
    engine, items = Engine(limit=LIMIT), codex("developer", (model_switch("one"), model_switch("two")))
    clipped = superseded(play(engine, items))
    place = next(at for at, item in enumerate(items) if "You are two." in json.dumps(item))
    branch = [*items[:place], {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Stop."}]}]
    again = engine.trim("openai_responses", body(branch))
    assert {trim.message_index for trim in clipped} >= {trim.message_index for trim in superseded(again)}
    assert engine.original(clipped[0].stash_id) == model_switch("one").encode()
