"""Repeated calls: the same call with the same result again is found, and nothing else; a rewind forgets."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.engine.steps.recording import is_own_tool
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Role
from prompt_sidecar.trim.repeated_calls import RepeatedCalls, RepeatedFigures, Repetition, arguments_of
from tests.oracle.runs import recorded, recorded_paths

OPENAI, ANTHROPIC = "openai_chat", "anthropic_messages"


def call(call_id: str, arguments: object, tool: str = "read") -> dict[str, Any]:
    """A call of OpenAI's; arguments as JSON, or as the text that they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": tool, "arguments": text}}


def asks(*calls: dict[str, Any]) -> dict[str, Any]:
    """An assistant message that makes calls."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def gives(call_id: str, content: object) -> dict[str, Any]:
    """A tool's answer."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def read_all(messages: Sequence[Any], format: str = OPENAI) -> list[Message]:
    """Messages as the reader makes them."""
    return [FORMATS[format].read(json.dumps(message).encode(), "message") for message in messages]


def iterations(messages: Sequence[Message]) -> list[int]:
    """The iteration of each message, as the memory numbers them."""
    made, last, number = [], None, 0
    for message in messages:
        number += message.role is Role.ASSISTANT and last is not Role.ASSISTANT
        last = message.role
        made.append(max(number, 1))
    return made


def weights_of(message: Message) -> list[int]:
    """Tokens of each item, for these tests its characters."""
    return [len(item.text) for item in message.items]


def observed(messages: Sequence[Message], calls: RepeatedCalls | None = None, start: int = 0) -> list[list[Repetition]]:
    """What is found at each message from `start` on."""
    calls = RepeatedCalls() if calls is None else calls
    numbers = iterations(messages)
    return [
        calls.observe(messages[index], weights_of(messages[index]), index, numbers[index])
        for index in range(start, len(messages))
    ]


def found(messages: Sequence[Any], format: str = OPENAI, **fields: Any) -> list[Repetition]:
    """All repetitions of a history."""
    each = observed(read_all(messages, format), RepeatedCalls(**fields))
    return [repetition for repetitions in each for repetition in repetitions]


# -- the slow twin ---------------------------------------------------------------------------------------------------


def recount(messages: Sequence[Message]) -> list[Repetition]:
    """Pair by search through all calls made so far, compare whole texts with every result so far."""
    numbers = iterations(messages)
    open_calls: list[tuple[str, int, str, Any]] = []
    results: list[tuple[tuple[Any, ...], int, tuple[tuple[int, int], ...]]] = []
    made: list[Repetition] = []
    for index, message in enumerate(messages):
        arguments = [item for item in message.items if item.kind is ItemKind.ARGUMENTS]
        assert [item.call_id for item in arguments] == list(message.calls)
        open_calls += [(item.call_id, numbers[index], item.tool, _value(item.text)) for item in arguments]
        for number, call_id in enumerate(message.answers):
            with_id = [each for each in open_calls if each[0] == call_id]
            if not with_id:
                continue
            newest = max(block for _, block, _, _ in with_id)
            taken = next(place for place, each in enumerate(open_calls) if each[:2] == (call_id, newest))
            _, _, tool, value = open_calls.pop(taken)
            places = [place for place, item in enumerate(message.items) if item.result == number]
            holds = tuple((message.items[place].kind, message.items[place].text) for place in places)
            unknown = message.other if ItemKind.OPAQUE in {item.kind for item in message.items} else ""
            same = (tool, value, holds, unknown)
            before = [each for each in results if each[0] == same]
            if before:
                tokens = sum(len(text) for _, text in holds)
                made.append(
                    Repetition(tool, numbers[index], before[0][1], len(before) + 1, tokens, index, before[-1][2])
                )
            texts = tuple((index, place) for place in places if message.items[place].kind is ItemKind.RESULT)
            results.append((same, numbers[index], texts))
    return made


