"""Composition: settings in, a running sidecar out. The one place that knows every part."""

from __future__ import annotations

import gc
import logging
import queue
import secrets
import signal
import threading
import time
from functools import partial

import tiktoken

from sidecar.run.service import Runs
from sidecar.server.lifecycle import Server
from sidecar.server.logs import configure
from sidecar.server.options import is_loopback
from sidecar.settings import Settings
from sidecar.tokens.count import Counter, warm
from sidecar.tokens.fast import load_fast
from sidecar.tokens.vocabulary import ENCODINGS, load

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
        clock=time.time,
        preset_overrides=settings.policy_overrides,
        search=settings.search,
        recall=settings.recall,
    )


def start(settings: Settings) -> Server:
    """Bind, load, and serve; return the running server.

    Raises:
        StartError: it cannot listen as the settings say.
        TokensError: the tokens file cannot be used.
        VocabularyError: a vocabulary is missing or damaged.
    """
    server = Server(settings.server)
    try:
        encodings: dict[str, tiktoken.Encoding] = {name: load(name) for name in ENCODINGS}
        fast, found = (
            ({}, "tiktoken counts all texts") if settings.tokens.counter == "tiktoken" else load_fast(encodings)
        )
        _log.info("%s", found)
        counter = Counter(encodings, fast=fast)
        server.start(build_runs(settings, counter), partial(warm, counter))
    except BaseException:
        server.stop(0)
        raise
    settle_collector()
    return server


def settle_collector() -> None:
    """Spare the collector what it would look through in vain.

    What was loaded lives as long as the process, and records of runs hold no cycles: looking through either at every
    few hundred allocations costs a call a millisecond now and then.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def serve(settings: Settings) -> bool:
    """Serve until SIGTERM or SIGINT, then drain; a second signal stops at once. Return whether all calls finished.

    Raises: as `start`.
    """
    configure(settings.log.format, settings.log.level)
    _remark(settings)
    # A SimpleQueue's put may run in a signal handler while the same thread is inside get; an Event's set may not.
    events: queue.SimpleQueue[str] = queue.SimpleQueue()
    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, lambda number, _: events.put(signal.Signals(number).name))
    server = start(settings)
    _log.info("ready: listening on %s", ", ".join(server.addresses))
    _log.info("%s: stopping, calls in flight have %g s to finish", events.get(), settings.server.grace)
    outcome: list[bool] = []

    def drain() -> None:
        outcome.append(server.stop())
        events.put("drained")

    threading.Thread(target=drain, name="drain", daemon=True).start()
    if (event := events.get()) != "drained":
        _log.warning("%s again: stopping at once, calls in flight are lost", event)
        return False
    _log.info("stopped%s", "" if outcome[0] else ": the grace is over, calls in flight were cancelled")
    return outcome[0]


def _remark(settings: Settings) -> None:
    """Log what an operator would want to know before it hurts."""
    server = settings.server
    if not settings.key:
        _log.info("key is not set: a random one is used, so stash ids and revisions do not outlive this process")
    if server.listen and not is_loopback(server.listen) and not server.tls_certificate:
        _log.warning("server.listen %s is reachable without TLS: prompts and tokens travel in the clear", server.listen)
