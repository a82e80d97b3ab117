"""The client's own count of prompts as an OpenTelemetry metric, for a program that has loaded OpenTelemetry's API.

A sidecar that is down cannot count the prompts that were sent to the model without it: only its clients can. The metric
is exported with the program's own metrics. This module never loads OpenTelemetry itself.
"""

from __future__ import annotations

import sys
from typing import Any, Final

PROMPTS: Final = "prompt_sidecar.client.prompts"
"""The counter's name. Its attributes: `sent`, `trimmed` or the kind of the prompt sent instead; `code`, the gRPC status
of the call that failed, `OK` if none did."""
TRIMMED: Final = "trimmed"
SCOPE: Final = "prompt_sidecar.client"
_DESCRIPTION: Final = "Prompts for which a client asked its sidecar, by what was sent to the model in the end."


class PromptCounter:
    """Counts prompts. Thread-safe, as OpenTelemetry's instruments are."""

    def __init__(self) -> None:
        self._counter: Any = None

    def add(self, sent: str, code: str = "OK") -> None:
        """Count one prompt."""
        if self._counter is None:
            module = sys.modules.get("opentelemetry.metrics")
            if module is None:
                return
            # The instrument follows the program's meter provider, which may be set later.
            self._counter = module.get_meter(SCOPE).create_counter(PROMPTS, "{prompt}", _DESCRIPTION)
        self._counter.add(1, {"sent": sent, "code": code})
