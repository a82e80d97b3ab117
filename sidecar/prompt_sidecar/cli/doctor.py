"""Diagnoses problems between agents and a running sidecar, in a sentence each, with what to do.

It checks the addresses in the settings, the sidecar's `/metrics`, and the environment that agents started here would
have. Nothing is sent to a provider, beyond a connection to its port.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from prompt_sidecar.calls.memory import fitted, sizing
from prompt_sidecar.cli.probe import probe
from prompt_sidecar.config.settings import Settings
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.untrimmed import Untrimmed
from prompt_sidecar.guard.options import AUDIT
from prompt_sidecar.providers.table import PROVIDERS
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.readings import version
from prompt_sidecar.telemetry.shown import MetricFamilies
from prompt_sidecar.values import split_address

SECONDS: Final = 2.0
"""Timeout of one connection: servers on the same machine answer within milliseconds."""
MOST_BYTES: Final = 16_777_216
"""Largest `/metrics` that is read; a sidecar with all its series has a tenth."""
CLOCK_SECONDS: Final = 5.0
"""Allowed difference of two clocks; the date in a response is in whole seconds."""
_COLLECTOR: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_ANY_HOST: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # it is translated
_NO_RECALL: Final[Mapping[str, str]] = {
    RecallOffer.FORCED: "let the first request of a run choose its tools freely (tool_choice auto)",
    RecallOffer.SEVERAL_ANSWERS: "ask for one answer (n: 1)",
    RecallOffer.UNREADABLE: "ask for server-sent events, with whole arguments of calls",
    RecallOffer.OBSERVING: "set mode=active",
    RecallOffer.UNTRIMMED: "see why prompts are not trimmed, and the header x-prompt-sidecar-untrimmed of answers",
    RecallOffer.NO_TOOLS: "nothing to do for calls that have no tools, such as those for a title",
}
"""What to do if recall was not offered, by reason."""
_TOO_LARGE: Final = frozenset({Untrimmed.PROTECTED_TEXT, Untrimmed.POLICY, Untrimmed.NOT_STASHABLE})
"""Reasons why prompts stay larger than their limit."""
UNTRIMMED: Final[Mapping[Untrimmed, str]] = {
    Untrimmed.OBSERVING: "set mode=active when you have seen enough",
    Untrimmed.PROTECTED_TEXT: "shorten the system prompt and what users say, or use a model with a larger window",
    Untrimmed.POLICY: "take the preset cache_first",
    Untrimmed.NOT_STASHABLE: "raise limits.original_bytes and limits.run_stash_bytes",
    Untrimmed.BATCH: "trim each prompt before it goes into the batch, by TrimPrompt",
    Untrimmed.TEXT_PROMPT: "use chat completions",
    Untrimmed.UNKNOWN_PATH: "have the agent use a known API; the log names the path",
    Untrimmed.WEBSOCKET: "have the agent use HTTP; for sound in real time there is nothing to do",
    Untrimmed.STORED_BY_PROVIDER: "have the agent send its history (store: false)",
    Untrimmed.SIGNED: "use a bearer key in the place of signatures (AWS_BEARER_TOKEN_BEDROCK)",
    Untrimmed.ENCODED: "send JSON as it is, or by gzip, deflate or zstd; through Envoy not compressed",
    Untrimmed.UNBUFFERED: "set Envoy's request_body_mode to BUFFERED and a large request_body_buffer_limit",
    Untrimmed.UNREADABLE: "see what the provider answers: it mostly refuses the request too",
    Untrimmed.TOO_LARGE: "raise the limit that prompt_sidecar_bound_hits_total names",
    Untrimmed.OVERLOADED: "give it more memory (limits.process_bytes), or run more sidecars",
    Untrimmed.LATE: "look at the time of prompts by phase in the dashboard Health; through Envoy raise envoy.patience",
    Untrimmed.STOPPING: "nothing, if it is rare, as in a rolling update",
    Untrimmed.UNAUTHENTICATED: "give Envoy's filter initial_metadata with a token",
    Untrimmed.INTERNAL: "look into its log, which has the place, and file an issue with it",
}
"""What to do about requests that were forwarded untrimmed, by reason, if there is something to do; docs/untrimmed.md
has the long form."""


class Severity(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing, and possibly intended."""
    PROBLEM = "problem"
    """The exit code reports it."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check."""

    level: Severity
    about: str
    found: str
    """The finding, as a sentence."""
    advice: str = ""
    """What to do; empty if nothing."""

    @property
    def line(self) -> str:
        """Return it as a line for people."""
        advice = f" {self.advice[0].upper()}{self.advice[1:]}." if self.advice else ""
        return f"{self.level:<8} {self.about:<12} {self.found}.{advice}"


