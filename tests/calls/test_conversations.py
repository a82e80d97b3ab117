"""Which conversation a request continues, and whom its credential names."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.calls.conversations import Conversations, Opening, opening_of, session_of
from prompt_sidecar.calls.credentials import credential_caller
from prompt_sidecar.prompt.members import Members

KEY = b"k" * 32


def conversations(most: int = 100, reached: list[None] | None = None) -> Conversations:
    """Return some that know none."""
    names = [] if reached is None else reached
    return Conversations(KEY, most, "test-", lambda: names.append(None))


def opening(
    user: str = "Hello", answer: str = "", *, tools: bool = True, session: str = "", system: str = ""
) -> Opening:
    """What a request begins with."""
    return Opening("local", session, system.encode(), tools, user.encode(), answer.encode())


def test_the_first_answer_adopts_the_first_call() -> None:
    """It is the same run from then on, and a retry of the first call is, too."""
    known = conversations()
    runs = [known.of(opening(answer=each)).run_id for each in ("", "", "one", "one")]

    assert 1 == len(set(runs))


def test_conversations_are_distinguished() -> None:
    """By answer, words, tools, system prompt and session; a session's system prompt may change."""
    known = conversations()
    first = known.of(opening()).run_id
    assert first == known.of(opening(answer="one")).run_id
    others = [
        opening(answer="two"),
        opening(),
        opening("Good morning"),
        opening(tools=False),
        opening(system="other"),
        opening(session="s"),
    ]
    runs = [known.of(each).run_id for each in others]

    assert len(others) + 1 == len({first, *runs})
    assert runs[-1] == known.of(opening(session="s", system="changed")).run_id


COMPACTED = {"type": "compaction", "encrypted_content": "gAAA"}


def _goes_on(*before: Any) -> Opening:
    members = Members(json.dumps({"input": [*before, COMPACTED, {"role": "user", "content": "On."}]}).encode())
    return opening_of(DIALECTS["openai_responses"], members, "local", "")


def test_a_run_goes_on_from_its_compaction() -> None:
    """Whatever stands before that, until the run ends; another caller's compaction is none of it."""
    known = conversations(2)
    run_id = known.of(opening(answer="one")).run_id
    known.compacted(("local", run_id), "gAAA")
    assert run_id == known.of(_goes_on()).run_id
    assert run_id == known.of(_goes_on({"role": "user", "content": "Something else."})).run_id
    known.compacted(("other", "run"), "gAAA")
    assert run_id == known.of(_goes_on()).run_id
    for each in ("b", "c"):
        known.compacted(("local", "gone"), each)
    assert run_id != known.of(_goes_on()).run_id


def test_a_run_that_has_ended_does_not_go_on() -> None:
    """Nothing of it may be used again."""
    known = conversations()
    run_id = known.of(opening(answer="one")).run_id
    known.compacted(("local", run_id), "gAAA")
    known.forget(("local", run_id))
    assert run_id != known.of(_goes_on()).run_id


def test_a_request_that_lacks_tools_and_system_prompt() -> None:
    """It is of the one conversation that it may be of, where it is not a turn of its own."""
    known = conversations()
    run_id = known.of(opening(answer="one", system="s")).run_id
    bare = opening(answer="one", tools=False)
    assert run_id == known.of(bare, alike=True).run_id
    assert run_id != known.of(bare).run_id
    known.of(opening(answer="one", system="t"))
    assert run_id != known.of(opening(answer="one", tools=False, system="u"), alike=True).run_id


def test_another_process_gives_the_same_runs() -> None:
    """Where they begin with words of their own, or are known by their answer."""
    one, two = conversations(), conversations()
    for asked in (opening(), opening(answer="one"), opening(answer="two"), opening("Good morning", "x")):
        assert one.of(asked).run_id == two.of(asked).run_id


def test_as_many_are_kept_as_the_setting_says() -> None:
    """Also of those that all begin with the same words; no forgotten one's run becomes another's."""
    reached: list[None] = []
    known = conversations(16, reached)
    runs = set()
    for number in range(200):
        runs.add(known.of(opening()).run_id)
        known.of(opening(answer=str(number)))

    assert 200 == len(runs)
    assert 184 == len(reached)
    assert 16 == len(known)


def test_named_runs_are_kept_as_the_setting_says() -> None:
    """The one that was idle for longest goes."""
    reached: list[None] = []
    known = conversations(16, reached)
    first = known.named("local", "first", opening)
    for number in range(15):
        known.named("local", str(number), opening)
    assert first is known.named("local", "first", opening)
    known.named("local", "16th", opening)

    assert first is known.named("local", "first", opening)
    assert 1 == len(reached)


