"""Each request that goes on through the HTTP door says what was done about it: once, by the one list of reasons."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from prompt_sidecar.calls.untrimmed_log import SECONDS, UntrimmedLog
from prompt_sidecar.errors import TooLarge
from prompt_sidecar.facts.trim_calls import NoFit
from prompt_sidecar.facts.untrimmed import MISSED, OUTCOMES, TRIMMED, Handled, Through, Untrimmed
from prompt_sidecar.providers.table import may_hold_prompt
from prompt_sidecar.telemetry import catalog
from tests.client.provider import Says
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted
from tests.telemetry.test_doors import GUARDRAIL, failing_core
from tests.telemetry.watched import Figures, Telling, messages, telling

UNTRIMMED: Final = "x-prompt-sidecar-untrimmed"
RECALL: Final = "x-prompt-sidecar-recall"
TEXT: Final = [{"role": "user", "content": "hello"}]
TOOLS: Final = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
CHAT: Final = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Case:
    """One request, and what is said of it."""

    name: str
    path: str
    sent: Any = None
    """Bytes, or what becomes JSON; None: it is a GET."""
    headers: Mapping[str, str] | None = None
    untrimmed: str = ""
    recall: str = ""
    through: Through = Through.HTTP

    def __str__(self) -> str:
        return self.name

    async def send(self, url: str) -> Mapping[str, str]:
        """The answer's headers."""
        body = self.sent if isinstance(self.sent, bytes) else json.dumps(self.sent).encode()
        headers = {"content-type": "application/json", **(self.headers or {})}
        method, data = ("GET", None) if self.sent is None else ("POST", body)
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url + self.path, data=data, headers=headers) as answer,
        ):
            await answer.read()
            return answer.headers


def chat(*history: Any, **more: Any) -> dict[str, Any]:
    """A body of chat completions."""
    return {"model": "scripted", "messages": [*history], **more}


LONG: Final = messages(12, "a line of a log, number, and nothing in it to see here " * 40)
WORDS: Final = {"role": "user", "content": "a word " * 9_000}
FORCED: Final = {
    "model": "scripted",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Say no."}],
    "tools": [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "write")],
    "tool_choice": {"type": "any"},
}
CHAINED: Final = {"model": "scripted", "input": "go on", "previous_response_id": "resp_unknown"}
FORM: Final = {"content-type": "multipart/form-data; boundary=x"}
OCTETS: Final = {"content-type": "application/octet-stream"}
SIGNED: Final = {"authorization": "AWS4-HMAC-SHA256 x"}
BYPASS: Final = {"x-headroom-bypass": "true"}
TEXTS: Final = {"input_type": "request", "texts": ["a"]}
STRUCTURED: Final = {"input_type": "request", "structured_messages": TEXT}
GATEWAY: Final = Through.GATEWAY
COMPRESS: Final = "/v1/compress"
MESSAGES: Final = "/v1/messages"
CASES: Final = (
    Case("small", CHAT, chat(*TEXT), untrimmed="no_need", recall="no_tools"),
    Case("small, with tools", CHAT, chat(*TEXT, tools=TOOLS), untrimmed="no_need", recall="offered"),
    Case("forced", MESSAGES, FORCED, untrimmed="no_need", recall="forced"),
    Case("streamed", CHAT, chat(*TEXT, stream=True), untrimmed="no_need", recall="no_tools"),
    Case("trimmed", CHAT, chat(*LONG, tools=TOOLS), recall="offered"),
    Case("trimmed and streamed", CHAT, chat(*LONG, tools=TOOLS, stream=True), recall="offered"),
    Case("all is the user's", CHAT, chat(WORDS), untrimmed="protected_text", recall="no_tools"),
    Case("models", "/v1/models", untrimmed="no_prompt"),
    Case("embeddings", "/v1/embeddings", {"input": "a word"}, untrimmed="no_prompt"),
    Case("a form", "/v1/odd", b"--x--", FORM, untrimmed="no_prompt"),
    Case("an unknown API", "/v9/thoughts", {"thoughts": "deep"}, untrimmed="unknown_path", recall="untrimmed"),
    Case("an unknown type", "/v9/thoughts", b"{}", OCTETS, untrimmed="unknown_path", recall="untrimmed"),
    Case("not JSON", CHAT, b"{", untrimmed="unreadable", recall="untrimmed"),
    Case("no messages", CHAT, {"messages": 7}, untrimmed="unreadable", recall="no_tools"),
    Case("an unknown encoding", CHAT, b"zzz", {"content-encoding": "x-odd"}, "encoded", "untrimmed"),
    Case("signed", "/model/m/converse", {"messages": []}, SIGNED, "signed", "untrimmed"),
    Case("stored", "/v1/responses", CHAINED, untrimmed="stored_by_provider", recall="untrimmed"),
    Case("compressed for a gateway", COMPRESS, chat(*LONG), recall="unavailable", through=GATEWAY),
    Case("left alone", COMPRESS, chat(*LONG), BYPASS, "bypassed", "unavailable", GATEWAY),
    Case("a guardrail's", GUARDRAIL, STRUCTURED, None, "no_need", "unavailable", GATEWAY),
    Case("a guardrail's texts", GUARDRAIL, TEXTS, None, "no_prompt", "", GATEWAY),
)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Proxied, Telling]]:
    """A sidecar whose providers answer anything."""

    async def other(request: web.Request) -> web.StreamResponse:
        await request.read()
        status = 404 if "upgrade" in request.headers else 200
        return web.json_response({}, status=status, headers={UNTRIMMED: "forged"})

    with (
        telling() as telemetry,
        proxied(scripted(*[Says("ok")] * 99), observer=telemetry.observer, window=6_000) as here,
    ):
        here.upstream.other = other
        yield here, telemetry


