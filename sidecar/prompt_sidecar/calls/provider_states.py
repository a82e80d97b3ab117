"""Logs when a provider begins to fail and when it answers again, each at most once a minute."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

from prompt_sidecar.facts.http_calls import CallOutcome, ProviderAnswered, ProviderAsked
from prompt_sidecar.facts.log_lines import members

SECONDS: Final = 60.0
"""Time between two lines with the same content about a provider."""
_FAILS: Final = frozenset({CallOutcome.FAILED, CallOutcome.UNREACHABLE, CallOutcome.BROKEN_OFF})
_ANSWERS: Final = frozenset({CallOutcome.ANSWERED, CallOutcome.REFUSED, CallOutcome.RATE_LIMITED})
"""Outcomes of a working provider; after an agent's disconnect nothing is known."""

_log = logging.getLogger("prompt_sidecar.providers")


class ProviderStates:
    """Is notified of each call of a provider. Thread-safe. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failing: dict[str, bool] = {}
        """Whether the newest log line about a provider reported a failure."""
        self._logged: dict[tuple[str, bool], float] = {}

    def answered(self, asked: ProviderAsked, answered: ProviderAnswered) -> None:
        """Log a change of state, if this call shows one."""
        outcome = answered.outcome
        if outcome not in _FAILS | _ANSWERS:
            return
        name, fails = asked.provider, outcome in _FAILS
        with self._lock:
            now = self._clock()
            if self._failing.get(name, False) == fails or now - self._logged.get((name, fails), -math.inf) < SECONDS:
                return
            self._failing[name] = fails
            self._logged[name, fails] = now
        if fails:
            _log.warning(
                "the provider %s fails: %s (%s); agents get its errors, or a 502, until it answers",
                name,
                outcome.value,
                answered.error,
                extra=members(provider=name, reason=outcome.value, error_type=answered.error),
            )
        else:
            _log.info("the provider %s answers again", name, extra=members(provider=name))
