"""Each request that goes on through the HTTP door says what was done about it: once, by the one list of reasons."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from prompt_sidecar.facts.untrimmed import OUTCOMES, TRIMMED, Through
from prompt_sidecar.telemetry import catalog
from tests.client.provider import Says
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted
from tests.telemetry.test_doors import GUARDRAIL
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
CASES: Final = (
    Case("small", CHAT, chat(*TEXT), untrimmed="no_need", recall="no_tools"),
    Case("small, with tools", CHAT, chat(*TEXT, tools=TOOLS), untrimmed="no_need", recall="offered"),
    Case("streamed", CHAT, chat(*TEXT, stream=True), untrimmed="no_need", recall="no_tools"),
    Case("trimmed", CHAT, chat(*LONG, tools=TOOLS), recall="offered"),
    Case("trimmed and streamed", CHAT, chat(*LONG, tools=TOOLS, stream=True), recall="offered"),
    Case("all is the user's", CHAT, chat({"role": "user", "content": "a word " * 9_000}), None, "protected_text", "no_tools"),
    Case("models", "/v1/models", untrimmed="no_prompt"),
    Case("embeddings", "/v1/embeddings", {"input": "a word"}, untrimmed="no_prompt"),
    Case("a form", "/v1/odd", b"--x--", {"content-type": "multipart/form-data; boundary=x"}, "no_prompt"),
    Case("an unknown API", "/v9/thoughts", {"thoughts": "deep"}, untrimmed="unknown_path", recall="untrimmed"),
    Case("not JSON", CHAT, b"{", untrimmed="unreadable", recall="untrimmed"),
    Case("no messages", CHAT, {"messages": 7}, untrimmed="unreadable", recall="no_tools"),
    Case("an unknown encoding", CHAT, b"zzz", {"content-encoding": "x-odd"}, "encoded", "untrimmed"),
    Case("signed", "/model/m/converse", {"messages": []}, {"authorization": "AWS4-HMAC-SHA256 x"}, "signed", "untrimmed"),
    Case(
        "stored by the provider",
        "/v1/responses",
        {"model": "scripted", "input": "go on", "previous_response_id": "resp_unknown"},
        untrimmed="stored_by_provider",
        recall="untrimmed",
    ),
    Case("compressed for a gateway", "/v1/compress", chat(*LONG), None, "", "unavailable", Through.GATEWAY),
    Case("left alone", "/v1/compress", chat(*LONG), {"x-headroom-bypass": "true"}, "bypassed", "unavailable", Through.GATEWAY),
    Case(
        "a guardrail's",
        GUARDRAIL,
        {"input_type": "request", "structured_messages": TEXT},
        untrimmed="no_need",
        recall="unavailable",
        through=Through.GATEWAY,
    ),
    Case("a guardrail's texts", GUARDRAIL, {"input_type": "request", "texts": ["a"]}, None, "no_prompt", "", Through.GATEWAY),
)  # fmt: skip


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Proxied, Telling]]:
    """A sidecar whose providers answer anything."""

    async def other(request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.json_response({}, headers={UNTRIMMED: "forged"})

    with telling() as told, proxied(scripted(*[Says("ok")] * 99), observer=told.observer, window=6_000) as here:
        here.upstream.other = other
        yield here, told


def outcomes(figures: Figures) -> dict[tuple[str, str], float]:
    """Of requests, by door and outcome; those that there were."""
    named = {(door, outcome): (door, outcome) for door in Through for outcome in OUTCOMES}
    found = {key: figures.of(catalog.HANDLED, door=door, outcome=outcome) for key, (door, outcome) in named.items()}
    return {key: count for key, count in found.items() if count}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_answer_says_why_its_request_was_not_trimmed(running: tuple[Proxied, Telling], case: Case) -> None:
    """By one header, which is absent where it was; another says whether recall was offered. The same is counted."""
    here, told = running
    before = outcomes(told.scrape())
    headers = asyncio.run(case.send(here.url))
    after = outcomes(told.scrape())

    assert ([case.untrimmed] if case.untrimmed else []) == [*_all(headers, UNTRIMMED)]
    assert ([case.recall] if case.recall else []) == [*_all(headers, RECALL)]
    key = (case.through, case.untrimmed or TRIMMED)
    assert {**before, key: before.get(key, 0) + 1} == after
    if case.through is Through.HTTP and RECALL in headers and "x-prompt-sidecar-trims" in headers:
        assert (int(headers["x-prompt-sidecar-trims"]) == 0) == bool(case.untrimmed)


def _all(headers: Any, name: str) -> list[str]:
    return list(headers.getall(name, []))
