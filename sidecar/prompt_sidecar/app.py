"""Composition: settings in, a running sidecar out. The only module that imports every part."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from prompt_sidecar.calls.caller_names import CallerNames, names_of
from prompt_sidecar.calls.memory import changed, check_addresses, fitted, sizing
from prompt_sidecar.calls.pool import InFlight
from prompt_sidecar.calls.probes import Probes
from prompt_sidecar.calls.refusals import Refusals, library_lines_limited
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.config.explain import warnings
from prompt_sidecar.config.settings import Settings, readable_secrets
from prompt_sidecar.config.startable import store_of, store_problem
from prompt_sidecar.doors.door import Door
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.doors.grpc.core_log import core_lines_logged
from prompt_sidecar.engine.runs.archive import Archive
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.facts.limits import CoreLimits
from prompt_sidecar.facts.money import Money
from prompt_sidecar.guard.ceilings import CeilingPrices
from prompt_sidecar.guard.options import AUDIT, GuardOptions
from prompt_sidecar.process.allocator import give_back, share_arenas
from prompt_sidecar.process.cgroups import memory_limit
from prompt_sidecar.process.clock import steady
from prompt_sidecar.process.descriptors import connections
from prompt_sidecar.process.logs import Once, Writer, configure, frames, written_by_a_thread
from prompt_sidecar.process.signals import Signals
from prompt_sidecar.process.starting import StartError, needing
from prompt_sidecar.telemetry.pipeline import Running
from prompt_sidecar.telemetry.pipeline import start as start_telemetry
from prompt_sidecar.telemetry.spans import current_ids
from prompt_sidecar.tokens import Counter, lazy_counter, warm
from prompt_sidecar.tokens.encodings import ESTIMATE
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.values import is_loopback, split_address

if TYPE_CHECKING:
    from prompt_sidecar.store.options import StoreOptions
    from prompt_sidecar.store.shared import SharedArchive  # needs the extra `store`

_log = logging.getLogger("prompt_sidecar")

_KEY_BYTES = 32
GC_THRESHOLDS = (7_000, 1, 1_500)
"""Thresholds of the garbage collector's three generations: allocations, and collections of the younger generation.

The first two determine how long all calls stop for the middle generation with many new runs, or a prompt of a hundred
thousand messages: a collection scans 21,000 objects in 15 to 25 ms. The third makes full collections as rare as one for
30,000,000 surviving objects.
"""
SWITCH_SECONDS = 0.0002
"""How long a thread may run while another one waits for the interpreter, which runs one at a time.

A call passes from thread to thread some ten times, and each time waits this long for every other running call. With 200
calls at once, another connection's p99 was 212 ms with a millisecond here, 153 with 0.3 and 102 with 0.1, and as many
calls were answered; the interpreter's default is 5 ms.
"""

_QUIET_SECONDS = 1.0
"""Seconds after a start before the steps that no request needs: requests that waited for the start are served first."""


def build_runs(settings: Settings, counter: Counter, key: bytes = b"", archive: Archive | None = None) -> Runs:
    """Create the core from the settings; `key` is used if they have none, by default a random one.

    `archive` stores the core's runs outside the process.
    """
    limits = fitted(settings.limits, settings.limits.process_bytes or memory_limit())
    first = settings.key or key or secrets.token_bytes(_KEY_BYTES)
    return Runs(
        counter,
        Keys(first, tuple(settings.previous_keys), lasting=bool(settings.key)),
        build_rules(settings),
        Clocks(steady, time.time),
        CoreLimits(
            limits,
            replace(settings.search, index_bytes=min(settings.search.index_bytes, limits.memory_bytes)),
            settings.recall,
            settings.admin.run_entries if settings.admin.listen else 0,
            Models(settings.models),
        ),
        archive,
        settings.store.first_wait,
    )


def build_rules(settings: Settings) -> Rules:
    """Return the rules for each caller."""
    return Rules(
        _caller_rules(settings),
        {caller: _caller_rules(settings.of_caller(caller)) for caller in settings.callers},
        Money(CeilingPrices(settings.prices), Models(settings.models), settings.currency),
        observe=settings.mode == "observe",
    )


def _caller_rules(settings: Settings) -> CallerRules:
    return CallerRules(settings.policy, settings.policy_overrides, settings.ceilings, _guard(settings))


def _guard(settings: Settings) -> GuardOptions:
    """Return the guard's options: if the sidecar only observes, so does the guard."""
    return replace(settings.guard, mode=AUDIT) if settings.mode == "observe" else settings.guard


def open_store(settings: Settings) -> SharedArchive | None:
    """Create the store's client, which connects when it is first needed; None if no store is configured.

    Raises:
        StartError: the extra `store` is not installed, or the password cannot be read.
    """
    if not settings.store.url:
        return None
    backend = store_of(settings.store)
    from prompt_sidecar.store.shared import SharedArchive

    return SharedArchive(settings.store, backend, settings.limits.time_to_live, clock=steady)


