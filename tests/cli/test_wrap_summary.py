"""What the end of `wrap` says, from figures alone."""

from __future__ import annotations

import pytest

from prompt_sidecar.cli.wrap_summary import WrapSummary, summarised
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.exposition import family
from prompt_sidecar.telemetry.shown import MetricFamilies

COSTS = family(catalog.COST_COMPARED)

REQUESTS = """\
# TYPE prompt_sidecar_http_requests_total counter
prompt_sidecar_http_requests_total{route="messages",outcome="answered"} 10
prompt_sidecar_http_requests_total{route="messages",outcome="failed_open"} 2
prompt_sidecar_http_requests_total{route="responses",outcome="sent_to_http"} 1
prompt_sidecar_http_requests_total{route="passed_through",outcome="answered"} 3
# TYPE prompt_sidecar_prompt_tokens_total counter
prompt_sidecar_prompt_tokens_total{state="before",format="anthropic_messages",model="a"} 1000
prompt_sidecar_prompt_tokens_total{state="before",format="anthropic_messages",model="b"} 1000
prompt_sidecar_prompt_tokens_total{state="after",format="anthropic_messages",model="a"} 500
"""
COMPARED = """\
# TYPE prompt_sidecar_comparison_tokens_total counter
prompt_sidecar_comparison_tokens_total{prompts="returned",state="kept"} 1000
prompt_sidecar_comparison_tokens_total{prompts="returned",state="new"} 100
prompt_sidecar_comparison_tokens_total{prompts="untrimmed",state="kept"} 1000
prompt_sidecar_comparison_tokens_total{prompts="untrimmed",state="new"} 280
"""
MONEY = f"""\
# TYPE {COSTS}_total counter
{COSTS}_total{{prompts="returned",model="a",currency="USD"}} 1.25
{COSTS}_total{{prompts="untrimmed",model="a",currency="USD"}} 4.5
"""
FOUND = """\
# TYPE prompt_sidecar_guard_findings_total counter
prompt_sidecar_guard_findings_total{rule="a",action="masked"} 3
prompt_sidecar_guard_findings_total{rule="b",action="observed"} 1
# TYPE prompt_sidecar_retrievals_total counter
prompt_sidecar_retrievals_total{outcome="hit",via="tool"} 4
prompt_sidecar_retrievals_total{outcome="expired",via="tool"} 1
# TYPE prompt_sidecar_searches_total counter
prompt_sidecar_searches_total{outcome="found",via="tool"} 2
"""


DONE = """\
# TYPE prompt_sidecar_handled_total counter
prompt_sidecar_handled_total{door="http",outcome="trimmed",size="large"} 5
prompt_sidecar_handled_total{door="http",outcome="no_need",size="small"} 4
prompt_sidecar_handled_total{door="http",outcome="no_prompt",size="small"} 3
"""
MISSED = """\
prompt_sidecar_handled_total{door="http",outcome="stored_by_provider",size="large"} 2
"""
CONDENSED = """\
# TYPE prompt_sidecar_condensed_tokens_total counter
prompt_sidecar_condensed_tokens_total{reduction="a"} 1000
prompt_sidecar_condensed_tokens_total{reduction="b"} 234
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (REQUESTS, "requests  16, of which 12 prompts; 2 failed open"),
        (REQUESTS, "saved     75% of the prompts' tokens: 2,000 untrimmed, 500 sent"),
        (REQUESTS + COMPARED, "they cost some 50% of what they would have untrimmed"),
        (REQUESTS + MONEY, "; 1.25 USD for them, and an estimated 4.50 untrimmed"),
        (REQUESTS + FOUND, "recalled  4 originals by id, 2 searches"),
        (REQUESTS + FOUND, "guard     1 observed, 3 masked"),
        (REQUESTS, "guard     found nothing"),
        (REQUESTS + DONE, "untrimmed 4 requests: 4 no_need\nrecalled"),
        (REQUESTS + DONE + MISSED, "untrimmed 6 requests: 4 no_need, 2 stored_by_provider; docs/untrimmed.md says"),
        (REQUESTS + CONDENSED, "condensed 1,234 tokens, taken out of results when they were first seen (an estimate)"),
        ("", "requests  none came through the sidecar"),
    ],
    ids=[
        "requests",
        "saved",
        "price",
        "money",
        "recalled",
        "guard",
        "no finds",
        "untrimmed",
        "missed",
        "condensed",
        "nothing",
    ],
)
def test_the_explanation(text: str, line: str) -> None:
    """Each thing has its line; a WebSocket that was sent to HTTP is no prompt."""
    assert line in "\n".join(summarised(MetricFamilies.parsed(text)).lines())


def test_a_prompt_that_grew_has_saved_nothing() -> None:
    """The sidecar's own text may be more than what it took out."""
    assert "saved     0% of" in "\n".join(WrapSummary(requests=1, prompts=1, before=100, after=110).lines())
