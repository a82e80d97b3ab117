"""Marks and keys for the provider's cache, where the policy has the sidecar place them."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from typing import Any, Final

import pytest

from prompt_sidecar.prompt.cache_marks import MOST_MARKS
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.providers.messages import unmarked
from tests.conformance.table import CASES
from tests.doors.http.habits import APIS, Turn
from tests.engine.runs.making import LIMIT, Engine

MODELS: Final[Mapping[str, str]] = {
    "anthropic_messages": "claude-opus-4-5",
    "bedrock_converse": "anthropic.claude-sonnet-4-5-20250929-v1:0",
    "openai_chat": "gpt-5.6-sol",
    "openai_responses": "gpt-6.2-astra",
}
WORDS: Final = {
    "anthropic_messages": "messages",
    "bedrock_converse": "bedrock",
    "openai_chat": "chat",
    "openai_responses": "responses",
}
MARKED: Final = {"cache_marks": True, "cache_key": True}
EACH_FORMAT: Final = pytest.mark.parametrize("form", MODELS)
AT_NEWEST: Final = ("anthropic_messages", "bedrock_converse")


def _name(form: str) -> str:
    marks = FORMATS[form].cache_marks
    assert marks is not None
    return marks.name


def _messages(form: str, made: Any) -> list[Any]:
    found: list[Any] = made[FORMATS[form].messages_field]
    return found


def _sent(form: str, number: int) -> bytes:
    """A body whose system prompt can be marked, with as many calls and results."""
    spoken = APIS[WORDS[form]]
    entries: list[Any] = [spoken.asked("Find the bug.")]
    for call in range(number):
        turn = Turn(f"Step {call}.", f"call-{call}", arguments=json.dumps({"n": call}))
        entries += [*spoken.answer_entries(turn), spoken.result(turn, f"Result {call}. " + "The module is fine. " * 40)]
    raw: dict[str, Any] = {FORMATS[form].messages_field: entries}
    if form == "anthropic_messages":
        raw["system"] = "You are careful."
    elif form == "bedrock_converse":
        raw["system"] = [{"text": "You are careful."}]
    else:
        entries.insert(0, {"role": "developer", "content": "You are careful."})
    return json.dumps(raw | ({"store": False} if form == "openai_responses" else {})).encode()


def _run(form: str, calls: int = 24, **fields: Any) -> list[Any]:
    """The bodies of a run as the provider gets them."""
    engine = Engine(limit=LIMIT)
    fields = {"policy": {"fit_high": 0.9, "fit_low": 0.4, **MARKED}, "model": MODELS[form], **fields}
    answers = [engine.trim(form, _sent(form, number), **fields) for number in range(1, calls)]
    return [json.loads(answer.prompt.body or b"") for answer in answers]


def _places(form: str, made: Any) -> list[int]:
    """Indices of messages with a mark."""
    return [index for index, each in enumerate(_messages(form, made)) if f'"{_name(form)}"' in json.dumps(each)]


@EACH_FORMAT
def test_a_run_is_marked_within_the_bounds_and_stays_valid(form: str) -> None:
    """At most four marks, none behind the sidecar's note, and nothing that the provider refuses."""
    plain = _run(form, policy={"fit_high": 0.9, "fit_low": 0.4})
    for made, without in zip(_run(form), plain, strict=True):
        assert 0 < json.dumps(made).count(f'"{_name(form)}"') <= MOST_MARKS
        assert CASES[form].defects(without) == CASES[form].defects(made)
        assert _name(form) not in json.dumps(without)
        assert not any(_messages(form, made)[at].get("role") == "assistant" for at in _places(form, made))
        last = _messages(form, made)[-1]
        assert last.get("role") != "system" or _name(form) not in json.dumps(last)


