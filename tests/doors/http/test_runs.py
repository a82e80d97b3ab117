"""Which run a request belongs to, and whose it is, as the headers of the answers tell."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from prompt_sidecar.calls.caller_names import CallerNames, names_of
from prompt_sidecar.calls.tokens import Tokens
from prompt_sidecar.doors.http.callers import Callers
from prompt_sidecar.errors import Unauthenticated
from prompt_sidecar.facts.trim_calls import CacheBreak, TrimAnswer, TrimCall
from prompt_sidecar.telemetry.observer import Observer
from tests.client.provider import Says
from tests.doors.http.agents import FORMATS, TOOL, Agent
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_ended_runs import Losses
from tests.doors.http.upstream import scripted

RUN = "x-prompt-sidecar-run"
SESSION = {"x-claude-code-session-id": "0d5c6a52-6a5c-4b5c-8a52-000000000000"}


JWT = {"alg": "RS256"}, {"iss": "https://id.example", "sub": "agent 7"}


class Breaks(Observer):
    """Keeps what each prompt's prefix was broken by, and its iteration."""

    def __init__(self) -> None:
        self.seen: list[CacheBreak | None] = []
        self.iterations: list[int] = []

    def trimmed(self, call: TrimCall, answer: TrimAnswer, began: int) -> None:
        """Keep it."""
        del call, began
        self.seen.append(answer.news.cache_break)
        self.iterations.append(answer.iteration)


def _model(body: Any) -> Says:
    """Answers with what makes each conversation's first answer its own: the number of messages, and the last text."""
    text = json.dumps((body.get("messages") or body["input"])[-1])
    if not body.get("tools"):
        return Says("A title")
    return Says(f"On {abs(hash(text))}", [(f"call-{abs(hash(text))}", TOOL, {})])


def _agent(
    here: Proxied, format: str, words: str, headers: Mapping[str, str] | None = None, *, tools: bool = True
) -> Agent:
    return Agent(format, False, here.url, [{"role": "user", "content": words}], headers or {}, tools=tools)


def _run(agent: Agent) -> str:
    heard = agent.ask()
    agent.answer(heard, lambda call_id: f"log {call_id} of {id(agent)}")
    return heard.headers[RUN]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("headers", [{}, SESSION], ids=["no session", "session"])
def test_a_conversation_keeps_its_run(format: str, headers: dict[str, str]) -> None:
    """From the first call on, which has no answer of the model's yet."""
    with proxied(_model) as here:
        agent = _agent(here, format, "Fix the build.", headers)
        runs = [_run(agent) for _ in range(5)]

    assert 1 == len(set(runs))


@pytest.mark.parametrize("format", FORMATS)
def test_subagents_and_a_title_call_in_one_session(format: str) -> None:
    """Interleaved they are three runs, none of which is rewound: no prompt breaks another's prefix."""
    breaks = Breaks()
    with proxied(_model, observer=breaks) as here:
        title = _agent(here, format, "Fix the build.", SESSION, tools=False)
        main = _agent(here, format, "Fix the build.", SESSION)
        one = _agent(here, format, "Look at the tests.", SESSION)
        two = _agent(here, format, "Look at the sources.", SESSION)
        of_title = {_run(title)}
        runs: dict[str, set[str]] = {"main": set(), "one": set(), "two": set()}
        for _ in range(4):
            for name, agent in (("main", main), ("one", one), ("two", two)):
                runs[name].add(_run(agent))

    assert [1, 1, 1] == [len(each) for each in runs.values()]
    assert 4 == len(of_title.union(*runs.values()))
    assert [None] * 13 == breaks.seen
    assert 1 + 3 * sum(range(1, 5)) == sum(breaks.iterations)