@dataclass(frozen=True, slots=True)
class Patient:
    """The data that is checked."""

    settings: Settings
    environment: Mapping[str, str]
    memory_limit: int
    """Bytes that a process here may use; 0 if there is no limit."""
    metrics: MetricFamilies = field(default_factory=MetricFamilies)
    """The sidecar's metrics; empty if there are none."""
    date: str = ""
    """The date header of the response with the metrics."""


def examine(settings: Settings, environment: Mapping[str, str], memory_limit: int) -> list[Diagnosis]:
    """Run all checks.

    Args:
        settings: of the running sidecar.
        environment: the variables that agents started here would have.
        memory_limit: bytes that a process here may use; 0 if there is no limit.
    """
    metrics, date, why = _metrics(settings)
    patient = Patient(settings, environment, memory_limit, metrics, date)
    findings = [finding for check in (_door, _grpc) for finding in check(patient)]
    if why:
        findings.append(why)
    return [*findings, *(finding for check in _CHECKS for finding in check(patient))]


def as_json(findings: Sequence[Diagnosis]) -> list[dict[str, str]]:
    """Return findings for programs."""
    return [asdict(each) for each in findings]


def _metrics(settings: Settings) -> tuple[MetricFamilies, str, Diagnosis | None]:
    """Read `/metrics`; return it, the response's date, and a diagnosis if it cannot be read."""
    address = settings.telemetry.metrics_listen
    if not address:
        message = "telemetry.metrics_listen is empty, so what the sidecar counts is not looked at"
        return MetricFamilies(), "", Diagnosis(Severity.NOTE, "metrics", message, "set it, as to 127.0.0.1:9464")
    host, port = _reachable(address)
    try:
        with contextlib.closing(http.client.HTTPConnection(host, port, timeout=SECONDS)) as connection:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            text = answer.read(MOST_BYTES).decode()
            shown = MetricFamilies.parsed(text)
            if answer.status == http.HTTPStatus.OK and catalog.BUILD_INFO in shown:
                return shown, answer.headers.get("date", ""), None
            why = "what answers there is no sidecar"
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = f"nobody answers there ({_words(error)})"
    advice = "start the sidecar, or give this command the settings that it runs with (--config, --set)"
    return (
        MetricFamilies(),
        "",
        Diagnosis(Severity.PROBLEM, "metrics", f"telemetry.metrics_listen {address}: {why}", advice),
    )


def _door(patient: Patient) -> Iterator[Diagnosis]:
    address = patient.settings.http.listen
    if not address:
        advice = "start it with serve --http 127.0.0.1:7780, and ask with doctor --http 127.0.0.1:7780"
        yield Diagnosis(
            Severity.PROBLEM, "http door", "http.listen is empty, so no agent can use it as a base URL", advice
        )
    elif why := _unreachable(*_reachable(address)):
        advice = "start the sidecar, or name the address that it has (--http)"
        yield Diagnosis(Severity.PROBLEM, "http door", f"http.listen {address} cannot be connected to ({why})", advice)
    else:
        yield Diagnosis(Severity.OK, "http door", f"{address} takes connections")


def _grpc(patient: Patient) -> Iterator[Diagnosis]:
    server = patient.settings.server
    if server.tls_certificate or not (server.socket or server.listen):
        return
    address = f"unix:{server.socket}" if server.socket else "{}:{}".format(*_reachable(server.listen, brackets=True))
    found = probe(address, SECONDS)
    if found.serves:
        yield Diagnosis(Severity.OK, "readiness", f"the sidecar serves gRPC at {address}")
    elif found.answered:
        advice = "wait a second for its start, or look into its log"
        yield Diagnosis(Severity.PROBLEM, "readiness", f"the sidecar at {address} is not ready ({found.words})", advice)
    else:
        advice = "nothing, if it was started without gRPC (--listen '')"
        yield Diagnosis(Severity.NOTE, "readiness", f"gRPC at {address}: {found.words}", advice)


def _base_urls(patient: Patient) -> Iterator[Diagnosis]:
    """Check whether agents that are started here use the door."""
    listen = patient.settings.http.listen
    if not listen:
        return
    host, port = _reachable(listen)
    scheme = "https" if patient.settings.server.tls_certificate else "http"
    first = [provider.base_urls[0].variable for provider in PROVIDERS if provider.base_urls]
    some_lead = any(_leads_to(patient.environment.get(name, ""), host, port) for name in first)
    for provider in PROVIDERS:
        for each in provider.base_urls[:1]:
            right = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{each.path}"
            given = patient.environment.get(each.variable, "").strip()
            advice = f"export {each.variable}={right}"
            if not given:
                message = f"{each.variable} is not set, so agents started here call {provider.upstream} themselves"
                yield Diagnosis(Severity.NOTE if some_lead else Severity.PROBLEM, "environment", message, advice)
            elif not _leads_to(given, host, port):
                message = f"{each.variable} leads to {_shown(given)}, and not to the sidecar"
                yield Diagnosis(Severity.PROBLEM, "environment", message, advice)
            elif urlsplit(given).path.rstrip("/") != each.path:
                message = f"{each.variable} leads to the sidecar with the path {urlsplit(given).path or '/'}"
                yield Diagnosis(Severity.NOTE, "environment", message, f"{advice}, unless the provider wants that path")
            else:
                yield Diagnosis(Severity.OK, "environment", f"{each.variable} leads to the sidecar")


