"""A single tool result: capped and kept on its own, beside a history that it does not disturb."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.errors import InvalidJson, InvalidRequest, TooLarge
from prompt_sidecar.facts.trim_calls import Edit, EditOperation, RevisionUse
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.trim.entries import Action, Reason
from tests.engine.runs.making import ANTHROPIC_MESSAGES, FORMATS, OPENAI_CHAT, body, facts, grown, history, ids
from tests.promises.engine import Engine

MCP = "mcp_tool_result"
CAP = 2_000
POLICY = {"cap_text_bytes": CAP}
LONG = "".join(f"line {number}: é — value {number * number}\n" for number in range(400))
IMAGE = {"type": "image", "data": "A" * 4_000, "mimeType": "image/png"}


def result(*blocks: Any, **members: Any) -> bytes:
    """A result with these blocks; a string is a text block."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return json.dumps({"content": content, **members}, ensure_ascii=False).encode()


@pytest.fixture
def engine() -> Engine:
    """An engine whose cap is low."""
    return Engine(limit=50_000, policy=POLICY)


def test_a_large_result_keeps_head_and_tail(engine: Engine) -> None:
    """Head and tail stay with a marker between; the original can be fetched by its id and is found by search."""
    answer = engine.trim(MCP, result(LONG, isError=False))
    value = json.loads(answer.prompt.body or b"")
    assert {"content", "isError"} == set(value)
    text = value["content"][0]["text"]
    assert len(text.encode()) <= CAP
    assert text.startswith("line 0:")
    assert text.endswith(LONG[-20:])
    (trim,) = answer.trimmed.trims
    assert (Action.ELIDED, Reason.CAP, 0) == (trim.action, trim.reason, trim.message_index)
    assert f"id={trim.stash_id}" in text
    assert LONG.encode() == engine.original(trim.stash_id)
    (entry,) = answer.trimmed.stash_entries
    assert (trim.stash_id, len(LONG.encode())) == (entry.stash_id, entry.original_bytes)
    assert trim.stash_id in {snippet.item.stash_id for snippet in engine.search("value 39601").snippets}
    assert answer.fits
    assert answer.tokens.after < answer.tokens.before
    assert (1, ()) == (answer.iteration, tuple(answer.prompt.own_text))
    assert (b"", RevisionUse.NONE) == (answer.prompt.revision, answer.revision_use)


@pytest.mark.parametrize("around", [b"", b" \n\t"])
def test_a_small_result_stays_byte_for_byte(engine: Engine, around: bytes) -> None:
    """A result under the cap goes back byte for byte, and is found by search."""
    sent = (
        around + b'{"x":1.50,"content":[{"text":"sm\\u0061ll zebra","type":"text"}], "structuredContent":{ }}' + around
    )
    answer = engine.trim(MCP, sent)
    assert sent == answer.prompt.body
    assert ((), ()) == (tuple(answer.trimmed.trims), tuple(answer.trimmed.stash_entries))
    assert 1 == len(engine.search("zebra").snippets)


def test_structured_content(engine: Engine) -> None:
    """What repeats the text goes with it; what stands alone is cut as a text, and fetched as the JSON that it was."""
    data = {"rows": LONG.splitlines()}
    both = json.loads(engine.trim(MCP, result(json.dumps(data), structuredContent=data)).prompt.body or b"")
    assert ["content"] == list(both)
    answer = engine.trim(MCP, result(structuredContent=data, isError=True))
    alone = json.loads(answer.prompt.body or b"")
    assert {"content", "isError"} == set(alone)
    assert len(alone["content"][0]["text"].encode()) <= CAP
    assert data == json.loads(engine.original(answer.trimmed.trims[0].stash_id) or b"")


def test_pictures_past_their_cap_become_labels() -> None:
    """Past their own cap pictures become labels; their originals can be fetched."""
    engine = Engine(limit=50_000, policy={"cap_media_bytes": 5_000})
    answer = engine.trim(MCP, result(IMAGE, IMAGE))
    first, second = json.loads(answer.prompt.body or b"")["content"]
    assert IMAGE == first
    assert "text" == second["type"]
    assert IMAGE == json.loads(engine.original(answer.trimmed.trims[0].stash_id) or b"")


def test_ids_are_of_the_content(engine: Engine) -> None:
    """The same result has the same bytes and ids whenever it comes, in any process; another run's ids are others."""
    first = engine.trim(MCP, result(LONG))
    other = engine.trim(MCP, result(LONG + "more"))
    again = engine.trim(MCP, result(LONG))
    fresh = Engine(limit=50_000, policy=POLICY).trim(MCP, result(LONG))
    assert (first.prompt.body, ids(first)) == (again.prompt.body, ids(again)) == (fresh.prompt.body, ids(fresh))
    assert ids(first) != ids(other)
    elsewhere = Engine(limit=50_000, policy=POLICY, run_id="run-2").trim(MCP, result(LONG))
    assert ids(first) != ids(elsewhere)


def test_the_capped_result_is_left_as_it_is(engine: Engine) -> None:
    """Sent again, it is under the cap."""
    capped = engine.trim(MCP, result(LONG, IMAGE, structuredContent={"rows": [LONG]})).prompt.body or b""
    assert capped == engine.trim(MCP, capped).prompt.body