def test_the_same_first_words_twice() -> None:
    """A second conversation with the words of the first is another run as soon as the first has moved on."""
    answers = scripted(*[Says(f"Answer {number}", [(f"call-{number}", TOOL, {})]) for number in range(9)])
    with proxied(answers) as here:
        first = _agent(here, "openai_chat", "Hello")
        one = [_run(first), _run(first)]
        second = _agent(here, "openai_chat", "Hello")
        two = [_run(second), _run(second)]
        one.append(_run(first))
        two.append(_run(second))

    assert [1, 1] == [len(set(one)), len(set(two))]
    assert one[0] != two[0]


def test_a_retry_of_the_first_call_is_the_same_run() -> None:
    """As an SDK sends it after an error."""
    with proxied(scripted(Says("busy", status=503), Says("Done."))) as here:
        agent = _agent(here, "openai_chat", "Hello")
        with pytest.raises(Exception, match="busy") as caught:
            agent.ask()
        heard = agent.ask()

    assert caught.value.response.headers[RUN] == heard.headers[RUN]  # type: ignore[attr-defined]


def test_the_agent_names_its_run() -> None:
    """By a header, which no provider sees."""
    with proxied(_model) as here:
        assert "mine" == _run(_agent(here, "openai_chat", "Hello", {RUN: "mine"}))
        with pytest.raises(Exception, match="run_id"):
            _run(_agent(here, "openai_chat", "Hello", {RUN: "x" * 300}))
        assert not [name for sent in here.upstream.sent for name in sent.headers if name.startswith("x-prompt-sidecar")]


def test_another_process_with_the_key_gives_the_same_run() -> None:
    """The id follows from what the conversation begins with, so that ids in labels stay the same over a restart."""
    runs = []
    for _ in range(2):
        with proxied(_model) as here:
            agent = _agent(here, "openai_chat", "Fix the build.")
            runs.append([_run(agent), _run(agent)])

    assert runs[0] == runs[1]


# -- callers -----------------------------------------------------------------------------------------------------------


def test_callers_by_credential() -> None:
    """Where the setting says so, each is one; who sends none is local."""
    callers = Callers(Tokens({}), CallerNames(), b"k" * 32, by_credential=True)

    assert callers.of({"x-api-key": "one"}, None) != callers.of({"x-api-key": "two"}, None)
    assert "local" == callers.of({}, None)


def test_callers_by_address() -> None:
    """By default all of loopback is one caller; a certificate's subject is one."""
    callers = Callers(Tokens({}), CallerNames(), b"k" * 32, by_credential=False)

    assert "local" == callers.of({"x-api-key": "secret"}, None)
    assert "mtls:CN=me" == callers.of({}, {"subject": ((("commonName", "me"),),)})


def test_callers_by_name() -> None:
    """What settings name is one caller, by a token, a certificate, an API key or the subject of a JWT."""
    digest = hashlib.sha256(b"sk-team").hexdigest()
    token = ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in JWT) + ".s"
    identities = ["token:ci", "mtls:CN=me", f"sha256:{digest}", "jwt:https://id.example agent 7"]
    names = CallerNames(names_of({"team": identities, "others": ["local"]}))
    callers = Callers(Tokens({}), names, b"k" * 32, by_credential=False)

    assert "team" == callers.of({"authorization": "Bearer sk-team"}, None)
    assert "team" == callers.of({"x-api-key": "sk-team"}, None)
    assert "team" == callers.of({"authorization": f"Bearer {token}"}, None)
    assert "team" == callers.of({}, {"subject": ((("commonName", "me"),),)})
    assert "others" == callers.of({"x-api-key": "sk-other"}, None)
    with_tokens = Callers(Tokens({"ci": "t" * 20}), names, b"k" * 32, by_credential=False)
    assert "team" == with_tokens.of({"x-prompt-sidecar-token": "t" * 20}, None)


def test_callers_by_token() -> None:
    """Where the sidecar has tokens, one is required, in a header of its own: the provider's key is in the usual one."""
    callers = Callers(Tokens({"ci": "t" * 20}), CallerNames(), b"k" * 32, by_credential=False)

    assert "token:ci" == callers.of({"x-prompt-sidecar-token": "t" * 20}, None)
    for headers in ({}, {"x-prompt-sidecar-token": "u" * 20}, {"authorization": "Bearer " + "t" * 20}):
        with pytest.raises(Unauthenticated):
            callers.of(headers, None)


