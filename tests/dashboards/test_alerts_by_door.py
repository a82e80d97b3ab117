"""Each alert fires for what comes through each door, or the table says why it cannot come from there.

A real sidecar with all doors is asked at one of them. What it tells before and after becomes the series of a test of
Prometheus's own runner: the same again at each minute of an hour.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from aiohttp import web

from dashboards.generate.alerts import ALERTS, JOB
from dashboards.generate.recorded import RECORDED
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.money import Money
from prompt_sidecar.facts.untrimmed import LARGE_BYTES
from prompt_sidecar.guard.ceilings import CeilingAction, CeilingPrices, Ceilings
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.trim.presets import preset
from tests.dashboards.by_door import (
    AGENTS,
    WINDOW,
    Agent,
    ByEnvoy,
    ByHttp,
    Setting,
    as_sent,
    at_once,
    history,
    sidecar,
)
from tests.dashboards.queries import parse
from tests.dashboards.tools import RULES, promtool
from tests.telemetry.watched import Figures

SECRET: Final = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
SLOW: Final = 0.6
"""Seconds: more than the alert on slow prompts allows, and more than that on waiting."""
MINUTES: Final = 60
EXPRESSIONS: Final = {alert.name: alert.expression for alert in ALERTS}
RECORDS: Final = {rule.name: rule.expression for rule in RECORDED}

_NO_DOOR: Final = "it is of the process and its surroundings, whatever door its prompts come through: "
_STORE: Final = "the store's one writer works behind all doors alike, and tests/store has it fail: "


class Slow(Runs):
    """A core in which each prompt takes its time."""

    def trim(self, *asked: Any) -> Any:
        """Wait, then trim."""
        threading.Event().wait(SLOW)
        return super().trim(*asked)


class Failing(Runs):
    """A core with a fault."""

    def trim(self, *_: Any) -> Any:
        """Fail as no code should."""
        raise RuntimeError("a fault of the core")


class Uncompressed(Runs):
    """A core that compresses nothing in the background, so that the stash is as full as prompts have made it."""

    def work_off(self) -> int:
        """Do nothing."""
        return 0


@dataclass(frozen=True)
class Cause:
    """What brings an alert about: a sidecar set up so, at whose door an agent does this."""

    doing: Callable[[Agent], None]
    setting: Setting = field(default_factory=Setting)
    without: Mapping[str, str] = field(default_factory=dict)
    """Doors from which it cannot come, with the reason."""


def once(agent: Agent) -> None:
    """Send one prompt."""
    agent.prompt(history(2))


def two_at_once(agent: Agent) -> None:
    """Send two prompts of two runs at once."""
    other = AGENTS[door_of(agent)](agent.sidecar, "other")
    at_once([lambda: agent.prompt(history(2)), lambda: other.prompt(history(2))])


def growing(agent: Agent) -> None:
    """Send the prompts of a run one after another, up to more than fits the window."""
    for calls in range(0, 40, 8):
        agent.prompt(history(calls))


def too_large(agent: Agent) -> None:
    """Send what nothing can be taken from: the user's own words."""
    agent.prompt([{"role": "user", "content": "a word " * 2 * WINDOW}])


def large_and_unreadable(agent: Agent) -> None:
    """Send a large prompt that is no JSON."""
    assert isinstance(agent, (ByHttp, ByEnvoy))
    agent.sidecar.upstream.other, agent.sidecar.upstream.only_other = _anything, True
    agent.post("/v1/chat/completions", b'{"messages": [' + b" " * LARGE_BYTES)


def rewriting(agent: Agent) -> None:
    """Change what was sent before."""
    sent = history(6)
    agent.prompt(sent)
    sent[2] = sent[2] | {"content": "something else"}
    agent.prompt([*sent, *history(7)[-2:]])


def cold(agent: Agent) -> None:
    """Have the provider find less in its cache than the kept prefix."""
    agent.sidecar.counted = lambda size: as_sent(size) | {"cached": 1}
    for calls in (12, 13, 14):
        agent.prompt(history(calls))