def _store_answers(options: StoreOptions, once: Once) -> bool:
    """Ping the store, before which the process is not ready; log once what is wrong with it."""
    if problem := store_problem(options):
        once.warning(_log, "not ready until the shared store answers (store.required): %s", problem)
        return False
    _log.info("the shared store answers")
    return True


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A running sidecar: its doors and its telemetry."""

    process: Doors
    telemetry: Running
    store: SharedArchive | None = None

    @property
    def addresses(self) -> Sequence[str]:
        """Addresses for clients, in gRPC's spelling, and base URLs for agents."""
        return self.process.addresses

    def stop(self, grace: float | None = None) -> bool:
        """Drain and stop, then send telemetry's remaining data; return whether all calls finished."""
        clean = self.process.stop(grace)
        if self.store is not None:
            self.store.close()
        self.telemetry.stop()
        return clean


def start(
    settings: Settings, environment: Mapping[str, str] = os.environ, listening: socket.socket | None = None
) -> Sidecar:
    """Bind, load the vocabulary for most prompts, and serve; return the running sidecar.

    Args:
        settings: of the sidecar.
        environment: environment variables; OpenTelemetry's are read.
        listening: a socket that already listens at `http.listen`.

    Raises:
        StartError: an address in the settings cannot be listened on.
        TokensError: the tokens file cannot be used.
        VocabularyError: a vocabulary is missing or damaged.
    """
    check_addresses()
    settings = _within_descriptors(settings)
    store = open_store(settings)
    telemetry = _telemetry(settings, environment)
    key = settings.key or secrets.token_bytes(_KEY_BYTES)
    try:
        names = CallerNames(names_of(settings.identities))
        shared = DoorServices(settings.server, telemetry.observer, Refusals(settings.log.refusals), names)
        process = Doors(shared, list(doors(settings, shared, key, listening)))
        process.bind()
        counter = lazy_counter(
            fast=settings.tokens.counter != "tiktoken", report=lambda found: _log.info("tokens of %s", found)
        )
        if store is not None:
            store.idle = shared.in_flight.wait_for_none
        runs = build_runs(settings, counter, key, store)
        until = partial(_store_answers, settings.store, Once()) if settings.store.required else None
        process.start(runs, partial(counter.load, ESTIMATE), partial(warm, counter), until=until)
    except BaseException:
        telemetry.stop()
        raise
    settle_interpreter()
    later = threading.Timer(_QUIET_SECONDS, _finish_start, (runs, shared.in_flight))
    later.name, later.daemon = "finish-start", True
    later.start()
    return Sidecar(process, telemetry, store)


def doors(
    settings: Settings, shared: DoorServices, key: bytes, listening: socket.socket | None = None
) -> Iterator[Door]:
    """Create the doors that the settings enable, in the order in which they start; modules of others are not imported.

    Raises:
        StartError: an extra of the package is not installed.
        TokensError: the admin pages' tokens file cannot be used.
    """
    if settings.server.listen or settings.server.socket:
        from prompt_sidecar.doors.grpc.lifecycle import GrpcDoor

        yield GrpcDoor(shared)
    if settings.http.listen:
        with needing("http.listen", "http"):
            from prompt_sidecar.doors.http.lifecycle import HttpDoor
            from prompt_sidecar.doors.http.prompting import Modes
        guards = [_guard(settings), *(_guard(settings.of_caller(caller)) for caller in settings.callers)]
        modes = Modes(restores=any(guard.restore for guard in guards), observes=settings.mode == "observe")
        yield HttpDoor(settings.http, shared, key, modes, listening)
    if settings.envoy.listen:
        from prompt_sidecar.doors.envoy.door import EnvoyDoor

        yield EnvoyDoor(settings.envoy, shared, key)
    if settings.admin.listen:
        with needing("admin.listen", "admin"):
            from prompt_sidecar.doors.admin.listener import Admin
        yield Admin(settings.admin, shared)
    if settings.server.health_listen:
        yield Probes(settings.server.health_listen, shared.readiness, shared.observer.reached)


def _within_descriptors(settings: Settings) -> Settings:
    """Return settings with as many connections as open files are allowed. Raises StartError if they are too few."""
    server = settings.server
    listeners = bool(server.listen) + bool(server.socket) + bool(settings.envoy.listen)
    listeners += 2 * bool(settings.http.listen)  # each request also has a connection to its provider
    return replace(settings, server=replace(server, max_connections=connections(server.max_connections, listeners)))


def _telemetry(settings: Settings, environment: Mapping[str, str]) -> Running:
    """Start telemetry. If the default address of `/metrics` is in use, it runs without `/metrics`."""
    options = settings.telemetry
    address = split_address(options.metrics_listen) if options.metrics_listen else None
    methods = _methods() if settings.server.listen or settings.server.socket else ()
    models, callers = Models(settings.models), tuple(settings.callers)
    try:
        return start_telemetry(options, environment, methods=methods, address=address, models=models, callers=callers)
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
    return start_telemetry(options, environment, methods=methods, models=models, callers=callers)


def _methods() -> Sequence[str]:
    from prompt_sidecar.doors.grpc.servicer import METHODS, SERVICE

    return [f"{SERVICE}/{name}" for name in METHODS]


