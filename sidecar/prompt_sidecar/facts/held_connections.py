"""Connections that the system holds until the HTTP door accepts them, as while its process starts.

On its own, as it is imported before the door's address is taken, which waits for all that is imported before.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldConnections:
    """At one moment."""

    waiting: int
    """0 where the system does not say, as beyond Linux."""
    limit: int
    """Those that may wait; 0: there is no HTTP door."""
    at_start: int = 0
    """Those that waited when the door began to accept them."""
