"""The adapters and the loop with the real SDKs of openai and anthropic, against a provider that plays a script.

Each is tried in the three APIs. The SDKs send what they make of our objects; the provider keeps it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.client import AsyncClient, Client, Completion, Run
from tests.client.histories import FACT, WINDOW, history, result
from tests.client.provider import MODEL, TOKENS, Provider, Says, provider
from tests.client.serving import PATIENT, sdk
from tests.doors.grpc.serving import Serving, serving

FORMATS = ("openai_chat", "openai_responses", "anthropic_messages")
OWN = {"type": "object", "properties": {}}
TOOLS: dict[str, Any] = {
    "openai_chat": {"type": "function", "function": {"name": "read_log", "parameters": OWN}},
    "openai_responses": {"type": "function", "name": "read_log", "parameters": OWN, "strict": False},
    "anthropic_messages": {"name": "read_log", "input_schema": OWN},
}
PROMPT = {"openai_chat": "messages", "openai_responses": "input", "anthropic_messages": "messages"}
MORE: dict[str, Any] = {"openai_chat": {}, "openai_responses": {}, "anthropic_messages": {"max_tokens": 100}}
CREATE = {
    "openai_chat": "chat.completions.create",
    "openai_responses": "responses.create",
    "anthropic_messages": "messages.create",
}
OPTIONS: Any = {"context_window": WINDOW, "output_reserve": 500}


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its format, and how the SDK's function is made for a provider."""

    format: Any
    blocking: Callable[[str], Callable[..., Any]]
    asynchronous: Callable[[str], tuple[Any, Callable[..., Any]]]

    def keywords(self, messages: list[Any], **more: Any) -> dict[str, Any]:
        """Keywords of a call."""
        tools = [TOOLS[self.format]]
        return {"model": MODEL, "tools": tools, PROMPT[self.format]: messages, **MORE[self.format], **more}

    def adapted(self, run: Run, **keywords: Any) -> dict[str, Any]:
        """The adapter's answer."""
        adapter: Callable[..., dict[str, Any]] = getattr(run, self.format)
        return adapter(**keywords)


def api(format: str) -> Api:
    """The API that speaks a format."""
    package, suffix, classes = (
        (sdk("anthropic"), "", ("Anthropic", "AsyncAnthropic"))
        if format == "anthropic_messages"
        else (sdk("openai"), "/v1", ("OpenAI", "AsyncOpenAI"))
    )

    def made(name: str, url: str) -> tuple[Any, Callable[..., Any]]:
        client = getattr(package, name)(base_url=url + suffix, api_key="k", max_retries=0)
        return client, attrgetter(CREATE[format])(client)

    return Api(format, lambda url: made(classes[0], url)[1], lambda url: made(classes[1], url))


@pytest.fixture(params=FORMATS)
def spoken(request: pytest.FixtureRequest) -> Api:
    """Each of the APIs."""
    return api(request.param)


@pytest.fixture
def served() -> Iterator[Serving]:
    """A real server."""
    with serving() as running:
        yield running


@pytest.fixture
def client(served: Serving) -> Iterator[Client]:
    """A client of it."""
    with Client(served.address, deadline=PATIENT) as made:
        yield made


def results(body: Any) -> list[str]:
    """The texts of a body's tool results, in order."""
    texts: list[str] = []
    for message in body.get("messages") or body["input"]:
        if message.get("role") == "tool":
            texts.append(message["content"])
        elif message.get("type") == "function_call_output":
            texts.append(message["output"])
        elif message.get("role") == "user" and isinstance(message["content"], list):
            texts += [block["content"] for block in message["content"] if block["type"] == "tool_result"]
    return texts


def stash_id(body: Any) -> str:
    """The id that a label or the registry in a body shows first, for the result of iteration 1."""
    text = json.dumps(body)
    assert "id=" in text
    return text.split("id=", 1)[1][:10]


