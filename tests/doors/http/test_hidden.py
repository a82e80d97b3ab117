"""Hidden turns are put back where they were, and no more of them is kept than the settings say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from prompt_sidecar.answers.base import Dialect
from prompt_sidecar.answers.gemini_contents import GeminiContents
from prompt_sidecar.answers.openai_chat import OpenAIChat
from prompt_sidecar.answers.openai_responses import OpenAIResponses
from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.doors.http.hidden import HiddenTurns, Splice
from prompt_sidecar.doors.http.placing import SentEntry
from prompt_sidecar.guard.options import GuardOptions
from tests.client.provider import Says
from tests.doors.http.habits import ALONE, APIS, BOTH, Turn
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_gateways import SECRET
from tests.doors.http.upstream import scripted

RUN = ("local", "run")


def _written(*entries: Any) -> list[bytes]:
    return [json.dumps(each).encode() for each in entries]


def _answer_of(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _asked(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _restored(
    kept: HiddenTurns, run: tuple[str, str], dialect: Dialect, history: Callable[[], list[bytes]]
) -> list[bytes] | None:
    made = kept.restored(run, dialect, history)
    return None if made is None else made.entries


def kept_of(here: Proxied) -> HiddenTurns:
    """What the door keeps."""
    handler = here.door._handler  # noqa: SLF001 - nothing else shows it
    assert handler is not None
    return handler._prompter.hidden  # noqa: SLF001 - as above


def _dialect(api: str) -> Dialect:
    names = {"chat": "openai_chat", "responses": "openai_responses", "messages": "anthropic_messages"}
    return DIALECTS[names.get(api) or {"gemini": "gemini_contents", "bedrock": "bedrock_converse"}[api]]


def test_answers_with_the_same_words_get_their_own() -> None:
    """In their order; what the agent has no more, or never had, changes nothing."""
    kept, dialect = HiddenTurns(1_000_000, 1_000_000), OpenAIChat()
    for number in range(3):
        kept.keep(RUN, Splice(("Gone",), (b"gone",)))
        kept.keep(RUN, Splice(("OK",), (b"hidden %d" % number, b"OK")))
    history = _written(_asked("a"), _answer_of("OK"), _asked("OK"), _answer_of("OK "), _asked("c"))

    restored = _restored(kept, RUN, dialect, lambda: history)
    assert [history[0], b"hidden 0", b"OK", history[2], b"hidden 1", b"OK", history[4]] == restored
    assert _restored(kept, RUN, dialect, lambda: _written(_asked("OK"), _answer_of("No"))) is None
    assert _restored(kept, ("other", "run"), dialect, lambda: history) is None


def test_reasoning_before_and_in_an_answer_belongs_to_it() -> None:
    """An agent may send it back or leave it out."""
    kept, dialect = HiddenTurns(1_000_000, 1_000_000), OpenAIResponses()
    call = {"type": "function_call", "call_id": "1", "name": "t"}
    gists = tuple(str(dialect.gist(each)) for each in (_answer_of("One"), call))
    kept.keep(RUN, Splice(gists, (b"all",)))
    reasoning = {"type": "reasoning"}

    for sent in ([_answer_of("One"), call], [reasoning, reasoning, _answer_of("One"), reasoning, call]):
        history = _written(_asked("a"), *sent, _asked("b"))
        assert [history[0], b"all", history[-1]] == _restored(kept, RUN, dialect, history.copy)
    cut = _written(_asked("a"), reasoning, _answer_of("One"), reasoning)
    assert _restored(kept, RUN, dialect, lambda: cut) is None


def test_an_answer_that_looks_like_another_is_known_by_its_place() -> None:
    """Calls without ids may be the same twice; where the agent has changed its history, order alone is left."""
    kept, dialect = HiddenTurns(1_000_000, 1_000_000), GeminiContents()
    call = {"functionCall": {"name": "status", "args": {"of": 1.0, "all": True}}}
    sent = {"functionCall": {"name": "status", "args": {"all": True, "of": 1}, "id": "made-up"}}
    entry = {"role": "model", "parts": [sent]}
    asked = {"role": "user", "parts": [{"text": "a"}]}
    kept.keep(RUN, Splice((str(dialect.gist({"parts": [call]})),), (b"hidden", b"call"), place=3))
    history = _written(asked, entry, asked, entry, asked)

    assert [*history[:3], b"hidden", b"call", history[4]] == _restored(kept, RUN, dialect, lambda: history)
    shorter = history[2:]
    assert [shorter[0], b"hidden", b"call", shorter[2]] == _restored(kept, RUN, dialect, lambda: shorter)
    other = {"functionCall": {"name": "status", "args": {"of": 1.5, "all": True}}}
    different = _written(asked, {"role": "model", "parts": [other]})
    assert _restored(kept, RUN, dialect, lambda: different) is None


def test_hidden_turns_that_the_agent_holds_itself_are_not_put_in_again() -> None:
    """Providers refuse an item that comes twice. What belongs to another answer is put in all the same."""
    kept, dialect = HiddenTurns(1_000_000, 1_000_000), OpenAIResponses()
    reasoning = {"type": "reasoning", "id": "rs_1"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "recall_elided_content", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    hidden, answer = [reasoning, call, result], {"id": "msg_1", "type": "message", **_answer_of("Done")}
    gists = tuple(str(dialect.gist(each)) for each in (call, answer))
    for place in (1, -1):
        entries = tuple(_written(*hidden, answer))
        kept.keep(RUN, Splice(gists[1:], entries, place=place, hidden=gists[:1], hidden_entries=len(hidden)))
    whole = _written(_asked("a"), *hidden, answer)
    assert whole == (_restored(kept, RUN, dialect, whole.copy) or whole)
    assert whole == _restored(kept, RUN, dialect, lambda: [whole[0], whole[-1]])
    without_reasoning = [whole[0], *whole[2:]]
    assert without_reasoning == (_restored(kept, RUN, dialect, without_reasoning.copy) or without_reasoning)
    twice = [*whole, whole[0], whole[-1]]
    assert [*whole, *whole] == _restored(kept, RUN, dialect, twice.copy)


def test_hidden_calls_that_the_agent_holds_elsewhere_are_not_put_in_again() -> None:
    """Such as behind their answer: providers refuse an id that comes twice."""
    kept, dialect = HiddenTurns(1_000_000, 1_000_000), OpenAIResponses()
    looks = {"id": "msg_1", "type": "message", **_answer_of("I look.")}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "recall_elided_content", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    answer = {"id": "msg_2", "type": "message", **_answer_of("Done")}
    gists = [str(dialect.gist(each)) for each in (looks, call, answer)]
    entries = tuple(_written(looks, call, result, answer))
    kept.keep(RUN, Splice((gists[0], gists[2]), entries, place=1, hidden=tuple(gists[:2]), hidden_entries=3))

    shown = _written(_asked("a"), looks, answer)
    assert [shown[0], *entries] == _restored(kept, RUN, dialect, shown.copy)
    moved = [*shown, *_written(call, result)]
    assert _restored(kept, RUN, dialect, moved.copy) is None


def test_hidden_calls_do_not_come_first_where_the_provider_takes_none_there() -> None:
    """An agent that has left out what was before an answer keeps the answer as it was shown."""
    kept, dialect = HiddenTurns(1_000_000, 1_000_000), GeminiContents()
    entry = {"role": "model", "parts": [{"text": "Done"}]}
    asked = {"role": "user", "parts": [{"text": "a"}]}
    kept.keep(RUN, Splice((str(dialect.gist(entry)),), (b"hidden", b"Done"), place=1))

    assert _restored(kept, RUN, dialect, lambda: _written(entry, asked)) is None
    before = _written({"role": "model", "parts": [{"text": "First"}]}, entry, asked)
    assert _restored(kept, RUN, dialect, lambda: before) is None
    whole = _written(asked, entry, asked)
    assert [whole[0], b"hidden", b"Done", whole[2]] == _restored(kept, RUN, dialect, lambda: whole)


def test_pieces_of_an_answer_are_one() -> None:
    """Google's SDKs keep each piece of a stream as a content."""
    kept, dialect = HiddenTurns(1_000_000, 1_000_000), GeminiContents()
    thought, one, two = {"text": "Hm.", "thought": True}, {"text": "Hel"}, {"text": "lo "}
    gist = str(dialect.gist({"parts": [{"text": "Hello"}]}))
    kept.keep(RUN, Splice((gist,), (b"all",), place=1))
    pieces = [{"role": "model", "parts": [part]} for part in (thought, one, two)]
    asked = {"role": "user", "parts": [{"text": "a"}]}
    history = _written(asked, *pieces, asked)

    assert [history[0], b"all", history[-1]] == _restored(kept, RUN, dialect, lambda: history)
    assert _restored(kept, RUN, dialect, lambda: history[:3]) is None


