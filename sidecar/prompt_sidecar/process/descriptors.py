"""Raises the limit of open files, or lowers the number of connections, so that file descriptors stay free.

A process without free descriptors can neither accept a connection nor open a file: a sidecar whose connections use them
all would not answer, and could not reload its tokens. So the number of connections is limited below that.
"""

from __future__ import annotations

import logging
import resource

from prompt_sidecar.process.starting import StartError

SPARE = 128
"""Descriptors for everything else: files, `/metrics`, a collector, gRPC's own wake-ups. An idle sidecar has some 30
open."""
LEAST = 8
"""The fewest connections with which a sidecar starts."""

_log = logging.getLogger(__name__)


def connections(wanted: int, listeners: int) -> int:
    """Return how many connections each listener may have: `wanted`, or fewer if the process may open too few files.

    The soft limit is raised as far as needed and the hard one allows.

    Raises:
        StartError: fewer than `LEAST` are possible.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted * listeners + SPARE
    soft = _raised(soft, hard, need)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return wanted
    fewer = (soft - SPARE) // listeners
    if fewer < LEAST:
        raise StartError(
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
