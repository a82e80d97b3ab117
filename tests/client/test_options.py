"""Options that are wrong are told at once, and what agents give that is right is taken.

A client that fails open would otherwise send every prompt of a run untrimmed for the sake of a slip.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from prompt_sidecar.client import AsyncClient, Client, InvalidRequest
from prompt_sidecar.client.model_calls import too_long
from prompt_sidecar.client.options import Options
from prompt_sidecar.trim.policy import BOUNDS
from tests.client.histories import WINDOW, history
from tests.client.provider import MODEL, Says, provider
from tests.client.serving import PATIENT, client_of, sdk
from tests.client.test_fail_open import NOBODY

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"context_window": -5}, ValueError, "context_window is -5; it must be a whole number from 0 to"),
    ({"context_window": "128k"}, TypeError, "context_window is '128k'; it must be a whole number from 0 to"),
    ({"context_window": True}, TypeError, "context_window is True; it must be a whole number"),
    ({"output_reserve": 1.5}, TypeError, "output_reserve is 1.5; it must be a whole number from 0 to"),
    ({"contxt_window": 5}, TypeError, "no option contxt_window; did you mean context_window"),
    ({"policy": {"fit_high": 7}}, ValueError, "fit_high is 7; it must be a number from 0.01 to 1.0"),
    ({"policy": {"fit_high": float("nan")}}, ValueError, "fit_high is nan; it must be a number from 0.01 to 1.0"),
    ({"policy": {"fithigh": 0.5}}, TypeError, "Policy has no fithigh; did you mean fit_high"),
    ({"policy": {"preset": "leen"}}, ValueError, "preset is 'leen'; it may be one of cache_first, cap_only"),
    (
        {"policy": {"fit_low": 0.9, "fit_high": 0.5}},
        ValueError,
        "policy.fit_low is 0.9; it may be at most policy.fit_high",
    ),
    ({"policy": "lean"}, TypeError, "policy is a str; it must be a mapping of age_arguments"),
    ({"policy": {"feedback_error": "ERR"}}, TypeError, "feedback_error is a str; it must be a list"),
    ({"policy": {"feedback_error": 5}}, TypeError, "feedback_error is a int; it must be a list"),
    ({"policy": {5: 1}}, TypeError, "Policy has no 5"),
    ({"annotations": 5}, TypeError, "annotations may be"),
    ({"model": "\ud800"}, ValueError, "model holds a lone surrogate"),
    ({"annotations": {"3": "pinned"}}, TypeError, "message_index is '3'; it must be a whole number from 0"),
    ({"annotations": [{"message_index": -1, "kind": "pinned"}]}, ValueError, "message_index is -1"),
    ({"annotations": [{"index": 1}]}, TypeError, "annotations may be"),
    ({"annotations": ["pinned"]}, TypeError, "annotations may be"),
    ({"annotations": {1: "pind"}}, ValueError, "kind is 'pind'; it may be one of pinned, snapshot"),
    ({"dry_run": "yes"}, TypeError, "dry_run is 'yes'; it must be True or False"),
    ({"model": "m" * 300}, ValueError, "model has 300 bytes; it must have 0 to 256"),
    ({"revision": "text"}, TypeError, "revision is 'text'; it must be bytes"),
]


@pytest.mark.parametrize(("options", "error", "words"), WRONG, ids=[next(iter(options)) for options, _, _ in WRONG])
def test_a_wrong_option_of_a_prompt(options: dict[str, Any], error: type[Exception], words: str) -> None:
    """Told where the run is made, and where a prompt is trimmed, with its name and what it may be; sidecar or not."""
    with Client(NOBODY, deadline=PATIENT) as client:
        calls: tuple[Callable[[], object], ...] = (
            lambda: client.run("r", **options),
            lambda: client.trim("r", [], **options),
            lambda: client.run("r").trim([], **options),
            lambda: AsyncClient(NOBODY).run("r", **options),
        )
        for call in calls:
            with pytest.raises(error) as caught:
                call()
            assert words in str(caught.value)
        assert 0 == client.untrimmed


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_the_servers(name: str) -> None:
    """What the client takes of a policy, the server takes, and what it does not, the server would not either."""
    low, high = BOUNDS[name]
    if name == "fit_stage":
        return
    step = 1 if isinstance(low, int) else 0.001
    client = Client(NOBODY)
    for right in (low, high):
        client.run("r", policy={name: right})
    for wrong in (low - step, high + step):
        with pytest.raises(ValueError, match=name):
            client.run("r", policy={name: wrong})


@pytest.mark.parametrize("run_id", ["", "r" * 257, "a\nb"])
def test_a_wrong_run_id(run_id: str) -> None:
    """The same: it is 1 to 256 bytes that can be printed."""
    with pytest.raises(ValueError, match="run_id"):
        Client(NOBODY).run(run_id)


@pytest.mark.parametrize("run_id", [None, 5, b"r"])
def test_a_run_id_that_is_no_text(run_id: Any) -> None:
    """The same: else each prompt of the run would go untrimmed."""
    with pytest.raises(TypeError, match="run_id"):
        Client(NOBODY).run(run_id)


def test_a_selection_that_is_none() -> None:
    """The whole original would come in its place."""
    wrong: Any = 5
    with pytest.raises(TypeError, match="selection is a int; it may be Lines, Bytes, a Pattern or None"):
        Client(NOBODY).retrieve("r", "id", wrong)


def test_tracing_of_the_agent_that_fails() -> None:
    """The call goes without its trace: a run does not end for the sake of its spans."""
    answers: list[Any] = [lambda: 1 / 0, lambda: None, lambda: {"traceparent": 5}]
    for trace_context in answers:
        with client_of(trace_context=trace_context) as (client, _):
            assert client.trim("r", history("openai_chat", 1)).trimmed


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"trace_context": 5}, "trace_context"),
        ({"clock": 5}, "clock"),
        ({"deadline": "2"}, "deadline"),
        ({"deadline": True}, "deadline"),
        ({"target": None}, "target"),
        ({"fail_open": "no"}, "fail_open"),
        ({"tls": True}, "tls"),
        ({"token": b"t"}, "token"),
        ({"max_message_bytes": 1.5}, "max_message_bytes"),
    ],
)
def test_a_wrong_option_of_the_client(wrong: dict[str, Any], word: str) -> None:
    """Of another type than it has."""
    with pytest.raises(TypeError, match=f"{word} is a .*; it must be "):
        Options(**wrong)


@pytest.mark.parametrize("target", ["h\n:1", "h\ud800:1"])
def test_a_target_that_cannot_be_printed(target: str) -> None:
    """Else gRPC ends the agent's first call with an error about encodings, or nobody is ever reached."""
    with pytest.raises(ValueError, match="target holds a character that cannot be printed"):
        Client(target)