def miscounted(agent: Agent) -> None:
    """Have the provider count twice what the sidecar estimates."""
    agent.sidecar.counted = lambda size: as_sent(2 * size)
    agent.prompt(history(12))


def recalling_what_is_gone(agent: Agent) -> None:
    """Have the model ask for what the stash has no more."""
    sent = history(40)
    agent.prompt(sent)
    oldest = re.search(rb"id=(\w{10})", agent.returned)
    assert oldest, agent.returned[:2_000]
    agent.recall(oldest[1].decode(), sent)


def giving_a_secret_away(agent: Agent) -> None:
    """Send a prompt whose tool result holds a secret."""
    agent.prompt(history(2, f"TOKEN={SECRET}\n"))


def uploading(agent: Agent) -> None:
    """Send what cannot be read where the guard masks."""
    assert isinstance(agent, (ByHttp, ByEnvoy))
    agent.sidecar.upstream.other = _anything
    agent.post("/v1/files", b"--a\r\n\r\nbinary\x00\r\n--a--", "multipart/form-data; boundary=a")


def filling(agent: Agent) -> None:
    """Send more than the stash holds."""
    agent.prompt(history(60, "".join(f"{number * 7919 % 65_537:x} " for number in range(1_000))))


async def _anything(request: Any) -> Any:
    await request.read()
    return web.json_response({})


def door_of(agent: Agent) -> str:
    """The name of an agent's door."""
    return next(name for name, kind in AGENTS.items() if type(agent) is kind)


def kept(**limits: Any) -> Setting:
    """A sidecar with these limits."""
    return Setting(Limits(default_window=WINDOW, **limits))


ENFORCED: Final = GuardOptions(mode="enforce")
ONE_CALL: Final = Rules(
    CallerRules(preset("cache_first"), {}, Ceilings(run_model_calls=1, run_model_calls_action=CeilingAction.REFUSE)),
    {},
    Money(CeilingPrices({})),
)
ONE_THREAD: Final = {"workers": 1, "running_calls": 1}
_AGENT_READS: Final = {"grpc": "what TrimPrompt cannot read it refuses with an error, and nothing goes on"}

_PROVIDER: Final = "the HTTP door alone calls providers: tests/telemetry/test_provider_alerts.py has it"
CAUSES: Final[Mapping[str, Cause | str]] = {
    "PromptSidecarDown": _NO_DOOR + "Prometheus's own `up`",
    "PromptSidecarAbsent": _NO_DOOR + "Prometheus's own `up`",
    "PromptSidecarFailing": Cause(once, Setting(core=Failing)),
    "PromptSidecarSlow": Cause(once, Setting(core=Slow)),
    "PromptSidecarOverBudget": Cause(too_large),
    "PromptSidecarUntrimmed": Cause(large_and_unreadable, without=_AGENT_READS),
    "PromptSidecarAgentBreaksCache": Cause(rewriting),
    "PromptSidecarProviderCacheBreaks": Cause(cold),
    "PromptSidecarEstimatesOff": Cause(miscounted),
    "PromptSidecarStashEvicts": Cause(filling, kept(run_stash_bytes=40_000)),
    "PromptSidecarRecallMisses": Cause(
        recalling_what_is_gone,
        kept(run_stash_bytes=8_000),
        {"envoy": "it cannot ask the model again, so recall goes through another door"},
    ),
    "PromptSidecarGuardRefuses": Cause(
        giving_a_secret_away, Setting(guard=GuardOptions(mode="enforce", actions=("github_token=refuse",)))
    ),
    "PromptSidecarGuardUnread": Cause(uploading, Setting(guard=ENFORCED), _AGENT_READS),
    "PromptSidecarVaultLoses": Cause(
        giving_a_secret_away, Setting(guard=GuardOptions(mode="enforce", run_vault_bytes=10))
    ),
    "PromptSidecarCeilingRefuses": Cause(growing, Setting(rules=ONE_CALL)),
    "PromptSidecarBoundHit": Cause(growing, kept(run_messages=10)),
    "PromptSidecarStashNearLimit": Cause(
        filling, replace(kept(stash_bytes=100_000, run_stash_bytes=100_000), core=Uncompressed)
    ),
    "PromptSidecarMemoryNearLimit": Cause(growing, kept(memory_bytes=20_000)),
    "PromptSidecarProcessNearLimit": _NO_DOOR + "the process's resident memory against its container's limit",
    "PromptSidecarCallsWait": Cause(two_at_once, Setting(core=Slow, server=ONE_THREAD)),
    "PromptSidecarThrottled": _NO_DOOR + "the control group's CPU limit",
    "PromptSidecarTelemetryDrops": _NO_DOOR + "OpenTelemetry's own counts of what the collector did not take",
    "PromptSidecarStoreFails": _STORE + "its commands are counted there",
    "PromptSidecarStoreBehind": _STORE + "its queue is one",
    "PromptSidecarProviderFails": _PROVIDER,
    "PromptSidecarProviderSlow": _PROVIDER,
    "PromptSidecarRestarts": _NO_DOOR + "the start of the process",
}
"""What brings each alert about, or why none of its doors does."""

