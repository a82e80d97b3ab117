"""The checks of recall and search can fail: each finds text that no tool had produced, and ids that lead elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.recall.envelope import render_page
from prompt_sidecar.recall.selection import Stretch
from prompt_sidecar.recall.tag import AnswerKind, tagged
from prompt_sidecar.v1 import retrieve_pb2, search_pb2, tool_pb2
from tests.lab.demo.agent import Agent, Answered
from tests.lab.demo.closing import misquoted, recorded, unlike
from tests.lab.demo.investigation import RECALL, Call
from tests.lab.demo.prompt import Quote
from tests.lab.demo.tools import Tools

PRODUCED = b"one\ntwo\nthree\n"
ID = "abcdefghjk"
LABEL = f"snippet 1 of 1, tool result of grep, iteration 7, id {ID}, lines 2-3 of 4"
FACTS: dict[str, Any] = {
    "stash_id": ID,
    "call_id": "a",
    "iteration": 7,
    "start_byte": 4,
    "end_byte": 13,
    "first_line": 2,
    "total_bytes": 14,
    "text": "two\nthree",
}


def page(content: bytes = b"two\n", *, shown: str = "two\n", stash_id: str = ID, follows: int = 8) -> Answered:
    """A call that recalled the second line, as facts and as told to the model."""
    stretch = {"start_byte": 4, "end_byte": 8, "first_line": 2, "last_line": 2}
    body = render_page(shown.encode(), "text/plain", [Stretch(4, 4 + len(shown), 2, 2)], nonce=lambda: "482913")
    text = tagged(b"k" * 32, AnswerKind.RECALLED, stash_id, f"bytes 4-8; more follows at offset {follows}", body)
    recalled = retrieve_pb2.RetrieveContentResponse(
        outcome=retrieve_pb2.RETRIEVE_OUTCOME_HIT,
        content=content,
        more=True,
        next_offset=8,
        stretches=[retrieve_pb2.Stretch(**stretch)],
    )
    answer = tool_pb2.CallToolResponse(outcome=tool_pb2.TOOL_OUTCOME_OK, content=text, recalled=recalled)
    return Answered("c", 8, Call(RECALL, {"id": ID}), answer, None, ())


def agent() -> Agent:
    """An agent that used two tools of its own, one of which said nothing, and one of the sidecar's."""
    stub: Any = None  # it calls nobody here
    made = Agent(stub, "run", Tools(Path()), ())
    calls = [{"id": call_id, "function": {"name": "x", "arguments": f'{{"{call_id}": 1}}'}} for call_id in "abc"]
    made.history += [
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": PRODUCED.decode()},
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "tool", "tool_call_id": "c", "content": page().answer.content},
        {"role": "assistant", "content": "That is it."},
    ]
    made.produced["a"] = PRODUCED
    made.read_at["a"] = 7
    made.answered.append(page())
    return made


def test_what_is_to_be_recorded() -> None:
    """What is to be recorded: all but empty answers, those of the sidecar's tools, and the last words."""
    question = agent().history[1]["content"]
    assert [question, "I look.", '{"a": 1}', '{"b": 1}', '{"c": 1}', PRODUCED.decode()] == recorded(agent())


def test_a_right_page_has_no_fault() -> None:
    """A page that is what the tool had produced has no fault."""
    assert [] == list(unlike(page(), PRODUCED))


@pytest.mark.parametrize(
    ("fault", "whole"),
    [
        (page(b"tw0\n"), PRODUCED),
        (page(shown="tw0\n"), PRODUCED),
        (page(), PRODUCED[1:]),
        (page(stash_id="kjhgfedcba"), PRODUCED),
        (page(follows=9), PRODUCED),
    ],
)
def test_faulty_page(fault: Answered, whole: bytes) -> None:
    """Other bytes, another id or another offset are found, in the facts as in what the model read."""
    assert 1 == len(list(unlike(fault, whole)))


def misquotes(quote: Quote, **facts: object) -> int:
    """Complaints about a search that found one snippet."""
    found = search_pb2.SearchHistoryResponse(snippets=[search_pb2.Snippet(**(FACTS | facts))])
    return len(list(misquoted(agent(), found, [quote])))


def test_a_right_snippet_has_no_fault() -> None:
    """A snippet that is what the tool had produced has no fault."""
    assert 0 == misquotes(Quote(LABEL, "two\nthree"))


@pytest.mark.parametrize(
    "fault",
    [
        {"start_byte": 5},
        {"end_byte": 12},
        {"first_line": 3},
        {"total_bytes": 13},
        {"call_id": "b"},
        {"stash_id": "kjhgfedcba"},
    ],
)
def test_faulty_snippet(fault: dict[str, object]) -> None:
    """A snippet that stands elsewhere than it says is found."""
    assert 1 == misquotes(Quote(LABEL, "two\nthree"), **fault)


@pytest.mark.parametrize(
    "quote",
    [Quote(LABEL, "two\nthree\n"), Quote(LABEL.replace(ID, "kjhgfedcba"), "two\nthree"), Quote("", "two\nthree")],
)
def test_faulty_quote(quote: Quote) -> None:
    """So is a quote that tells the model something else than the snippet."""
    assert 1 == misquotes(quote)


def test_made_up_text() -> None:
    """Text that the tool had not produced is found though facts and quote agree."""
    assert 1 == misquotes(Quote(LABEL, "two\nthr33"), text="two\nthr33")


def test_not_a_page() -> None:
    """Only content that was recalled is compared."""
    gone = retrieve_pb2.RetrieveContentResponse(outcome=retrieve_pb2.RETRIEVE_OUTCOME_EXPIRED)
    notice = tool_pb2.CallToolResponse(recalled=gone)
    assert [] == list(unlike(replace(page(), answer=notice), PRODUCED))