def _keys(patient: Patient) -> Iterator[Diagnosis]:
    if not patient.settings.key:
        message = "key is not set, so originals' ids and revisions do not outlive the sidecar's process"
        yield Diagnosis(Severity.NOTE, "key", message, "set PROMPT_SIDECAR_KEY to a secret of 16 characters or more")
    for provider in PROVIDERS:
        if provider.keys and not any(patient.environment.get(name) for name in provider.keys):
            message = f"{' or '.join(provider.keys)} is not set"
            advice = "set it, unless agents are signed in otherwise: the sidecar adds no key of its own"
            yield Diagnosis(Severity.NOTE, "environment", message, advice)


def _upstreams(patient: Patient) -> Iterator[Diagnosis]:
    """Check whether the providers that agents here use, or that the settings name, accept connections."""
    for provider in PROVIDERS:
        name = f"http.{provider}_upstream"
        address = getattr(patient.settings.http, f"{provider}_upstream")
        used = any(patient.environment.get(each.variable) for each in provider.base_urls)
        if not used and name not in patient.settings.sources:
            continue
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if why := _unreachable(parts.hostname or "", port):
            advice = f"correct {name}, or the way there: DNS, proxy, firewall"
            yield Diagnosis(Severity.PROBLEM, "upstream", f"{name} {address} cannot be connected to ({why})", advice)
        else:
            yield Diagnosis(Severity.OK, "upstream", f"{address} takes connections")


def _store(patient: Patient) -> Iterator[Diagnosis]:
    url = patient.settings.store.url
    if not url:
        return
    parts = urlsplit(url)
    if parts.hostname:
        why = _unreachable(parts.hostname, parts.port or _STORE_PORT)
        advice = "start it, or correct store.url; until then runs are kept in the sidecar's process alone"
        if why:
            yield Diagnosis(Severity.PROBLEM, "store", f"{_shown(url)} cannot be connected to ({why})", advice)
        else:
            yield Diagnosis(Severity.OK, "store", f"{_shown(url)} takes connections")
    if patient.metrics and not patient.metrics.total(catalog.STORE_REACHABLE):
        advice = "look into the sidecar's log, and at the store"
        yield Diagnosis(Severity.PROBLEM, "store", f"{_shown(url)} did not answer the sidecar's last commands", advice)


_STORE_PORT: Final = 6_379


def _collector(patient: Patient) -> Iterator[Diagnosis]:
    address = patient.settings.telemetry.otlp_endpoint or patient.environment.get(_COLLECTOR, "").strip()
    if not address:
        return
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        port = parts.port or 4_317
    except ValueError:
        port = 0
    if why := _unreachable(parts.hostname or "", port):
        advice = f"start it, or correct telemetry.otlp_endpoint or {_COLLECTOR}: what is pushed is lost"
        yield Diagnosis(Severity.PROBLEM, "collector", f"{_shown(address)} cannot be connected to ({why})", advice)
    else:
        yield Diagnosis(Severity.OK, "collector", f"{_shown(address)} takes connections")


def _guard(patient: Patient) -> Iterator[Diagnosis]:
    if patient.settings.guard.mode == AUDIT:
        message = "guard.mode is audit, so secrets are found and counted, and go to the provider"
        yield Diagnosis(Severity.NOTE, "guard", message, "set guard.mode=enforce to have them masked")
    else:
        yield Diagnosis(Severity.OK, "guard", f"guard.mode is {patient.settings.guard.mode}")


def _window(patient: Patient) -> Iterator[Diagnosis]:
    assumed = patient.metrics.total(catalog.WINDOWS_ASSUMED)
    if assumed:
        window = patient.settings.limits.default_window
        message = f"of {assumed:,.0f} prompts the model's window was not known, and {window:,} tokens were assumed"
        advice = 'say it in a table [models."NAME"] of the settings; prompt-sidecar models NAME shows what is known'
        yield Diagnosis(Severity.PROBLEM, "window", message, advice)


