"""What keeps a door from being opened."""

from __future__ import annotations


class StartError(Exception):
    """A door cannot be opened; the message explains what to change."""
