"""Page snapshots: the body between EXTERNAL-CONTENT tags of a user's text ages, the words around it do not."""

from __future__ import annotations

import json

import pytest

from prompt_sidecar.facts.trim_calls import Annotation, OwnTextKind
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import Action
from tests.engine.steps.test_feedback import engine, messages, prompt, texts, user
from tests.oracle.browsing import ALL_FORMATS, returned

formats = pytest.mark.parametrize("format", ALL_FORMATS)
BODY = "\n".join(f"[E{number}] a link to page {number}" for number in range(40))
OPEN = '<EXTERNAL-CONTENT label="page-snapshot" url="https://example.com/?a=1&b=2">'
CLOSE = "</EXTERNAL-CONTENT>"


def page(body: str = BODY, before: str = "The page now:\n", after: str = "\nWhat next?") -> str:
    """A snapshot as a browser agent writes it."""
    return f"{before}{OPEN}\n{body}\n{CLOSE}{after}"


@formats
def test_the_body_is_clipped_and_the_rest_stays(format: str) -> None:
    """Tags, their attributes and the words around them are as they were; the body is a label with id and bytes."""
    asked = engine()
    answer = asked.trim(**prompt(format, messages([user(page())])))
    (trim,) = answer.trimmed.trims
    assert (ItemKind.SNAPSHOT, Action.CLIPPED) == (trim.kind, trim.action)
    label = f"[page clipped for brevity — id={trim.stash_id}, {len(page()):,} bytes]"
    assert page(label) == texts(format, answer)[1]
    assert page().encode() == asked.original(trim.stash_id)


@formats
def test_the_newest_pages_stay(format: str) -> None:
    """Of pages at every step those of the newest three iterations are whole; with a number of their own, fewer."""
    sent = messages(*([user(page(BODY + str(number)))] for number in range(6)), after=0)
    assert 3 == sum(BODY in text for text in texts(format, engine().trim(**prompt(format, sent))))
    one = engine(age_keep_snapshots=1).trim(**prompt(format, sent))
    assert 1 == sum(BODY in text for text in texts(format, one))


@formats
def test_the_page_after_the_task_ages_and_one_in_the_task_does_not(format: str) -> None:
    """The first user message is never touched, whatever it quotes; the page that follows it is a page."""
    task, first = user(page(before="My task: ")), user(page(before="First page: "))
    sent = [task, first, *messages(after=5)[1:]]
    found = texts(format, engine().trim(**prompt(format, sent)))
    assert task["content"] == found[0]
    assert found[1].startswith("First page: ")
    assert BODY not in found[1]


@formats
@pytest.mark.parametrize(
    "text",
    [
        f"Close it with {CLOSE} and open the next with {OPEN}. " + "word " * 80,
        f"This opens and never closes: {OPEN}\n{BODY}",
        f"This only closes: {BODY}\n{CLOSE}",
        f"<external-content>\n{BODY}\n</external-content>",
        "<EXTERNAL-CONTENT " + BODY.replace(">", "") + CLOSE.replace(">", ""),
    ],
)
def test_what_is_no_snapshot_is_a_persons_text(format: str, text: str) -> None:
    """Where there is no pair of tags around something, a user's words stay."""
    answer = engine().trim(**prompt(format, messages([user(text)])))
    assert text == texts(format, answer)[1]
    assert [] == list(answer.trimmed.trims)


@formats
def test_two_pages_in_one_text(format: str) -> None:
    """Each body is clipped; the text between them stays."""
    text = page() + "\nand the other tab:\n" + page(BODY * 2)
    answer = engine().trim(**prompt(format, messages([user(text)])))
    found = texts(format, answer)[1]
    assert 2 == found.count("[page clipped for brevity — id=") == found.count(CLOSE) == found.count(OPEN)
    assert "\nWhat next?\nand the other tab:\nThe page now:\n" in found
    assert BODY not in found


@formats
def test_a_small_page_stays(format: str) -> None:
    """A body that a label would not save tokens on is left."""
    answer = engine().trim(**prompt(format, messages([user(page("(empty page)"))])))
    assert page("(empty page)") == texts(format, answer)[1]


@formats
def test_by_annotation_without_tags(format: str) -> None:
    """A message that the agent calls a snapshot is one, tags or not: without them its whole text is the page."""
    sent = messages([user(BODY)])
    place = next(at for at, message in enumerate(sent) if message["content"] == BODY)
    answer = engine().trim(**prompt(format, sent), annotations={place: Annotation.SNAPSHOT})
    assert texts(format, answer)[1].startswith("[page clipped for brevity — id=")
    assert [] == list(engine().trim(**prompt(format, sent)).trimmed.trims)


@formats
def test_tags_in_what_tools_say(format: str) -> None:
    """Tool output with the tags is a result like any other."""
    sent = messages(after=5)
    sent[2] = sent[2] | {"content": page()}
    answer = engine().trim(**prompt(format, sent))
    assert [ItemKind.RESULT] == [trim.kind for trim in answer.trimmed.trims]


@formats
def test_what_was_returned_sent_again(format: str) -> None:
    """An agent that keeps what it got is given the same, and a page clipped before is not clipped again."""
    asked = engine()
    sent = messages(*([user(page(BODY + str(number)))] for number in range(5)))
    answer = asked.trim(**prompt(format, sent))
    again = {"messages": returned(answer)} if answer.prompt.messages is not None else {}
    back = asked.trim(**prompt(format, sent) | ({"body": answer.prompt.body or b""} | again))
    assert returned(answer) == returned(back)
    assert answer.trimmed.trims == back.trimmed.trims


@formats
def test_no_recall(format: str) -> None:
    """Where the model cannot recall, labels carry no id."""
    answer = engine().trim(**prompt(format, messages([user(page())])), recall_unavailable=True)
    assert page(f"[page clipped for brevity — {len(page()):,} bytes]") == texts(format, answer)[1]
    assert {OwnTextKind.DROPPED} >= {own.kind for own in answer.prompt.own_text}


def test_an_old_screenshot_becomes_text() -> None:
    """An old screenshot becomes text in its place; one beside a page that stays, stays."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400}}
    seen = {"role": "user", "content": [{"type": "text", "text": page()}, image]}
    sent = messages([seen], [], [], [seen], after=0)
    answer = engine().trim(**prompt("openai_chat", sent))
    got = [
        message for message in json.loads(answer.prompt.body or b"")["messages"] if isinstance(message["content"], list)
    ]
    assert "text" == got[0]["content"][1]["type"]
    assert got[0]["content"][1]["text"].startswith("[screenshot clipped for brevity — id=")
    assert seen == got[1]


def test_many_tags_take_linear_time() -> None:
    """A hostile text of 300,000 openings, or of as many pairs, is scanned: its square would take minutes."""
    for text in ("<EXTERNAL-CONTENT", "<EXTERNAL-CONTENT>", f"<EXTERNAL-CONTENT>x{CLOSE}", CLOSE):
        assert elide.clipped_snapshot(text * 300_000, "id", 1)
