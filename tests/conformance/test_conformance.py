"""What the sidecar returns is what the provider takes: recorded requests, made histories, blocks that nobody knows."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from prompt_sidecar.v1 import trim_pb2
from tests.conformance.case import INVENTED, Case
from tests.conformance.recorded import CAP, changed, presets, sent, tally
from tests.conformance.table import CASES
from tests.conformance.traffic import recorded
from tests.doors.grpc.serving import serving
from tests.promises.engine import Engine

RECORDED = [case for case in CASES.values() if case.traffic]
formats = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
recorded_formats = pytest.mark.parametrize("case", RECORDED, ids=[case.format for case in RECORDED])
by_preset = pytest.mark.parametrize("preset", presets())


@recorded_formats
def test_the_validator_takes_what_the_provider_took(case: Case) -> None:
    """No recorded request that was accepted has a defect."""
    requests = recorded(case.traffic, 200)
    assert requests
    assert [] == [defect for request in requests for defect in case.defects(request.body)]


@recorded_formats
def test_the_validator_refuses_what_the_provider_refused(case: Case) -> None:
    """Every recorded refusal that concerns the structure of messages is a defect."""
    refused = [
        request for request in recorded(case.traffic, 400) if any(words in request.error for words in case.structural)
    ]
    assert len(refused) >= len(case.structural)
    assert [] == [request.error for request in refused if not case.defects(request.body)]


@by_preset
@recorded_formats
def test_recorded_requests_stay_acceptable(case: Case, preset: str) -> None:
    """Whatever the limit, what comes back has no defect."""
    found = tally(case, preset)
    print(f"{case.format} {preset}: {found.row()}")
    assert [] == found.defects
    assert found.trimmed > 0 or preset == "cap_only"  # no recorded result passes the lowest cap


@recorded_formats
def test_what_forces_nothing_changes_nothing(case: Case) -> None:
    """With room for all and no text of ours a body comes back byte for byte, and takes no edit."""
    assert [] == changed(case)


@recorded_formats
def test_over_the_wire(case: Case) -> None:
    """A real server answers some of the requests as the core does, without a defect."""
    with serving() as server:
        for number, request in enumerate(recorded(case.traffic, 200)[::8]):
            prompt = trim_pb2.JsonPrompt(
                format=trim_pb2.Format.Value(f"FORMAT_{case.format.upper()}"), body=sent(request.body)
            )
            answer = server.stub.TrimPrompt(
                trim_pb2.TrimPromptRequest(run_id=f"run-{number}", json=prompt, context_window=400, output_reserve=0)
            )
            assert [] == case.defects(json.loads(answer.json_body))


@pytest.mark.parametrize("limit", [200, 2_000, 6_000, 30_000])
@by_preset
@formats
def test_made_histories_stay_acceptable(case: Case, preset: str, limit: int) -> None:
    """The same of histories with every kind of block, whatever else the body says of where our text may stand."""
    for seed in range(3):
        for head in case.heads:
            body = case.history(random.Random(seed), 14) | dict(head)
            assert [] == case.defects(body)
            answer = Engine(limit=limit, preset=preset, policy=CAP).trim(case.format, sent(body))
            assert [] == case.defects(json.loads(answer.prompt.body or b""))


@formats
def test_invented_blocks_pass_untouched(case: Case) -> None:
    """A block of a kind that no reader knows comes back as it was, or leaves with the whole iteration."""
    sent_blocks = stayed = trimmed = 0
    for seed in range(12):
        body = case.history(random.Random(seed), 14)
        before = invented(body)
        sent_blocks += len(before)
        for limit in (300, 3_000, 12_000):
            answer = Engine(limit=limit).trim(case.format, sent(body))
            after = invented(json.loads(answer.prompt.body or b""))
            assert [] == [block for block in after if block not in before]
            stayed += len(after)
            trimmed += len(answer.trimmed.trims)
    assert sent_blocks > 0
    assert stayed > 0
    assert trimmed > 0


def invented(value: Any) -> list[str]:
    """The blocks in a JSON value that are named so, each as text."""
    if isinstance(value, list):
        return [block for member in value for block in invented(member)]
    if not isinstance(value, dict):
        return []
    if INVENTED in value or value.get("type") == INVENTED:
        return [json.dumps(value, sort_keys=True)]
    return [block for member in value.values() for block in invented(member)]
