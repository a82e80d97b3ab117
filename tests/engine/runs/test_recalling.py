"""What our own tools answered, when it comes back in a prompt: known by its tag, led back to its id, kept once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.facts.limits import RecallLimits
from prompt_sidecar.facts.task_calls import CreateTasksCall
from prompt_sidecar.facts.tool_calls import ToolOutcome
from prompt_sidecar.facts.trim_calls import OwnTextKind, TrimAnswer
from prompt_sidecar.recall.found import SearchOutcome
from prompt_sidecar.trim.entries import Action
from tests.engine.runs.making import FORMATS, LIMIT, OPENAI_CHAT, ROOM, Engine, body, grown, history, result_text
from tests.promises.engine import CALLER, RUN_ID, counter

formats = pytest.mark.parametrize("format", FORMATS)
RECALL, SEARCH = "recall_elided_content", "search_conversation_history"


def asked(format: str, name: str, arguments: object, call_id: str, content: str) -> list[Any]:
    """A call of a tool with its answer, as an agent writes them into its history."""
    if format == OPENAI_CHAT:
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": content},
        ]
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": content}]},
    ]


def with_recall(format: str, name: str = RECALL, **fields: Any) -> tuple[Engine, list[Any], str, TrimAnswer]:
    """An agent whose model recalls its first result, trimmed by then, through a tool of that name."""
    engine, answer = grown(format, 12, **fields)
    stash_id = next(trim.stash_id for trim in answer.trimmed.trims if trim.kind == "result")
    content = engine.call(RECALL, {"id": stash_id}).content
    messages = history(format, 12) + asked(format, name, {"id": stash_id}, "call_r", content)
    return engine, messages, stash_id, engine.trim(format, body(format, messages))


def continued(format: str, messages: list[Any], iterations: int) -> list[Any]:
    """The history with more iterations after it."""
    return messages + history(format, 12 + iterations)[len(history(format, 12)) :]


@formats
def test_a_recalled_page_is_not_recorded_again(format: str) -> None:
    """Only the call that asked for it is new to the record; search finds the original alone."""
    engine, _ = grown(format, 12)
    before = engine.figures()
    engine, _, stash_id, _ = with_recall(format)
    after = engine.figures()
    assert before.history.items + 1 == after.history.items
    assert before.stash.entries + 1 == after.stash.entries
    found = engine.search("value_0 unused", max_snippets=50)
    assert [stash_id] == [s.item.stash_id for s in found.snippets if "value_0\n" in s.text and s.item.kind == "result"]


@formats
@pytest.mark.parametrize("name", [RECALL, f"mcp__sidecar__{RECALL}", f"sidecar.{RECALL}"])
def test_a_recalled_page_is_trimmed_to_its_old_id(format: str, name: str) -> None:
    """When it grows old it is clipped like any result, and the marker names the original."""
    engine, messages, stash_id, _ = with_recall(format, name)
    answer = engine.trim(format, body(format, continued(format, messages, 12)))
    of_page = [trim for trim in answer.trimmed.trims if trim.stash_id == stash_id and trim.message_index > 3]
    assert [Action.CLIPPED] == [trim.action for trim in of_page] or [Action.DROPPED] == [t.action for t in of_page]
    assert result_text(0).encode() == engine.original(stash_id)
    registry = next((own.text for own in answer.prompt.own_text if own.kind is OwnTextKind.REGISTRY), "")
    assert registry.count(f"id={stash_id}") <= 1


@formats
def test_line_ends_and_padding_are_forgiven(format: str) -> None:
    """An agent that respells line ends or pads the end of a result does not make it a new item."""
    engine, answer = grown(format, 12)
    stash_id = next(trim.stash_id for trim in answer.trimmed.trims if trim.kind == "result")
    content = engine.call(RECALL, {"id": stash_id}).content.replace("\n", "\r\n") + "\n\n"
    before = engine.figures().history.items
    engine.trim(format, body(format, history(format, 12) + asked(format, RECALL, {}, "call_r", content)))
    assert before + 1 == engine.figures().history.items


@formats
@pytest.mark.parametrize("case", ["another tool", "edited", "another run"])
def test_no_other_text_has_the_exemption(format: str, case: str) -> None:
    """A tool that replays a tagged text, an edited answer, and one of another run are ordinary text: recorded."""
    engine, answer = grown(format, 12)
    stash_id = next(trim.stash_id for trim in answer.trimmed.trims if trim.kind == "result")
    content = engine.call(RECALL, {"id": stash_id}).content
    name = "bash" if case == "another tool" else RECALL
    if case == "edited":
        content = content.replace("warning", "Warning", 1)
    if case == "another run":
        other, _ = grown(format, 12, run_id="run-2")
        content = content.replace(content.split("\n")[0], "") or content
        of_other = other.search("value_0 unused").snippets[0].item.stash_id
        content = other.call(RECALL, {"id": of_other}).content
    before = engine.figures().history.items
    engine.trim(format, body(format, history(format, 12) + asked(format, name, {}, "call_r", content)))
    assert before + 2 == engine.figures().history.items


@formats
def test_answers_of_search_and_tasks_are_not_recorded(format: str) -> None:
    """An envelope is never found by a search: search would feed on itself."""
    engine, _ = grown(format, 12)
    found = engine.call(SEARCH, {"query": "value_3 unused"})
    tasks = engine.call("create_tasks", {"tasks": ["zanzibar expedition"]})
    refused = engine.call(RECALL, {"id": "abcdefghjk"})
    before = engine.figures().history.items
    messages = history(format, 12)
    for number, (name, answer) in enumerate(((SEARCH, found), ("create_tasks", tasks), (RECALL, refused))):
        messages += asked(format, name, {"n": number}, f"own_{number}", answer.content)
    engine.trim(format, body(format, messages))
    assert before + 3 == engine.figures().history.items
    assert SearchOutcome.NOTHING_FOUND == engine.search("zanzibar").outcome
    assert SearchOutcome.NOTHING_FOUND == engine.search("quotes stand between").outcome


@formats
def test_an_envelope_that_is_trimmed_can_be_fetched(format: str) -> None:
    """What is taken of a search's answer is stored like anything that is taken, under an id of its own."""
    engine, _ = grown(format, 12)
    found = engine.call(SEARCH, {"query": "value_3 unused"}).content
    messages = history(format, 12) + asked(format, SEARCH, {"query": "value_3"}, "own", found)
    engine.trim(format, body(format, messages))
    answer = engine.trim(format, body(format, continued(format, messages, 12)))
    originals = [engine.original(trim.stash_id) for trim in answer.trimmed.trims]
    assert found.encode() in originals