def _recall(patient: Patient) -> Iterator[Diagnosis]:
    offers = patient.metrics.by(catalog.RECALL_OFFERS, "outcome")
    for why, advice in _NO_RECALL.items():
        if number := offers.get(why, 0):
            level = Severity.NOTE if why == RecallOffer.NO_TOOLS else Severity.PROBLEM
            yield Diagnosis(level, "recall", f"with {number:,.0f} prompts it was not offered: {why}", advice)
    if not sum(offers.values()) and patient.metrics.total(catalog.OBSERVING):
        yield Diagnosis(Severity.NOTE, "recall", "it is not offered: observing", _NO_RECALL[RecallOffer.OBSERVING])


def _untrimmed(patient: Patient) -> Iterator[Diagnosis]:
    """Report why prompts were forwarded untrimmed, except for reasons with their own check."""
    handled = patient.metrics.by(catalog.HANDLED, "outcome")
    for reason, advice in UNTRIMMED.items():
        if number := handled[reason]:
            missed = reason.missed or reason in _TOO_LARGE
            message = f"{number:,} {'requests' if number > 1 else 'request'} went on untrimmed: {reason}"
            yield Diagnosis(Severity.PROBLEM if missed else Severity.NOTE, "trimming", message, advice)


def _clock(patient: Patient) -> Iterator[Diagnosis]:
    if not patient.date:
        return
    with contextlib.suppress(ValueError):
        apart = abs(parsedate_to_datetime(patient.date).timestamp() - time.time())
        if apart > CLOCK_SECONDS:
            message = f"the sidecar's clock and this machine's are {apart:,.0f} s apart"
            yield Diagnosis(Severity.PROBLEM, "clock", message, "have both follow a time server")


def _memory(patient: Patient) -> Iterator[Diagnosis]:
    by_state = patient.metrics.by(catalog.PROCESS_MEMORY, "state")
    limit = int(by_state.get("limit", 0)) or patient.settings.limits.process_bytes or patient.memory_limit
    limits = patient.settings.limits
    if message := sizing(fitted(limits, limit), limit):
        yield Diagnosis(Severity.PROBLEM, "memory", message, "or give the process more")
    elif fitted(limits, limit) != limits:
        message = f"the process may take {limit:,} bytes, so its budgets for originals and runs are smaller than set"
        yield Diagnosis(
            Severity.NOTE, "memory", message, "give it more, or lower limits.stash_bytes and limits.memory_bytes"
        )


def _version(patient: Patient) -> Iterator[Diagnosis]:
    running = next(iter(patient.metrics.by(catalog.BUILD_INFO, "version")), "")
    if running and running != version():
        message = f"the sidecar that runs is version {running}, and this command is {version()}"
        yield Diagnosis(
            Severity.PROBLEM, "version", message, "restart the sidecar, or use the command of its installation"
        )


def _failures(patient: Patient) -> Iterator[Diagnosis]:
    outcomes = patient.metrics.by(catalog.HTTP_REQUESTS, "outcome")
    for outcome, advice in (
        ("failed_open", "look into its log for the reason: their prompts went on untrimmed"),
        ("upstream_failed", "look at the provider's status page, and at the way there"),
        ("failed", "look into its log: it is the sidecar's fault"),
    ):
        if number := outcomes.get(outcome, 0):
            message = f"{number:,.0f} requests have ended as {outcome}"
            yield Diagnosis(Severity.NOTE, "requests", message, advice)
    if patient.metrics and patient.settings.http.listen and not sum(outcomes.values()):
        message = "no request has come through the HTTP door yet"
        yield Diagnosis(
            Severity.NOTE, "requests", message, "start an agent whose base URL leads there, or prompt-sidecar wrap"
        )


_CHECKS: Final[Sequence[Callable[[Patient], Iterator[Diagnosis]]]] = (
    _version,
    _clock,
    _base_urls,
    _keys,
    _upstreams,
    _store,
    _collector,
    _memory,
    _guard,
    _window,
    _untrimmed,
    _recall,
    _failures,
)


def _reachable(listen: str, *, brackets: bool = False) -> tuple[str, int]:
    """Return host and port at which a listener's address is reached from its own machine."""
    host, port = split_address(listen)
    host = _ANY_HOST.get(host, host)
    return f"[{host}]" if brackets and ":" in host else host, port


def _unreachable(host: str, port: int) -> str:
    """Return why nothing can be connected to there; empty if something can."""
    try:
        socket.create_connection((host, port), SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return _words(error)
    return ""


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {SECONDS:g} s"
    return str(getattr(error, "strerror", None) or type(error).__name__).lower()


def _leads_to(url: str, host: str, port: int) -> bool:
    """Whether a URL is of this machine's port, by any of its names."""
    try:
        parts = urlsplit(url)
        its_port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return False
    return its_port == port and parts.hostname in {host, "localhost", "127.0.0.1", "::1"}


def _shown(url: str) -> str:
    """Return a URL without parts that may be secret."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    return f"{f'{parts.scheme}://' if parts.scheme else ''}{parts.netloc.rpartition('@')[2]}{parts.path}"
