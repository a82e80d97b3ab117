"""Events of a real server as log records: which, with what, within whose trace, and never more than so many."""

from __future__ import annotations

from collections import Counter

import pytest
from opentelemetry._logs import LogRecord

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.money import Money
from prompt_sidecar.guard.ceilings import CeilingAction, CeilingPrices, Ceilings
from prompt_sidecar.telemetry.events import CACHE_BREAK, CUT, EVENTS, FINDING, MOST_FINDINGS, REFUSAL
from prompt_sidecar.trim.presets import preset
from tests.doors.grpc.serving import failure
from tests.telemetry.test_spans import METADATA, TRACE
from tests.telemetry.watched import messages, prompt, prompt_of, watched

KEYS = "AKIA" + "FAKE0NOTREAL1BUT", "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"

ONE_CALL = Rules(
    CallerRules(preset("cache_first"), {}, Ceilings(run_model_calls=1, run_model_calls_action=CeilingAction.REFUSE)),
    {},
    Money(CeilingPrices({})),
)


def _event_of(record: LogRecord) -> dict[str, object]:
    """A record's attributes without whose they are."""
    attributes: dict[str, object] = dict(record.attributes or {})
    assert "run" == attributes.pop("prompt_sidecar.run.id")
    assert "openai_chat" == attributes.pop("prompt_sidecar.prompt.format")
    return attributes


def test_each_cut_is_one_event_in_its_agents_trace() -> None:
    """With the figures of its answer; a prompt that trims nothing new has none."""
    with watched() as server:
        answers = [
            server.served.stub.TrimPrompt(prompt(iterations, model="gpt-4o"), metadata=METADATA)
            for iterations in range(1, 24)
        ]
        records = server.events()
    compacted = [answer for answer in answers if answer.compacted]
    assert [CUT] * len(compacted) == [record.event_name for record in records]
    assert compacted
    for answer, record in zip(compacted, records, strict=True):
        event = _event_of(record)
        assert TRACE == record.trace_id
        assert record.span_id
        assert record.timestamp
        assert (answer.iteration, "gpt-4o") == (event["prompt_sidecar.prompt.iteration"], event["gen_ai.request.model"])
        assert answer.tokens.after == event["prompt_sidecar.prompt.tokens.after"]
    tokens = sum(int(str(_event_of(record)["prompt_sidecar.batch.tokens"])) for record in records)
    assert sum(trim.tokens_saved for trim in answers[-1].trims) == tokens


def test_a_change_by_the_agent() -> None:
    """It is an event of its own; a cut is none of these."""
    with watched() as server:
        sent = messages(3)
        server.served.stub.TrimPrompt(prompt_of(sent))
        sent[0] = {"role": "user", "content": "Find another culprit."}
        server.served.stub.TrimPrompt(prompt_of(sent))
        (record,) = server.events()
    assert CACHE_BREAK == record.event_name
    assert "WARN" == record.severity_text
    assert "agent" == _event_of(record)["prompt_sidecar.cache.break.cause"]


@pytest.mark.parametrize(
    ("limits", "rules", "reason", "bound"),
    [
        (Limits(run_messages=20), None, "TOO_LARGE", "limits.run_messages"),
        (None, ONE_CALL, "RUN_CEILING", ""),
    ],
    ids=["bound", "ceiling"],
)
def test_a_refused_prompt(limits: Limits | None, rules: Rules | None, reason: str, bound: str) -> None:
    """Its reason, and the bound if one was reached."""
    with watched(limits=limits, rules=rules) as server:
        server.served.stub.TrimPrompt(prompt(0))
        failure(lambda: server.served.stub.TrimPrompt(prompt(20)))
        (record,) = [record for record in server.events() if record.event_name == REFUSAL]
    event = _event_of(record)
    assert (reason, bound) == (event["error.type"], event.get("prompt_sidecar.bound", ""))


def test_a_request_that_is_none() -> None:
    """It has no run; and an error that is not the sidecar's own word is internal."""
    with watched() as server:
        failure(lambda: server.served.stub.TrimPrompt(prompt(1, run_id="")))
        server.served.gate.replace(lambda: 1 / 0)
        failure(lambda: server.served.stub.TrimPrompt(prompt(1)))
        records = server.events()
    assert ["INVALID_REQUEST", "INTERNAL"] == [(record.attributes or {})["error.type"] for record in records]
    assert ["WARN", "ERROR"] == [record.severity_text for record in records]
    assert "prompt_sidecar.run.id" not in (records[0].attributes or {})


def test_findings_become_events_without_text() -> None:
    """One for each rule and action, with how often; no text."""
    with watched() as server:
        sent = [{"role": "user", "content": f"Use {KEYS[0]} and {KEYS[1]}, not {KEYS[1][:-1]}x."}]
        answer = server.served.stub.TrimPrompt(prompt_of(sent))
        records = server.events()
    expected: Counter[str] = Counter()
    for finding in answer.findings:
        expected[finding.rule] += finding.count
    assert {FINDING} == {record.event_name for record in records}
    found = {
        str(_event_of(each)["prompt_sidecar.guard.rule"]): _event_of(each)["prompt_sidecar.guard.count"]
        for each in records
    }
    assert dict(expected) == found
    assert not any(key in repr(record.attributes) for key in KEYS for record in records)
    assert len(found) <= MOST_FINDINGS


def test_a_dry_run_is_no_event() -> None:
    """It changes nothing."""
    with watched() as server:
        server.served.stub.TrimPrompt(prompt(24, dry_run=True))
        assert [] == server.events()


def test_the_events_are_documented() -> None:
    """Each has a row of docs/telemetry.md."""
    from tests.telemetry.telemetry_page import PAGE

    page = PAGE.read_text(encoding="utf-8")
    assert [] == [name for name in EVENTS if f"| `{name}` |" not in page]
