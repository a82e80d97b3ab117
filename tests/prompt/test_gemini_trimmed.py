"""What becomes of Gemini's contents when they must fit: signatures, calls without ids, a stored cache, a bare array."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import OwnTextPlace, TrimAnswer
from prompt_sidecar.trim.entries import Action
from tests.conformance.gemini_contents import defects
from tests.promises.engine import Engine

FORMAT = "gemini_contents"
LONG = "line of output\n" * 400


def iterations(count: int, *, signature: str | None, ids: bool) -> list[dict[str, Any]]:
    """A task and iterations of two calls of one tool, with long arguments and long results."""
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "task"}]}]
    for number in range(count):
        names = [{"id": f"{number}{side}", "name": "f"} if ids else {"name": "f"} for side in "ab"]
        calls = [{"functionCall": name | {"args": {"text": f"{number} {LONG}"}}} for name in names]
        if signature is not None:
            calls[0] |= {"thoughtSignature": signature}  # type: ignore[dict-item]
        answers = [{"functionResponse": name | {"response": {"output": f"{number} {LONG}"}}} for name in names]
        contents += [{"role": "model", "parts": calls}, {"role": "user", "parts": answers}]
    return contents


def trim(body: Any, limit: int = 12_000) -> tuple[Any, TrimAnswer]:
    """Trim a body; what came back decoded, and the answer."""
    answer = Engine(limit=limit).trim(FORMAT, json.dumps(body).encode())
    assert answer.prompt.body is not None
    return json.loads(answer.prompt.body), answer


def first_calls(contents: list[dict[str, Any]]) -> list[Any]:
    """The first part of each turn of the model."""
    return [content["parts"][0] for content in contents if content["role"] == "model"]


def test_signed_calls_stay() -> None:
    """The arguments next to a signature are as they were, while those of the call next to it are clipped."""
    contents = iterations(4, signature="c2ln", ids=True)
    returned, answer = trim({"contents": contents})
    assert [] == defects(returned)
    stayed = first_calls(returned["contents"])
    assert [part for part in first_calls(contents) if part in stayed] == stayed
    clipped = [content["parts"][1] for content in returned["contents"] if content["role"] == "model"]
    assert clipped[0]["functionCall"]["args"]["text"].startswith("[content clipped")
    assert Action.CLIPPED in [trim.action for trim in answer.trimmed.trims]


def test_signed_calls_leave_with_their_iteration() -> None:
    """Where clipping is not enough a signed call goes with its whole iteration, and can be found again."""
    contents = iterations(6, signature="c2ln", ids=True)
    engine = Engine(limit=6_000)
    answer = engine.trim(FORMAT, json.dumps({"contents": contents}).encode())
    returned = json.loads(answer.prompt.body or b"")
    assert [] == defects(returned)
    assert len(returned["contents"]) < len(contents)
    dropped = [trim for trim in answer.trimmed.trims if trim.action is Action.DROPPED]
    assert json.dumps(contents[1]).encode() in [engine.original(trim.stash_id) for trim in dropped]
    assert [] != engine.search("line of output", tools=frozenset({"f"})).snippets


@pytest.mark.parametrize("signature", [None, "skip_thought_signature_validator"])
def test_unsigned_calls_are_clipped(signature: str | None) -> None:
    """With no signature, or with what stands for none, arguments are clipped as anywhere."""
    returned, _ = trim({"contents": iterations(4, signature=signature, ids=True)})
    assert [] == defects(returned)
    assert first_calls(returned["contents"])[0]["functionCall"]["args"]["text"].startswith("[content clipped")


def test_calls_without_ids() -> None:
    """Iterations whose calls have no ids are dropped whole: each call goes with its response."""
    contents = iterations(8, signature=None, ids=False)
    returned, answer = trim({"contents": contents}, 1_500)
    assert [] == defects(returned)
    assert Action.DROPPED in [trim.action for trim in answer.trimmed.trims]


def test_beside_a_stored_cache() -> None:
    """Our text is handed to the agent, as the provider refuses a system prompt there."""
    body = {"contents": iterations(4, signature=None, ids=True), "cachedContent": "cachedContents/one"}
    returned, answer = trim(body)
    assert [] == defects(returned)
    assert body.keys() == returned.keys()
    assert {OwnTextPlace.CALLER} == {piece.place for piece in answer.prompt.own_text}


def test_bare_array() -> None:
    """A bare array comes back as one."""
    returned, answer = trim(iterations(4, signature=None, ids=True))
    assert [] == defects({"contents": returned})
    assert [] != list(answer.trimmed.trims)


def test_spelling_of_the_system_prompt() -> None:
    """Our text goes where the agent's is, in its spelling."""
    body = {"contents": iterations(1, signature=None, ids=True), "system_instruction": {"parts": {"text": "Be brief."}}}
    returned, answer = trim(body, 40_000)
    assert body.keys() == returned.keys()
    texts = [part["text"] for part in returned["system_instruction"]["parts"]]
    assert ["Be brief.", *(piece.text for piece in answer.prompt.own_text)] == texts
