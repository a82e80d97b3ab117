"""Prompts of which only the newest messages are sent: what a caller gets is what the whole prompt would have given."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.client import Client, Trimmed
from prompt_sidecar.client.continuing import MOST_REVISIONS, MOST_WAIT, prepared, sent_again, whole_body
from prompt_sidecar.client.native import dumped
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.providers.table import MESSAGES
from tests.client.histories import STEPS, WINDOW, history
from tests.client.serving import PATIENT
from tests.client.test_guard import KEY
from tests.client.test_native import Message, values
from tests.doors.grpc.serving import guarded, serving

FORMATS = ("openai_chat", "anthropic_messages", "openai_responses")
OPTIONS: Any = {"context_window": WINDOW, "output_reserve": 500}


@pytest.fixture(scope="module")
def twins() -> Iterator[tuple[Client, Client]]:
    """A client that sends what is new, and one that sends whole prompts; each has a sidecar of its own."""
    with serving() as one, serving() as other:
        new, old = (
            Client(one.address, deadline=PATIENT),
            Client(other.address, deadline=PATIENT, history_bytes=0),
        )
        with new, old:
            yield new, old


@pytest.fixture(scope="module")
def masking() -> Iterator[tuple[Client, Client]]:
    """The same, with sidecars that mask."""
    rules = guarded(None, GuardOptions(mode=ENFORCE))
    with serving(rules=rules) as one, serving(rules=rules) as other:
        new, old = (
            Client(one.address, deadline=PATIENT),
            Client(other.address, deadline=PATIENT, history_bytes=0),
        )
        with new, old:
            yield new, old


def alike(made: Trimmed[Any]) -> Trimmed[Any]:
    """An answer without what differs from call to call: the revision is sealed with a nonce."""
    return replace(made, revision=b"")


def test_two_revisions_of_one_state_differ_in_nothing_else(twins: tuple[Client, Client]) -> None:
    """What `alike` leaves out is there."""
    made = [client.trim("same", history("openai_chat", 3)) for client in twins]
    assert all(each.revision for each in made)
    assert alike(made[0]) == alike(made[1])


# -- random conversations --------------------------------------------------------------------------------------------

Conversation = list[Any]


def _grow(format: str, messages: Conversation, number: int) -> Conversation:
    return [*messages, *STEPS[format](number)]


def _edit(format: str, messages: Conversation, number: int) -> Conversation:  # noqa: ARG001
    at = number % len(messages)
    return [*messages[:at], {"role": "user", "content": f"In other words, {number}."}, *messages[at + 1 :]]


def _shorten(format: str, messages: Conversation, number: int) -> Conversation:  # noqa: ARG001
    return messages[: max(1, len(messages) - 2 * (1 + number % 3))]


def _branch(format: str, messages: Conversation, number: int) -> Conversation:
    return _grow(format, _shorten(format, messages, number), number)


def _again(format: str, messages: Conversation, number: int) -> Conversation:  # noqa: ARG001
    return messages


def _say(format: str, messages: Conversation, number: int) -> Conversation:  # noqa: ARG001
    return [*messages, {"role": "user", "content": f"And what of {number}?"}]


def _two(format: str, messages: Conversation, number: int) -> Conversation:
    return _grow(format, _grow(format, messages, number), number + 50)


def _mark(format: str, messages: Conversation, number: int) -> Conversation:
    """As agents mark the newest message for the cache: the marks move."""
    if format != "anthropic_messages":
        return _grow(format, messages, number)
    plain = json.loads(json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', ""))
    grown = _grow(format, plain, number)
    grown[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return grown


def _respell(format: str, messages: Conversation, number: int) -> Conversation:  # noqa: ARG001
    at = number % len(messages)
    return [*messages[:at], dict(reversed(messages[at].items())), *messages[at + 1 :]]


MOVES: dict[str, Callable[[str, Conversation, int], Conversation]] = {
    "grow": _grow,
    "grow more": _grow,
    "mark": _mark,
    "say": _say,
    "two": _two,
    "edit": _edit,
    "shorten": _shorten,
    "branch": _branch,
    "again": _again,
    "respell": _respell,
}
moves = st.lists(st.tuples(st.sampled_from(sorted(MOVES)), st.integers(0, 40)), min_size=3, max_size=8)


def _written(prompt: Any) -> bytes | str:
    return prompt if isinstance(prompt, bytes | str) else dumped(prompt)


def _shaped(shape: str, format: str, messages: Conversation, system: str) -> Any:
    member = MESSAGES[format].messages
    body: dict[str, Any] = {
        "model": "m",
        **({"system": system} if format == "anthropic_messages" else {}),
        member: messages,
    }
    body["temperature"] = 0.5
    match shape:
        case "bytes":
            return dumped(body)
        case "text":
            return dumped(body).decode()
        case "spaced":
            return json.dumps(body)
        case "list":
            return messages
        case _:
            return body


_NUMBERS = iter(range(1_000_000))


@pytest.mark.parametrize("format", FORMATS)
@given(
    moves=moves,
    shape=st.sampled_from(["native", "native", "list", "bytes", "text", "spaced"]),
    pinned=st.booleans(),
)
@settings(max_examples=8)
def test_a_conversation_gets_what_whole_prompts_get(
    twins: tuple[Client, Client], format: Any, moves: list[tuple[str, int]], shape: str, pinned: bool
) -> None:
    """Prompt, ids, figures: equal at each call, whatever became of the conversation; and it is not changed."""
    run_id = f"twin-{next(_NUMBERS)}"
    messages, system = history(format, 6), "Be brief."
    for move, number in [("again", 0), *moves]:
        messages = MOVES[move](format, copy.deepcopy(messages), number)
        system = f"Be brief, {number}." if number == 7 else system
        options = {**OPTIONS, **({"annotations": {len(messages) - 1: "pinned"}} if pinned else {})}
        given_ = _shaped(shape, format, messages, system)
        before = copy.deepcopy(given_)
        new, old = (client.trim(run_id, given_, format=format, **options) for client in twins)
        assert alike(old) == alike(new)
        assert _written(old.prompt) == _written(new.prompt)  # the order of members, too
        assert old.trimmed
        assert before == given_


def test_what_is_new_is_sent(twins: tuple[Client, Client]) -> None:
    """A conversation that only grows is sent whole once, in each shape; with moving marks at the second prompt, too."""
    client, _ = twins
    again = client.sent_again_whole
    format: Any
    for format in FORMATS:
        for shape in ("native", "list", "bytes", "text"):
            before, messages = client.sent_new_only, history(format, 4)
            for number in range(5, 11):
                client.trim(f"new-{format}-{shape}", _shaped(shape, format, messages, ""), format=format)
                messages = _grow(format, messages, number)
            assert (format, shape, 5) == (format, shape, client.sent_new_only - before)
    for shape in ("native", "bytes"):
        messages = _mark("anthropic_messages", history("anthropic_messages", 4), 4)
        before = client.sent_new_only
        for number in range(5, 11):
            client.trim(
                f"marked-{shape}", _shaped(shape, "anthropic_messages", messages, ""), format="anthropic_messages"
            )
            messages = _mark("anthropic_messages", messages, number)
        assert (shape, 4) == (shape, client.sent_new_only - before)
    assert again == client.sent_again_whole


# -- sidecars that do not know what was sent -------------------------------------------------------------------------


def _grown(numbers: range) -> Iterator[Conversation]:
    """A conversation, prompt by prompt."""
    messages = history("openai_chat", 2)
    for number in numbers:
        messages = _grow("openai_chat", messages, number)
        yield messages


def test_a_sidecar_that_was_restarted_gets_the_whole_prompt_at_once() -> None:
    """One call more, once; and the prompts are those of a client that sends whole ones to a sidecar that lives on."""
    with serving() as kept, Client(kept.address, deadline=PATIENT, history_bytes=0) as old:
        with serving() as first:
            new = Client(first.address, deadline=PATIENT)
            for messages in _grown(range(3, 9)):
                assert alike(old.trim("r", messages, **OPTIONS)) == alike(new.trim("r", messages, **OPTIONS))
        with new, serving(ServerOptions(listen=first.address, sweep_interval=3_600)):
            for messages in list(_grown(range(3, 15)))[6:]:
                made, expected = new.trim("r", messages, **OPTIONS), old.trim("r", messages, **OPTIONS)
                assert (True, expected.prompt) == (made.trimmed, made.prompt)
                assert [trim.stash_id for trim in expected.trims] == [trim.stash_id for trim in made.trims]
            assert (5 + 5, 1, 12) == (new.sent_new_only, new.sent_again_whole, new.trimmed)


def test_a_run_that_moves_between_two_replicas() -> None:
    """Each move costs a call more; the prompts are those of a run that stays."""
    with serving() as kept, serving() as one, serving() as other:
        old = Client(kept.address, deadline=PATIENT, history_bytes=0)
        client, moved = (Client(each.address, deadline=PATIENT) for each in (one, other))
        moved._engine = client._engine  # noqa: SLF001  # one client, whose calls go to another replica
        with old, client, moved:
            for number, messages in enumerate(_grown(range(3, 19))):
                at = (client, moved)[number // 4 % 2]
                made, expected = at.trim("r", messages, **OPTIONS), old.trim("r", messages, **OPTIONS)
                assert (True, expected.prompt) == (made.trimmed, made.prompt)
            assert (12, 3) == (client.sent_new_only, client.sent_again_whole)


def test_replicas_that_take_calls_in_turn() -> None:
    """Where no call finds its revision, ever more of them are not tried: a prompt takes little more than one call."""
    with serving() as one, serving() as other:
        client, moved = (Client(each.address, deadline=PATIENT) for each in (one, other))
        moved._engine = client._engine  # noqa: SLF001  # as above
        with client, moved:
            for number, messages in enumerate(_grown(range(3, 23))):
                assert (client, moved)[number % 2].trim("r", messages, **OPTIONS).trimmed
            assert 4 == client.sent_again_whole
            assert not client.sent_new_only


@pytest.mark.parametrize("shaped", [lambda messages: messages, dumped])
def test_waiting_ends(shaped: Callable[[Any], Any]) -> None:
    """After each miss twice as many prompts are sent whole, up to a bound; one that is known ends that."""
    shape, sent, waits = MESSAGES["openai_chat"], None, []
    number = 0
    for number in range(1, 150):
        messages = shaped([{"role": "user"}] * number)
        after = prepared(messages, "openai_chat", shape, sent)
        after = sent_again(messages, after, sent) if after.base else after
        assert messages == after.body or dumped(messages) == after.body
        assert after.sent is not None
        waits += [after.sent.wait] if sent is None or after.sent.misses > sent.misses else []
        sent = after.sent.answered(b"r")
    assert [0, 0, 2, 6, 14, MOST_WAIT, MOST_WAIT] == waits[:7]
    while not (
        after := prepared(messages := shaped([{"role": "user"}] * (number := number + 1)), "openai_chat", shape, sent)
    ).base:
        assert after.sent is not None
        sent = after.sent.answered(b"r")
    assert after.sent is not None
    assert (0, 0) == (after.sent.misses, after.sent.wait)


@pytest.mark.parametrize("shape", ["native", "list", "bytes"])
def test_without_the_sidecar_the_same_is_sent(shape: str) -> None:
    """What is kept of a prompt serves the fallback as its whole bytes do, and leaves the agent's objects alone."""
    made: list[list[Any]] = []
    for history_bytes in (0, 1 << 20):
        with serving() as served:
            client = Client(served.address, deadline=PATIENT, history_bytes=history_bytes)
            for messages in _grown(range(3, 14)):
                client.trim("r", _shaped(shape, "openai_chat", messages, ""), **OPTIONS)
        fallen: list[Any] = []
        with client:
            for messages in list(_grown(range(3, 19)))[11:]:
                given_ = _shaped(shape, "openai_chat", messages, "")
                before = copy.deepcopy(given_)
                answer = client.trim("r", given_, **OPTIONS)
                assert not answer.trimmed
                assert before == given_
                fallen.append((answer.fallback, answer.left_out, _written(answer.prompt)))
        made.append(fallen)
    assert made[0] == made[1]
    assert "last_prompt" == made[0][0][0]


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_objects_that_the_agent_changes_afterwards(twins: tuple[Client, Client]) -> None:
    """The history is compared as it was sent: one that was changed in place is sent whole."""
    new, old = twins
    messages = history("openai_chat", 6)
    for number in range(7, 10):
        made, expected = (client.trim("changed", messages, **OPTIONS) for client in twins)
        assert alike(expected) == alike(made)
        messages += STEPS["openai_chat"](number)
        messages[2]["content"] = f"The tool said {number}."
        made.prompt[-1]["content"] = "This is the agent's own copy."
        messages[-1]["content"] = "As the agent sees it."
    assert alike(old.trim("changed", messages, **OPTIONS)) == alike(new.trim("changed", messages, **OPTIONS))