CASES: Final = [
    pytest.param(name, door, id=f"{name}-{door}")
    for name, cause in CAUSES.items()
    if isinstance(cause, Cause)
    for door in AGENTS
    if door not in cause.without
]


def metrics_of(name: str) -> set[str]:
    """The metrics that an alert reads, also by way of a recording rule."""
    read = {selector.metric for selector in parse(EXPRESSIONS[name]).selectors}
    for rule in read & RECORDS.keys():
        read |= {selector.metric for selector in parse(RECORDS[rule]).selectors}
    return read - RECORDS.keys()


def series(before: Figures, after: Figures, metrics: set[str]) -> list[dict[str, str]]:
    """The series of an hour in which each minute is as the one between two scrapes; a gauge stays as it came to be."""
    was = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in before.samples}
    made = []
    for sample in after.samples:
        if sample.name not in metrics:
            continue
        start = was.get((sample.name, *sorted(sample.labels.items())), 0.0)
        labels = ", ".join(f"{name}={json.dumps(value)}" for name, value in sample.labels.items())
        grows = sample.name.endswith(("_total", "_bucket", "_count", "_sum"))
        values = f"{start:g}+{sample.value - start:g}x{MINUTES}" if grows else f"{sample.value:g}x{MINUTES}"
        named = f'job="{JOB}", instance="a:9464"' + (f", {labels}" if labels else "")
        made.append({"series": f"{sample.name}{{{named}}}", "values": values})
    return made


def test_each_alert_has_its_cause_or_a_reason() -> None:
    """No alert is left out, and no door without a reason."""
    assert {alert.name for alert in ALERTS} == set(CAUSES)
    assert all(cause if isinstance(cause, str) else all(cause.without.values()) for cause in CAUSES.values())


@pytest.mark.parametrize(("name", "door"), CASES)
def test_an_alert_fires_through_a_door(name: str, door: str, tmp_path: Path) -> None:
    """By the figures of a real sidecar that only an agent at this door has used."""
    cause = CAUSES[name]
    assert isinstance(cause, Cause)
    with sidecar(cause.setting) as here:
        before = here.scrape()
        cause.doing(AGENTS[door](here))
        after = here.scrape()
    test = tmp_path / "test.yaml"
    made = series(before, after, metrics_of(name))
    case = {
        "interval": "1m",
        "input_series": made,
        "promql_expr_test": [
            {
                "expr": f'group by (alertname) (ALERTS{{alertname="{name}", alertstate="firing"}})',
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
            }
        ],
    }
    rules = {"rule_files": [str(rule) for rule in RULES], "tests": [case]}
    # Alerts read what recording rules have written.
    rules["group_eval_order"] = ["prompt-sidecar-recorded", "prompt-sidecar-alerts"]
    test.write_text(yaml.safe_dump(rules), encoding="utf-8")
    done = promtool("test", "rules", test)
    moved = [each for each in made if "+0x" not in each["values"]]
    assert 0 == done.returncode, (done.stdout + done.stderr, moved)
