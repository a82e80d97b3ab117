"""Counts the calls of a client, by method and status: what the server's own count of them must be."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc


class Tally(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc,unused-ignore]
    """Sees every call of a channel come back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """Let the call go, and count it by how it ended."""
        outcome = continuation(client_call_details, request)
        path = client_call_details.method
        method = path.rpartition("/")[2]
        with self._lock:
            self._calls[method, outcome.code().name] += 1
        return outcome

    def calls(self) -> list[tuple[tuple[str, str], int]]:
        """The counts so far."""
        with self._lock:
            return sorted(self._calls.items())
