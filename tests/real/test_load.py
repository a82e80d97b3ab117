"""A real Prometheus scrapes real sidecars under load: what it shows is what the agents were told, and nothing is empty.

One test, as one load serves all of it: half a minute of agents at work, then every query of every panel and rule.
"""

from __future__ import annotations

import math
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from dashboards.generate import names
from dashboards.generate.fleet import UNEXPLAINED, UNFINISHED
from dashboards.generate.promql import GROUP
from prompt_sidecar.doors.grpc.servicer import METHODS
from prompt_sidecar.telemetry.catalog import OTHER, RPC_DURATION
from tests.lab.harness import components
from tests.lab.harness.processes import Programs, free_port
from tests.lab.observe import dashboards, stack
from tests.lab.observe.dashboards import Dashboard, Moment, Panel, Target, substitute
from tests.lab.observe.load import SETTINGS, Load, Pace
from tests.lab.observe.stack import Prometheus, QueryFailed
from tests.real.needing import need
from tests.real.selectors import selectors

OF_HTTP: Final = ("prompt_sidecar_provider_", "gen_ai_client_", "http_server_request_duration")
"""How metrics of the HTTP door's requests begin; test_questions.py has agents there."""
NOT_LOADED: Final = (
    "prompt_sidecar_envoy_duration",
    "prompt_sidecar_guard_restored",
    "prompt_sidecar_guard_unread",
    "prompt_sidecar_client_prompts",
    *OF_HTTP,
)
"""Metrics that have no data here: the agents use gRPC stubs, no Envoy is in front, none has masks to restore, and all
that they send is prompts, which the guard can read."""

SCRAPE_SECONDS: Final = 1.0
LOAD_SECONDS: Final = 30.0
POINTS: Final = 30
SEED: Final = 11

NOT_OURS: Final = {"ALERTS", names.CLIENT_PROMPTS.name}
"""Prometheus makes the one, only while an alert is pending or firing; programs with our client make the other."""
MADE: Final = {GROUP}
"""Labels that a query makes itself."""
SHORT_QUEUE: Final = {
    f"OTEL_{kind}_MAX_{what}_SIZE": "4" for kind in ("BSP", "BLRP") for what in ("QUEUE", "EXPORT_BATCH")
}


def test_prometheus_shows_what_the_agents_received(tmp_path: Path) -> None:
    """Panels and rules have data, name only what was emitted, and the sums are exact."""
    program, promtool, rotel = need(components.prometheus), need(components.promtool), need(components.rotel)
    with Programs(tmp_path) as programs:
        # Spans and events of one reach a collector; the other's is down, and its queues are short: both are lost.
        _, collector = stack.collector(programs, rotel)
        sidecars = [
            stack.sidecar(programs, "sidecar-1", SETTINGS[0], collector),
            stack.sidecar(programs, "sidecar-2", SETTINGS[1], free_port(), **SHORT_QUEUE),
        ]
        prometheus = stack.scraping(programs, program, tmp_path, sidecars, SCRAPE_SECONDS)
        load = Load(sidecars, Pace(LOAD_SECONDS, think=0.25), SEED)
        start = time.time()
        load.run()
        worked = time.time()
        load.settle()
        # An interval later: a call is counted when it is over, which its caller may learn a little earlier.
        settled = _scraped_since(prometheus, time.time() + SCRAPE_SECONDS, len(sidecars))
        moment = Moment(start + LOAD_SECONDS / 3, worked, SCRAPE_SECONDS, SCRAPE_SECONDS)

        problems = [
            *_wrong_sums(prometheus, load, settled),
            *_unbalanced(prometheus, settled),
            *_empty_panels(prometheus, moment),
            *_empty_rules(prometheus, settled),
            *sorted(set(_unknown_names(prometheus, moment))),
            *_lint(promtool, sidecars[0].metrics),
        ]
        assert not problems, "\n".join(problems)


def _scraped_since(prometheus: Prometheus, since: float, targets: int) -> float:
    """Wait until every target has been scraped after a time, and that is stored; return a time at which it is."""

    def scraped() -> bool:
        found = prometheus.instant("timestamp(up)", time.time())
        return targets == len([series for series in found if series.last > since])

    prometheus.running.wait_until(scraped)
    return time.time()