def outcomes(figures: Figures) -> dict[tuple[str, str], float]:
    """Of requests, by door and outcome; those that there were."""
    named = {(door, outcome): (door, outcome) for door in Through for outcome in OUTCOMES}
    found = {key: figures.of(catalog.HANDLED, door=door, outcome=outcome) for key, (door, outcome) in named.items()}
    return {key: count for key, count in found.items() if count}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_answer_says_why_its_request_was_not_trimmed(running: tuple[Proxied, Telling], case: Case) -> None:
    """By one header, which is absent where it was; another says whether recall was offered. The same is counted."""
    here, telemetry = running
    before = outcomes(telemetry.scrape())
    headers = asyncio.run(case.send(here.url))
    after = outcomes(telemetry.scrape())

    assert ([case.untrimmed] if case.untrimmed else []) == [*_all(headers, UNTRIMMED)]
    assert ([case.recall] if case.recall else []) == [*_all(headers, RECALL)]
    key = (case.through, case.untrimmed or TRIMMED)
    assert {**before, key: before.get(key, 0) + 1} == after
    if case.through is Through.HTTP and RECALL in headers and "x-prompt-sidecar-trims" in headers:
        assert (int(headers["x-prompt-sidecar-trims"]) == 0) == bool(case.untrimmed)


def _all(headers: Any, name: str) -> list[str]:
    return list(headers.getall(name, []))


@pytest.mark.parametrize("stream", [False, True])
def test_overload_and_faults_are_distinguished(*, stream: bool) -> None:
    """What fails in the core goes on, and the header says whether there was no room or a fault."""
    faults: list[tuple[BaseException, str]] = [
        (MemoryError(), "overloaded"),
        (TooLarge("no"), "too_large"),
        (RuntimeError("text of a prompt"), "internal"),
    ]
    for error, reason in faults:
        case = Case(reason, CHAT, chat(*TEXT, stream=stream), untrimmed=reason)
        with proxied(scripted(Says("ok")), core=failing_core(error)) as here:
            assert reason == asyncio.run(case.send(here.url))[UNTRIMMED]


def test_a_socket_that_passes(running: tuple[Proxied, Telling]) -> None:
    """Its answer says that nothing on it is trimmed, also where the provider opens none, as here."""
    here, telemetry = running
    before = outcomes(telemetry.scrape())

    async def upgrade() -> Mapping[str, str]:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"{here.url}/v1/realtime")
        return refused.value.headers or {}

    headers = asyncio.run(upgrade())
    assert ("websocket", "untrimmed") == (headers[UNTRIMMED], headers[RECALL])
    key = (Through.HTTP, "websocket")
    assert before.get(key, 0) + 1 == outcomes(telemetry.scrape())[key]