def test_many_of_both_take_no_time_together() -> None:
    """A history that holds none of ten thousand splices is gone through once."""
    kept = HiddenTurns(1 << 30, 1 << 30)
    for number in range(10_000):
        kept.keep(RUN, Splice((f"splice {number}",), (b"x",)))
    history = _written(*(_answer_of(f"said {number}") for number in range(20_000)))

    assert _restored(kept, RUN, OpenAIChat(), lambda: history) is None


def test_the_oldest_go_first_and_their_run_says_so_once() -> None:
    """Within the bounds of one run and of all."""
    reached: list[str] = []
    kept = HiddenTurns(3_000, 4_200, reached.append)
    for number in range(3):
        kept.keep(RUN, Splice((str(number),), (b"x" * 600,)))
    assert ["http.run_hidden_bytes"] == reached
    assert [True, False] == [kept.lost(RUN), kept.lost(RUN)]

    kept.keep(("local", "other"), Splice(("0",), (b"x" * 1_700,)))
    assert "http.hidden_bytes" == reached[-1]
    assert kept.lost(RUN)
    assert not kept.lost(("local", "other"))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("hidden", [(BOTH,), ALONE], ids=["beside", "alone"])
def test_what_is_saved_is_put_back_elsewhere(api: str, hidden: Sequence[Says]) -> None:
    """A process that loads it makes the same history of an agent's; a run that has its own keeps it."""
    spoken, run = APIS[api], ("local", "habits")
    with proxied(scripted()) as here:
        spoken.upstream(here, scripted(*hidden, Says("Done.")), stream=False)
        history = [spoken.asked("Go")]
        spoken.exchange(here, history, stream=False)
        kept = kept_of(here)
        history += [*spoken.answer_entries(Turn()), spoken.result(Turn(), "line 1")]
        saved = kept.saved(run)
        here_made = kept.restored(run, _dialect(api), lambda: _written(*history), only_look=True)
    other = HiddenTurns(1_000_000, 1_000_000)
    other.load(run, saved)

    there_made = other.restored(run, _dialect(api), lambda: _written(*history), only_look=True)
    assert here_made is not None
    assert there_made is not None
    assert here_made.entries == there_made.entries
    assert saved == other.saved(run)
    other.load(run, b"[]")
    assert saved == other.saved(run)
    assert b"" == other.saved(("local", "other"))
    assert other.kept_bytes(run) == kept.kept_bytes(run) > 0