def test_objects_of_an_sdk(twins: tuple[Client, Client]) -> None:
    """They are compared by what they write, and given back as the very objects."""
    new, old = twins
    before, messages = new.sent_new_only, history("openai_chat", 2)
    for number in range(3, 8):
        call, result = STEPS["openai_chat"](number)
        messages = [*messages, Message(**call), result]
        made, expected = (client.trim("objects", messages, **OPTIONS) for client in twins)
        assert dumped(expected.prompt) == dumped(made.prompt)
        assert any(each is messages[-2] for each in made.prompt)
    assert 4 == new.sent_new_only - before
    messages[5].members["content"] = "I look."
    new.trim("objects", [*messages, *STEPS["openai_chat"](8)], **OPTIONS)
    assert 4 == new.sent_new_only - before
    assert not old.sent_new_only


def test_options_that_send_whole_prompts(twins: tuple[Client, Client]) -> None:
    """Dry runs and side calls, the caller's own revision, an empty history, `history_bytes=0`."""
    client, whole_ = twins
    messages = history("openai_chat", 3)
    made = client.trim("options", messages)
    longer = [*messages, *STEPS["openai_chat"](4)]
    before = client.sent_new_only
    client.trim("options", longer, dry_run=True)
    client.trim("options", longer, side_call=True)
    client.trim("options", longer, revision=made.revision)
    assert before == client.sent_new_only
    client.trim("options", [*longer, *STEPS["openai_chat"](5)])
    assert before + 1 == client.sent_new_only
    assert not whole_.sent_new_only


