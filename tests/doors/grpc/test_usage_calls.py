"""ReportUsage over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from prompt_sidecar.v1 import comparison_pb2, run_pb2, trim_pb2, usage_pb2
from tests.doors.grpc.serving import PATIENCE, Serving, failure, request, serving

Request = usage_pb2.ReportUsageRequest
Refusal = usage_pb2.PromptRefusal


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    """One server for the tests, each of which has runs of its own."""
    with serving() as running:
        yield running


def _prompt(size: int = 400) -> bytes:
    text = " ".join(f"word{number}" for number in range(size))
    return json.dumps([{"role": "user", "content": text}]).encode()


def _trim(served: Serving, run_id: str, window: int = 0) -> trim_pb2.TrimPromptResponse:
    """Trim as a model of the run's own: what one test reports must not correct the figures of another."""
    asked = request(run_id, _prompt())
    asked.model, asked.context_window = f"unheard-of {run_id}", window
    return served.stub.TrimPrompt(asked, timeout=PATIENCE)


def _report(served: Serving, run_id: str, **fields: Any) -> usage_pb2.ReportUsageResponse:
    return served.stub.ReportUsage(Request(run_id=run_id, **fields), timeout=PATIENCE)


def test_reports_correct_the_figures(served: Serving) -> None:
    """After three reports the answers' figures are the provider's, and say by which factor."""
    first = _trim(served, "corrected").tokens
    real = round(first.after * 1.3)
    for _ in range(3):
        sent = _trim(served, "corrected")
        answer = _report(served, "corrected", input_tokens=real, revision=sent.revision)
        assert usage_pb2.CALIBRATION_USE_USED == answer.calibration_use
    tokens = _trim(served, "corrected").tokens
    assert real == pytest.approx(tokens.after, rel=0.03)
    assert 1.3 == pytest.approx(tokens.calibration_factor, rel=0.03)
    assert first.limit == tokens.limit


def test_answers_say_what_trimming_saves(served: Serving) -> None:
    """Each answer has the run's comparison with never trimming so far, the same as GetRun; a report corrects it."""

    def of_run() -> comparison_pb2.Comparison:
        return served.stub.GetRun(run_pb2.GetRunRequest(run_id="saved"), timeout=PATIENCE).run.comparison

    sent = _trim(served, "saved")
    assert of_run() == sent.comparison
    saved = sent.comparison
    assert (1, 0) == (saved.prompts, saved.reported)
    assert (sent.tokens.after, sent.tokens.before) == (saved.returned.new_tokens, saved.untrimmed.new_tokens)
    answer = _report(served, "saved", input_tokens=sent.tokens.after + 7, revision=sent.revision)
    assert of_run() == answer.comparison
    assert (1, sent.tokens.after + 7) == (answer.comparison.reported, answer.comparison.returned.new_tokens)
    asked = request("saved", _prompt())
    asked.dry_run = True
    assert not served.stub.TrimPrompt(asked, timeout=PATIENCE).HasField("comparison")


def test_a_report_comes_once(served: Serving) -> None:
    """A retried report is answered as the first was, and says so."""
    _trim(served, "once")
    assert usage_pb2.USAGE_OUTCOME_RECORDED == _report(served, "once", input_tokens=900).outcome
    again = _report(served, "once", input_tokens=100)
    assert (usage_pb2.USAGE_OUTCOME_REPEATED, 900) == (again.outcome, again.real_tokens)


def test_a_refusal_lowers_the_next_limit(served: Serving) -> None:
    """The limit that the provider named is in force at the run's next prompt, and at no other run's."""
    _trim(served, "refused", window=100_000)
    refusal = Refusal(message="prompt is too long: 60001 tokens > 50000 maximum")
    answer = _report(served, "refused", refusal=refusal)
    assert (50_000, 60_001) == (answer.learned_limit, answer.real_tokens)
    assert answer.next_limit == _trim(served, "refused", window=100_000).tokens.limit <= 50_000
    assert 100_000 == _trim(served, "not refused", window=100_000).tokens.limit


def test_a_run_that_is_not_known(served: Serving) -> None:
    """It is NOT_FOUND, with the reason that says what to do."""
    answer = failure(lambda: _report(served, "nobody's", input_tokens=5))
    assert ("NOT_FOUND", "RUN_UNKNOWN") == (answer.code, answer.reason)


def test_a_call_that_failed_is_compared_with_nothing(served: Serving) -> None:
    """It is on neither side until it is sent again, or what it took is reported after all; reported twice it is one."""

    def of_run(run_id: str) -> run_pb2.RunFigures:
        return served.stub.GetRun(run_pb2.GetRunRequest(run_id=run_id), timeout=PATIENCE).run

    for run_id in ("again", "after all"):
        revision = _trim(served, run_id).revision
        estimate = of_run(run_id).comparison
        assert (1, 0) == (estimate.prompts, estimate.reported)
        answer = _report(served, run_id, failed=True, revision=revision)
        assert usage_pb2.USAGE_OUTCOME_FAILED == answer.outcome
        assert (0, 0) == (answer.comparison.prompts, answer.comparison.untrimmed.new_tokens)
        assert answer.comparison == of_run(run_id).comparison
        assert usage_pb2.USAGE_OUTCOME_REPEATED == _report(served, run_id, failed=True, revision=revision).outcome
        assert (1, 0) == (of_run(run_id).failed_calls, of_run(run_id).usage.reports)
    sent = _trim(served, "again")
    assert estimate == sent.comparison == of_run("again").comparison
    for run_id in ("again", "after all"):
        answer = _report(served, run_id, input_tokens=900, revision=b"")
        assert usage_pb2.USAGE_OUTCOME_RECORDED == answer.outcome
        assert (1, 1, 900) == (
            answer.comparison.prompts,
            answer.comparison.reported,
            answer.comparison.returned.new_tokens,
        )
        assert usage_pb2.USAGE_OUTCOME_REPEATED == _report(served, run_id, failed=True).outcome
        assert answer.comparison == of_run(run_id).comparison


def test_a_prompt_that_was_refused_is_no_failed_call(served: Serving) -> None:
    """Both in one report is an error."""
    _trim(served, "both")
    answer = failure(lambda: _report(served, "both", failed=True, refusal=Refusal(message="too long")))
    assert "INVALID_ARGUMENT" == answer.code
