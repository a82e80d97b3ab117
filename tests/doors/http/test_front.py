"""What the door answers by itself: strangers' pages, preflights, its own paths, and WebSockets for prompts."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from contextlib import ExitStack
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from prompt_sidecar.telemetry.observer import Observer
from tests.client.provider import Says
from tests.doors.http.raw_agents import PROMPT, stack
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted
from tests.oracle import data

__all__ = ["stack"]
CHAT: Final = "/v1/chat/completions"
OWN: Final = ["localhost:1", "localhost.", "127.0.0.1", "[::1]:1", "10.2.3.4:1", "prompt-sidecar:7780", "a.internal:1"]
UPGRADE: Final[dict[str, Any]] = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class Counted(Observer):
    """Keeps what is counted of requests."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.strangers: Counter[tuple[str, str]] = Counter()

    def requested(self, route: str, outcome: str, status: int, hidden: int) -> None:  # noqa: ARG002 - the base's
        """Count a request."""
        self.requests[route, outcome] += 1

    def foreign(self, listener: str, header: str) -> None:
        """Count a stranger's page."""
        self.strangers[listener, header] += 1


@pytest.fixture
def counted() -> Counted:
    """What is counted of requests."""
    return Counted()


@pytest.fixture
def refusing(stack: ExitStack, counted: Counted) -> Proxied:
    """A door that opens no WebSocket for prompts."""
    return stack.enter_context(proxied(scripted(Says("Hello.")), observer=counted, websocket="refuse"))


@pytest.fixture
def here(stack: ExitStack, counted: Counted) -> Proxied:
    """A door on loopback as it is by default; the upstream answers whatever reaches it."""
    here = stack.enter_context(proxied(scripted(*[Says("Hello.")] * 20), observer=counted))

    async def other(_: web.Request) -> web.Response:
        return web.Response(text="the provider", headers={"access-control-allow-origin": "*"})

    here.upstream.other = other
    return here


def asked(here: Proxied, method: str, path: str, body: bytes = b"", **headers: Any) -> tuple[int, bytes, Any]:
    """Status, body and headers of the answer to one request; names of headers are written with underscores."""

    async def ask() -> tuple[int, bytes, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, here.url + path, data=body or None, headers=named) as answer,
        ):
            return answer.status, await answer.read(), answer.headers

    return asyncio.run(ask())


@pytest.mark.parametrize("path", [CHAT, "/v1/compress", "/v1/embeddings", "/v1/responses"])
@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (421, {"host": "evil.example:7780"}),
        (421, {"host": "evil.example:7780", "origin": "http://evil.example:7780"}),
        (403, {"origin": "https://evil.example"}),
        (403, {"origin": "https://evil.example", "content_type": "text/plain"}),
        (403, {"origin": "null", "content_type": "text/plain"}),
        (403, {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}),
    ],
)
def test_a_page_sends_nothing_on(
    path: str, status: int, headers: dict[str, Any], here: Proxied, counted: Counted
) -> None:
    """Not by a name of its own that leads here, nor to the address; its own key and a run's id do not help."""
    mine = {"authorization": "Bearer of-the-page", "x-prompt-sidecar-run": "a-guess"}
    got, body, answered = asked(here, "POST", path, PROMPT, **mine, **headers)
    assert status == got
    assert "http.hosts" in json.loads(body)["error"]["message"]
    assert "access-control-allow-origin" not in answered
    assert [] == here.upstream.sent
    assert 0 == len(here.core)
    assert 1 == counted.strangers["http", "host" if status == 421 else "origin"]
    assert 1 == sum(times for (_, outcome), times in counted.requests.items() if outcome == "refused")


@pytest.mark.parametrize("path", ["/", "/metrics", "/v1/models", "/health"])
def test_a_page_reads_nothing(path: str, here: Proxied) -> None:
    """By a name of its own: its browser would let it read the answer."""
    assert 421 == asked(here, "GET", path, host="evil.example")[0]
    assert 403 == asked(here, "GET", path, origin="https://evil.example")[0]


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/responses"])
@pytest.mark.parametrize(
    ("status", "headers"),
    [(403, {"origin": "https://evil.example"}), (403, {"origin": "null"}), (421, {"host": "evil.example"})],
)
def test_a_page_opens_no_websocket(path: str, status: int, headers: dict[str, Any], here: Proxied) -> None:
    """Browsers let any page open one, and read what comes."""
    got, _, answered = asked(here, "GET", path, **UPGRADE, **headers)
    assert (status, "close") == (got, answered["connection"])


