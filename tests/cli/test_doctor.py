"""`prompt-sidecar doctor`: what is wrong, in a sentence each, with what to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from aiohttp import web

from prompt_sidecar.cli.doctor import UNTRIMMED, Diagnosis, Severity, examine
from prompt_sidecar.config.settings import load
from prompt_sidecar.facts.untrimmed import LARGE_BYTES, Untrimmed
from prompt_sidecar.telemetry.readings import version
from tests.cli.running import environment, program, run
from tests.cli.test_starts import arguments, free_port
from tests.client.provider import Says
from tests.doors.http.serving import proxied
from tests.doors.http.test_passing import _post
from tests.doors.http.upstream import scripted
from tests.telemetry.watched import telling

KEYS = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k"}
GIB = 1 << 30
BUILD = f'prompt_sidecar_build_info{{version="{version()}",python="3"}} 1\n'


@contextlib.contextmanager
def listener() -> Iterator[int]:
    """A port of loopback that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made.getsockname()[1]


@contextlib.contextmanager
def metrics(text: str, date: str = "") -> Iterator[str]:
    """An address at which `/metrics` shows this; `date` is the answer's, by default the present."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(200)
            self.send_header("date", date or self.date_time_string())
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *_: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def found(
    flags: Mapping[str, str], variables: Mapping[str, str] | None = None, memory: int = 0
) -> dict[tuple[str, str], list[Diagnosis]]:
    """All findings, by level and subject."""
    given = {"server.listen": "", "server.socket": "/nowhere", "telemetry.metrics_listen": "", **flags}
    by: dict[tuple[str, str], list[Diagnosis]] = {}
    key = {"PROMPT_SIDECAR_KEY": "k" * 32} if "store.url" in flags else {}
    for each in examine(load(key, flags=given), variables or {}, memory):
        by.setdefault((each.level.value, each.about), []).append(each)
    return by


def problem(about: str, flags: Mapping[str, str], variables: Mapping[str, str] | None = None, memory: int = 0) -> str:
    """The line of the one problem with something."""
    (only,) = found(flags, variables, memory)[Severity.PROBLEM, about]
    assert only.advice
    return only.line


def test_a_door_that_nobody_asked_for() -> None:
    """It is said how to open it."""
    assert "http.listen is empty" in problem("http door", {})
    assert "Start it with serve --http 127.0.0.1:7780" in problem("http door", {})


def test_a_door_that_is_closed() -> None:
    """The address is named, and why nobody is there."""
    address = f"127.0.0.1:{free_port()}"
    assert f"http.listen {address} cannot be connected to (connection refused)" in problem(
        "http door", {"http.listen": address}
    )


@pytest.mark.parametrize(
    ("value", "level", "message"),
    [
        ("http://127.0.0.1:{port}/v1", Severity.OK, "OPENAI_BASE_URL leads to the sidecar"),
        ("http://localhost:{port}/v1/", Severity.OK, "OPENAI_BASE_URL leads to the sidecar"),
        ("http://127.0.0.1:{port}", Severity.NOTE, "leads to the sidecar with the path /"),
        (
            "https://u:secret@api.example/v1",
            Severity.PROBLEM,
            "leads to https://api.example/v1, and not to the sidecar",
        ),
        (
            "",
            Severity.PROBLEM,
            "OPENAI_BASE_URL is not set, so agents started here call https://api.openai.com themselves",
        ),
    ],
    ids=["right", "by name", "no path", "elsewhere", "unset"],
)
def test_an_agent_s_base_url(value: str, level: Severity, message: str) -> None:
    """Where it leads to, and what to export; nothing secret of it is shown."""
    with listener() as port, listener() as upstream:
        flags = {"http.listen": f"127.0.0.1:{port}", "http.openai_upstream": f"http://127.0.0.1:{upstream}"}
        lines = [
            each
            for each in found(flags, {"OPENAI_BASE_URL": value.format(port=port)})[level, "environment"]
            if each.found.startswith("OPENAI_BASE_URL")
        ]
    assert message in lines[0].found
    assert level is Severity.OK or f"export OPENAI_BASE_URL=http://127.0.0.1:{port}/v1" in lines[0].advice


def test_one_base_url_is_enough() -> None:
    """Who uses one provider alone has no problem with the others, whose variables are not set."""
    with listener() as port, listener() as upstream:
        flags = {"http.listen": f"127.0.0.1:{port}", "http.anthropic_upstream": f"http://127.0.0.1:{upstream}"}
        by = found(flags, {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"})
    assert (Severity.PROBLEM, "environment") not in by


@pytest.mark.parametrize(
    ("about", "setting", "url"),
    [
        ("upstream", "http.openai_upstream", "http://127.0.0.1:{port}"),
        ("store", "store.url", "valkey://127.0.0.1:{port}/0"),
        ("collector", "telemetry.otlp_endpoint", "http://127.0.0.1:{port}"),
    ],
    ids=["upstream", "store", "collector"],
)
def test_what_it_needs_is_connected_to(about: str, setting: str, url: str) -> None:
    """It is fine where something takes connections, and a problem where nothing does."""
    with listener() as port:
        assert found({setting: url.format(port=port)})[Severity.OK, about]
    assert "connected to (connection refused)" in problem(about, {setting: url.format(port=port)})


@pytest.mark.parametrize(
    ("series", "about", "message"),
    [
        ('prompt_sidecar_windows_assumed_total{format="openai_chat"} 3\n', "window", "of 3 prompts the model's window"),
        (
            'prompt_sidecar_recall_offers_total{door="http",outcome="forced"} 2\n',
            "recall",
            "with 2 prompts it was not offered",
        ),
        (
            'prompt_sidecar_handled_total{door="http",outcome="signed",size="large"} 1\n',
            "trimming",
            "1 request went on untrimmed: signed",
        ),
    ],
    ids=["windows", "recall", "untrimmed"],
)
def test_what_its_metrics_show(series: str, about: str, message: str) -> None:
    """Prompts whose window is not known, and prompts without recall, with the reason."""
    kind = f"# TYPE {series.partition('{')[0]} counter\n"
    with metrics(BUILD + kind + series) as address:
        assert message in problem(about, {"telemetry.metrics_listen": address})


def test_every_reason_has_its_advice() -> None:
    """Each reason of the closed list that a page says something about; the others are as they should be."""
    assert {Untrimmed.NO_NEED, Untrimmed.NO_PROMPT, Untrimmed.COUNTING, Untrimmed.BYPASSED} == set(Untrimmed) - set(
        UNTRIMMED
    )


def test_the_figures_of_a_real_door() -> None:
    """What it counted of a request to an unknown path, and of one that goes on from what the provider stores."""
    large = "a word " * (LARGE_BYTES // 7 + 1)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/v9/odd", {"messages": large}),
        ("/v1/responses", {"model": "scripted", "input": "go on", "previous_response_id": "resp_1"}),
    ]

    async def anything(request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.json_response({})

    with telling() as telling_facts:
        with proxied(scripted(Says("ok")), observer=telling_facts.observer) as here:
            here.upstream.other, here.upstream.only_other = anything, True
            for path, body in requests:
                asyncio.run(_post(here.url + path, json.dumps(body).encode()))
        by = found({"telemetry.metrics_listen": f"127.0.0.1:{telling_facts.port}"})
    lines = [each.line for each in by[Severity.PROBLEM, "trimming"]]
    assert ["unknown_path", "stored_by_provider"] == [line.partition("untrimmed: ")[2].split(".")[0] for line in lines]
    assert "1 request went on untrimmed: stored_by_provider. Have the agent send its history" in lines[1]
    (recall,) = by[Severity.PROBLEM, "recall"]
    assert "with 2 prompts it was not offered: untrimmed" in recall.found


def test_another_version() -> None:
    """Both are named."""
    with metrics('prompt_sidecar_build_info{version="0.0.1",python="3"} 1\n') as address:
        message = problem("version", {"telemetry.metrics_listen": address})
    assert f"the sidecar that runs is version 0.0.1, and this command is {version()}" in message


def test_clocks_that_differ() -> None:
    """The answer's own date shows it."""
    with metrics(BUILD, "Sat, 01 Jan 2000 00:00:00 GMT") as address:
        assert "clock and this machine's are" in problem("clock", {"telemetry.metrics_listen": address})