def test_the_memory_has_a_bound() -> None:
    """Runs that were idle for longest are forgotten, and their next prompts sent whole."""
    with serving() as served, Client(served.address, deadline=PATIENT, history_bytes=12_000) as client:
        messages = history("openai_chat", 3)  # some 8 kB
        for run_id in ("a", "b"):
            client.trim(run_id, messages)
        for run_id in ("a", "b"):
            client.trim(run_id, [*messages, *STEPS["openai_chat"](4)])
        assert (0, 2 + 1) == (client.sent_new_only, client.histories_forgotten)
        client.end_run("b")
        client.trim("b", messages)
        assert 0 == client.sent_again_whole


def test_threads_that_share_a_run(twins: tuple[Client, Client]) -> None:
    """Whatever order their prompts come in, each gets one of its own history."""
    client, _ = twins
    wrong: list[Any] = []

    def agent(name: str) -> None:
        messages = [{"role": "user", "content": name}]
        for number in range(1, 9):
            messages = _grow("openai_chat", messages, number)
            made = client.trim("shared", messages)
            sent = [each for each in made.prompt if each["role"] != "system"]
            wrong.extend([] if sent == messages else [(name, number)])

    threads = [threading.Thread(target=agent, args=(name,)) for name in ("one", "two")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [] == wrong


# -- what is written -------------------------------------------------------------------------------------------------


@given(values=st.lists(st.fixed_dictionaries({"content": values}), min_size=1, max_size=4), data=st.data())
def test_bytes_and_objects_go_on_alike(values: list[Any], data: st.DataObject) -> None:
    """Any JSON: the body that is sent holds the newest messages, and is otherwise the one that was given."""
    shape = MESSAGES["openai_chat"]
    known = data.draw(st.integers(1, len(values)))
    tail = data.draw(st.sampled_from([{}, {"n": "ä", "tools": [{"a": 1}]}]))
    shapes: list[Callable[[Any], Any]] = [lambda body: body, dumped, lambda body: dumped(body).decode()]
    for shaped in shapes:
        first, second = (
            shaped({"m": "é", "messages": messages, **tail}) for messages in (values[:known], [*values, {"x": []}])
        )
        sent = prepared(first, "openai_chat", shape, None)
        assert (dumped({"m": "é", "messages": values[:known], **tail}), b"") == (sent.body, sent.base)
        assert sent.sent is not None
        after = prepared(second, "openai_chat", shape, sent.sent.answered(b"r"))
        assert (b"r", dumped({"m": "é", "messages": [*values[known:], {"x": []}], **tail})) == (after.base, after.body)
        assert whole_body(second) == prepared(second, "openai_chat", shape, None).body


@given(one=values, other=values)
def test_only_what_is_written_alike_goes_on(one: Any, other: Any) -> None:
    """Two messages are the same if their JSON is."""
    shape = MESSAGES["openai_chat"]
    sent = prepared([{"content": one}], "openai_chat", shape, None).sent
    assert sent is not None
    for each in (other, copy.deepcopy(one), [one], {"a": one}):
        after = prepared([{"content": each}, {}], "openai_chat", shape, sent.answered(b"r"))
        assert (dumped(each) == dumped(one)) == (after.base == b"r")


@pytest.mark.parametrize("pair", [(1, True), (0, False), (1, 1.0), (0.0, -0.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1})])
def test_what_python_takes_for_equal_is_not(pair: tuple[Any, Any]) -> None:
    """These are equal, and written differently."""
    shape = MESSAGES["openai_chat"]
    assert pair[0] == pair[1]
    for one, other in (pair, pair[::-1]):
        sent = prepared([{"content": one}], "openai_chat", shape, None).sent
        assert sent is not None
        assert b"" == prepared([{"content": other}, {}], "openai_chat", shape, sent.answered(b"r")).base