def test_what_only_the_sidecar_can_tell_is_raised_before_the_run_has_begun() -> None:
    """A low-water mark above the configured high one: an error at the first prompt. Later ones go untrimmed, and on."""
    with client_of() as (client, _):
        messages = history("openai_chat", 2)
        wrong: list[Any] = [{"policy": {"fit_low": 1.0}}, {"annotations": {99: "pinned"}}]
        for options in wrong:
            with pytest.raises(InvalidRequest):
                client.trim("r", messages, **options)
        assert client.trim("r", messages).trimmed
        assert "last_prompt" == client.trim("r", messages, policy={"fit_low": 1.0}).fallback


def test_annotations_as_the_request_has_them() -> None:
    """A mapping, or the list of the interface, where one message may be two things."""
    messages = history("openai_chat", 12)
    given: list[Any] = [
        {2: "pinned"},
        [{"message_index": 2, "kind": "pinned"}],
        [(2, "pinned")],
        [{"message_index": 2, "kind": "pinned"}, {"message_index": 2, "kind": "step_error"}],
    ]
    with client_of() as (client, _):
        for number, annotations in enumerate(given):
            made = client.trim(
                f"r{number}", messages, context_window=WINDOW, output_reserve=500, annotations=annotations
            )
            assert made.trims
            assert messages[2] in made.prompt


def test_a_refusal_is_reported() -> None:
    """As the SDKs raise it, or as text; another error is a failed call; nothing is raised where the sidecar is gone."""
    words = "This model's maximum context length is 3000 tokens. However, your messages resulted in 7000 tokens."
    openai, anthropic = sdk("openai"), sdk("anthropic")
    with client_of() as (client, served), provider(*[Says(words, status=400)] * 2, Says("no", status=400)) as there:
        for number, create in enumerate(
            (
                openai.OpenAI(base_url=f"{there.url}/v1", api_key="k", max_retries=0).chat.completions.create,
                anthropic.Anthropic(base_url=there.url, api_key="k", max_retries=0).messages.create,
            )
        ):
            run = client.run(f"r{number}")
            adapter = run.openai_chat if number == 0 else run.anthropic_messages
            keywords = adapter(model=MODEL, messages=history("openai_chat", 1)[:1], max_tokens=100)
            with pytest.raises(Exception, match="maximum context length") as caught:
                create(**keywords)
            learned = run.report(caught.value)
            assert learned is not None
            assert 2_900 == learned.learned_limit
            assert run.last is not None
            assert (True, True) == (run.last.trimmed, run.last.refused)
        run = client.run("text")
        run.trim(history("openai_chat", 1))
        learned = run.report(words)
        assert learned is not None
        assert learned.learned_limit
        run.trim(history("openai_chat", 1))
        failed = run.report(ValueError("something else"))
        assert failed is not None
        assert "failed" == failed.outcome
        served.server.stop(0)
        assert None is run.report(words)
        assert 1 == client.unreported


