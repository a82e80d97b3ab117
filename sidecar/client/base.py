"""What the blocking client and asyncio's have in common: how they are made, and what they count."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from sidecar.client.arguments import TrimOptions
from sidecar.client.dialects import DIALECTS, Dialect
from sidecar.client.engine import Engine
from sidecar.client.facts import Trimmed
from sidecar.client.options import DEFAULT_DEADLINE, DEFAULT_MESSAGE_BYTES, DEFAULT_TARGET, Options, Tls


class Base:
    """See `Options` for what each argument means, and why its default."""

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        deadline: float = DEFAULT_DEADLINE,
        fail_open: bool = True,
        token: str = "",
        tls: Tls | None = None,
        max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
        trace_context: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.options = Options(target, deadline, fail_open, token, tls, max_message_bytes, trace_context)
        self._engine = Engine(self.options)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def trimmed(self) -> int:
        """Prompts that the sidecar answered."""
        return self._engine.trimmed

    @property
    def untrimmed(self) -> int:
        """Prompts that went untrimmed, as the sidecar did not answer."""
        return sum(self._engine.untrimmed.values())

    @property
    def untrimmed_by_reason(self) -> Mapping[str, int]:
        """The same by reason: a reason of the sidecar's, or a gRPC status code."""
        return self._engine.untrimmed

    @property
    def unreported(self) -> int:
        """Usage reports of the loop that did not reach the sidecar."""
        return self._engine.unreported

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this client is closed; make another")


class BaseRun:
    """One run: its id, and the options of its prompts. For one agent; not to be shared by threads."""

    def __init__(self, engine: Engine, run_id: str, options: TrimOptions) -> None:
        self._engine = engine
        self.id = run_id
        self.options = options
        self.last: Trimmed[Any] | None = None
        """The last prompt."""
        self._dialect: Dialect | None = None

    def _chosen(self, format: str) -> Dialect:
        try:
            self._dialect = DIALECTS[format]
        except KeyError:
            raise ValueError(f"format is {format!r}; here it may be one of {', '.join(DIALECTS)}") from None
        return self._dialect

    def _usage(self, response: Any) -> Mapping[str, Any]:
        if self._dialect is None or self.last is None:
            raise ValueError("no prompt of this run has gone through one of its adapters yet")
        usage = self._dialect.usage(response)
        return {**usage, "revision": self.last.revision} if self.last.trimmed else {}