def test_few_revisions_are_kept() -> None:
    """The newest, however long the run is."""
    shape, sent = MESSAGES["openai_chat"], None
    for number in range(1, 3 * MOST_REVISIONS):
        made = prepared([{"role": "user"}] * number, "openai_chat", shape, sent).sent
        assert made is not None
        sent = made.answered(b"%d" % number)
    assert sent is not None
    assert list(range(2 * MOST_REVISIONS, 3 * MOST_REVISIONS)) == [known.messages for known in sent.revisions]


@pytest.mark.parametrize("shaped", [lambda messages: messages, dumped])
def test_a_history_with_calls_that_this_client_did_not_ask_for(shaped: Callable[[Any], Any]) -> None:
    """Another process may have sent their prompts, and have a newer revision than this one."""
    shape, (one, two, three) = MESSAGES["openai_chat"], (STEPS["openai_chat"](number) for number in (1, 2, 3))
    sent = prepared(shaped(one), "openai_chat", shape, None).sent
    assert sent is not None
    for messages, base in (([*one, *two], b"r"), ([*one, *two, *three], b"")):
        assert base == prepared(shaped(messages), "openai_chat", shape, sent.answered(b"r")).base


# -- masks -----------------------------------------------------------------------------------------------------------


@given(moves=moves, shape=st.sampled_from(["native", "bytes"]))
@settings(max_examples=8)
def test_masked_conversations_are_alike(
    masking: tuple[Client, Client], moves: list[tuple[str, int]], shape: str
) -> None:
    """Also where the guard masks what was sent, and the edits that do so."""
    run_id = f"masked-{next(_NUMBERS)}"
    messages = history("openai_chat", 4)
    for move, number in [("again", 0), *moves]:
        messages = MOVES[move]("openai_chat", copy.deepcopy(messages), number)
        messages[-1]["content"] = f"the token is {KEY} and more, {number}"
        given_ = _shaped(shape, "openai_chat", messages, "")
        new, old = (client.trim(run_id, given_, **OPTIONS) for client in masking)
        assert alike(old) == alike(new)
        assert KEY not in json.dumps(json.loads(_written(new.prompt)))