def test_previous_response_id_goes_on_where_the_model_was() -> None:
    """The provider holds the history: what the sidecar answered beside the agent's results reaches it all the same."""
    own: Any = ("own-1", "search_conversation_history", {"query": "x"})
    theirs: Any = ("call-1", TOOL, {})
    tool = {"type": "function", "name": TOOL, "parameters": {"type": "object", "properties": {}}, "strict": False}
    later = Says("", [("own-2", "search_conversation_history", {"query": "y"})])
    with proxied(scripted(Says("", [own, theirs]), later, Says("Done."))) as here:
        client = Agent("openai_responses", False, here.url, []).client
        first = client.responses.create(model="scripted", input="Go.", tools=[tool])
        assert ["call-1"] == [item.call_id for item in first.output]
        output = {"type": "function_call_output", "call_id": "call-1", "output": "log"}
        last = client.responses.create(model="scripted", input=[output], tools=[tool], previous_response_id=first.id)
        assert "Done." == last.output_text
        one, two, three = here.upstream.bodies

    assert one["tools"] == two["tools"] == three["tools"]
    assert ["own-1", "call-1"] == [item["call_id"] for item in two["input"]]
    assert ["own-1", "call-1", "own-2", "own-2"] == [item["call_id"] for item in three["input"]]
    assert [first.id] * 2 == [body["previous_response_id"] for body in (two, three)]
    assert "resp-3" == last.id


def test_a_chain_of_stored_responses_stays_one_run() -> None:
    """From the first request to the last, as an agent goes on that never sends its history: the same tools, one run."""
    tool = {"type": "function", "name": TOOL, "parameters": {"type": "object", "properties": {}}, "strict": False}
    own = Says("", [("own-1", "search_conversation_history", {"query": "x"}), ("call-4", TOOL, {})])
    calls = [Says("", [(f"call-{number}", TOOL, {})]) for number in (1, 2, 3)]
    observer = Losses()
    with proxied(scripted(*calls, own, Says("Done.")), observer=observer) as here:
        client = Agent("openai_responses", False, here.url, []).client
        more: dict[str, Any] = {"input": "Go."}
        runs = set()
        for number in range(1, 6):
            raw = client.responses.with_raw_response.create(model="scripted", tools=[tool], **more)
            runs.add(raw.headers["x-prompt-sidecar-run"])
            assert "offered" == raw.headers["x-prompt-sidecar-recall"]
            output = {"type": "function_call_output", "call_id": f"call-{number}", "output": "log"}
            more = {"input": [output], "previous_response_id": raw.parse().id}
        bodies = here.upstream.bodies

    assert 1 == len(runs)
    assert [] == [body for body in bodies if body["tools"] != bodies[0]["tools"]]
    assert ["own-1", "call-4"] == [item["call_id"] for item in bodies[-1]["input"]]
    assert [] == here.upstream.defects
    assert [] == observer.causes


def test_one_answer_of_several_stored_responses() -> None:
    """Its id is one all through the stream; going on from it goes on from the last of them."""
    own = Says("A moment.", [("own-1", "search_conversation_history", {"query": "x"})])
    tool = {"type": "function", "name": TOOL, "parameters": {"type": "object", "properties": {}}, "strict": False}
    with proxied(scripted(own, Says("Found."), Says("Done."))) as here:
        client = Agent("openai_responses", True, here.url, []).client
        with client.responses.stream(model="scripted", input="Go.", tools=[tool]) as events:
            first = events.until_done().get_final_response()
        assert "A moment.Found." == first.output_text
        client.responses.create(model="scripted", input="Thanks.", tools=[tool], previous_response_id=first.id)

    assert "resp-1" == first.id
    assert "resp-2" == here.upstream.bodies[2]["previous_response_id"]
