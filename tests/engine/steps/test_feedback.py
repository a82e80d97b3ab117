"""What an agent tells its model of its steps: old feedback collapses to one counting placeholder a stretch.

Feedback is known by the agent's annotation or by how it begins. A stretch is the feedback between two texts that a
person wrote; what else stands in between, calls, results and pages, does not end it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import Annotation, TrimAnswer
from prompt_sidecar.trim.entries import Action, Reason
from tests.oracle.browsing import ALL_FORMATS, CONVERSATION, returned, typed
from tests.oracle.runs import body_of, dumps
from tests.oracle.shapes import ANTHROPIC_MESSAGES, OPENAI_CHAT
from tests.oracle.validity import new_defects
from tests.promises.engine import Engine

formats = pytest.mark.parametrize("format", ALL_FORMATS)
VALIDATION = "Validation feedback: the answer names no price, and the user had asked for it ({})."
ERROR = "Step error: the element E{} was not found on the page that is shown now."
REPETITION = "Repetition warning: this action was made {} times; try another one."
LIMIT = 100_000


def user(text: str) -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": text}


def step(number: int) -> list[dict[str, Any]]:
    """A call with its result."""
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "click", "arguments": '{"ref": "E1"}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": "clicked"},
    ]


OPENING = [user("Find a room.")]


def prompt(format: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Messages of OpenAI's format as a call's fields, in another format."""
    if format == CONVERSATION:
        return {"format": format, "body": b"", "messages": [typed(message) for message in messages]}
    if format == OPENAI_CHAT:
        return {"format": format, "body": body_of(format, [dumps(message) for message in messages])}
    return {"format": format, "body": body_of(format, [dumps(_anthropic(message)) for message in messages])}


