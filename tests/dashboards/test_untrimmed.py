"""The alert on requests that the sidecar did nothing for, by what a real one counts of requests to its HTTP door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml
from aiohttp import web

from prompt_sidecar.facts.untrimmed import LARGE_BYTES
from tests.client.provider import Says
from tests.dashboards.tools import RULES, promtool
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted
from tests.telemetry.watched import Telling, telling

METRIC: Final = "prompt_sidecar_handled_total"
CHAT: Final = "/v1/chat/completions"
LARGE: Final = "a word " * (LARGE_BYTES // 7 + 1)
PROMPT: Final = {"model": "scripted", "messages": [{"role": "user", "content": LARGE}]}
SMALL: Final = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}
EARLIER: Final = 1_000
"""Requests that were counted before: Prometheus takes a counter that begins at 0 to have begun within the window."""
CHAINED: Final = {"model": "scripted", "input": "go on", "previous_response_id": "resp_1"}

Request = tuple[str, Any]
"""A path, and a body, which becomes JSON unless it is bytes; None: a GET."""

ORDINARY: Final[list[Request]] = [
    (CHAT, PROMPT),
    (CHAT, SMALL),
    ("/v1/messages/count_tokens", PROMPT),
    ("/v1/models", None),
    ("/v1/embeddings", {"input": LARGE}),
    ("/api/event_logging/batch", {"events": [LARGE]}),
    ("/v9/odd", {"small": "and unknown"}),
    (CHAT, b"{"),
]


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Proxied, Telling]]:
    """A sidecar whose providers answer anything; its prompts may have 100,000 tokens."""

    async def other(request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.json_response({"input_tokens": 1})

    with telling() as telemetry, proxied(scripted(Says("ok")), observer=telemetry.observer, window=100_000) as here:
        here.upstream.other, here.upstream.only_other = other, True
        yield here, telemetry


async def sent(url: str, requests: Sequence[Request]) -> None:
    """Send requests, one after another."""
    async with aiohttp.ClientSession() as session:
        for path, body in requests:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            asked = session.get(url + path) if body is None else session.post(url + path, data=data)
            async with asked as answer:
                await answer.read()


def counted(telemetry: Telling) -> dict[str, float]:
    """The series of what was done about requests."""
    series = {}
    for sample in telemetry.scrape().samples:
        if sample.name == METRIC:
            labels = ", ".join(f'{name}="{value}"' for name, value in sample.labels.items())
            series[labels] = sample.value
    return series


@pytest.mark.parametrize(
    ("requests", "share"),
    [
        pytest.param([*ORDINARY * 2], "", id="ordinary"),
        pytest.param([*ORDINARY * 2, *[("/v9/thoughts", PROMPT)] * 6], "60%", id="an unknown path"),
        pytest.param([*ORDINARY * 2, *[(CHAT, LARGE.encode())] * 6], "60%", id="unreadable"),
        pytest.param([*ORDINARY * 2, *[("/v1/responses", CHAINED)] * 6], "60%", id="stored by the provider"),
        pytest.param([*ORDINARY * 2, *[("/v9/thoughts", PROMPT)] * 3], "", id="three alone"),
    ],
)
def test_the_alert_fires_where_trimming_was_missed(
    running: tuple[Proxied, Telling], tmp_path: Path, requests: Sequence[Request], share: str
) -> None:
    """By the program's own figures before and after requests, as Prometheus would have scraped them."""
    here, telemetry = running
    before = counted(telemetry)
    asyncio.run(sent(here.url, requests))
    after = counted(telemetry)
    assert sum(after.values()) - sum(before.values()) == len(requests)

    job = 'job="prompt-sidecar", instance="a:9464"'
    alert = {
        "exp_labels": {"severity": "ticket", "job": "prompt-sidecar", "instance": "a:9464"},
        "exp_annotations": {
            "summary": "Large prompts go on untrimmed that should be trimmed",
            "description": f"{share} of the large prompts through a:9464 go on as they came: the sidecar does not know "
            "their path, cannot read them, or has not their history.",
            "runbook_url": "docs/runbooks/PromptSidecarUntrimmed.md",
            "runs_url": "http://127.0.0.1:7719/runs?sort=missed",
        },
    }
    case = {
        "interval": "1m",
        "input_series": [
            {
                "series": f"{METRIC}{{{job}, {labels}}}",
                "values": f"{EARLIER + before[labels]:g}x10 {EARLIER + value:g}x20",
            }
            for labels, value in after.items()
        ],
        "alert_rule_test": [
            {"eval_time": "28m", "alertname": "PromptSidecarUntrimmed", "exp_alerts": [alert] if share else []}
        ],
    }
    test = tmp_path / "test.yaml"
    test.write_text(yaml.safe_dump({"rule_files": [str(rule) for rule in RULES], "tests": [case]}), encoding="utf-8")
    done = promtool("test", "rules", test)
    assert 0 == done.returncode, done.stdout + done.stderr