def settle_interpreter() -> None:
    """Make threads switch sooner, and exclude long-lived objects from garbage collection.

    Loaded objects live as long as the process, and records of runs have no cycles: scanning them at every few hundred
    allocations would sometimes cost a call a millisecond.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def _finish_start(runs: Runs, in_flight: InFlight) -> None:
    """Run the steps that a start need not wait for, once no call is running: each stops all threads for up to 80 ms.

    The guard's rules are compiled, unless a prompt has already required that. Cyclic garbage of imports is freed:
    `settle_interpreter` has excluded it from collection with everything else.
    """
    in_flight.wait_for_none(_QUIET_SECONDS)
    runs.guarding.prepare()
    in_flight.wait_for_none(_QUIET_SECONDS)
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    give_back()  # compiling takes 15 MB for a moment


def serve(settings: Settings, listening: socket.socket | None = None) -> bool:
    """Serve until SIGTERM, SIGINT or SIGQUIT, then drain; a second stops at once. Return whether all calls finished.

    SIGHUP reloads the tokens and the TLS files. SIGUSR1 and SIGUSR2 do nothing. `listening` is a socket that already
    listens at `http.listen`.

    Raises: as `start`.
    """
    configure(settings.log.format, settings.log.level, current_ids)
    share_arenas()
    refusals = settings.log.refusals
    with core_lines_logged(refusals), written_by_a_thread() as log, library_lines_limited(refusals):
        return _serve(settings, log, listening)


def _serve(settings: Settings, log: Sequence[Writer], listening: socket.socket | None) -> bool:
    _remark(settings)
    for ignored in (signal.SIGUSR1, signal.SIGUSR2):  # log rotation and the like send them: they would end the process
        signal.signal(ignored, signal.SIG_IGN)
    signals = Signals((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP))
    sidecar = start(settings, listening=listening)
    for writer in log:
        writer.reached = sidecar.telemetry.observer.reached
    for notice in (*sidecar.telemetry.notices, *(door.notice for door in sidecar.process.doors if door.notice)):
        _log.info("%s", notice)
    _log.info("ready%s", f": listening on {', '.join(sidecar.addresses)}" if sidecar.addresses else "")
    while (caught := signals.wait()) is signal.SIGHUP:
        _reload(sidecar)
    assert caught is not None
    _log.info("%s: stopping, calls in flight have %g s to finish", caught.name, _grace(settings))
    outcome: list[bool] = []

    def drain() -> None:
        outcome.append(sidecar.stop())
        signals.end()

    threading.Thread(target=drain, name="drain", daemon=True).start()
    while (caught := signals.wait()) is signal.SIGHUP:
        _log.info("SIGHUP: nothing is read again while the sidecar stops")
    if caught is not None:
        _log.warning("%s again: stopping at once, calls in flight are lost", caught.name)
        return False
    _log.info("stopped%s", "" if outcome[0] else ": the grace is over, calls in flight were cancelled")
    return outcome[0]


def _grace(settings: Settings) -> float:
    """Return the longest time that a stop takes, in seconds."""
    return max(settings.server.grace, settings.http.stream_grace if settings.http.listen else 0.0)


def _reload(sidecar: Sidecar) -> None:
    """Reload what can be reloaded, and log the outcome."""
    try:
        changes = sidecar.process.shared.reload()
    except Exception as error:  # noqa: BLE001 - whatever it is, the sidecar goes on with what it has
        _log.error("SIGHUP: %s; what was read before stays in use", frames(error))
        return
    _log.info("SIGHUP: %s", "; ".join(changes) or "neither tokens nor TLS files were read: none are set, or see above")


def _remark(settings: Settings) -> None:
    """Log what an operator should know before it causes problems."""
    server = settings.server
    if not settings.key:
        _log.warning("key is not set: a random one is used, so stash ids and revisions do not outlive this process")
    for file in readable_secrets(settings):
        _log.warning("%s can be read by others than its owner; set its mode to 0600", file)
    if server.listen and not is_loopback(server.listen) and not server.tls_certificate:
        _log.warning("server.listen %s is reachable without TLS: prompts and tokens travel in the clear", server.listen)
    if server.unauthenticated:
        _log.warning(
            "server.unauthenticated is on: any client that can connect may call, and read what other runs have stashed"
        )
    metrics = settings.telemetry.metrics_listen
    if metrics and not is_loopback(metrics):
        _log.warning("telemetry.metrics_listen %s: any client that reaches it reads all figures, but no text", metrics)
    if settings.admin.listen and not is_loopback(settings.admin.listen):
        _log.warning("admin.listen %s is reachable without TLS: tokens travel in the clear", settings.admin.listen)
    container = settings.limits.process_bytes or memory_limit()
    effective = fitted(settings.limits, container)
    if message := changed(settings.limits, effective, container):
        _log.info("%s", message)
    if message := sizing(effective, container):
        _log.warning("%s", message)
    window = settings.limits.default_window
    for warning in warnings(settings.policy, settings.policy_overrides, settings.preset, window):
        _log.warning("%s", warning)