def own_turn(format: str, response: Any) -> list[Any]:
    """What an agent adds to its history: the SDK's own objects."""
    if format == "openai_chat":
        return [response.choices[0].message]
    return (
        list(response.output) if format == "openai_responses" else [{"role": "assistant", "content": response.content}]
    )


def test_one_line_in_front_of_the_call(spoken: Api, client: Client) -> None:
    """The adapter's answer goes straight into the SDK: trimmed, with the SDK's own objects among the messages."""
    says = Says("I look.", [("call-99", "read_log", {})])
    with provider(says, Says("Done.")) as there:
        create = spoken.blocking(there.url)
        with client.run("r", **OPTIONS) as run:
            messages = history(spoken.format, 11)
            first = create(**spoken.adapted(run, **spoken.keywords(messages), extra_headers={"x-secret": "s"}))
            learned = run.report(first)
            assert learned is not None
            assert ("recorded", TOKENS["input"]) == (learned.outcome, learned.real_tokens)
            turn = own_turn(spoken.format, first)
            before = [*messages, *turn, history(spoken.format, 99)[-1]]
            keywords = spoken.keywords(before, metadata={"user_id": "u"}, timeout=20.0)
            adapted = spoken.adapted(run, **keywords)
            assert any(each is turn[0] for each in adapted[PROMPT[spoken.format]])
            assert (20.0, {"user_id": "u"}) == (adapted["timeout"], adapted["metadata"])
            assert keywords == spoken.keywords(before, metadata={"user_id": "u"}, timeout=20.0)
            create(**adapted)
            assert run.last is not None
            assert run.last.trimmed
            assert run.last.trims
        first_body, second_body = there.bodies
        assert "s" == there.headers[0]["x-secret"]
    assert len(results(second_body)) >= 1
    assert results(second_body)[-1] == result(99)
    assert len(json.dumps(second_body)) < len(json.dumps(history(spoken.format, 12)))
    assert "timeout" not in first_body


def recalling(format: str) -> list[Any]:
    """A model that recalls what it does not see, then asks for a log of the agent's, then answers."""

    def recall(body: Any) -> Says:
        assert {"read_log", "recall_elided_content"} <= {
            tool.get("name") or tool["function"]["name"] for tool in body["tools"]
        }
        return Says(calls=[("own-1", "recall_elided_content", {"id": stash_id(body), "first_line": 1, "last_line": 1})])

    def mixed(body: Any) -> Says:
        assert FACT in results(body)[-1], format
        search = ("own-2", "search_conversation_history", {"query": FACT})
        return Says("Both at once.", [("theirs", "read_log", {"day": 1}), search])

    def answer(body: Any) -> Says:
        assert "the agent's log" in results(body)
        return Says("It was build 7919.")

    return [recall, mixed, answer]


def finished(completion: Completion, there: Provider, run_figures: Any) -> None:
    """Check what the loop leaves behind."""
    assert (False, ()) == (completion.waits, completion.calls)
    assert 3 == len(there.bodies)
    assert run_figures.usage is not None
    assert (3, 3 * TOKENS["input"]) == (run_figures.usage.reports, run_figures.usage.input_tokens)
    assert run_figures.history is not None
    assert 2 == run_figures.history.tool_calls


def test_the_loop(spoken: Api, client: Client) -> None:
    """Own calls are answered on the way; a mixed turn comes back with ours answered, and goes on with the agent's."""
    with provider(*recalling(spoken.format)) as there:
        create = spoken.blocking(there.url)
        run = client.run("r", **OPTIONS)
        first = run.complete(spoken.format, create, **spoken.keywords(history(spoken.format, 12)))
        assert (2, 2, True) == (first.turns, first.recalls, first.waits)
        (call,) = first.calls
        assert ("theirs", "read_log", {"day": 1}) == (call.id, call.name, json.loads(call.arguments))
        grown = first.history([call.result("the agent's log")])
        second = run.complete(spoken.format, create, **spoken.keywords(grown))
        finished(second, there, client.get_run("r"))
        assert 1 == len(second.history()) - len(grown)
        assert (3, 0, 0) == (client.trimmed, client.untrimmed, client.unreported)


