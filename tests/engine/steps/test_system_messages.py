"""System messages that agents put into the history of Anthropic's messages, and ours beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import OwnTextKind, OwnTextPlace, TrimAnswer
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim.entries import Action
from prompt_sidecar.trim.presets import PRESETS
from tests.conformance.anthropic_messages import defects, in_force, worsened
from tests.oracle import data
from tests.promises.engine import Engine

FORMAT = "anthropic_messages"
UNBOUND, BOUND = "claude-opus-4-8", "claude-opus-5-5"
models = pytest.mark.parametrize("model", [UNBOUND, BOUND])
presets = pytest.mark.parametrize("preset", PRESETS)
REMINDER = {"role": "system", "content": "The task list was not used lately."}
RARE = "Write the word heliotrope on every page."
CUTTING = {"fit_keep_oldest": 0.0, "registry_share": 0.02}
"""Of a policy: iterations are dropped early, and the registry has room."""


def instruction(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A system message of blocks."""
    return {"role": "system", "content": list(blocks), **more}


def addition(name: str) -> dict[str, Any]:
    """A block that offers a tool from there on."""
    return {"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}}


def iteration(number: int, *after: dict[str, Any]) -> list[dict[str, Any]]:
    """A call, its long result, and system messages after it."""
    words = f"part {number}: " + " ".join(f"word{number * 97 + place}" for place in range(150))
    return [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": f"Step {number}."},
                {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {"path": f"src/{number}.py"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": words}]},
        *after,
    ]


def history(*after: Sequence[dict[str, Any]], task: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """A task, and an iteration for each of `after`, the system messages that follow its result."""
    asked = [{"role": "user", "content": "Find what fails in the build."}, *task]
    return [*asked, *(message for number, each in enumerate(after) for message in iteration(number, *each))]


def body(messages: Sequence[dict[str, Any]], model: str) -> dict[str, Any]:
    """A request body."""
    return {"model": model, "max_tokens": 100, "system": "You are an agent.", "messages": list(messages)}


def prompts(messages: Sequence[dict[str, Any]]) -> list[int]:
    """How many messages each prompt of a run holds."""
    return [place for place, one in enumerate(messages) if one["role"] == "assistant"] + [len(messages)]


def played(messages: Sequence[dict[str, Any]], model: str, engine: Engine) -> TrimAnswer:
    """Send a run turn by turn; no prompt has a defect, or is worse than what was sent. The last answer."""
    for length in prompts(messages):
        sent = body(messages[:length], model)
        answer = engine.trim(FORMAT, json.dumps(sent).encode())
        got = shown(answer)
        assert [] == [*defects(got), *worsened(sent, got)]
    return answer


def shown(answer: TrimAnswer) -> dict[str, Any]:
    """The body of an answer."""
    decoded: dict[str, Any] = json.loads(answer.prompt.body or b"")
    return decoded


def system_texts(answer: TrimAnswer) -> list[str]:
    """The system messages in the history of an answer, as text."""
    return [str(each["content"]) for each in shown(answer)["messages"] if each["role"] == "system"]


@models
@presets
def test_reminders_do_not_gather(model: str, preset: str) -> None:
    """A reminder now and then: none outlives its iteration, so no two stand in a row after a cut."""
    run = history(*([REMINDER] if number % 3 == 2 else [] for number in range(24)), task=[REMINDER])
    answer = played(run, model, Engine(limit=6_000, preset=preset))
    assert preset == "cap_only" or len(system_texts(answer)) < 8


@models
@presets
def test_a_reminder_after_every_turn(model: str, preset: str) -> None:
    """Agents leave reminders of one turn where they are; nothing of ours stands beside one."""
    scoped = REMINDER | {"clear_at": "next_user_message"}
    answer = played(history(*[[scoped]] * 24), model, Engine(limit=6_000, preset=preset, policy=CUTTING))
    assert {OwnTextPlace.SYSTEM} == {piece.place for piece in answer.prompt.own_text}


@models
def test_what_is_dropped_is_found(model: str) -> None:
    """The text of a dropped system message is searched, and fetched by its id."""
    engine = Engine(limit=6_000, policy=CUTTING)
    answer = played(history([], [instruction({"type": "text", "text": RARE})], *[[]] * 20), model, engine)
    gone = [trim for trim in answer.trimmed.trims if trim.action is Action.DROPPED and trim.message_index == 5]
    assert [RARE.encode()] == [engine.original(trim.stash_id) for trim in gone]
    found = engine.search("heliotrope").snippets
    assert [(Role.SYSTEM, RARE)] == [(each.item.role, each.text) for each in found]


@models
def test_what_is_in_force_stays(model: str) -> None:
    """Changes of tools and of the effort stay in their places, whatever else goes, and are not edited."""
    changes = [
        instruction(addition("grep"), {"type": "text", "text": "Search with it."}),
        instruction(output_config={"effort": "low"}),
        instruction({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "grep"}}),
    ]
    run = history(*([changes[number // 6]] if number % 6 == 3 and number < 18 else [] for number in range(40)))
    answer = played(run, model, Engine(limit=6_000, policy=CUTTING))
    assert 3 == len(in_force(shown(answer)))
    theirs = [each for place, each in enumerate(shown(answer)["messages"]) if place not in own(answer)]
    assert [each for each in run if each["role"] == "system"] == [each for each in theirs if each["role"] == "system"]


def own(answer: TrimAnswer) -> set[int]:
    """Places of our own messages."""
    return {piece.message_index for piece in answer.prompt.own_text}


@models
def test_instructions_beside_the_label_that_counts(model: str) -> None:
    """The iteration that stays to count those that are dropped keeps its instruction as it is."""
    first_instruction = instruction({"type": "text", "text": RARE * 20})
    answer = played(history([first_instruction], *[[]] * 30), model, Engine(limit=5_000, policy=CUTTING))
    assert any("other iterations dropped" in json.dumps(each) for each in shown(answer)["messages"])
    assert first_instruction in shown(answer)["messages"]


def test_the_registry_avoids_them() -> None:
    """It stands at the newest place after a user's message that no system message of the agent's follows."""
    often = [[REMINDER] if number % 4 else [] for number in range(24)]
    answer = played(history(*often), BOUND, Engine(limit=20_000, policy=CUTTING | {"fit_high": 0.4, "fit_low": 0.2}))
    places = [piece.message_index for piece in answer.prompt.own_text if piece.kind is OwnTextKind.REGISTRY]
    assert 1 == len(places)
    roles = [each["role"] for each in shown(answer)["messages"]]
    assert ["user", "system", "assistant"] == roles[places[0] - 1 : places[0] + 2]


def test_defects_of_the_agents_pass_through() -> None:
    """System messages where none may stand come back where they were."""
    run = history([REMINDER, REMINDER], [REMINDER], task=[REMINDER, {"role": "user", "content": "And the tests."}])
    sent = body([REMINDER, *run, *iteration(2)[:1], REMINDER], UNBOUND)
    answer = Engine(limit=100_000).trim(FORMAT, json.dumps(sent).encode())
    assert sent["messages"] == shown(answer)["messages"]


@pytest.mark.parametrize("model", [UNBOUND, BOUND, "claude-fable-5-1"])
@presets
def test_a_coding_agents_run(model: str, preset: str) -> None:
    """A run that failed before: reminders gathered to seven in a row."""
    found = json.loads(data.need("failing/claude_code_system_in_a_row.json").read_text())
    played(found["body"]["messages"], model, Engine(limit=found["context_window"], preset=preset))
