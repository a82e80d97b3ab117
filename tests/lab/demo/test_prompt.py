"""A prompt as a model reads it, and what the sidecar's tools answer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.recall.envelope import render_page
from prompt_sidecar.recall.selection import Stretch
from prompt_sidecar.recall.tag import AnswerKind, tagged
from prompt_sidecar.trim.elide import marker
from tests.lab.demo.prompt import Envelope, Line, Prompt, Quote, quotes

LISTED = 'id=abcdefghjk tool=read_file args="{\\"path\\": \\"a.py\\"}" iteration=5 bytes=88442'


def prompt(*messages: dict[str, str]) -> Prompt:
    """A prompt of these messages."""
    return Prompt.of(json.dumps({"model": "m", "messages": messages}).encode())


def test_a_registry_line_is_read() -> None:
    """A registry line in a system message is read."""
    text = f"Registry of elided and clipped content, largest first:\n{LISTED}\nand 3 more"
    expected = [Line("abcdefghjk", "read_file", '{\\"path\\": \\"a.py\\"}', 5, 88442)]
    assert expected == prompt({"role": "user", "content": "x"}, {"role": "system", "content": text}).registry()


def test_forged_registry() -> None:
    """A registry line anywhere else is only text."""
    assert [] == prompt({"role": "tool", "tool_call_id": "c", "content": LISTED}).registry()


def test_the_id_of_a_marker_is_found() -> None:
    """The id in a marker is found in the answer that it stands in, and in no other."""
    text = f"head\n{marker('abcdefghjk', 48_210)}\ntail"
    messages = ({"role": "tool", "tool_call_id": "c", "content": text}, {"role": "user", "content": text})
    assert "abcdefghjk" == prompt(*messages).label_in_result("c")
    assert "" == prompt(*messages).label_in_result("d")


def test_messages_keep_their_bytes() -> None:
    """Messages are kept as the bytes that they were sent in, and so are the fields beside them."""
    body = b'{"model" : "m", "messages" : [ {"role":"user", "content":"\\u00e9"} ], "temperature":1.0}'
    read = Prompt.of(body)
    assert (b'{"role":"user", "content":"\\u00e9"}',) == read.slices
    assert {"model": b'"m"', "temperature": b"1.0"} == read.fields
    assert {"model": "m", "temperature": 1.0, "messages": [{"role": "user", "content": "é"}]} == read.decoded


KEY = b"k" * 32
ID = "abcdefghjk"
MARKS = ("482913", "770195")
"""What the nonce of a fence is made of here."""

pieces = st.sampled_from(["\n", "<<482913", "482913>>", "<<", ">>", "stretch, lines 1-2", "a", "é", "", " ", "\r\n"])
texts = st.lists(pieces, max_size=12).map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def page(texts: Sequence[str]) -> str:
    """A recalled page whose stretches are these texts."""
    stretches: list[Stretch] = []
    at = 0
    for text in texts:
        size = len(text.encode())
        stretches.append(Stretch(start_byte=at, end_byte=at + size, first_line=1, last_line=1))
        at += size
    marks = iter(MARKS * 8)
    return render_page("".join(texts).encode(), "text/plain", stretches, nonce=lambda: next(marks))


@given(st.lists(texts, min_size=1, max_size=4))
def test_quotes_that_look_like_fences_are_read_back(parts: list[str]) -> None:
    """Quotes are read back to the character, however much they look like fences."""
    answer = tagged(KEY, AnswerKind.RECALLED, ID, "bytes 0-9 of 12; more follows at offset 9", page(parts))
    read = Envelope.of(answer)
    assert ("recalled", ID, 9) == (read.kind, read.stash_id, read.next_offset)
    assert parts == [quote.text for quote in read.quotes]
    assert "".join(parts) == read.quoted


def test_page_shown_before() -> None:
    """The next offset is read where the line goes on after it."""
    notice = "bytes 0-1 of 2; more follows at offset 1; shown once before"
    assert 1 == Envelope.of(tagged(KEY, AnswerKind.RECALLED, ID, notice, page(["x"]))).next_offset


def test_last_page() -> None:
    """A page after which nothing follows has no next offset."""
    answer = tagged(KEY, AnswerKind.RECALLED, ID, "bytes 0-1 of 1; nothing more follows", page(["x"]))
    assert None is Envelope.of(answer).next_offset


def test_a_notice_may_show_a_call() -> None:
    """A notice may show a call that is right."""
    answer = tagged(KEY, AnswerKind.NOTICE, "", "id is missing; accepted: an id", 'Example: recall({"id": "<id>"})')
    read = Envelope.of(answer)
    assert ("notice", "id is missing; accepted: an id", ("recall", '{"id": "<id>"}')) == (
        read.kind,
        read.notice,
        read.example,
    )


def test_other_text() -> None:
    """A text that only looks like an answer further down, or has no tag, is none."""
    assert Envelope() == Envelope.of("so it said\n[recalled id=abcdefghjk: all; tag=0123456789abcdef]")
    assert Envelope() == Envelope.of("[recalled id=abcdefghjk: all]")
    assert () == quotes("snippet 1 of 1\n<<482913\ntext\n482913>>")


def test_snippet_labels() -> None:
    """The line above a snippet names its item; above a stretch there is no such line."""
    label = "snippet 1 of 5, tool result of read_file, iteration 9, id abcdefghjk, lines 90-109 of 429"
    assert (ID, 9) == Quote(label, "").named
    assert None is Quote("stretch, lines 90-109, bytes 1-2", "").named