def _anthropic(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [block]}
    if message.get("tool_calls"):
        call = message["tool_calls"][0]
        use = {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": {"ref": "E1"}}
        return {"role": "assistant", "content": [use]}
    return {"role": message["role"], "content": message["content"]}


def texts(format: str, answer: TrimAnswer) -> list[str]:
    """All texts of the returned messages, calls and results aside."""
    if format == CONVERSATION:
        from prompt_sidecar.v1 import conversation_pb2 as pb

        messages = [pb.Message.FromString(raw) for raw in returned(answer)]
        return [part.text for message in messages for part in message.parts if part.HasField("text")]
    found = []
    for raw in returned(answer):
        message = json.loads(raw)
        content = message.get("content")
        if message["role"] == "tool" or content is None:
            continue
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [block["text"] for block in blocks if block["type"] == "text"]
    return found


def engine(**policy: Any) -> Engine:
    """A `lean` engine that writes nothing of its own."""
    return Engine(limit=LIMIT, preset="lean", policy={"own_text_max_tokens": 0, "note_max_tokens": 0} | policy)


def messages(*between: list[dict[str, Any]], after: int = 4) -> list[dict[str, Any]]:
    """An opening, steps with these messages after them, and so many steps more."""
    made = list(OPENING)
    for number, text in enumerate(between):
        made += [*step(number), *text]
    for number in range(len(between), len(between) + after):
        made += step(number)
    return made


FOUR = messages(
    [user(VALIDATION.format(1))],
    [user(VALIDATION.format(2)), user(ERROR.format(1))],
    [user(VALIDATION.format(3)), user(ERROR.format(2))],
)


@formats
def test_a_counting_placeholder(format: str) -> None:
    """Old feedback becomes one placeholder that counts it by kind; the newest of each kind stays whole."""
    answer = engine().trim(**prompt(format, FOUR))
    label = "[3 earlier feedback messages clipped: 2 validation rejections, 1 step error]"
    assert ["Find a room.", label, VALIDATION.format(3), ERROR.format(2)] == texts(format, answer)


@formats
def test_words_of_the_placeholder(format: str) -> None:
    """One is told in the singular; kinds come in one order, whatever theirs was, absent ones not at all."""
    one = messages([user(ERROR.format(1))], [user(ERROR.format(2))])
    assert "[1 earlier feedback message clipped: 1 step error]" in texts(format, engine().trim(**prompt(format, one)))
    all_ = messages(
        *([user(REPETITION.format(n)), user(ERROR.format(n)), user(VALIDATION.format(n))] for n in range(3))
    )
    label = "[6 earlier feedback messages clipped: 2 validation rejections, 2 step errors, 2 repetition warnings]"
    assert label in texts(format, engine().trim(**prompt(format, all_)))


@formats
def test_the_only_one_of_a_kind_stays(format: str) -> None:
    """However old it is, the newest of a kind is not clipped."""
    sent = messages([user(VALIDATION.format(1))], [user(ERROR.format(1))], [user(REPETITION.format(1))], after=30)
    answer = engine().trim(**prompt(format, sent))
    assert ["Find a room.", VALIDATION.format(1), ERROR.format(1), REPETITION.format(1)] == texts(format, answer)
    assert [] == list(answer.trimmed.trims)


@formats
def test_a_persons_word_ends_a_stretch(format: str) -> None:
    """Feedback before and after what a person wrote is counted apart, and the person's words stay."""
    sent = messages(
        [user(ERROR.format(1))], [user(ERROR.format(2)), user("Try the other site.")], [user(ERROR.format(3))],
        [user(ERROR.format(4))],
    )  # fmt: skip
    answer = engine().trim(**prompt(format, sent))
    assert [
        "Find a room.",
        "[2 earlier feedback messages clipped: 2 step errors]",
        "Try the other site.",
        "[1 earlier feedback message clipped: 1 step error]",
        ERROR.format(4),
    ] == texts(format, answer)


@formats
def test_by_annotation(format: str) -> None:
    """What the agent says of a message counts, whatever it begins with, and holds though it is said once."""
    sent = messages([user("The price is missing.")], [user("The price is still missing.")], [user("And the date?")])
    places = [at for at, message in enumerate(sent) if message["role"] == "user" and message not in OPENING]
    annotations = dict.fromkeys(places, Annotation.VALIDATION_FEEDBACK)
    label = "[2 earlier feedback messages clipped: 2 validation rejections]"
    wanted = ["Find a room.", label, "And the date?"]
    annotated = engine()
    assert wanted == texts(format, annotated.trim(**prompt(format, sent), annotations=annotations))
    assert wanted == texts(format, annotated.trim(**prompt(format, sent)))
    assert label not in texts(format, engine().trim(**prompt(format, sent)))


@formats
def test_an_annotation_goes_before_a_prefix(format: str) -> None:
    """A message that begins as one kind and is annotated as another is of the annotated kind."""
    sent = messages([user(ERROR.format(1))], [user(ERROR.format(2))])
    places = [at for at, message in enumerate(sent) if message["role"] == "user" and message not in OPENING]
    annotations = dict.fromkeys(places, Annotation.REPETITION_WARNING)
    answer = engine().trim(**prompt(format, sent), annotations=annotations)
    assert "[1 earlier feedback message clipped: 1 repetition warning]" in texts(format, answer)


@formats
def test_configured_prefixes(format: str) -> None:
    """The policy says how feedback begins; its own words take the place of the default ones."""
    sent = messages(*([user(f"NOPE: thing {number} is wrong")] for number in range(3)), [user(VALIDATION.format(1))])
    answer = engine(feedback_validation=["NOPE:"]).trim(**prompt(format, sent))
    label = "[2 earlier feedback messages clipped: 2 validation rejections]"
    assert ["Find a room.", label, "NOPE: thing 2 is wrong", VALIDATION.format(1)] == texts(format, answer)


@formats
def test_what_is_shorter_than_its_label_stays(format: str) -> None:
    """One short old message alone in its stretch would take more tokens as a placeholder."""
    sent = messages([user("Step error: no E1.")], [user(ERROR.format(2))])
    assert [] == list(engine().trim(**prompt(format, sent)).trimmed.trims)


@formats
def test_a_prefix_within_a_text_is_none(format: str) -> None:
    """Only how a text begins tells that it is feedback; a person who quotes it is not clipped."""
    texts = [user(f"I saw this: {ERROR.format(number)}") for number in range(3)]
    answer = engine().trim(**prompt(format, messages(*([each] for each in texts))))
    assert [] == list(answer.trimmed.trims)


@formats
def test_the_task_is_never_feedback(format: str) -> None:
    """A task that begins like feedback stays, though newer feedback of the kind comes."""
    task = ERROR.format(0)
    sent = [user(task), *messages([user(ERROR.format(1))], [user(ERROR.format(2))])[1:]]
    assert task in texts(format, engine().trim(**prompt(format, sent)))


@formats
def test_pinned_feedback_stays(format: str) -> None:
    """A pinned message is neither clipped nor counted."""
    pinned = next(at for at, message in enumerate(FOUR) if message["content"] == VALIDATION.format(1))
    found = texts(format, engine().trim(**prompt(format, FOUR), pinned=frozenset({pinned})))
    assert VALIDATION.format(1) in found
    assert "[2 earlier feedback messages clipped: 1 validation rejection, 1 step error]" in found


@formats
def test_keep_feedback(format: str) -> None:
    """Feedback has its own number of iterations."""
    assert [] == list(engine(age_keep_feedback=50).trim(**prompt(format, FOUR)).trimmed.trims)
    answer = engine(age_keep_iterations=50, age_keep_feedback=5).trim(**prompt(format, FOUR))
    assert "[3 earlier feedback messages clipped: 2 validation rejections, 1 step error]" in texts(format, answer)


@formats
def test_messages_that_must_stay(format: str) -> None:
    """Between two messages of the model nothing goes altogether: a short placeholder stands there."""
    talk = [{"role": "assistant", "content": f"I am done {number}."} for number in range(4)]
    sent = list(OPENING)
    for number, reply in enumerate(talk):
        sent += [reply, user(VALIDATION.format(number))]
    sent += [*step(9), *step(10), *step(11), *step(12)]
    answer = engine().trim(**prompt(format, sent))
    label = "[3 earlier feedback messages clipped: 3 validation rejections]"
    found = texts(format, answer)
    assert [label, "[feedback clipped]", "[feedback clipped]", VALIDATION.format(3)] == [
        text for text in found if "clipped]" in text or "clipped:" in text or text.startswith("Validation")
    ]
    if format != CONVERSATION:
        before, after = json.loads(prompt(format, sent)["body"]), json.loads(answer.prompt.body or b"")
        assert not new_defects(format, before, after)


def test_a_text_block_after_a_result() -> None:
    """In Anthropic's format feedback may share a message with a result: the block is clipped, the message stays."""
    sent = [_anthropic(message) for message in OPENING]
    for number in range(8):
        call, result = (_anthropic(message) for message in step(number))
        if number < 3:
            result["content"].append({"type": "text", "text": ERROR.format(number)})
        sent += [call, result]
    raw = body_of(ANTHROPIC_MESSAGES, [dumps(message) for message in sent])
    answer = engine().trim(ANTHROPIC_MESSAGES, raw)
    label = "[2 earlier feedback messages clipped: 2 step errors]"
    assert [label, "[feedback clipped]", ERROR.format(2)] == texts(ANTHROPIC_MESSAGES, answer)[1:4]
    got = json.loads(answer.prompt.body or b"")
    assert len(sent) == len(got["messages"])
    assert not new_defects(ANTHROPIC_MESSAGES, json.loads(raw), got)


@formats
def test_recall_and_search(format: str) -> None:
    """What was collapsed, gone or not, is fetched by its id and found by its words."""
    asked = engine()
    answer = asked.trim(**prompt(format, FOUR))
    assert 3 == len(answer.trimmed.trims)
    assert {(Action.COLLAPSED, Reason.FEEDBACK)} == {(trim.action, trim.reason) for trim in answer.trimmed.trims}
    originals = [asked.original(trim.stash_id) for trim in answer.trimmed.trims]
    assert [VALIDATION.format(1).encode(), VALIDATION.format(2).encode(), ERROR.format(1).encode()] == originals
    found = asked.search("element E1 was not found")
    assert answer.trimmed.trims[2].stash_id in [snippet.item.stash_id for snippet in found.snippets]


@formats
def test_in_batches(format: str) -> None:
    """Under `cache_first` old feedback waits for a batch point, and counts change at one alone."""
    asked = Engine(limit=5_000, policy={"own_text_max_tokens": 0, "note_max_tokens": 0})
    sent = list(OPENING)
    labels: list[list[str]] = []
    batches = []
    for number in range(120):
        sent += [*step(number), user(ERROR.format(number) + " word" * 30)]
        answer = asked.trim(**prompt(format, sent))
        labels.append([text for text in texts(format, answer) if "earlier feedback" in text])
        batches.append(answer.cache.batch_point)
    changed = [now != before for before, now in zip([[], *labels], labels, strict=False)]
    assert 2 <= sum(changed) <= 10
    assert all(batch for batch, change in zip(batches, changed, strict=True) if change)