@EACH_FORMAT
def test_marks_change_nothing_else(form: str) -> None:
    """What is counted, trimmed and returned is as without them."""
    one, other = Engine(limit=LIMIT), Engine(limit=LIMIT)
    read = FORMATS[form].read
    cut = 0
    for number in range(1, 24):
        raw = _sent(form, number)
        marked = one.trim(form, raw, model=MODELS[form], policy=MARKED)
        plain = other.trim(form, raw, model=MODELS[form])
        assert plain.tokens == marked.tokens
        assert plain.cache == marked.cache
        assert plain.trimmed.trims == marked.trimmed.trims
        cut += bool(plain.trimmed.trims)
        bodies = (json.loads(each.prompt.body or b"") for each in (plain, marked))
        before, after = ([read(json.dumps(each).encode(), "").identity for each in _messages(form, b)] for b in bodies)
        assert before == after
    assert cut


@pytest.mark.parametrize("form", AT_NEWEST)
def test_each_prompt_is_marked_where_the_one_before_ended(form: str) -> None:
    """So a provider that looks only some blocks back reads what the call before has written."""
    made = _run(form)
    for before, after in itertools.pairwise(made):
        kept = unmarked(_messages(form, before)) == unmarked(_messages(form, after))[: len(_messages(form, before))]
        if kept:
            assert max(_places(form, before)) in _places(form, after)
        assert max(_places(form, after)) == len(_messages(form, after)) - 1


@EACH_FORMAT
def test_what_a_cut_leaves_in_front_is_marked_from_then_on(form: str) -> None:
    """The next cut keeps it, and reads it."""
    made = _run(form)
    marks = [_places(form, each) for each in made]
    lasting = set(marks[-1]) & set(marks[-2])
    assert any(0 < at < len(_messages(form, made[-1])) - 4 for at in lasting)