def _value(text: str) -> Any:
    try:
        return json.dumps(json.loads(text or "{}"), sort_keys=True)
    except ValueError:
        return text


_ids = st.sampled_from(["a", "b", ""])
_arguments = st.sampled_from(
    ['{"path":"a"}', '{"path":"b"}', '{"x":1,"path":"a"}', '{"path": "a", "x": 1}', "", "{}", "{"]
)
_texts = st.sampled_from(["one", "two", ""])
_calls = st.builds(call, _ids, _arguments, st.sampled_from(["read", "list"]))
_messages = st.one_of(
    st.builds(asks, _calls),
    st.lists(_calls, min_size=1, max_size=3).map(lambda calls: asks(*calls)),
    st.builds(gives, _ids, _texts),
    st.builds(gives, _ids, _texts),
    st.builds(gives, _ids, st.lists(_texts.map(lambda text: {"type": "text", "text": text}), max_size=2)),
    st.just({"role": "user", "content": "Go on."}),
)
_turns = st.builds(
    lambda call_id, arguments, text: [asks(call(call_id, arguments)), gives(call_id, text)], _ids, _arguments, _texts
)
_histories = st.lists(st.one_of(_turns, _messages.map(lambda message: [message])), max_size=16).map(
    lambda pieces: [message for piece in pieces for message in piece]
)


@given(_histories)
def test_the_same_as_a_search_through_all(history: list[Any]) -> None:
    """What is found from digests, message by message, is what comparing every result with all before it finds."""
    messages = read_all(history)
    each = observed(messages)
    assert recount(messages) == [repetition for repetitions in each for repetition in repetitions]


@given(_histories, st.lists(st.tuples(st.integers(0, 24), _histories), max_size=4))
def test_after_a_rewind_as_a_fresh_process(history: list[Any], branches: list[tuple[int, list[Any]]]) -> None:
    """After any rewinds and branches the state is what a fresh process makes of the history that is left."""
    messages, calls = read_all(history), RepeatedCalls()
    observed(messages, calls)
    for length, branch in branches:
        calls.rewind(length)
        fresh = RepeatedCalls()
        kept = messages[:length]
        observed(kept, fresh)
        assert fresh == calls
        messages = [*kept, *read_all(branch)]
        assert observed(messages, fresh, len(kept)) == observed(messages, calls, len(kept))
    repetitions = recount(messages)
    assert RepeatedFigures(len(repetitions), sum(each.tokens for each in repetitions)) == calls.figures


@given(_histories, _histories)
def test_a_copy_goes_its_own_way(history: list[Any], more: list[Any]) -> None:
    """What a dry run's copy observes is unknown to the run."""
    messages = read_all(history + more)
    calls = RepeatedCalls(is_own_tool)
    observed(messages[: len(history)], calls)
    copied = copy.deepcopy(calls)
    first = observed(messages, copied, len(history))
    calls.rewind(len(history))
    assert first == observed(messages, calls, len(history))


# -- what counts as the same -----------------------------------------------------------------------------------------


def test_the_facts_of_a_repetition() -> None:
    """Tool, iterations, how often, tokens of the result, and where the result before it stands."""
    text = "line\n" * 20
    history = [
        {"role": "user", "content": "Task."},
        *(
            message
            for number in range(3)
            for message in (asks(call(f"c{number}", {"p": 1})), gives(f"c{number}", text))
        ),
    ]
    assert [
        Repetition("read", 2, 1, 2, len(text), 4, ((2, 0),)),
        Repetition("read", 3, 1, 3, len(text), 6, ((4, 0),)),
    ] == found(history)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":[2]}', '{ "b": [2.0], "a": 1 }'),
        ('{"a":"é"}', '{"a":"\\u00e9"}'),
        ("", "{}"),
        ("not json", "not json"),
    ],
)
def test_arguments_however_they_are_spelled(one: str, other: str) -> None:
    """Key order, white space, escapes and number spelling make no other call; what is no JSON is compared as it is."""
    assert 1 == len(found([asks(call("a", one)), gives("a", "x"), asks(call("b", other)), gives("b", "x")]))


