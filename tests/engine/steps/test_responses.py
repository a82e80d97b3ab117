"""OpenAI's responses in a run: where our text goes, what continues a stored response, and what must stay together."""

from __future__ import annotations

import json
from itertools import pairwise, product
from typing import Any

import pytest

from prompt_sidecar.errors import InvalidJson, RevisionUnknown
from prompt_sidecar.facts.trim_calls import OwnTextKind, OwnTextPlace, TrimAnswer
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.entries import Action, Reason
from prompt_sidecar.trim.presets import PRESETS
from tests.engine.runs.making import LIMIT, ROOM, Engine, result_text
from tests.oracle import data

RESPONSES = "openai_responses"
UNSTORED = {"store": False}


def items(iterations: int) -> list[Any]:
    """A task, then reasoning, a call and its output for each iteration."""
    made: list[Any] = [{"role": "user", "content": "Find the bug."}]
    for number in range(iterations):
        arguments = json.dumps({"path": f"src/module_{number}.py"})
        made += [
            {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAA"},
            {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": arguments},
            {"type": "function_call_output", "call_id": f"c{number}", "output": result_text(number)},
        ]
    return made


def body(sent: object, **members: Any) -> bytes:
    """A request body."""
    return json.dumps({"model": "gpt-5", "input": sent, **members}).encode()


def returned(answer: TrimAnswer) -> Any:
    """What came back, decoded."""
    return json.loads(answer.prompt.body or b"")


def places(answer: TrimAnswer) -> set[tuple[OwnTextKind, OwnTextPlace]]:
    """Where our text stands."""
    return {(piece.kind, piece.place) for piece in answer.prompt.own_text}


def test_nothing_of_ours_is_stored() -> None:
    """Where the provider stores the items our text is in the instructions, after the agent's own."""
    answer = Engine(limit=LIMIT, policy=ROOM).trim(RESPONSES, body(items(12), instructions="Be careful."))
    assert {
        (OwnTextKind.DIRECTIVES, OwnTextPlace.SYSTEM),
        (OwnTextKind.REGISTRY, OwnTextPlace.SYSTEM),
    } == places(answer)
    texts = [piece.text for piece in answer.prompt.own_text]
    assert "\n\n".join(["Be careful.", *texts]) == returned(answer)["instructions"]
    assert [] == [item for item in returned(answer)["input"] if item.get("role") == "developer"]


def test_in_the_history_where_nothing_is_stored() -> None:
    """Else our text is in developer messages, the note at the end, and the instructions stay as they are."""
    answer = Engine(limit=LIMIT, policy=ROOM).trim(RESPONSES, body(items(12), instructions="Be careful.", **UNSTORED))
    assert {
        (OwnTextKind.DIRECTIVES, OwnTextPlace.SYSTEM),
        (OwnTextKind.REGISTRY, OwnTextPlace.HISTORY),
        (OwnTextKind.NOTE, OwnTextPlace.TAIL),
    } == places(answer)
    assert "Be careful." == returned(answer)["instructions"]
    assert "developer" == returned(answer)["input"][-1]["role"]


@pytest.mark.parametrize("members", [{}, UNSTORED, {"instructions": "Be careful.\n\n"}])
def test_our_text_comes_back(members: dict[str, Any]) -> None:
    """What was returned can be sent again, also to a process that has only the revision: no text of ours is doubled."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    answer = engine.trim(RESPONSES, body(items(12), **members))
    again = engine.trim(RESPONSES, answer.prompt.body or b"")
    assert returned(answer) == returned(again)
    other = Engine(limit=LIMIT, policy=ROOM).trim(RESPONSES, answer.prompt.body or b"", revision=answer.prompt.revision)
    directives = next(piece.text for piece in answer.prompt.own_text if piece.kind is OwnTextKind.DIRECTIVES)
    registry = next(piece.text for piece in answer.prompt.own_text if piece.kind is OwnTextKind.REGISTRY)
    whole = json.dumps(returned(other))
    assert (1, 0) == (whole.count(json.dumps(directives)[1:-1]), whole.count(json.dumps(registry)[1:-1]))


@pytest.mark.parametrize("members", [{}, UNSTORED])
@pytest.mark.parametrize("limit", [400, 1_500, LIMIT])
def test_reasoning_keeps_its_follower(limit: int, members: dict[str, Any]) -> None:
    """Whatever is dropped, reasoning stands before the call that it stood before, and no call without its own."""
    answer = Engine(limit=limit).trim(RESPONSES, body(items(12), **members))
    assert [] != [trim for trim in answer.trimmed.trims if trim.action is Action.DROPPED] or limit == LIMIT
    left = [item for item in returned(answer)["input"] if item.get("role") != "developer"]
    pairs = [(one["id"][3:], other["call_id"][1:]) for one, other in pairwise(left) if "id" in one]
    assert pairs == [(number, number) for number, _ in pairs]
    assert len(pairs) == sum(item.get("type") == "function_call" for item in left)


@pytest.mark.parametrize("head", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_what_continues_a_stored_response(head: dict[str, Any]) -> None:
    """Each body holds what is new: outputs are capped though their calls are at the provider, and ids stay good."""
    engine = Engine(limit=50_000)
    engine.trim(RESPONSES, body("Find the bug."))
    ids = []
    for number in range(3):
        text = f"{number} " * 40_000
        answer = engine.trim(
            RESPONSES, body([{"type": "function_call_output", "call_id": f"c{number}", "output": text}], **head)
        )
        assert [Action.ELIDED] == [trim.action for trim in answer.trimmed.trims]
        assert {(OwnTextKind.DIRECTIVES, OwnTextPlace.SYSTEM)} <= places(answer)
        assert ["function_call_output"] == [item["type"] for item in returned(answer)["input"]]
        ids.append((answer.trimmed.trims[0].stash_id, text.encode()))
    assert [text for _, text in ids] == [engine.original(stash_id) for stash_id, _ in ids]


@pytest.mark.parametrize("members", [{}, UNSTORED])
def test_a_plain_string(members: dict[str, Any]) -> None:
    """A string stays a string, and our text stands in the instructions; with none the body is the same bytes."""
    raw = body("Find the bug.", **members)
    answer = Engine(limit=50_000).trim(RESPONSES, raw)
    assert "Find the bug." == returned(answer)["input"]
    assert [answer.prompt.own_text[0].text] == [returned(answer)["instructions"]]
    assert raw == Engine(limit=50_000).trim(RESPONSES, raw, recall_unavailable=True).prompt.body
    assert ["/instructions"] == [
        edit.pointer for edit in Engine(limit=50_000).trim(RESPONSES, raw, edits=True).prompt.edits
    ]


def test_a_string_and_the_message_that_it_is() -> None:
    """A history that begins with the string goes on from there."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    engine.trim(RESPONSES, body("Find the bug."))
    for number in range(1, 13):
        answer = engine.trim(RESPONSES, body(items(number)))
    assert answer.prompt.body == Engine(limit=LIMIT, policy=ROOM).trim(RESPONSES, body(items(12))).prompt.body


def test_a_run_that_stops_storing() -> None:
    """When storing is turned off our text moves into the history, and back; ids stay, and none of it stands twice."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    before = engine.trim(RESPONSES, body(items(12)))
    after = engine.trim(RESPONSES, body(items(12), instructions=returned(before)["instructions"], **UNSTORED))
    assert "" == returned(after)["instructions"]
    assert {trim.stash_id for trim in before.trimmed.trims} == {trim.stash_id for trim in after.trimmed.trims}
    own = {piece.message_index for piece in after.prompt.own_text}
    ours = [item for place, item in enumerate(returned(after)["input"]) if place in own]
    again = engine.trim(RESPONSES, body([*items(12), *ours]))
    assert returned(before) == returned(again)


def test_a_side_call_with_a_part_of_the_history() -> None:
    """A bare slice of a run that stores nothing is trimmed with the run's decisions."""
    engine = Engine(limit=LIMIT, policy=ROOM | {"fit_low": 0.3})
    whole = engine.trim(RESPONSES, body(items(12), **UNSTORED))
    shown = [item for item in returned(whole)["input"] if item.get("role") != "developer"][-27:]
    part = engine.trim(RESPONSES, json.dumps(items(12)[-27:]).encode(), side_call=True)
    assert shown == returned(part)
    assert shown != items(12)[-27:]


def test_only_what_follows_a_revision() -> None:
    """`base_revision` takes items; a string has no place behind others, and nothing can follow one."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    first = engine.trim(RESPONSES, body(items(6)))
    answer = engine.trim(RESPONSES, body(items(12)[19:]), base_revision=first.prompt.revision)
    assert returned(Engine(limit=LIMIT, policy=ROOM).trim(RESPONSES, body(items(12)))) == returned(answer)
    with pytest.raises(InvalidJson):
        engine.trim(RESPONSES, body("And now?"), base_revision=answer.prompt.revision)
    plain = Engine(limit=LIMIT)
    revision = plain.trim(RESPONSES, body("Find the bug.")).prompt.revision
    with pytest.raises(RevisionUnknown):
        plain.trim(RESPONSES, body(items(1)[1:]), base_revision=revision)


@pytest.mark.parametrize("more", [{}, {"metadata": {"turn_id": "t1"}}], ids=["plain", "as_codex_writes_it"])
@pytest.mark.parametrize("by_revision", [False, True])
def test_removed_reasoning_stays_away_after_a_rewind(by_revision: bool, more: dict[str, Any]) -> None:
    """A rewind brings back an iteration that was dropped, but none of its reasoning that was removed before.

    Nothing could stand in its place: a reasoning item is nothing but reasoning, and all items are objects.
    """
    sent: list[Any] = [{"role": "user", "content": "Find the bug."}]
    for number in range(8):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"}
        sent += [
            {"type": "reasoning", "summary": [], "encrypted_content": f"gAAA{number}" * 40, **more},
            call,
            {"type": "function_call_output", "call_id": f"c{number}", "output": result_text(number)},
            {"type": "reasoning", "summary": [], "encrypted_content": f"gBBB{number}" * 40, **more},
            {"role": "assistant", "content": f"It is not in module {number}."},
            {"role": "user", "content": f"Go on with the next, {number}."},
        ]
    reached = 0
    for length in range(2, len(sent), 3):
        engine = Engine(limit=900)
        answer = engine.trim(RESPONSES, body(sent, **UNSTORED))
        reasons = {(trim.action, trim.kind) for trim in answer.trimmed.trims}
        assert (Action.DROPPED, ItemKind.REASONING) in reasons
        assert [] == [item for item in returned(answer)["input"] if not isinstance(item, dict)]
        if by_revision:
            engine = Engine(limit=900)
            engine.trim(RESPONSES, body(sent, **UNSTORED), revision=answer.prompt.revision)
        rewound = [*sent[:length], {"role": "user", "content": "Look elsewhere."}]
        again = engine.trim(RESPONSES, body(rewound, **UNSTORED))
        shown = [item for item in returned(again)["input"] if item not in rewound]
        assert [] == [item for item in returned(again)["input"] if not isinstance(item, dict)]
        assert [] == [item for item in shown if item.get("type") == "reasoning"]
        # What stays away is listed, and what is listed is in the stash.
        gone = [trim for trim in again.trimmed.trims if trim.reason is Reason.REASONING]
        reached += len(gone)
        assert [] == [trim.stash_id for trim in again.trimmed.trims if engine.original(trim.stash_id) is None]
        assert engine.trim(RESPONSES, body(rewound, **UNSTORED)).prompt.body == again.prompt.body
    assert reached > 0


@pytest.mark.parametrize(
    ("sent", "field"), [([{"role": "user", "content": 7}], "json.body.input[0].content"), ([], "json.body.input")]
)
def test_errors_name_the_items(sent: Any, field: str) -> None:
    """What is wrong is named by the format's own member."""
    with pytest.raises(InvalidJson) as caught:
        Engine(limit=LIMIT).trim(RESPONSES, body(sent))
    assert field == caught.value.field


def test_instructions_must_be_text() -> None:
    """A system prompt to which our text cannot be added is refused before anything changes."""
    with pytest.raises(InvalidJson) as caught:
        Engine(limit=LIMIT).trim(RESPONSES, body(items(1), instructions=7))
    assert "json.body.instructions" == caught.value.field


def test_the_reserve_is_the_bodys() -> None:
    """What the body asks for as answer is kept free."""
    raw = body(items(1), max_output_tokens=1_000)
    assert LIMIT - 1_000 == Engine(limit=LIMIT).trim(RESPONSES, raw, output_reserve=None).tokens.limit


def registries(members: dict[str, Any], engine: Engine, iterations: int = 70) -> list[str]:
    """The registry at each cut of a run of a provider that stores the history."""
    answers = [engine.trim(RESPONSES, body(items(number), **members)) for number in range(1, iterations)]
    return [
        "".join(piece.text for piece in answer.prompt.own_text if piece.kind is OwnTextKind.REGISTRY)
        for answer in answers
        if answer.cache.batch_point
    ]


NOTHING_STAYS: Any = {"registry_share": 0.02, "fit_keep_oldest": 0.0, "fit_keep_light": 0.0, "age_arguments": "empty"}
"""Each cut changes the beginning of the history."""
LONG = "Be careful with everything. " * 200
TOOLS = [{"type": "function", "name": "read", "description": LONG, "parameters": {"type": "object"}}]


@pytest.mark.parametrize(
    "members",
    [{"instructions": LONG}, {"instructions": "Be careful.", "tools": TOOLS}],
    ids=["instructions", "tools"],
)
def test_the_registry_stays_where_much_is_behind_it(members: dict[str, Any]) -> None:
    """The provider reads instructions and tools again when the registry at their end changes: that costs too much."""
    first, *later = registries(members, Engine(limit=16_000, policy=NOTHING_STAYS))
    assert first
    assert len(later) > 2
    assert {first} == set(later)


def test_developers_messages_are_behind_it_too() -> None:
    """They lead the input, which follows the instructions."""
    engine, sent = Engine(limit=16_000, policy=NOTHING_STAYS), list[str]()
    for number in range(1, 70):
        led = [{"role": "developer", "content": LONG}, *items(number)]
        answer = engine.trim(RESPONSES, body(led, instructions="Be careful."))
        if answer.cache.batch_point:
            sent += [piece.text for piece in answer.prompt.own_text if piece.kind is OwnTextKind.REGISTRY]
    assert len(sent) > 2
    assert 1 == len(set(sent))


def test_the_registry_is_written_anew_where_little_is_behind_it() -> None:
    """A complete list is then worth what it costs."""
    written = registries({"instructions": "Be careful."}, Engine(limit=16_000, policy=NOTHING_STAYS))
    assert len(written) > 2
    assert len(set(written)) == len(written)


@pytest.mark.parametrize("by_revision", [False, True])
@pytest.mark.parametrize("upto", range(12, 40, 9))
def test_another_process_leaves_it_too(upto: int, *, by_revision: bool) -> None:
    """One that is sent the history, and one that is handed the revision as well, come to the same prompt."""
    made = [body(items(number), instructions=LONG) for number in range(1, 41)]
    engine = Engine(limit=16_000, policy=NOTHING_STAYS)
    answers = [engine.trim(RESPONSES, each) for each in made]
    fresh = Engine(limit=16_000, policy=NOTHING_STAYS)
    fields = {"revision": answers[upto].prompt.revision} if by_revision else {}
    assert answers[upto].prompt.body == fresh.trim(RESPONSES, made[upto], **fields).prompt.body
    assert answers[-1].prompt.body == fresh.trim(RESPONSES, made[-1]).prompt.body


TRIGGER = {"type": "compaction_trigger"}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("members", [UNSTORED, {"instructions": "Be careful."}])
def test_a_compaction_trigger_stays_last(members: dict[str, Any], preset: str) -> None:
    """Nothing of ours follows the item that the provider takes at the end only, and it is never edited."""
    for iterations, place in product((0, 1, 12), ("tail", "off")):
        engine = Engine(limit=LIMIT, preset=preset, policy=ROOM | {"note_place": place})
        engine.trim(RESPONSES, body(items(iterations), **members))
        engine.call("create_tasks", {"tasks": ["read the log"]})
        before = engine.trim(RESPONSES, body(items(iterations), **members))
        answer = engine.trim(RESPONSES, body([*items(iterations), TRIGGER], **members))
        assert TRIGGER == returned(answer)["input"][-1]
        assert 1 == returned(answer)["input"].count(TRIGGER)
        if place == "tail" and members is UNSTORED:  # else the rewind has the tasks written again
            assert returned(before) == returned(engine.trim(RESPONSES, body(items(iterations), **members)))


def test_a_recorded_compaction() -> None:
    """A prompt that failed before: our note stood after its last item."""
    found = json.loads(data.need("failing/compaction_trigger_last.json").read_text())
    raw = json.dumps(found["body"]).encode()
    for preset in PRESETS:
        answer = Engine(limit=found["context_window"], preset=preset).trim(RESPONSES, raw)
        assert found["body"]["input"][-1] == returned(answer)["input"][-1] == TRIGGER


def item_with_tools(**members: Any) -> dict[str, Any]:
    """An item that offers a tool."""
    description = "It reads. " * 40
    tool = {"type": "function", "name": "read", "description": description, "parameters": {"type": "object"}}
    return {"type": "additional_tools", **members, "tools": [tool]}


@pytest.mark.parametrize("members", [{}, {"role": "developer"}], ids=["bare", "with a role"])
def test_tools_in_an_item_are_counted_once(members: dict[str, Any]) -> None:
    """As much as in the body's own member, but for the item around them; and as often as they are sent."""
    item = item_with_tools(**members)
    without = Engine(limit=LIMIT).trim(RESPONSES, body(items(2), **UNSTORED)).tokens.before
    in_body = Engine(limit=LIMIT).trim(RESPONSES, body(items(2), tools=item["tools"], **UNSTORED)).tokens.before
    engine = Engine(limit=LIMIT)
    counts = [engine.trim(RESPONSES, body([item, *items(2)], **UNSTORED)).tokens.before for _ in range(2)]

    assert 1 == len(set(counts))
    assert in_body - without <= counts[0] - without <= in_body - without + 20


@pytest.mark.parametrize("members", [{}, {"role": "developer"}], ids=["bare", "with a role"])
@pytest.mark.parametrize("place", [0, 7])
@pytest.mark.parametrize("stored", [UNSTORED, {}], ids=["unstored", "stored"])
def test_tools_in_an_item_stay(members: dict[str, Any], place: int, stored: dict[str, Any]) -> None:
    """Whatever is dropped around them."""
    item = item_with_tools(**members)
    engine = Engine(limit=LIMIT, preset="fit_only")
    for iterations in (3, 12, 24, 40):
        sent = items(iterations)
        answer = engine.trim(RESPONSES, body([*sent[:place], item, *sent[place:]], **stored))
        assert 1 == returned(answer)["input"].count(item)
        assert answer.fits
    assert any(trim.action is Action.DROPPED for trim in answer.trimmed.trims)