@pytest.mark.parametrize("host", OWN)
def test_programs_go_on_to_work(host: str, here: Proxied) -> None:
    """By whatever name this machine, a container or a service has."""
    assert 200 == asked(here, "POST", CHAT, PROMPT, host=host)[0]
    assert 200 == asked(here, "GET", "/v1/models", host=host, sec_fetch_mode="cors")[0]


def test_a_name_from_the_settings(stack: ExitStack) -> None:
    """It may be called by that, and pages of that name may use it."""
    here = stack.enter_context(proxied(scripted(Says("Hello.")), hosts=("Agents.example",)))
    assert 200 == asked(here, "POST", CHAT, PROMPT, host="agents.example:7780", origin="https://agents.example")[0]


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/", "/v1/compress"])
def test_a_preflight_is_answered_here(path: str, here: Proxied, counted: Counted) -> None:
    """Else the provider would allow any page to send any header."""
    wanted: dict[str, Any] = {
        "access_control_request_method": "POST",
        "access_control_request_headers": "authorization,x-a",
    }
    mine = asked(here, "OPTIONS", path, origin="http://localhost:3000", **wanted)[2]
    assert ("http://localhost:3000", "authorization,x-a", "Origin") == (
        mine["access-control-allow-origin"],
        mine["access-control-allow-headers"],
        mine["vary"],
    )
    status, body, theirs = asked(here, "OPTIONS", path, origin="https://evil.example", **wanted)
    assert (403, []) == (status, [name for name in theirs if name.lower().startswith("access-control")])
    assert b"provider" not in body
    status, _, plain = asked(here, "OPTIONS", path)
    assert (204, []) == (status, [name for name in plain if name.lower().startswith("access-control")])
    assert "POST" in plain["allow"]
    assert 2 == sum(times for (_, outcome), times in counted.requests.items() if outcome == "answered")


def test_its_own_paths(here: Proxied) -> None:
    """Providers have nothing there: agents that look whether somebody is there are answered here."""
    assert (200, b"") == asked(here, "HEAD", "/")[:2]
    assert asked(here, "GET", "/")[1].startswith(b"Prompt Sidecar.")
    status, body, _ = asked(here, "GET", "/metrics")
    assert (404, True) == (status, "telemetry.metrics_listen" in json.loads(body)["error"]["message"])


def test_its_page_says_what_to_set(here: Proxied) -> None:
    """A text for curl, a page for browsers; the address is the one asked, and nothing in it is read as HTML."""
    status, text, headers_back = asked(here, "GET", "/")
    lines = text.decode().splitlines()
    assert (200, "text/plain") == (status, headers_back["content-type"].partition(";")[0])
    assert {f"OPENAI_BASE_URL={here.url}/v1", f"ANTHROPIC_BASE_URL={here.url}"} <= set(lines)
    assert "It is ready." in lines[0]
    status, page, headers_back = asked(here, "GET", "/", accept="text/html,*/*;q=0.8", host="localhost:7780")
    assert (200, "text/html") == (status, headers_back["content-type"].partition(";")[0])
    assert b"GOOGLE_GEMINI_BASE_URL=http://localhost:7780" in page
    assert "default-src 'none'" == headers_back["content-security-policy"]
    status, page, _ = asked(here, "GET", "/", accept="text/html", host="[::1]<script>")
    assert (True, False) == (status in {200, 421}, b"<script>" in page)


def test_one_line_of_each_kind(here: Proxied, caplog: pytest.LogCaptureFixture) -> None:
    """A page can ask as often as it likes."""
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            asked(here, "POST", CHAT, PROMPT, origin="https://evil.example")
            asked(here, "GET", "/v1/models", host="evil.example")
    lines = [line for line in caplog.messages if "web page of another site" in line]
    assert [1, 1] == [sum(f"its {header} is" in line for line in lines) for header in ("origin", "host")]
    assert 2 == len(lines)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses",
        "/responses",
        "/v1/responses/",
        "/gateway/v1/responses?x=1",
        "/openai/v1/responses",
        "/openai/responses?api-version=2025-04-01-preview",
        "/openai/deployments/gpt-5/responses?api-version=preview",
        "/backend-api/codex/responses",
        "/v1//responses",
        "/v1/respons%65s",
        "/v1/responses/.",
        "/v1/Responses",
    ],
)
@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket", "websocket, x"])
def test_a_websocket_for_prompts_is_sent_to_http(path: str, upgrade: str, refusing: Proxied, counted: Counted) -> None:
    """Codex and OpenCode then use HTTP at once, where prompts are trimmed and masked; nothing reaches the provider."""
    refusing.upstream.only_other = True
    status, body, headers = asked(refusing, "GET", path, **(UPGRADE | {"upgrade": upgrade}))
    assert (426, "HTTP/1.1", "Upgrade, close") == (status, headers["upgrade"], headers["connection"])
    assert "USE_HTTP" == json.loads(body)["error"]["code"]
    assert "application/json" == headers["content-type"]
    assert {("responses", "sent_to_http"): 1} == counted.requests


