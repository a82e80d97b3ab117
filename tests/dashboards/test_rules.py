"""The rules load, each alert fires when it should and is quiet when it should, and each has its page."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import yaml

from dashboards.generate.alerts import ALERTS, JOB, SOFT_BOUNDS
from dashboards.generate.recorded import RECORDED
from prompt_sidecar.doors.admin.site import ORDERS
from prompt_sidecar.telemetry.catalog import BOUNDS
from tests.dashboards.queries import parse
from tests.dashboards.test_boards import COMMON, KNOWN
from tests.dashboards.tools import ROOT, RULE_TESTS, RULES, promtool, rules

RUNBOOKS = ROOT / "docs" / "runbooks"
NAMES = [alert.name for alert in ALERTS]


@cache
def _cases() -> list[dict[str, Any]]:
    """Return every test of the alerts."""
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in RULE_TESTS]
    return [case for file in files for test in file["tests"] for case in test.get("alert_rule_test", [])]


def test_prometheus_takes_the_rules() -> None:
    """By its own checker."""
    done = promtool("check", "rules", *RULES)

    assert 0 == done.returncode, done.stdout + done.stderr


def test_the_rules_do_what_they_promise() -> None:
    """By Prometheus's own test runner, over dashboards/rules/tests."""
    done = promtool("test", "rules", *RULE_TESTS)

    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_is_tried_firing_and_quiet(name: str) -> None:
    """One without a test of both is a guess."""
    expected = [bool(case["exp_alerts"]) for case in _cases() if case["alertname"] == name]

    assert {True, False} == set(expected)


def test_each_recording_rule_is_tried_with_a_value() -> None:
    """Its figure was worked out by hand from the series of the test."""
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in RULE_TESTS]
    tried = {
        case["expr"]
        for file in files
        for test in file["tests"]
        for case in test.get("promql_expr_test", [])
        if case["exp_samples"]
    }

    assert {rule.name for rule in RECORDED} == tried


def test_rules_read_what_exists() -> None:
    """Metrics and labels of the catalogue, of those few that others define, or recorded by a rule."""
    recorded = {rule.name for rule in RECORDED}
    for rule in rules():
        for selector in parse(rule["expr"]).selectors:
            assert selector.metric in KNOWN.keys() | recorded, rule
            for matcher in selector.matchers:
                assert matcher.label in KNOWN[selector.metric].keys() | COMMON, rule


def test_rules_never_say_nan() -> None:
    """An alert on NaN never fires, and a graph of it breaks."""
    assert [] == [rule["expr"] for rule in rules() if parse(rule["expr"]).unguarded]


def test_recorded_names_say_what_they_are() -> None:
    """level:metric:operations, with the window of the rule in the name."""
    for rule in RECORDED:
        level, _, operations = rule.name.split(":")
        windows = {window for _, window in parse(rule.expression).windows}
        assert "instance" == level
        assert all(operations.endswith(f"_rate{window}") for window in windows)


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_says_who_and_what_to_do(name: str) -> None:
    """Severity, how long, a summary, the value, and the page."""
    (rule,) = [rule for rule in rules() if rule.get("alert") == name]
    notes = rule["annotations"]

    assert rule["labels"]["severity"] in {"page", "ticket", "info"}
    assert re.fullmatch(r"\d+m", rule["for"])
    assert notes["summary"]
    assert "$labels.instance" in notes["description"] or "absent(" in rule["expr"]
    assert "{value}" not in notes["description"]
    assert f"docs/runbooks/{name}.md" == notes["runbook_url"]
    runs = notes.get("runs_url", "")
    assert not runs or runs.partition("/runs?sort=")[2] in ORDERS
    assert not runs or f"`{runs[runs.index('/runs?') :]}`" in (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_has_a_page(name: str) -> None:
    """Which says what it means, how to check and what to do."""
    page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"(?m)^#+ (.+)$", page)

    assert [name, "What it means", "How to check", "What to do"] == headings


def test_no_page_is_left_behind() -> None:
    """A page without an alert is never read."""
    assert {*NAMES, "README"} == {path.stem for path in RUNBOOKS.glob("*.md")}


def test_queries_of_pages_parse_and_read_what_exists() -> None:
    """What an operator copies at night works."""
    recorded = {rule.name for rule in RECORDED}
    for page in sorted(RUNBOOKS.glob("*.md")):
        for block in re.findall(r"(?s)```promql\n(.*?)```", page.read_text(encoding="utf-8")):
            for line in filter(None, block.splitlines()):
                for selector in parse(line).selectors:
                    assert selector.metric in KNOWN.keys() | recorded, (page.name, line)
                    known = KNOWN.get(selector.metric, {}).keys() | COMMON
                    assert {matcher.label for matcher in selector.matchers} <= known, (page.name, line)


def test_pages_ask_something_of_prometheus() -> None:
    """Each page has at least one query to copy."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in RUNBOOKS.glob("*.md")}

    assert [] == [name for name in NAMES if "```promql\n" not in pages[name]]


def test_the_page_of_bounds_names_each() -> None:
    """An operator finds what to do about the bound that the alert names."""
    page = (RUNBOOKS / "PromptSidecarBoundHit.md").read_text(encoding="utf-8")

    assert [] == [bound for bound in BOUNDS if f"`{bound}`" not in page]
    assert set(SOFT_BOUNDS) <= set(BOUNDS)


def test_the_compose_file_scrapes_under_the_name_that_alerts_know() -> None:
    """`up` carries no other label by which to tell a sidecar."""
    config = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yaml").read_text(encoding="utf-8"))

    assert [JOB] == [job["job_name"] for job in config["scrape_configs"]]


def test_the_page_of_dashboards_lists_each_alert() -> None:
    """With its severity, in the order of the file."""
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| \[(\w+)\]\(runbooks/\1\.md\) \| (\w+) \| .+ \|$", page)

    assert [(alert.name, alert.severity.value) for alert in ALERTS] == rows


def test_numbers_of_alerts_are_read_without_prefixes_of_small_ones() -> None:
    """`humanize` alone writes 0.79 a second as 790m, and a count with the fraction by which increases are estimated."""
    small = re.compile(r"\b[0-9.]+[mµun]\b")
    descriptions = [shown["exp_annotations"]["description"] for case in _cases() for shown in case["exp_alerts"]]

    assert [] == [each for each in descriptions if small.search(each.replace("limits.memory_bytes", ""))]
    assert all("humanize }}" not in alert.value or "lt $value" in alert.value for alert in ALERTS)