def test_the_loop_in_asyncio(spoken: Api, served: Serving) -> None:
    """The same."""

    async def work(there: Provider) -> None:
        sdk_client, create = spoken.asynchronous(there.url)
        async with sdk_client, AsyncClient(served.address, deadline=PATIENT) as client:
            run = client.run("r", **OPTIONS)
            first = await run.complete(spoken.format, create, **spoken.keywords(history(spoken.format, 12)))
            grown = first.history([call.result("the agent's log") for call in first.calls])
            second = await run.complete(spoken.format, create, **spoken.keywords(grown))
            finished(second, there, await client.get_run("r"))
            adapter: Callable[..., Any] = getattr(run, spoken.format)
            again = await adapter(**spoken.keywords(second.history()))
            assert run.last is not None
            assert again is run.last.prompt
            assert None is not await run.report(second.response)

    with provider(*recalling(spoken.format)) as there:
        asyncio.run(work(there))


def test_the_loop_without_a_sidecar(spoken: Api) -> None:
    """The model gets the whole history and none of our tools, and the agent its answer."""
    with provider(Says("Fine.")) as there, Client("127.0.0.1:1", deadline=PATIENT) as client:
        messages = history(spoken.format, 12)
        done = client.run("r").complete(spoken.format, spoken.blocking(there.url), **spoken.keywords(messages))
        assert (False, 1, 1, 0) == (done.waits, done.turns, client.untrimmed, client.unreported)
        assert [TOOLS[spoken.format]["function"]["name"] if "function" in TOOLS[spoken.format] else "read_log"] == [
            tool.get("name") or tool["function"]["name"] for tool in there.bodies[0]["tools"]
        ]
        assert [result(number) for number in range(1, 13)] == results(there.bodies[0])


def test_the_sidecar_goes_down_in_the_loop(spoken: Api, served: Serving) -> None:
    """The model is told that its tool cannot be reached, and gets its last prompt, what it said, and that."""

    def recall(body: Any) -> Says:
        served.server.stop(0)
        return Says(calls=[("own-1", "recall_elided_content", {"id": stash_id(body)})])

    with provider(recall, Says("Then without.")) as there, Client(served.address, deadline=PATIENT) as client:
        run = client.run("r", **OPTIONS)
        done = run.complete(spoken.format, spoken.blocking(there.url), **spoken.keywords(history(spoken.format, 12)))
        assert (False, 2) == (done.waits, done.turns)
        assert (1, 1, 1) == (client.trimmed, client.untrimmed, client.unreported)
    found = results(there.bodies[1])
    assert "This tool cannot be reached right now. Go on without it, or try again later." == found[-1]
    assert results(there.bodies[0]) == found[:-1]
    assert {"last_prompt": 1} == client.fallbacks


def test_another_server_answers_after_it_was_sent_the_prompt(spoken: Api, tmp_path: Path) -> None:
    """A server that was restarted has not seen the run: the loop sends it the prompt, then the call again."""
    socket = ServerOptions(listen="", socket=str(tmp_path / "s"), sweep_interval=3_600)
    with ExitStack() as stack, Client(f"unix:{tmp_path}/s", deadline=PATIENT) as client:
        first = stack.enter_context(serving(socket))

        def recall(_: Any) -> Says:
            first.server.stop(0)
            stack.enter_context(serving(socket))
            return Says(calls=[("own-1", "search_conversation_history", {"query": f"{FACT} 3"})])

        with provider(recall, Says("Found.")) as there:
            run = client.run("r", **OPTIONS)
            keywords = spoken.keywords(history(spoken.format, 12))
            done = run.complete(spoken.format, spoken.blocking(there.url), **keywords)
            assert (False, 0) == (done.waits, client.untrimmed)
        assert f"{FACT} 3 is" in results(there.bodies[1])[-1]