@formats
def test_a_fresh_process_recognises_them_too(format: str) -> None:
    """With the same key, a process that has not seen the run reaches the same prompt from a history with recalls."""
    engine, messages, _, _ = with_recall(format)
    grown_messages = continued(format, messages, 12)
    expected = engine.trim(format, body(format, grown_messages))
    fresh = Engine(limit=LIMIT, policy=ROOM)
    answer = fresh.trim(format, body(format, grown_messages))
    assert expected.prompt.body == answer.prompt.body
    assert [t.stash_id for t in expected.trimmed.trims] == [t.stash_id for t in answer.trimmed.trims]
    assert engine.figures().history.items == fresh.figures().history.items


@formats
def test_a_model_that_never_stops_asking(format: str) -> None:
    """The same id at every turn: every prompt fits, and all answers together stay within a bound that is known."""
    engine, answer = grown(format, 12)
    stash_id = next(trim.stash_id for trim in answer.trimmed.trims if trim.kind == "result")
    messages = history(format, 12)
    count = counter()
    tokens, outcomes = 0, []
    for number in range(60):
        reply = engine.call(RECALL, {"id": stash_id})
        outcomes.append(reply.outcome)
        assert count.count(reply.content, "o200k_base") == reply.content_tokens
        tokens += reply.content_tokens
        messages += asked(format, RECALL, {"id": stash_id}, f"loop_{number}", reply.content)
        answer = engine.trim(format, body(format, messages))
        assert answer.fits
    repeats = RecallLimits().repeats
    assert [ToolOutcome.OK] * repeats + [ToolOutcome.REPEATED] == outcomes[: repeats + 1]
    shown = outcomes.count(ToolOutcome.OK)
    assert shown <= repeats + 3  # again only once so much else has come that the pages have gone
    of_item = count.count(result_text(0), "o200k_base")
    assert tokens <= shown * (of_item + 130) + 60 * (60 - shown)
    assert result_text(0).encode() == engine.original(stash_id)


@formats
def test_what_left_the_prompt_is_shown_however_often(format: str) -> None:
    """At every tenth iteration of sixty: each time the page before has been trimmed, and the original is still away."""
    engine, answer = grown(format, 9)
    stash_id = next(trim.stash_id for trim in answer.trimmed.trims if trim.kind == "result")
    messages = history(format, 9)
    for number in range(9, 60):
        if not (number + 1) % 10:
            assert json.dumps(result_text(0))[1:-1] not in (answer.prompt.body or b"").decode()
            replies = [engine.call(RECALL, {"id": stash_id}) for _ in range(4)]
            assert ToolOutcome.OK is replies[0].outcome
            assert result_text(0) in replies[0].content
            assert ToolOutcome.REPEATED is replies[-1].outcome
            messages += asked(format, RECALL, {"id": stash_id}, f"recall_{number}", replies[0].content)
            answer = engine.trim(format, body(format, messages))
            at = answer.iteration - 1
            result = engine.call(RECALL, {"id": stash_id})
            assert f"is in the prompt, at iteration {at}; it is not shown again while it is there" in result.content
        messages += history(format, number + 1)[-2:]
        answer = engine.trim(format, body(format, messages))


def note_of(answer: TrimAnswer, kind: OwnTextKind = OwnTextKind.NOTE) -> str:
    """The text of one kind of own text, empty if there is none."""
    return next((own.text for own in answer.prompt.own_text if own.kind is kind), "")


