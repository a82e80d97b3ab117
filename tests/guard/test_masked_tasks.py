"""Tasks: what a rule finds in them is masked as in any other text, by both doors to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from prompt_sidecar.errors import GuardRefused
from prompt_sidecar.facts.task_calls import CreateTasksCall
from prompt_sidecar.facts.tool_calls import CREATE_TASKS, ToolOutcome
from prompt_sidecar.guard.options import GuardOptions
from tests.engine.runs.making import OPENAI_CHAT
from tests.guard.test_masks import masked
from tests.guard.test_refusing import ENFORCE, KEY, chat
from tests.promises.engine import CALLER, RUN_ID, Engine

PLAIN = "Put it into the vault"
OTHER_KEY = "ghp_" + KEY[:3:-1]


def create(engine: Engine, *texts: str) -> list[str]:
    """Create tasks as a program does; the texts of all that there are then."""
    return [task.text for task in engine.runs.recalling.create_tasks(CreateTasksCall(CALLER, RUN_ID, texts))]


def call(engine: Engine, *texts: str) -> str:
    """Create tasks as a model does; the tool's answer."""
    answer = engine.call(CREATE_TASKS, {"tasks": list(texts)})
    assert answer.outcome is ToolOutcome.OK
    return answer.content


def texts_of(engine: Engine, texts: Sequence[str]) -> list[str]:
    """What a prompt of these user messages becomes."""
    messages = json.loads(engine.trim(OPENAI_CHAT, chat(*texts)).prompt.body or b"")["messages"]
    return [message["content"] for message in messages if message["role"] == "user"]


def test_a_task_is_masked_as_a_prompt_is() -> None:
    """The mask is the one that the same value has in the run's prompts, in whatever order they come."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    first = create(engine, f"deploy with {KEY}", PLAIN)
    mask = masked(Engine(limit=5_000, guard=ENFORCE))
    assert [f"deploy with {mask}", PLAIN] == first
    assert [f"deploy with {mask}", PLAIN] == create(engine, f"deploy with {KEY}", PLAIN)


def test_a_model_and_the_figures_see_masks_only() -> None:
    """In the answer of the tool, and where unfinished tasks are reported."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    mask = masked(engine)
    shown = call(engine, f"use {KEY}")
    assert KEY not in shown
    assert mask in shown
    assert [f"use {mask}"] == [task.text for task in engine.figures().unfinished_tasks]


def test_a_value_that_is_known_is_masked_without_a_rule() -> None:
    """A task is searched for what the run's prompts have brought."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    engine.trim(OPENAI_CHAT, chat(json.dumps({"password": "4fK9sLq2-Zx81"})))
    (text,) = create(engine, "log in with 4fK9sLq2-Zx81")
    assert text.startswith("log in with ⟦")


def test_a_long_task_may_hold_a_mask_that_is_longer() -> None:
    """The bound is on what the caller wrote."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    text = " ".join([KEY, OTHER_KEY, KEY, OTHER_KEY]).rjust(200, "x")
    (kept,) = create(engine, text)
    assert KEY not in kept
    assert OTHER_KEY not in kept


def test_a_mask_in_a_task_is_given_back() -> None:
    """Its value is in the vault, though no prompt has it."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    (text,) = create(engine, KEY)
    done = engine.restore("deploy", json.dumps({"token": text}).encode())
    assert {"token": KEY} == json.loads(done.arguments)


def test_a_task_changes_no_prompt() -> None:
    """A process that has never seen the tasks makes the same prompts of the history."""
    texts = ["no key yet", f"no rule finds it in x{KEY}x", f"use {KEY}", f"use {KEY} again, or x{KEY}x"]
    engine, other = Engine(limit=5_000, guard=ENFORCE), Engine(limit=5_000, guard=ENFORCE)
    for length in range(1, len(texts) + 1):
        create(engine, f"use {KEY}")
        assert texts_of(other, texts[:length]) == texts_of(engine, texts[:length])
    assert KEY not in texts_of(engine, texts)[-1]


def test_without_room_in_the_vault_a_task_is_masked() -> None:
    """No tool gets a value back that is not kept."""
    engine = Engine(limit=5_000, guard=replace(ENFORCE, vault_bytes=1_000_000, run_vault_bytes=1_000))
    create(engine, KEY, OTHER_KEY)
    tasks = [task.text for task in engine.figures().unfinished_tasks]
    assert ["⟦github_token:"] * 2 == [text[:14] for text in tasks]
    assert 1 == engine.runs.totals().vault.values


def test_what_a_rule_refuses_is_not_written() -> None:
    """The tasks stay as they were."""
    engine = Engine(limit=5_000, guard=replace(ENFORCE, actions=("github_token=refuse",)))
    create(engine, PLAIN)
    with pytest.raises(GuardRefused) as refused:
        create(engine, PLAIN, KEY)
    assert "items[1]" in refused.value.message
    assert KEY not in refused.value.message
    assert [PLAIN] == [task.text for task in engine.figures().unfinished_tasks]
    assert 0 == engine.runs.totals().vault.values


def test_only_looking_changes_no_task() -> None:
    """Under audit a task is kept as it was written."""
    engine = Engine(limit=5_000, guard=GuardOptions())
    assert [f"use {KEY}"] == create(engine, f"use {KEY}")


def test_a_run_that_is_masked_masks_its_tasks() -> None:
    """The settings when a run began hold for it: what masks once, masks for good."""
    engine = Engine(limit=5_000, guard=ENFORCE)
    revision = engine.trim(OPENAI_CHAT, chat(f"use {KEY}")).prompt.revision
    looking = Engine(limit=5_000)
    looking.trim(OPENAI_CHAT, chat(f"use {KEY}"), revision=revision)
    assert KEY not in create(looking, f"use {KEY}")[0]