def test_what_does_not_go_on_has_no_reason(running: tuple[Proxied, Telling]) -> None:
    """The sidecar's own answers: a preflight, a wrong header, a WebSocket that is told to use HTTP."""
    here, telemetry = running
    before = outcomes(telemetry.scrape())
    cases = (
        Case("its own page", "/"),
        Case("a wrong window", CHAT, chat(*TEXT), {"x-prompt-sidecar-context-window": "many"}),
        Case("a socket for prompts", "/v1/responses", None, {"connection": "upgrade", "upgrade": "websocket"}),
    )
    assert [] == [case.name for case in cases if UNTRIMMED in asyncio.run(case.send(here.url))]
    assert before == outcomes(telemetry.scrape())


def test_a_run_says_what_was_done_about_its_requests() -> None:
    """Its figures count each, and have the last one's reason, and whether recall was offered."""
    run = {"x-prompt-sidecar-run": "run-7"}
    asked = [
        Case("small", CHAT, chat(*TEXT, tools=TOOLS), run),
        Case("large", CHAT, chat(*LONG, tools=TOOLS), run),
        Case("broken", CHAT, {"messages": 7, "tools": TOOLS}, run),
        Case("passed", "/v9/thoughts", {"thoughts": "deep"}, run),
        Case("counted", "/v1/messages/count_tokens", {"model": "scripted", "messages": TEXT}, run),
    ]

    async def other(request: web.Request) -> web.StreamResponse:
        return web.json_response({"input_tokens": len(await request.read())})

    with proxied(scripted(Says("ok"), Says("ok")), window=6_000) as here:
        here.upstream.other = here.upstream.other or other
        here.upstream.only_other = True
        for case in asked:
            asyncio.run(case.send(here.url))
        figures = here.core.figures("local", "run-7").requests
        (line,) = here.core.summaries_of("run-7", 10, 10)

    assert {"no_need": 1, "trimmed": 1, "unknown_path": 1, "unreadable": 1} == figures.handled
    assert ("unknown_path", "untrimmed") == (figures.untrimmed, figures.recall)
    assert 2 == figures.missed == line.missed


def test_the_log_names_each_kind_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With the path, as far as its parts are short and plain; what is as it should be is not logged."""
    now = [0.0]
    log = UntrimmedLog(lambda: now[0])
    caplog.set_level(logging.WARNING, "prompt_sidecar.untrimmed")
    key = "sk-" + "a1" * 20
    for _ in range(3):
        for reason in Untrimmed:
            log.handled(Handled(Through.HTTP, reason, 120_000, path=f"/{key}/v9/thoughts"))
        log.handled(Handled(Through.HTTP, None, 120_000))
    lines = [record.getMessage() for record in caplog.records]
    assert len(MISSED) == len(lines)
    assert all("120,000 bytes at /…/v9/thoughts" in line and key not in line for line in lines)
    now[0] = SECONDS
    log.handled(Handled(Through.HTTP, Untrimmed.SIGNED))
    assert (
        caplog.records[-1].getMessage().endswith("signed, 0 bytes; 2 more since the last such line (docs/untrimmed.md)")
    )


@pytest.mark.parametrize("why", NoFit)
def test_each_cause_of_no_fit_is_a_reason(why: NoFit) -> None:
    """A prompt that stays too large, and has no trims, says why by the same word."""
    assert why.value == Untrimmed(why.value).value
    assert not Untrimmed(why.value).missed


@pytest.mark.parametrize(
    ("path", "may"),
    [
        ("/v1/embeddings", False),
        ("/openai/deployments/d/embeddings", False),
        ("/v1/files/file-1", False),
        ("/api/event_logging/batch", False),
        ("/v1beta/models/m:embedContent", False),
        ("/v1/batches", True),
        ("/v1beta/models/m:generateAnswer", True),
        ("/model/m/invoke", True),
        ("/" + "a" * 10_000_000, True),
    ],
)
def test_paths_without_prompts(path: str, may: bool) -> None:
    """By what the providers' own pages say of them; any other may hold a prompt."""
    assert may == may_hold_prompt(path)