def test_a_refusal_teaches_the_limit(spoken: Api, client: Client) -> None:
    """The provider's own words are reported; the prompt is trimmed to what they say, and sent again."""
    words = "This model's maximum context length is 4000 tokens. However, your messages resulted in 7000 tokens."
    with provider(Says(words, status=400), Says("It fits.")) as there:
        messages = history(spoken.format, 12)
        done = client.run("r").complete(spoken.format, spoken.blocking(there.url), **spoken.keywords(messages))
        assert not done.waits
        first, second = there.bodies
        assert len(json.dumps(second)) < len(json.dumps(first)) / 1.5
        assert done.trimmed.tokens is not None
        assert done.trimmed.tokens.limit <= 4_000


@pytest.mark.parametrize("words", ["maximum context length exceeded, somehow", "your key is wrong"])
def test_other_refusals_are_the_agents(words: str, spoken: Api, client: Client) -> None:
    """One that names no limit, and one for another reason, come out as the SDK raises them."""
    with provider(Says(words, status=400)) as there:
        create = spoken.blocking(there.url)
        with pytest.raises(Exception, match=words) as caught:
            client.run("r").complete(spoken.format, create, **spoken.keywords(history(spoken.format, 2)))
        assert "BadRequestError" == type(caught.value).__name__


def test_turns_have_an_end(spoken: Api, client: Client) -> None:
    """A model that only ever asks the sidecar is handed to the agent, with its last call answered."""
    search = Says(calls=[("own", "search_conversation_history", {"query": "log"})])
    with provider(*[search] * 13) as there:
        run = client.run("r", **OPTIONS)
        done = run.complete(spoken.format, spoken.blocking(there.url), **spoken.keywords(history(spoken.format, 3)))
        assert (12, 12, True, ()) == (done.turns, done.recalls, done.waits, done.calls)
        assert 12 == len(there.bodies)


def test_a_tool_of_the_agents_goes_before_ours(spoken: Api, client: Client) -> None:
    """A name that both have stays the agent's."""
    theirs = json.loads(json.dumps(TOOLS[spoken.format]).replace("read_log", "update_task"))
    with provider(Says(calls=[("t", "update_task", {"id": 1})])) as there:
        keywords = spoken.keywords(history(spoken.format, 2)) | {"tools": [theirs]}
        done = client.run("r").complete(spoken.format, spoken.blocking(there.url), **keywords)
        assert ["update_task"] == [call.name for call in done.calls]
        names = [tool.get("name") or tool["function"]["name"] for tool in there.bodies[0]["tools"]]
        assert 1 == names.count("update_task")
        assert 4 == len(names)


@pytest.mark.parametrize("wrong", [{"n": 2}, {"n": 2, "stream": True}])
def test_what_the_loop_does_not_do(wrong: Any, client: Client) -> None:
    """It takes one answer."""
    with pytest.raises(ValueError, match="n = 1"):
        client.run("r").complete("openai_chat", print, messages=[], **wrong)
    with pytest.raises(ValueError, match="format"):
        client.run("r").complete("ai_sdk", print, messages=[])


def test_a_report_needs_a_prompt(client: Client) -> None:
    """What was counted belongs to a prompt of the run."""
    with pytest.raises(ValueError, match="nothing to report"):
        client.run("r").report({})


def test_sentinels_and_classes_stay_here(client: Client) -> None:
    """What the SDKs take in place of a value, and what they parse an answer into, is no part of a body."""
    openai = sdk("openai")
    not_given = openai.NOT_GIVEN
    run = client.run("r")
    adapted = run.openai_chat(model=MODEL, messages=history("openai_chat", 1), seed=not_given, response_format=Api)
    assert (True, Api) == (adapted["seed"] is not_given, adapted["response_format"])
    assert run.last is not None
    assert run.last.trimmed
