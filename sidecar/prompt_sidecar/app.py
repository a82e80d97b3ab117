"""Composition: settings in, a running sidecar out. The one place that knows every part."""

from __future__ import annotations

import gc
import logging
import os
import queue
import secrets
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from prompt_sidecar.config.explain import warnings
from prompt_sidecar.config.settings import Settings
from prompt_sidecar.runs.service import Runs
from prompt_sidecar.server.clock import steady
from prompt_sidecar.server.core_log import core_lines_logged
from prompt_sidecar.server.identity import StartError
from prompt_sidecar.server.lifecycle import Server
from prompt_sidecar.server.logs import configure, frames
from prompt_sidecar.server.memory import container_limit, sizing
from prompt_sidecar.server.refusals import Refusals
from prompt_sidecar.server.servicer import METHODS, SERVICE
from prompt_sidecar.telemetry.pipeline import Running
from prompt_sidecar.telemetry.pipeline import start as start_telemetry
from prompt_sidecar.telemetry.spans import current_ids
from prompt_sidecar.tokens import Counter, lazy_counter, warm
from prompt_sidecar.tokens.models import ESTIMATE
from prompt_sidecar.values import is_loopback, split_address

_log = logging.getLogger("sidecar")

_KEY_BYTES = 32
GC_THRESHOLDS = (20_000, 20, 50)
"""Allocations and younger collections before each of the collector's generations is looked through."""


def build_runs(settings: Settings, counter: Counter) -> Runs:
    """Make the core as the settings say."""
    return Runs(
        counter=counter,
        policy=settings.policy,
        limits=settings.limits,
        key=settings.key or secrets.token_bytes(_KEY_BYTES),
        key_lasts=bool(settings.key),
        clock=steady,
        wall=time.time,
        preset_overrides=settings.policy_overrides,
        search=settings.search,
        recall=settings.recall,
    )


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A running sidecar: its server, and the telemetry that watches it."""

    server: Server
    telemetry: Running

    @property
    def addresses(self) -> Sequence[str]:
        """What clients dial, in gRPC's spelling."""
        return self.server.addresses

    def stop(self, grace: float | None = None) -> bool:
        """Drain and end, then send what telemetry still has; return whether all calls finished."""
        clean = self.server.stop(grace)
        self.telemetry.stop()
        return clean


def start(settings: Settings) -> Sidecar:
    """Bind, load what most prompts are counted with, and serve; return the running sidecar.

    Raises:
        StartError: it cannot listen as the settings say.
        TokensError: the tokens file cannot be used.
        VocabularyError: a vocabulary is missing or damaged.
    """
    telemetry = _telemetry(settings)
    try:
        server = Server(settings.server, telemetry.observer, Refusals(settings.log.refusals))
    except BaseException:
        telemetry.stop()
        raise
    try:
        counter = lazy_counter(
            fast=settings.tokens.counter != "tiktoken", report=lambda found: _log.info("tokens of %s", found)
        )
        server.start(build_runs(settings, counter), partial(warm, counter), load=partial(counter.load, ESTIMATE))
    except BaseException:
        server.stop(0)
        telemetry.stop()
        raise
    settle_collector()
    return Sidecar(server, telemetry)


def _telemetry(settings: Settings) -> Running:
    """Begin telemetry. An address of `/metrics` that nobody asked for and somebody else has is done without."""
    options = settings.telemetry
    address = split_address(options.metrics_listen) if options.metrics_listen else None
    methods = [f"{SERVICE}/{name}" for name in METHODS]
    try:
        return start_telemetry(options, os.environ, methods=methods, address=address)
    except OSError as error:
        if "telemetry.metrics_listen" in settings.sources:
            raise StartError(
                f"telemetry.metrics_listen {options.metrics_listen}: cannot listen there: {error.strerror}; "
                "free the address, set another, or none"
            ) from None
        _log.warning(
            "there are no metrics: cannot listen on %s, the default: %s; set telemetry.metrics_listen to have them",
            options.metrics_listen,
            error.strerror,
        )
    return start_telemetry(options, os.environ, methods=methods)


def settle_collector() -> None:
    """Spare the collector what it would look through in vain.

    What was loaded lives as long as the process, and records of runs hold no cycles: looking through either at every
    few hundred allocations costs a call a millisecond now and then.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def serve(settings: Settings) -> bool:
    """Serve until SIGTERM, SIGINT or SIGQUIT, then drain; a second stops at once. Return whether all calls finished.

    SIGHUP has the tokens and the TLS files read again. SIGUSR1 and SIGUSR2 do nothing.

    Raises: as `start`.
    """
    configure(settings.log.format, settings.log.level, current_ids)
    with core_lines_logged(settings.log.refusals):
        return _serve(settings)


def _serve(settings: Settings) -> bool:
    _remark(settings)
    # A SimpleQueue's put may run in a signal handler while the same thread is inside get; an Event's set may not.
    events: queue.SimpleQueue[str] = queue.SimpleQueue()
    for ignored in (signal.SIGUSR1, signal.SIGUSR2):  # log rotation and the like send them: they would end the process
        signal.signal(ignored, signal.SIG_IGN)
    for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(caught, lambda number, _: events.put(signal.Signals(number).name))
    server = start(settings)
    for notice in server.telemetry.notices:
        _log.info("%s", notice)
    _log.info("ready: listening on %s", ", ".join(server.addresses))
    while (event := events.get()) == signal.SIGHUP.name:
        _reload(server)
    _log.info("%s: stopping, calls in flight have %g s to finish", event, settings.server.grace)
    outcome: list[bool] = []

    def drain() -> None:
        outcome.append(server.stop())
        events.put("drained")

    threading.Thread(target=drain, name="drain", daemon=True).start()
    while (event := events.get()) == signal.SIGHUP.name:
        _log.info("SIGHUP: nothing is read again while the sidecar stops")
    if event != "drained":
        _log.warning("%s again: stopping at once, calls in flight are lost", event)
        return False
    _log.info("stopped%s", "" if outcome[0] else ": the grace is over, calls in flight were cancelled")
    return outcome[0]


def _reload(sidecar: Sidecar) -> None:
    """Read again what can be read again, and log what came of it."""
    try:
        told = sidecar.server.reload()
    except Exception as error:  # noqa: BLE001 - whatever it is, the sidecar goes on with what it has
        _log.error("SIGHUP: %s; what was read before stays in use", frames(error))
        return
    _log.info("SIGHUP: %s", "; ".join(told) or "neither tokens nor TLS files were read: none are set, or see above")


def _remark(settings: Settings) -> None:
    """Log what an operator would want to know before it hurts."""
    server = settings.server
    if not settings.key:
        _log.warning("key is not set: a random one is used, so stash ids and revisions do not outlive this process")
    if server.listen and not is_loopback(server.listen) and not server.tls_certificate:
        _log.warning("server.listen %s is reachable without TLS: prompts and tokens travel in the clear", server.listen)
    metrics = settings.telemetry.metrics_listen
    if metrics and not is_loopback(metrics):
        _log.warning("telemetry.metrics_listen %s: whoever reaches it reads all figures, but no text", metrics)
    if told := sizing(settings.limits, settings.limits.process_bytes or container_limit()):
        _log.warning("%s", told)
    window = settings.limits.default_window
    for warning in warnings(settings.policy, settings.policy_overrides, settings.preset, window):
        _log.warning("%s", warning)
