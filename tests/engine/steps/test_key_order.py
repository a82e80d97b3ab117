"""Agents write the members of a result in another order each time: each text keeps what was decided about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pytest

from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.trim.entries import Action
from prompt_sidecar.trim.revision import RULES, seal, unseal
from tests.promises.engine import CALLER, KEY, RUN_ID, Engine

GEMINI, BEDROCK = "gemini_contents", "bedrock_converse"
formats = pytest.mark.parametrize("format", [GEMINI, BEDROCK])
LARGE: Final = "".join(f"line {number} of a build that takes a while\n" for number in range(4_000))
COLOURED: Final = "".join(f"\x1b[31mFAIL\x1b[0m src/case_{number}.ts\n" for number in range(90))
SMALL: Final = "warning: nothing to do\n"
TEXTS: Final = {"stdout": LARGE, "stderr": COLOURED, "note": SMALL}
"""Not in the order of their names."""
BARE: Final[Mapping[str, object]] = {"own_text_max_tokens": 0, "note_max_tokens": 0}


def body(format: str, texts: Mapping[str, str], calls: int = 1) -> bytes:
    """A task, and calls; the first one's result is an object of these texts."""
    messages: list[Any] = []
    for number in range(calls + 1):
        made, content = {"name": "run", "id": f"c{number}"}, texts if number < 2 else {"output": "done"}
        if format == GEMINI and number:
            messages.append({"role": "model", "parts": [{"functionCall": made | {"args": {}}}]})
            messages.append({"role": "user", "parts": [{"functionResponse": made | {"response": content}}]})
        elif number:
            use = {"toolUseId": f"c{number}", "name": "run", "input": {}}
            messages.append({"role": "assistant", "content": [{"toolUse": use}]})
            result = {"toolUseId": f"c{number}", "content": [{"json": content}]}
            messages.append({"role": "user", "content": [{"toolResult": result}]})
        else:
            messages.append({"role": "user", "parts" if format == GEMINI else "content": [{"text": "Build it."}]})
    return json.dumps({"contents" if format == GEMINI else "messages": messages}).encode()


def shown(format: str, answer: TrimAnswer) -> dict[str, str]:
    """The texts of the result as they are returned."""
    prompt = json.loads(answer.prompt.body or b"")
    if format == GEMINI:
        found: dict[str, str] = prompt["contents"][2]["parts"][0]["functionResponse"]["response"]
    else:
        found = prompt["messages"][2]["content"][0]["toolResult"]["content"][0]["json"]
    return found


def engine(**fields: Any) -> Engine:
    """A process that has not seen the run."""
    return Engine(limit=200_000, policy=BARE, **fields)


def trim(of: Engine, format: str, texts: Mapping[str, str], calls: int = 1, revision: bytes = b"") -> TrimAnswer:
    """Have a prompt trimmed."""
    return of.trim(format, body(format, texts, calls), revision=revision)


def backwards(texts: Mapping[str, str]) -> dict[str, str]:
    """The same members in the opposite order."""
    return dict(reversed(list(texts.items())))


@formats
def test_each_text_keeps_its_own(format: str) -> None:
    """The large one is elided, the coloured one condensed and the small one whole, in whatever order they come."""
    process = engine()
    first = trim(process, format, TEXTS)
    texts = shown(format, first)
    assert len(texts["stdout"]) < len(LARGE) / 2
    assert "\x1b" not in texts["stderr"]
    assert SMALL == texts["note"]
    by_id = {trim.stash_id: trim.action for trim in first.trimmed.trims}
    assert {Action.ELIDED, Action.CONDENSED} == set(by_id.values())
    for into in (process, engine()):
        for calls in (1, 2, 3):
            again = trim(into, format, backwards(TEXTS), calls)
            assert texts == shown(format, again)
            assert by_id == {trim.stash_id: trim.action for trim in again.trimmed.trims if trim.message_index == 2}
    originals = [process.original(trim.stash_id) for trim in first.trimmed.trims]
    assert {LARGE.encode(), COLOURED.encode()} == set(originals)


def earlier(format: str, version: int = 6) -> bytes:
    """The revision of a run of which only the task has been sent, as an earlier version would have sealed it."""
    empty = trim(engine(), format, {}, calls=0)
    opened = unseal(KEY, empty.prompt.revision)
    assert opened is not None
    assert opened.results_by_name
    return seal(KEY, msgspec.structs.replace(opened, version=version, results_by_name=False))


@formats
@pytest.mark.parametrize("version", [6, RULES])
def test_a_run_that_an_earlier_version_began(format: str, version: int) -> None:
    """It numbers them as they are sent to the end: here, in a process that goes on, and where memory was given up."""
    revision = earlier(format, version)
    process = engine()
    first = trim(process, format, TEXTS, revision=revision)
    items = {trim.item_index: trim.action for trim in first.trimmed.trims}
    assert {0: Action.ELIDED, 1: Action.CONDENSED} == items
    by_name = trim(engine(), format, TEXTS)
    assert {1: Action.CONDENSED, 2: Action.ELIDED} == {each.item_index: each.action for each in by_name.trimmed.trims}
    assert shown(format, by_name).keys() == shown(format, first).keys()
    goes_on = trim(engine(), format, TEXTS, calls=3, revision=first.prompt.revision)
    assert shown(format, first) == shown(format, goes_on)
    opened = unseal(KEY, goes_on.prompt.revision)
    assert opened is not None
    assert (RULES, False) == (opened.version, opened.results_by_name)
    assert goes_on.prompt.body == trim(process, format, TEXTS, calls=3).prompt.body
    run = process.runs.table.known(CALLER, RUN_ID)
    assert run is not None
    run.forget_caches()
    assert goes_on.prompt.body == trim(process, format, TEXTS, calls=3).prompt.body


@formats
def test_what_was_found_in_a_text_is_reported_for_its_item(format: str) -> None:
    """Where a run numbers texts as they are sent, findings name them by these numbers too."""
    secret = {"stdout": "key AKIA" + "Q7ZP2LXN4RBT6WVM", "note": SMALL}
    guard = GuardOptions(mode=ENFORCE)
    by_name = trim(engine(guard=guard), format, secret)
    as_sent = trim(engine(guard=guard), format, secret, revision=earlier(format))
    found = [[finding.item_index for finding in answer.guard.findings] for answer in (by_name, as_sent)]
    assert [[1], [0]] == found
