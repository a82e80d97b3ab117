"""A prompt whose provider failed adds neither money nor tokens: no cost, and nothing that was saved."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from prompt_sidecar.facts.money import ModelCost
from prompt_sidecar.telemetry import catalog
from tests.client.provider import MODEL, Says
from tests.dashboards.by_door import TOOL, as_sent, history
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import Proxied, proxied
from tests.telemetry.test_money import RULES
from tests.telemetry.watched import Figures, telling
from tests.waiting import until

RUN: Final = "money"
RESULT: Final = "line of a log, nothing to see here\n" * 1_500
"""A tool's result that is condensed, so that each prompt saves something."""
USAGE: Final = {"prompt_tokens": 900, "completion_tokens": 5, "total_tokens": 905}
"""Which a provider that fails may write into its error nevertheless."""


class Hangs:
    """A provider that answers nothing until it may."""

    def __init__(self) -> None:
        self.reached, self.ends = threading.Event(), threading.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Wait."""
        await request.read()
        self.reached.set()
        await asyncio.to_thread(self.ends.wait, PATIENCE)
        return web.Response()


def asked(here: Proxied, calls: int, hangs: Hangs | None = None) -> None:
    """Send a run's prompt with the results of so many calls; leave once it has reached a provider that hangs."""
    body = {"model": MODEL, "messages": history(calls, RESULT), "tools": [TOOL]}

    async def send() -> None:
        async with aiohttp.ClientSession() as session:
            url = here.url + "/v1/chat/completions"
            async with session.post(url, json=body, headers={"x-prompt-sidecar-run": RUN}) as answer:
                await answer.read()

    async def run() -> None:
        sending = asyncio.ensure_future(send())
        if hangs is not None:
            await asyncio.to_thread(hangs.reached.wait, PATIENCE)
            sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending

    asyncio.run(run())


async def _unavailable(request: web.Request) -> web.StreamResponse:
    await request.read()
    return web.json_response({"error": {"message": "down"}, "model": MODEL, "usage": USAGE}, status=503)


async def _gone(request: web.Request) -> web.StreamResponse:
    await request.read()
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def money_of(figures: Figures) -> tuple[float, ...]:
    """What the metrics say of it: cost, both sides of the estimate, and calls without a price."""
    sides = (figures.of(catalog.COST_COMPARED, prompts=prompts) for prompts in ("returned", "untrimmed"))
    return figures.of(catalog.COST), *sides, figures.of(catalog.COST_UNPRICED)


def tokens_of(figures: Figures) -> tuple[float, ...]:
    """The comparison with never trimming in tokens, as the boards reckon it: kept and new ones of both sides."""
    return tuple(
        figures.of(catalog.COMPARED_TOKENS, prompts=prompts, state=state)
        - figures.of(catalog.RECOUNTED_TOKENS, prompts=prompts, state=state, by="estimate")
        + figures.of(catalog.RECOUNTED_TOKENS, prompts=prompts, state=state, by="report")
        for prompts in ("returned", "untrimmed")
        for state in ("kept", "new")
    )


def costs(here: Proxied) -> tuple[ModelCost, ...]:
    """What the run cost, and saved, by model."""
    return tuple(here.core.figures("local", RUN).model_costs)


@pytest.mark.parametrize(
    ("fails", "outcome"),
    [(_unavailable, "failed"), (_gone, "unreachable"), (Hangs(), "abandoned")],
    ids=["503", "unreachable", "left"],
)
def test_a_call_that_failed_has_saved_nothing(fails: Callable[[web.Request], Any], outcome: str) -> None:
    """The same run's answered prompt has saved; the next one, which saves as much again, is not answered.

    Sent again and answered it has saved as much as if nothing had failed.
    """

    def model(body: Any) -> Says:
        return Says("Done.", tokens=as_sent(len(json.dumps(body))))

    with telling() as telemetry, proxied(model, observer=telemetry.observer, rules=RULES, window=60_000) as here:
        asked(here, 2)
        until(lambda: telemetry.scrape().of(catalog.COST) > 0)
        until(lambda: telemetry.scrape().of(catalog.USAGE_REPORTS, outcome="recorded") == 1)
        before, money, tokens = costs(here), money_of(telemetry.scrape()), here.core.figures("local", RUN).comparison
        panels = tokens_of(telemetry.scrape())
        assert tokens.untrimmed.new > tokens.returned.new > 0
        assert before[0].estimated_saved > 0
        here.upstream.other, here.upstream.only_other = fails, True
        hangs = fails if isinstance(fails, Hangs) else None
        try:
            asked(here, 3, hangs)
            until(lambda: telemetry.scrape().of(catalog.PROVIDER_CALLS, outcome=outcome) >= 1)
        finally:
            if hangs is not None:
                hangs.ends.set()
        until(lambda: telemetry.scrape().of(catalog.USAGE_REPORTS, outcome="failed") == 1)
        failed = here.core.figures("local", RUN)
        assert before == costs(here)
        assert money == money_of(telemetry.scrape())
        assert (tokens, 1) == (failed.comparison, failed.usage.failures)
        assert panels == tokens_of(telemetry.scrape())
        here.upstream.only_other = False
        asked(here, 3)
        until(lambda: telemetry.scrape().of(catalog.USAGE_REPORTS, outcome="recorded") == 2)
        again, found = here.core.figures("local", RUN).comparison, telemetry.scrape()
        assert (2, 2) == (again.prompts, again.reported)
        assert again.untrimmed.new > tokens.untrimmed.new
        assert tokens_of(found) == (again.returned.kept, again.returned.new, again.untrimmed.kept, again.untrimmed.new)
        assert found.of(catalog.RECOUNTED_PROMPTS, how="compared") == 2