@pytest.mark.parametrize(
    ("second", "result"),
    [
        (call("b", {"p": 2}), "x"),
        (call("b", {"p": 1}, "list"), "x"),
        (call("b", {"p": 1}), "y"),
        (call("b", {"p": 1}), [{"type": "text", "text": "x"}, {"type": "text", "text": "x"}]),
        (call("b", {"p": 1}), [{"type": "text", "text": "x"}, {"type": "audio", "data": "…"}]),
        (call("b", '{"p": 1, "p": 1}'), "x"),
    ],
)
def test_what_is_not_the_same(second: dict[str, Any], result: object) -> None:
    """Other arguments, another tool, another result, an unknown block, a duplicate key: no repetition."""
    assert [] == found([asks(call("a", {"p": 1})), gives("a", "x"), asks(second), gives("b", result)])


def test_unknown_blocks_are_compared_too() -> None:
    """Results that hold blocks that no reader knows are the same if these are."""
    result = [{"type": "text", "text": "x"}, {"type": "audio", "data": "…"}]
    history = [asks(call("a", {})), gives("a", result), asks(call("b", {})), gives("b", result)]
    assert [((1, 0),)] == [repetition.older for repetition in found(history)]


def test_what_comes_between_does_not_matter() -> None:
    """A file that was changed and changed back reads as it did at first."""
    texts = ["one", "two", "one", "one"]
    history = [
        message
        for number, text in enumerate(texts)
        for message in (asks(call(f"c{number}", {"p": 1})), gives(f"c{number}", text))
    ]
    assert [(3, 1, 2, ((1, 0),)), (4, 1, 3, ((5, 0),))] == [
        (each.iteration, each.first_iteration, each.times, each.older) for each in found(history)
    ]


def test_calls_without_ids_are_answered_in_order() -> None:
    """Parallel calls with empty ids: the first result is the first call's, in whatever messages they stand."""
    two = [call("", {"p": 1}), call("", {"p": 2})]
    one_by_one = [asks(two[0]), asks(two[1])]
    answers = [gives("", "first"), gives("", "second")]
    again = [asks(two[1]), gives("", "second")]
    for asked in ([asks(*two)], one_by_one):
        history = [*asked, *answers, *again]
        assert [((len(asked) + 1, 0),)] == [repetition.older for repetition in found(history)]


def test_a_late_result_is_that_of_the_newest_block() -> None:
    """An id that is used again: its result answers the newest call with it, an older unanswered one later."""
    history = [
        asks(call("a", {"p": 1})),
        asks(call("b", {"p": 9})),
        {"role": "user", "content": "Go on."},
        asks(call("a", {"p": 2})),
        gives("a", "of the second"),
        gives("a", "of the first"),
        asks(call("c", {"p": 1})),
        gives("c", "of the first"),
    ]
    assert [((5, 0),)] == [repetition.older for repetition in found(history)]


def test_results_without_a_call_are_passed() -> None:
    """A result whose call is not in the history, or was answered already, is none of a repetition."""
    assert [] == found([gives("a", "x"), asks(call("a", {})), gives("a", "x"), gives("a", "x")])


def test_a_call_of_an_unknown_kind_makes_its_id_unclear() -> None:
    """Where a call without readable arguments shares an id, no result with that id is compared."""
    unknown = {"id": "", "type": "invented", "invented": {"name": "shell", "input": "ls"}}
    turn = [asks(unknown, call("", {"p": 1})), gives("", "x"), gives("", "x")]
    assert [] == found([*turn, *turn])
    clear = [asks(unknown, call("b", {"p": 1})), gives("", "x"), gives("b", "x")]
    assert [((2, 0),)] == [repetition.older for repetition in found([*clear, *clear])]


