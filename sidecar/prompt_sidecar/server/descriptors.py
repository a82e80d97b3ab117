"""File descriptors in hand: there are enough for as many connections as may be open, and some are left.

A process that runs out of descriptors cannot accept, and cannot open a file either: a sidecar whose connections took
them all would answer nobody, and could not read its tokens again. So connections are bounded below the limit.
"""

from __future__ import annotations

import logging
import resource

SPARE = 128
"""Descriptors for all else: files, `/metrics`, a collector, gRPC's own wake-ups. An idle sidecar has some 30 open."""
LEAST = 8
"""Connections below which a sidecar is of no use."""

_log = logging.getLogger(__name__)


class TooFewDescriptors(Exception):
    """The process may open too few files; the message says how many it needs."""


def connections(wanted: int, listeners: int) -> int:
    """How many connections each listener may have: `wanted`, or fewer if the process may open too few files.

    The soft limit is raised as far as it takes and the hard one allows.

    Raises:
        TooFewDescriptors: there is not even room for a few.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted * listeners + SPARE
    soft = _raised(soft, hard, need)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return wanted
    fewer = (soft - SPARE) // listeners
    if fewer < LEAST:
        raise TooFewDescriptors(
            f"the process may open {soft} files; {LEAST * listeners + SPARE} is the least that it needs "
            f"and {need} what server.max_connections asks for: raise the limit (ulimit -n)"
        )
    _log.warning(
        "the process may open %d files, so each listener takes %d connections and not server.max_connections, %d; "
        "raise the limit (ulimit -n) to %d",
        soft,
        fewer,
        wanted,
        need,
    )
    return fewer


def _raised(soft: int, hard: int, need: int) -> int:
    if soft == resource.RLIM_INFINITY or soft >= need:
        return soft
    best = need if hard == resource.RLIM_INFINITY else min(need, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (best, hard))
    except (OSError, ValueError):  # a sandbox may forbid it
        return soft
    return best
