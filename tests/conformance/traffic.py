"""Recorded requests to providers, each with what the provider answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.oracle import data

FILE = "provider-traffic/requests.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Request:
    """One recorded request."""

    status: int
    error: str
    """What the provider said of one that it refused."""
    body: dict[str, Any] = field(repr=False)


def recorded(traffic: str, status: int) -> list[Request]:
    """The requests of one format that were answered with a status; skips the test where none are there."""
    return [
        Request(row["status"], str(row["error"]), row["body"])
        for row in data.lines(data.need(FILE))
        if row["format"] == traffic and row["status"] == status
    ]