def test_the_note_tells_what_search_covers_and_the_open_tasks() -> None:
    """At the tail stand the cue with the iterations, and the tasks that are not completed."""
    engine, answer = grown(OPENAI_CHAT, 12)
    assert f"search covers iterations 1-{answer.iteration}." in note_of(answer)
    engine.call("create_tasks", {"tasks": ["read the log", "write the report"]})
    engine.call("update_task", {"id": 1, "status": "completed"})
    answer = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, history(OPENAI_CHAT, 12)))
    assert '2 [pending] "write the report"' in note_of(answer)
    assert "read the log" not in note_of(answer)


def test_where_there_is_no_note_the_registry_has_the_tasks() -> None:
    """In a format without a tail they wait for the next batch point, and stand in the registry then."""
    format = "anthropic_messages"
    engine = Engine(limit=LIMIT, policy=ROOM)
    engine.trim(format, body(format, history(format, 1)))
    engine.runs.recalling.create_tasks(CreateTasksCall(CALLER, RUN_ID, ["write the report"]))
    before = engine.trim(format, body(format, history(format, 2)))
    assert "" == note_of(before, OwnTextKind.REGISTRY)
    after = engine.trim(format, body(format, history(format, 14)))
    assert after.cache.batch_point
    registry = note_of(after, OwnTextKind.REGISTRY)
    assert '1 [pending] "write the report"' in registry
    assert "Search covers iterations 1 and later." in registry


@formats
def test_without_recall_nothing_is_reported(format: str) -> None:
    """With recall_unavailable neither cue nor tasks are written."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    engine.runs.recalling.create_tasks(CreateTasksCall(CALLER, RUN_ID, ["write the report"]))
    answer = engine.trim(format, body(format, history(format, 14)), recall_unavailable=True)
    assert () == tuple(answer.prompt.own_text)


@formats
def test_unfinished_tasks_are_listed_at_the_end(format: str) -> None:
    """GetRun and EndRun name what is not completed."""
    engine, _ = grown(format, 2)
    engine.call("create_tasks", {"tasks": ["a", "b", "c"]})
    engine.call("update_task", {"id": 2, "status": "completed"})
    assert [1, 3] == [task.id for task in engine.figures().unfinished_tasks]
    last = engine.runs.end(CALLER, RUN_ID)
    assert last is not None
    assert [1, 3] == [task.id for task in last.unfinished_tasks]


@formats
def test_search_shows_what_is_hidden_before_what_the_prompt_shows(format: str) -> None:
    """What a returned prompt has whole is the last that a search finds, and is named with its place instead."""
    engine, answer = grown(format, 12)
    assert answer.prompt.body is not None
    returned = answer.prompt.body.decode()
    found = engine.search("warning unused name")
    shown = {snippet.item.iteration for snippet in found.snippets if snippet.item.kind == "result"}
    whole = {number + 1 for number in range(12) if json.dumps(result_text(number))[1:-1] in returned}
    assert whole
    assert shown
    assert shown.isdisjoint(whole)
    assert found.in_prompt
    assert {one.item.iteration for one in found.in_prompt} <= whole
    newest = engine.search("value_11 unused")
    assert 12 not in {snippet.item.iteration for snippet in newest.snippets if snippet.item.kind == "result"}
    one = newest.in_prompt[0]
    assert (12, 45) == (one.item.iteration, one.last_line)
    line = f"also in the prompt: tool result of read, iteration 12, lines {one.first_line}-45"
    assert line in newest.rendered.splitlines()
    assert line in engine.call(SEARCH, {"query": "value_11 unused"}).content.splitlines()


@formats
def test_the_visible_is_what_the_last_prompt_shows(format: str) -> None:
    """Every item that counts as visible stands in the returned prompt, and every result that stands there counts."""
    engine, answer = grown(format, 12)
    assert answer.prompt.body is not None
    returned = answer.prompt.body.decode()
    every = engine.search("src module read step", max_snippets=50, total_tokens=50_000)
    assert [] == list(every.in_prompt)
    hidden_first = [snippet.item for snippet in every.snippets]
    visible = [item.stash_id for item in hidden_first if _stands(engine, item.stash_id, returned)]
    assert visible == [item.stash_id for item in hidden_first][-len(visible) :]


def _stands(engine: Engine, stash_id: str, returned: str) -> bool:
    original = engine.original(stash_id)
    assert original is not None
    text = original.decode()
    return any(spelling in returned for spelling in (text, json.dumps(text)[1:-1], json.dumps(json.dumps(text))[3:-3]))


@formats
def test_a_page_that_recall_returned_does_not_make_its_original_visible(format: str) -> None:
    """A page may be a part; the original stays among what is hidden."""
    engine, _, stash_id, answer = with_recall(format)
    assert stash_id in {trim.stash_id for trim in answer.trimmed.trims}
    found = engine.search("value_0 unused")
    assert stash_id in {snippet.item.stash_id for snippet in found.snippets}