def test_our_own_tools_are_left_out() -> None:
    """What recall shows twice is bounded elsewhere; such calls are paired and not compared."""
    turn = [asks(call("a", {"query": "x"}, "mcp__search_history"), call("b", {})), gives("a", "x"), gives("b", "y")]
    own = found([*turn, *turn], is_own_tool=lambda name: name.endswith("search_history"))
    assert (["read"], 2) == ([each.tool for each in own], len(found([*turn, *turn])))


def test_an_empty_result_is_reported_with_nothing_to_clip() -> None:
    """A call that returns nothing twice is a repetition of no tokens."""
    (repetition,) = found([asks(call("a", {})), gives("a", ""), asks(call("b", {})), gives("b", "")])
    assert ((), 0, 2) == (repetition.older, repetition.tokens, repetition.times)


def test_a_long_name_is_cut() -> None:
    """A tool's name that is no plain name is reported cut, and compared whole."""
    names = ["n" * 100 + "a", "n" * 100 + "b", "n" * 100 + "a"]
    history = [
        message
        for number, name in enumerate(names)
        for message in (asks(call(f"c{number}", {}, name)), gives(f"c{number}", "x"))
    ]
    assert [("n" * 65, 3, 1)] == [(each.tool, each.iteration, each.first_iteration) for each in found(history)]


def test_anthropic_results_of_one_message() -> None:
    """Several results in one user turn, of texts and images: each is compared by itself, its texts are pointed to."""

    def use(call_id: str, path: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": "read", "input": {"path": path}}

    def result(call_id: str, content: object) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call_id, "content": content}

    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    shown = [{"type": "text", "text": "one"}, image, {"type": "text", "text": "two"}]
    history = [
        {"role": "assistant", "content": [use("a", "x"), use("b", "y")]},
        {"role": "user", "content": [result("b", "of y"), result("a", shown)]},
        {"role": "assistant", "content": [use("c", "y"), use("d", "x")]},
        {"role": "user", "content": [result("c", "of y, changed"), result("d", shown)]},
    ]
    (repetition,) = found(history, ANTHROPIC)
    assert (((1, 1), (1, 3)), 2, 1) == (repetition.older, repetition.iteration, repetition.first_iteration)


@pytest.mark.parametrize("path", recorded_paths(), ids=lambda path: path.name.split(".")[0])
def test_recorded_runs(path: Any) -> None:
    """On recorded runs the same as the search through all, and after a rewind to the middle again."""
    run = recorded(path)
    messages = read_all(run.messages, run.format)
    calls = RepeatedCalls()
    each = observed(messages, calls)
    assert recount(messages) == [repetition for repetitions in each for repetition in repetitions]
    calls.rewind(len(messages) // 2)
    assert each[len(messages) // 2 :] == observed(messages, calls, len(messages) // 2)


def _paired(calls: Sequence[str], items: Sequence[Item]) -> list[Item | None]:
    """Each call's arguments the slow way: the one among those with its id that stands where it does among the calls."""
    paired: list[Item | None] = []
    for place, call_id in enumerate(calls):
        of_id = [item for item in items if item.kind is ItemKind.ARGUMENTS and item.call_id == call_id]
        all_known = len(of_id) == calls.count(call_id)
        paired.append(of_id[calls[:place].count(call_id)] if all_known else None)
    return paired


_some_ids = st.lists(_ids, max_size=4)


@given(_some_ids, _some_ids, st.booleans())
def test_which_arguments_are_whose(calls: list[str], ids: list[str], same: bool) -> None:
    """Calls and arguments pair by id and order; where a call has none, none with its id is paired."""
    items = [
        Item(ItemKind.ARGUMENTS if number % 3 or same else ItemKind.TEXT, (number,), "{}", call_id=call_id)
        for number, call_id in enumerate(calls if same else ids)
    ]
    message = Message(Role.ASSISTANT, tuple(items), b"", calls=tuple(calls))
    assert _paired(calls, items) == list(arguments_of(message))