def test_metrics_of_something_else() -> None:
    """What answers there is no sidecar."""
    with metrics("up 1\n") as address:
        assert "what answers there is no sidecar" in problem("metrics", {"telemetry.metrics_listen": address})


def test_little_memory() -> None:
    """Budgets that shrink are worth a note; too little for them is a problem."""
    assert "smaller than set" in found({}, memory=GIB // 2)[Severity.NOTE, "memory"][0].found
    assert "may come to" in problem("memory", {}, memory=GIB // 16)


def test_what_may_be_as_wanted() -> None:
    """No key, no API key, a guard that only looks: notes, and no problem."""
    by = found({})
    assert "do not outlive the sidecar's process" in by[Severity.NOTE, "key"][0].found
    assert "OPENAI_API_KEY is not set" in by[Severity.NOTE, "environment"][0].found
    assert "guard.mode is audit" in by[Severity.NOTE, "guard"][0].found
    assert (Severity.OK, "guard") in found({"guard.mode": "enforce"}, KEYS)
    assert (Severity.NOTE, "environment") not in found({}, KEYS)


def test_a_sidecar_that_runs() -> None:
    """The command finds no problem with it, and one where the agents' variables lead elsewhere."""
    port, grpc, health, figures = free_port(), free_port(), free_port(), free_port()
    with listener() as upstream:
        flags = arguments(port, f"http://127.0.0.1:{upstream}", health)
        flags += ["--listen", f"127.0.0.1:{grpc}", "--set", f"telemetry.metrics_listen=127.0.0.1:{figures}"]
        with program(*flags) as server:
            server.wait_for("ready")
            good = environment() | KEYS | {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
            with pytest.MonkeyPatch.context() as patch:
                for name, value in good.items():
                    patch.setenv(name, value)
                well = run("doctor", *flags)
                patch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
                ill = run("doctor", "--json", *flags)
    assert 0 == well.returncode, well.stdout
    assert "no problem" in well.stdout
    assert f"ok       readiness    the sidecar serves gRPC at 127.0.0.1:{grpc}." in well.stdout
    assert 1 == ill.returncode
    assert {"environment"} == {each["about"] for each in json.loads(ill.stdout) if each["level"] == "problem"}