@pytest.mark.parametrize(
    ("form", "change"),
    [
        ("anthropic_messages", {"cache_control": {"type": "ephemeral"}}),
        ("anthropic_messages", {"system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]}),
        ("anthropic_messages", {"tools": [{"name": "a", "input_schema": {}, "cache_control": {"type": "ephemeral"}}]}),
        ("bedrock_converse", {"system": [{"text": "S"}, {"cachePoint": {"type": "default"}}]}),
        ("bedrock_converse", {"toolConfig": {"tools": [{"cachePoint": {"type": "default"}}]}}),
        ("openai_chat", {"prompt_cache_options": {"mode": "explicit"}}),
        ("openai_responses", {"prompt_cache_options": {"mode": "implicit"}}),
    ],
)
def test_where_the_agent_marks_nothing_is_added(form: str, change: dict[str, Any]) -> None:
    """Its marks are its own business, all of them."""
    raw = json.loads(_sent(form, 4)) | change
    sent = json.dumps(raw).encode()
    answer = Engine(limit=LIMIT).trim(form, sent, model=MODELS[form], policy={"cache_marks": True})
    assert sent.count(_name(form).encode()) == (answer.prompt.body or b"").count(_name(form).encode())


@EACH_FORMAT
def test_a_mark_of_the_agents_in_a_message_is_seen(form: str) -> None:
    """In each format's place for it; data of the agent's that is named so is none."""
    raw = json.loads(_sent(form, 4))
    marks = FORMATS[form].cache_marks
    assert marks is not None
    users = [index for index, each in enumerate(_messages(form, raw)) if each.get("role") == "user"]
    at = users[0]
    marked = marks.message(json.dumps(_messages(form, raw)[at]).encode())
    assert marked is not None
    _messages(form, raw)[at] = json.loads(marked)
    sent = json.dumps(raw).encode()
    answer = Engine(limit=LIMIT).trim(form, sent, model=MODELS[form], policy=MARKED)
    assert 1 == (answer.prompt.body or b"").count(b'"%s"' % _name(form).encode())
    data = json.dumps({"role": "user", "content": [{"type": "x", "input": {_name(form): 1}}]}).encode()
    assert not marks.holds(data)


@pytest.mark.parametrize(
    ("form", "model"),
    [
        ("openai_chat", "gpt-5.4"),
        ("openai_chat", "mistral-large"),
        ("openai_responses", "gpt-4o"),
        ("bedrock_converse", "mistral.mistral-large-2407-v1:0"),
        ("bedrock_converse", "anthropic.claude-3-opus-20240229-v1:0"),
        ("bedrock_converse", "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"),
    ],
)
def test_models_that_take_no_marks_get_none(form: str, model: str) -> None:
    """They refuse them, or it is not known what they do."""
    sent = _sent(form, 4)
    answer = Engine(limit=LIMIT).trim(form, sent, model=model, policy={"cache_marks": True})
    assert Engine(limit=LIMIT).trim(form, sent, model=model).prompt.body == answer.prompt.body


@pytest.mark.parametrize("form", ["openai_chat", "openai_responses"])
def test_a_run_has_one_key_that_tells_nothing(form: str) -> None:
    """The agent's own key stays, and servers of other models get none."""
    engine = Engine(limit=LIMIT)

    def key(run_id: str, model: str = "gpt-5.4", **members: Any) -> Any:
        sent = json.dumps(json.loads(_sent(form, 3)) | members).encode()
        answer = engine.trim(form, sent, model=model, run_id=run_id, policy={"cache_key": True})
        return json.loads(answer.prompt.body or b"").get("prompt_cache_key")

    first = key("run-one")
    assert first == key("run-one")
    assert first != key("run-two")
    assert (len(first) <= 64, True) == (True, set(first) <= set("0123456789abcdef"))
    assert "mine" == key("run-one", prompt_cache_key="mine")
    assert key("run-one", model="mistral-large") is None


@EACH_FORMAT
def test_edits_and_counts_hold_no_marks(form: str) -> None:
    """An agent that patches its own objects would keep them, and a count is of the prompt alone."""
    sent, model = _sent(form, 4), MODELS[form]
    for asked in ({"edits": True}, {"as_run": True, "dry_run": True}):
        marked = Engine(limit=LIMIT).trim(form, sent, model=model, policy=MARKED, **asked).prompt
        plain = Engine(limit=LIMIT).trim(form, sent, model=model, **asked).prompt
        assert (plain.edits, plain.body) == (marked.edits, marked.body)


@EACH_FORMAT
@pytest.mark.parametrize("seed", range(6))
def test_generated_histories_stay_valid(form: str, seed: int) -> None:
    """With thinking, pictures, calls in parallel and blocks that nobody knows, and with values as they came."""
    raw = CASES[form].history(random.Random(seed), 8)
    raw["model"] = MODELS[form]
    sent = json.dumps(raw).encode()
    answer = Engine(limit=LIMIT).trim(form, sent, model=MODELS[form], policy=MARKED)
    made = json.loads(answer.prompt.body or b"")
    plain = Engine(limit=LIMIT).trim(form, sent, model=MODELS[form]).prompt.body or b""
    assert CASES[form].defects(json.loads(plain)) == CASES[form].defects(made)
    assert json.dumps(made).count(f'"{_name(form)}"') <= max(MOST_MARKS, json.dumps(raw).count(f'"{_name(form)}"'))


def test_numbers_and_doubled_names_keep_their_bytes() -> None:
    """What a marked message holds beside its mark is not written anew; one that cannot be read gets none."""
    marks = FORMATS["bedrock_converse"].cache_marks
    assert marks is not None
    inside = b'{"json":{"n":1.50,"big":123456789012345678901234567890}}'
    block = b'{"toolResult":{"toolUseId":"a","content":[' + inside + b"]}}"
    marked = marks.message(b'{"role":"user","content":[' + block + b"]}")
    assert marked is not None
    assert block in marked
    assert marks.message(b'{"role":"user","content":[' + block + b'],"role":"user"}') is None
