"""What the provider counts behind the HTTP door is the sidecar's side of the comparison, hidden turns included."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any, Final

import pytest

from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall, UsageOutcome
from prompt_sidecar.telemetry.observer import Observer
from tests.client.provider import Says
from tests.doors.http.agents import FORMATS, TOOL, Agent, log_of
from tests.doors.http.serving import proxied
from tests.doors.http.test_sdks import OURS
from tests.doors.http.upstream import scripted

LONG: Final = 60.0
"""Seconds that reports may take, which come after the answers."""


class Reports(Observer):
    """Keeps reports, and waits for them."""

    def __init__(self) -> None:
        self.calls: list[UsageCall] = []
        self.arrived = threading.Condition()

    def reported(self, call: UsageCall, answer: UsageAnswer) -> None:
        """Keep it."""
        assert UsageOutcome.RECORDED is answer.outcome
        with self.arrived:
            self.calls.append(call)
            self.arrived.notify_all()

    def wait(self, number: int) -> None:
        """Wait for so many."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.calls) >= number, LONG)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_hidden_turns_are_on_the_bill_as_the_provider_counted_them(format: str, stream: bool) -> None:
    """Each request upstream is counted once, by its own usage; what only recall caused is not on the other side."""
    charged: list[tuple[int, int]] = []
    script = scripted(
        Says("I look.", [("call-1", TOOL, {})]),
        Says("", [("own-1", OURS[1], {"query": "build number"})]),
        Says("", [("own-2", OURS[1], {"query": "what else"})]),
        Says("Done."),
    )

    def model(body: Any) -> Says:
        tokens = len(json.dumps(body)) // 3
        charged.append((tokens, tokens // 2 if len(charged) else 0))
        return replace(script(body), tokens={"input": tokens, "cached": charged[-1][1], "output": 20})

    reports = Reports()
    with proxied(model, observer=reports, window=60_000) as here:
        agent = Agent(format, stream, here.url, [{"role": "user", "content": "Which build failed?"}])
        agent.answer(agent.ask(), log_of)
        assert "Done." == agent.ask().text
        reports.wait(4)
        last = reports.calls[-1]
        found = here.core.figures(last.caller, last.run_id).comparison
    assert [] == here.upstream.defects
    assert (4, 4, 2, 0) == (found.prompts, found.reported, found.recalls, found.refused)
    cached = sum(part for _, part in charged)
    assert (cached, sum(whole for whole, _ in charged) - cached) == (found.returned.kept, found.returned.new)
    assert found.untrimmed.kept + found.untrimmed.new < charged[0][0] + charged[1][0]
