"""Connections that the system holds until the HTTP door accepts them, as while its process starts.

A separate module, as it is imported before the door binds its address, which should not wait for other imports.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldConnections:
    """The connections at one moment."""

    waiting: int
    """0 if the system does not report it, as on systems other than Linux."""
    limit: int
    """Most connections that may wait; 0 if there is no HTTP door."""
    at_start: int = 0
    """Connections that waited when the door began to accept."""