def test_what_two_processes_keep_of_a_run_is_joined() -> None:
    """In the order of both; what is saved is what each lacks of the other's, within the bound on a run."""
    first, second = Splice(("0",), (b"0",), place=1), Splice(("1",), (b"1",), place=3)
    third, fourth = Splice(("2",), (b"2",), place=5), Splice(("3",), (b"3",), place=7)
    one, other = HiddenTurns(1_000_000, 1_000_000), HiddenTurns(1_000_000, 1_000_000)
    for splice in (first, second, fourth):
        one.keep(RUN, splice)
    for splice in (first, third):
        other.keep(RUN, splice)
    saved = one.saved(RUN)
    assert not one.unsaved(RUN)
    other.load(RUN, saved)
    assert other.unsaved(RUN)
    joined = other.saved(RUN)
    one.load(RUN, joined)
    assert not one.unsaved(RUN)
    assert joined == one.saved(RUN)
    assert [first, third, second, fourth] == [each.splice for each in one._runs[RUN].splices]  # noqa: SLF001
    assert one.kept_bytes(RUN) == other.kept_bytes(RUN)

    one.keep(RUN, Splice(("4",), (b"4",), place=9), stays=True)
    assert joined == one.saved(RUN)
    one.load(RUN, joined)
    assert not one.unsaved(RUN)

    small = HiddenTurns(2 * fourth.size, 1_000_000)
    small.load(RUN, joined)
    assert [second, fourth] == [each.splice for each in small._runs[RUN].splices]  # noqa: SLF001
    assert small.lost(RUN)


@pytest.mark.parametrize("data", [b"[{}]", b"[1]", b"no", b"1"])
def test_what_is_no_hidden_turn_is_not_loaded(data: bytes) -> None:
    """It is an error, and nothing is kept."""
    kept = HiddenTurns(1_000_000, 1_000_000)
    with pytest.raises(ValueError, match=r"saved|value|JSON|column"):
        kept.load(RUN, data)
    assert b"" == kept.saved(RUN)


def test_half_characters_are_saved() -> None:
    """A provider may cut a character in two, and an agent may send that back."""
    kept, other = HiddenTurns(1_000_000, 1_000_000), HiddenTurns(1_000_000, 1_000_000)
    kept.keep(RUN, Splice(("\ud83d",), (b"all",), seen=(SentEntry("\ud83d", "\ud83d"),)))
    other.load(RUN, kept.saved(RUN))
    assert kept.saved(RUN) == other.saved(RUN)


@pytest.mark.parametrize("api", APIS)
def test_hidden_turns_are_kept_with_masks(api: str) -> None:
    """A secret that the model has written is masked in what is kept, as in the next prompt."""
    spoken, run = APIS[api], ("local", "habits")
    answer = Says(f"Use {SECRET}.", BOTH.calls)
    with proxied(scripted(), guard=GuardOptions(mode="enforce")) as here:
        sent = spoken.upstream(here, scripted(answer, Says("Done.")), stream=False)
        history = [spoken.asked("Go")]
        spoken.exchange(here, history, stream=False)
        kept = kept_of(here)
        entries = b"".join(kept._runs[run].splices[0].splice.entries)  # noqa: SLF001 - as above
        history += [*spoken.answer_entries(Turn(f"Use {SECRET}.")), spoken.result(Turn(), "line 1")]
        spoken.exchange(here, history, stream=False)
        bodies, defects = sent()

    assert SECRET.encode() not in entries
    assert b"c2" in entries or b"search_conversation_history" in entries
    assert SECRET not in json.dumps(bodies)
    assert "search_conversation_history" in json.dumps(spoken.entries(bodies[-1]))
    assert [] == defects