def test_a_named_run_needs_no_second_look_at_what_it_begins_with() -> None:
    """Only a run that is not known has its request read, which takes as long as the request is large."""
    known, looked = conversations(), 0

    def looking() -> Opening:
        nonlocal looked
        looked += 1
        return opening(answer=str(looked))

    found = [known.named(*whose, looking) for whose in (("a", "r"), ("a", "r"), ("b", "r"), ("a", "s"), ("a", "r"))]

    assert 3 == looked
    assert found[0] is found[1] is found[4]
    assert [b"1", b"1", b"2", b"3", b"1"] == [each.opening.answer for each in found]


BODIES: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Yes"},
        ]
    },
    "openai_responses": {
        "instructions": "S",
        "input": [{"role": "user", "content": "Hello"}, {"type": "reasoning"}, {"role": "assistant", "content": "Yes"}],
    },
    "anthropic_messages": {
        "system": "S",
        "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes"}],
    },
    "gemini_contents": {
        "systemInstruction": {"parts": [{"text": "S"}]},
        "contents": [{"parts": [{"text": "Hello"}]}, {"role": "model", "parts": [{"text": "Yes"}]}],
    },
    "bedrock_converse": {
        "system": [{"text": "S"}],
        "messages": [
            {"role": "user", "content": [{"text": "Hello"}]},
            {"role": "assistant", "content": [{"text": "Yes"}]},
        ],
    },
}


@pytest.mark.parametrize("format_name", BODIES)
def test_openings_of_every_format(format_name: str) -> None:
    """System prompt, first words and first answer are seen where the format has them, and nothing behind them is."""
    history = DIALECTS[format_name]

    def read(body: dict[str, Any]) -> Opening:
        return opening_of(history, Members(json.dumps(body).encode()), "local", "")

    body = BODIES[format_name]
    entries = body[history.messages]
    longer = {**body, history.messages: [*entries, *entries]}
    shorter = {**body, history.messages: entries[:-1]}
    name = next(iter(history.system), history.messages)
    changed = json.loads(json.dumps(body).replace('"S"', '"T"'))

    assert read(body) == read(longer)
    assert b"" == read(shorter).answer != read(body).answer
    assert read(shorter).user == read(body).user
    assert name in changed
    assert read(body).system != read(changed).system
    assert not read(body).tools


def test_an_input_that_is_a_string_is_the_users() -> None:
    """OpenAI's responses take one."""
    history = DIALECTS["openai_responses"]
    made = [
        opening_of(history, Members(raw), "local", "") for raw in (b'{"input":"Hello"}', b'{"input":"Good morning"}')
    ]

    assert made[0].user != made[1].user


def test_sessions_of_known_agents() -> None:
    """By header, else by what the body names."""
    body = Members(b'{"metadata":{"user_id":"user_1_session_2"},"prompt_cache_key":"3"}')

    assert "a\x1fb" == session_of({"x-claude-code-session-id": "a", "x-claude-code-agent-id": "b"}, body)
    assert "user_1_session_2\x1f3" == session_of({}, body)
    assert "" == session_of({}, Members(b'{"metadata":{"user_id":"somebody"}}'))


# -- callers -----------------------------------------------------------------------------------------------------------


def jwt(**claims: object) -> dict[str, str]:
    """Return a header with a JWT."""
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in ({}, claims)]
    return {"authorization": "Bearer " + ".".join([*parts, "c2lnbmF0dXJl"])}


def test_a_session_s_name_has_a_bound() -> None:
    """An agent may send one of any length, and thousands are kept: of a long one there is a digest."""
    long = "k" * 1_000_000
    bodies = [
        Members(json.dumps(body).encode())
        for body in (
            {"prompt_cache_key": long},
            {"metadata": {"user_id": f"session {long}"}},
            {"prompt_cache_key": long + "k"},
        )
    ]
    names = [session_of({}, body) for body in bodies] + [session_of({"session_id": long}, bodies[0])]
    assert max(map(len, names)) < 100
    assert names[0] == names[3]
    assert 3 == len(set(names))
    assert "k" * 1_000 == session_of({"session_id": "k" * 1_000}, bodies[0])


def test_callers_by_credential() -> None:
    """A key is a caller; of a JWT the subject is, however often it is issued again. No name shows a credential."""
    first = credential_caller(jwt(sub="me", exp=1), KEY)

    assert first == credential_caller(jwt(sub="me", exp=2), KEY)
    assert first != credential_caller(jwt(sub="you", exp=1), KEY)
    named = credential_caller({"x-api-key": "sk-ant-secret"}, KEY)
    assert named.startswith("credential:")
    assert "secret" not in named
    assert named != credential_caller({"x-api-key": "sk-ant-other"}, KEY)
    assert "" == credential_caller({}, KEY)
    assert credential_caller({"authorization": "Bearer a.b.c"}, KEY)