def _wrong_sums(prometheus: Prometheus, load: Load, at: float) -> Iterator[str]:
    """Sums of counters that differ from the sum of what the answers told."""
    for metric, labels, expected in load.facts:
        shown = _sum(prometheus, names.family(metric), {names.label(name): value for name, value in labels.items()}, at)
        if shown != expected:
            yield f"{metric.name}{labels}: the agents were told {expected:.0f}, Prometheus shows {shown:.0f}"
    calls = names.family(RPC_DURATION) + "_count"
    for (method, code), count in load.calls():
        shown_as = f"(.*/)?{method}" if method in METHODS else OTHER
        shown = _sum(prometheus, calls, {"rpc_method": shown_as, "rpc_response_status_code": code}, at)
        if shown != count:
            yield f"calls of {method} that ended {code}: {count} were made, Prometheus shows {shown:.0f}"


def _unbalanced(prometheus: Prometheus, at: float) -> Iterator[str]:
    """Figures of the Fleet dashboard that are 0 when no prompt is in flight."""
    chosen = {"job": ".+", "instance": ".+"}
    for name, query in (("prompts without an outcome", UNFINISHED), ("tokens that do not add up", UNEXPLAINED)):
        (found,) = prometheus.instant(substitute(query, chosen), at)
        if found.last:
            yield f"{name}: {found.last:.0f}"


def _sum(prometheus: Prometheus, name: str, labels: dict[str, str], at: float) -> float:
    matchers = ", ".join(f'{label}=~"{value}"' for label, value in labels.items())
    found = prometheus.instant(f"sum({name}{{{matchers}}})", at)
    return found[0].last if found else math.nan


def _targets(moment: Moment, prometheus: Prometheus) -> Iterator[tuple[Dashboard, Panel, Target, str]]:
    """Every query of every panel, with values for its variables."""
    for dashboard in dashboards.all_dashboards():
        values = dashboard.values(prometheus, moment)
        for panel in dashboard.panels():
            for target in panel.targets:
                yield dashboard, panel, target, substitute(target.expression, values)


def _empty_panels(prometheus: Prometheus, moment: Moment) -> Iterator[str]:
    """Queries of panels that fail, give nothing, or give what is no number."""
    for dashboard, panel, target, query in _targets(moment, prometheus):
        if any(name in query for name in NOT_LOADED):
            continue
        try:
            if target.instant:
                found = prometheus.instant(query, moment.end)
            else:
                found = prometheus.range(query, moment.start, moment.end, max(LOAD_SECONDS / POINTS, SCRAPE_SECONDS))
        except QueryFailed as error:
            yield f"{dashboard.name}, {panel.title}: {error}"
            continue
        values = [value for series in found for _, value in series.points]
        if not values:
            yield f"{dashboard.name}, {panel.title}: no data for {query}"
        elif any(map(math.isnan, values)):
            yield f"{dashboard.name}, {panel.title}: NaN in {query}"


def _rules() -> Iterator[dict[str, str]]:
    for path in stack.rule_files():
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            yield from group["rules"]


def _empty_rules(prometheus: Prometheus, at: float) -> Iterator[str]:
    """Rules that fail, and recording rules that record nothing."""
    for group in prometheus.api("rules")["groups"]:
        for rule in group["rules"]:
            if rule["health"] != "ok":
                yield f"{rule['name']}: {rule.get('lastError', rule['health'])}"
    for rule in _rules():
        if "record" in rule and not any(name in rule["expr"] for name in OF_HTTP):
            found = prometheus.instant(rule["record"], at)
            if not found or any(math.isnan(series.last) for series in found):
                yield f"{rule['record']}: {[series.last for series in found]}"


def _unknown_names(prometheus: Prometheus, moment: Moment) -> Iterator[str]:
    """Selectors that no stored series matches, and labels that no such series has."""
    span = {"start": moment.start, "end": time.time()}
    queries = [(query, target.legend) for _, _, target, query in _targets(moment, prometheus)]
    queries += [(rule["expr"], "") for rule in _rules()]
    for query, legend in queries:
        for selector in selectors(query, legend):
            if selector.metric in NOT_OURS or selector.metric.startswith(OF_HTTP):
                continue
            stored = prometheus.api("series", **{"match[]": selector.text}, **span)
            if not stored:
                yield f"nothing matches {selector.text}"
            elif missing := selector.labels - MADE - {label for series in stored for label in series}:
                yield f"{selector.metric} has no label {', '.join(sorted(missing))}"


def _lint(promtool: Path, address: str) -> list[str]:
    """What `promtool check metrics` finds in a sidecar's own words."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read()
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    lines = (checked.stdout + checked.stderr).decode().splitlines()
    return lines or ([] if checked.returncode == 0 else [f"exit code {checked.returncode}"])