@pytest.mark.parametrize(
    ("path", "upgrade"),
    [
        *[(path, "websocket") for path in ("/v1//responses", "/v1/respons%65s", "/v1/responses/.", "/v1/Responses")],
        ("/v1/chat/completions", "websocket"),
        ("/v1/messages", "WebSocket"),
    ],
)
def test_a_websocket_that_is_not_trimmed(path: str, upgrade: str, here: Proxied) -> None:
    """It is sent to HTTP also where others are opened: another API, or a path that the provider may not know."""
    here.upstream.only_other = True
    assert 426 == asked(here, "GET", path, **(UPGRADE | {"upgrade": upgrade}))[0]


def test_an_agent_that_falls_back_is_trimmed(here: Proxied) -> None:
    """A WebSocket client is told 426; its next request, over HTTP, is a prompt of a run."""

    async def opened() -> int:
        async with aiohttp.ClientSession() as session:
            try:
                await session.ws_connect(f"{here.url}/v1/responses")
            except aiohttp.WSServerHandshakeError as error:
                return error.status
        return 101

    assert 426 == asyncio.run(opened())
    sent = json.dumps({"model": "scripted", "store": False, "input": [{"role": "user", "content": "Go."}]}).encode()
    status, _, headers = asked(here, "POST", "/v1/responses", sent)
    assert (200, True) == (status, "x-prompt-sidecar-tokens-after" in headers)
    assert 1 == len(here.core)


def test_a_window_that_is_assumed_is_reported(here: Proxied) -> None:
    """A header says so where nothing is known of the model's window; where the agent or the name says it, none does."""

    def window(model: str, **more: str) -> Any:
        sent = json.dumps({"model": model, "store": False, "input": [{"role": "user", "content": "Go."}]}).encode()
        status, _, headers = asked(here, "POST", "/v1/responses", sent, **more)
        assert (200, True) == (status, "x-prompt-sidecar-limit" in headers)
        return headers.get("x-prompt-sidecar-window")

    assert "assumed" == window("scripted")
    assert window("scripted", x_prompt_sidecar_context_window="64000") is None
    assert window("gpt-5") is None


def test_a_recorded_opening() -> None:
    """What a client sent on a WebSocket, untrimmed, comes as a prompt of a run and fits the window of its model."""
    asked_for = json.loads(data.need("failing/websocket_untrimmed.json").read_text())
    message = {name: value for name, value in asked_for["message"].items() if name != "type"}
    for number in range(220):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": f"c{number}", "output": f"{number} line of a log\n" * 200}
        message["input"] += [call, output]
    sent = json.dumps(message).encode()
    assert len(sent) > 800_000
    with proxied(scripted(Says("Done.")), websocket="refuse") as here:
        assert 426 == asked(here, "GET", asked_for["websocket"], **UPGRADE)[0]
        status, _, headers = asked(here, "POST", asked_for["websocket"], sent)
        assert (200, "true") == (status, headers["x-prompt-sidecar-fits"])
        assert int(headers["x-prompt-sidecar-tokens-after"]) < int(headers["x-prompt-sidecar-tokens-before"])
        assert 1 == len(here.core)


def test_after_a_refused_websocket_the_connection_ends(here: Proxied) -> None:
    """Whatever follows on it would be taken for messages, and never be answered."""

    async def received() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.door.port)
        head = "".join(f"{name}: {value}\r\n" for name, value in UPGRADE.items() if name != "sec-websocket-key")
        writer.write(f"GET /v1/realtime HTTP/1.1\r\nhost: a\r\n{head}\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        return await reader.read()

    assert asyncio.run(received()).startswith(b"HTTP/1.1 400 ")


def test_the_rest_of_that_path_passes(here: Proxied) -> None:
    """A stored response is read, and any other WebSocket is the provider's."""
    assert b"the provider" == asked(here, "GET", "/v1/responses/resp_1")[1]
    assert b"the provider" == asked(here, "GET", "/v1/responses")[1]