@pytest.mark.parametrize("format", FORMATS)
def test_history_is_not_disturbed(format: str) -> None:
    """With results capped between the prompts of a run, each of its answers is what it is without them."""
    plain, last = grown(format, 6)
    mixed, _ = grown(format, 6)
    capped = mixed.trim(MCP, result(LONG), policy=POLICY)
    assert last.iteration == capped.iteration
    assert last.cache.batch_points == capped.cache.batch_points
    for number in range(6, 12):
        sent = body(format, history(format, number))
        expected, found = plain.trim(format, sent), mixed.trim(format, sent)
        assert facts(expected) == facts(found)
        mixed.trim(MCP, result(f"{number}\n{LONG}"), policy=POLICY)
    assert plain.figures().messages == mixed.figures().messages
    assert plain.figures().tokens == mixed.figures().tokens
    assert plain.figures().tokens_sent_total == mixed.figures().tokens_sent_total
    assert plain.figures().calls + 7 == mixed.figures().calls


def test_iteration_in_search() -> None:
    """What search tells of a result is the iteration that the run had come to."""
    engine, last = grown(OPENAI_CHAT, 4)
    engine.trim(MCP, result("a lone zebra"))
    (snippet,) = engine.search("zebra").snippets
    assert last.iteration == snippet.item.iteration


@pytest.mark.parametrize("format", FORMATS)
def test_ids_inside_a_history(format: str) -> None:
    """The capped text in a prompt is ordinary text, and its id can still be fetched, in this answer and later ones."""
    engine = Engine(limit=50_000, policy=POLICY)
    capped = engine.trim(MCP, result(LONG))
    text = json.loads(capped.prompt.body or b"")["content"][0]["text"]
    messages = history(format, 1)
    if format == OPENAI_CHAT:
        messages[-1]["content"] = text
    else:
        assert ANTHROPIC_MESSAGES == format
        messages[-1]["content"][0]["content"] = text
    answer = engine.trim(format, body(format, messages))
    assert text in json.dumps(json.loads(answer.prompt.body or b""), ensure_ascii=False).replace("\\n", "\n").replace(
        '\\"', '"'
    )
    assert LONG.encode() == engine.original(ids(capped)[0])
    small = engine.trim(format, body(format, [*messages, *history(format, 12)[-22:]]), context_window=4_000)
    assert small.trimmed.trims
    assert LONG.encode() == engine.original(ids(capped)[0])


def test_an_edit_replaces_the_whole_result(engine: Engine) -> None:
    """As an edit the whole is replaced; nothing, if nothing changed."""
    whole = engine.trim(MCP, result(LONG)).prompt.body
    answer = engine.trim(MCP, result(LONG), edits=True)
    assert None is answer.prompt.body
    assert (Edit(EditOperation.REPLACE, "", whole or b""),) == tuple(answer.prompt.edits)
    assert () == tuple(engine.trim(MCP, result("small"), edits=True).prompt.edits)


@pytest.mark.parametrize("asked", [{"dry_run": True}, {"side_call": True}])
def test_asked_only(engine: Engine, asked: dict[str, Any]) -> None:
    """A dry run and a side call tell what would be done, and keep nothing."""
    engine.trim(MCP, result("small"))
    answer = engine.trim(MCP, result(LONG), **asked)
    assert 1 == len(answer.trimmed.trims)
    assert None is engine.original(answer.trimmed.trims[0].stash_id)
    assert () == tuple(engine.search("39601").snippets)
    assert 1 == engine.figures().calls


def test_no_recall(engine: Engine) -> None:
    """Without tools to recall with, the marker shows no id; an RPC can fetch it all the same."""
    answer = engine.trim(MCP, result(LONG), recall_unavailable=True)
    assert b"id=" not in (answer.prompt.body or b"")
    assert LONG.encode() == engine.original(answer.trimmed.trims[0].stash_id)


def test_a_pinned_result_stays_whole(engine: Engine) -> None:
    """A result that the agent pins stays whole."""
    sent = result(LONG)
    assert sent == engine.trim(MCP, sent, pinned=frozenset({0})).prompt.body


def test_too_large_an_answer(engine: Engine) -> None:
    """It is refused before anything is kept."""
    engine.trim(MCP, result("small"))
    with pytest.raises(TooLarge):
        engine.trim(MCP, result(LONG), accept_bytes=1_000)
    assert 1 == engine.figures().stash.entries


@pytest.mark.parametrize(
    ("sent", "fields", "field"),
    [
        (b"", {}, "json.body"),
        (b"[]", {}, "json.body"),
        (b'{"content":1}', {}, "json.body.content"),
        (b'{"content":[]}', {"base_revision": b"x"}, "base_revision"),
        (b'{"content":[]}', {"pinned": frozenset({1})}, "annotations"),
    ],
)
def test_bad_input(engine: Engine, sent: bytes, fields: dict[str, Any], field: str) -> None:
    """What is wrong is named, and no run begins with it."""
    with pytest.raises((InvalidJson, InvalidRequest)) as caught:
        engine.trim(MCP, sent, **fields)
    assert field == caught.value.field
    assert Outcome.RUN_UNKNOWN is engine.retrieve("abcdefghij").outcome


def test_a_run_may_begin_with_a_result(engine: Engine) -> None:
    """Its ids can be fetched before any prompt was sent, and the first prompt is as it would have been."""
    answer = engine.trim(MCP, result(LONG))
    assert LONG.encode() == engine.original(ids(answer)[0])
    sent = body(OPENAI_CHAT, history(OPENAI_CHAT, 2))
    expected = Engine(limit=50_000, policy=POLICY).trim(OPENAI_CHAT, sent)
    assert facts(expected) == facts(engine.trim(OPENAI_CHAT, sent))


def test_expired_and_come_again(engine: Engine) -> None:
    """A result that comes again after its time is kept again, under its id."""
    first = engine.trim(MCP, result(LONG))
    engine.clock.now += 100_000
    engine.runs.sweep()
    assert None is engine.original(ids(first)[0])
    again = engine.trim(MCP, result(LONG))
    assert ids(first) == ids(again)
    assert LONG.encode() == engine.original(ids(first)[0])