class ReportedError(Exception):
    """An error of an SDK that is not installed here."""

    def __init__(self, text: str, **more: Any) -> None:
        super().__init__(text)
        self.__dict__ |= more


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (ReportedError("prompt is too long: 5 > 4", status_code=400), True),
        (ReportedError("request_too_large", status_code=413), True),
        (ReportedError("no", status_code=400, code="context_length_exceeded"), True),
        (ReportedError("The input token count (5) exceeds the maximum", code=400), True),
        (ReportedError("Input is too long", response={"ResponseMetadata": {"HTTPStatusCode": 400}}), True),
        (ReportedError("maximum context length"), True),
        (ReportedError("rate limit: token limit of a minute", status_code=429), False),
        (ReportedError("context window", status_code=500), False),
        (ReportedError("your key is wrong", status_code=400), False),
    ],
)
def test_what_a_refusal_as_too_long_is(error: Exception, *, refusal: bool) -> None:
    """By its status, where it has one, and by its words."""
    assert refusal == bool(too_long(error))


def test_last_tells_the_truth_after_a_refused_call() -> None:
    """Where the sidecar refuses and the client does not fail open, and where the provider does."""
    with client_of(fail_open=False) as (client, _):
        run = client.run("r")
        run.trim(history("openai_chat", 1))
        with pytest.raises(InvalidRequest):
            run.trim(b"{")
        assert run.last is not None
        assert (False, "INVALID_JSON", "", b"{") == (
            run.last.trimmed,
            run.last.reason,
            run.last.fallback,
            run.last.prompt,
        )
        assert None is run.report("prompt is too long")  # no prompt of the sidecar's was sent
    openai = sdk("openai")
    with client_of() as (client, _), provider(Says("One."), Says("prompt is too long", status=400)) as there:
        create = openai.OpenAI(base_url=f"{there.url}/v1", api_key="k", max_retries=0).chat.completions.create
        run = client.run("r")
        run.complete("openai_chat", create, model=MODEL, messages=history("openai_chat", 1))
        first = run.last
        with pytest.raises(openai.BadRequestError):
            run.complete("openai_chat", create, model=MODEL, messages=history("openai_chat", 2))
        assert run.last is not first
        assert run.last is not None
        assert (True, True) == (run.last.trimmed, run.last.refused)


def test_a_coroutine_function_needs_the_other_client() -> None:
    """A blocking client says so; asyncio's takes a function that blocks as well."""
    answer = {"choices": [{"message": {"role": "assistant", "content": "Yes."}}]}

    async def create(**_: Any) -> Any:
        return answer

    with client_of() as (client, served):
        with pytest.raises(TypeError, match="use AsyncClient"):
            client.run("r").complete("openai_chat", create, messages=[])

        async def work() -> None:
            async with AsyncClient(served.address, deadline=PATIENT) as other:
                done = await other.run("r").complete("openai_chat", lambda **_: answer, messages=[])
                assert answer is done.response

        asyncio.run(work())


def test_parse_gets_no_tools_of_the_sidecar() -> None:
    """Openai's `chat.completions.parse` refuses tools that are not strict: it is called without the sidecar's."""
    openai, pydantic = sdk("openai"), sdk("pydantic")
    build = pydantic.create_model("Build", number=(int, ...))
    with client_of() as (client, _), provider(Says('{"number": 7}'), Says('{"number": 8}')) as there:
        parse = openai.OpenAI(base_url=f"{there.url}/v1", api_key="k", max_retries=0).chat.completions.parse
        run = client.run("r", context_window=WINDOW, output_reserve=500)
        messages = history("openai_chat", 12)
        done = run.complete("openai_chat", parse, model=MODEL, messages=messages, response_format=build)
        assert 7 == done.response.choices[0].message.parsed.number
        again = run.complete("openai_chat", parse, model=MODEL, messages=done.history(), response_format=build)
        assert 8 == again.response.choices[0].message.parsed.number
        assert 2 == client.trimmed
        assert all("tools" not in body for body in there.bodies)
        assert "id=" not in json.dumps(there.bodies[0])


def test_a_trace_that_no_header_can_hold_is_left_out() -> None:
    """With it each call would fail in gRPC, and each prompt go untrimmed."""
    with client_of(trace_context=lambda: {"traceparent": "\u00ff"}) as (client, _):
        assert client.trim("run", history("openai_chat", 1), format="openai_chat").trimmed
