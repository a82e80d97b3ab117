"""How providers do, as the HTTP door sees them: a row of the board Health."""

from __future__ import annotations

from typing import Final

from dashboards.generate.panels import Look, Panel, Query, Row, Unit
from dashboards.generate.promql import PANEL
from prompt_sidecar.telemetry.catalog import (
    GENAI_DURATION,
    GENAI_FIRST_CHUNK,
    GENAI_OUTPUT_CHUNK,
    GENAI_TOKENS,
    HTTP_SERVER_DURATION,
    PROVIDER_CALLS,
    PROVIDER_DURATION,
    PROVIDER_FIRST_BYTE,
)

_NO_CALLS: Final = "The HTTP door has called no provider."
_BY: Final = ("route", "turn")

PROVIDERS: Final = Row(
    "Providers",
    (
        Panel(
            "Provider calls by outcome",
            Look.BARS,
            Unit.CALLS_PER_SECOND,
            (Query(f"{PANEL.rate(PROVIDER_CALLS, by=('route', 'outcome'))} > 0", "{{route}}: {{outcome}}"),),
            "Calls that the HTTP door has made, hidden turns too, by API and how they ended.",
            "docs/runbooks/PromptSidecarProviderFails.md says what to do about each outcome.",
            _NO_CALLS,
            width=8,
        ),
        Panel(
            "Time to the provider's first byte (p90)",
            Look.LINES,
            Unit.SECONDS,
            (
                Query(
                    PANEL.quantile(0.9, PROVIDER_FIRST_BYTE, by=("route", "turn")), "{{route}} {{turn}}", exemplars=True
                ),
            ),
            "From a call to the first bytes of a stream, else to the answer's headers; hidden turns apart.",
            "docs/runbooks/PromptSidecarProviderSlow.md: the provider, or the way to it.",
            _NO_CALLS,
            width=8,
            traces=True,
        ),
        Panel(
            "Time to the end of the provider's answer (p90)",
            Look.LINES,
            Unit.SECONDS,
            (
                Query(
                    PANEL.quantile(0.9, PROVIDER_DURATION, by=("route", "turn")), "{{route}} {{turn}}", exemplars=True
                ),
            ),
            "From a call to the last byte, of calls that were answered; hidden turns apart.",
            "Longer with the same time to the first byte: answers are longer, or tokens come slower.",
            _NO_CALLS,
            width=8,
            traces=True,
        ),
        Panel(
            "Time to the first chunk by model (p90)",
            Look.LINES,
            Unit.SECONDS,
            (Query(PANEL.quantile(0.9, GENAI_FIRST_CHUNK, by=("gen_ai_request_model",)), "{{gen_ai_request_model}}"),),
            "Of streams, by the model that was asked.",
            "One model alone: it is overloaded or thinks for long.",
            "No answer was streamed.",
            width=6,
        ),
        Panel(
            "Time between chunks by model (p90)",
            Look.LINES,
            Unit.SECONDS,
            (Query(PANEL.quantile(0.9, GENAI_OUTPUT_CHUNK, by=("gen_ai_request_model",)), "{{gen_ai_request_model}}"),),
            "Of streams, by the model that was asked: how fast words come.",
            "All models: the network, or something between that collects chunks.",
            "No answer was streamed.",
            width=6,
        ),
        Panel(
            "Provider errors by model",
            Look.BARS,
            Unit.CALLS_PER_SECOND,
            (
                Query(
                    f"{PANEL.rate(GENAI_DURATION, by=('gen_ai_request_model', 'error_type'))} > 0",
                    "{{gen_ai_request_model}} {{error_type}}",
                ),
            ),
            "Calls by the model that was asked and error; without an error, those that were answered.",
            "A status: the provider's own words are in the agent's answer. A name: the connection failed.",
            _NO_CALLS,
            width=6,
        ),
        Panel(
            "Tokens by model, as counted by providers",
            Look.BARS,
            Unit.COUNT,
            (
                Query(
                    PANEL.quantile(0.5, GENAI_TOKENS, by=("gen_ai_request_model", "gen_ai_token_type")),
                    "{{gen_ai_request_model}} {{gen_ai_token_type}}",
                ),
            ),
            "The middle call's input and output tokens.",
            "Input far above the ceiling or window that you set: see Trimming and cache.",
            "No provider has counted anything.",
            width=6,
        ),
        Panel(
            "Time of HTTP requests (p90)",
            Look.LINES,
            Unit.SECONDS,
            (
                Query(
                    PANEL.quantile(0.9, HTTP_SERVER_DURATION, by=("route",)),
                    "{{route}}",
                ),
            ),
            "From a request's arrival at the HTTP door to the end of its answer, the provider's time included.",
            "Longer than the provider's own times: see “Time of a prompt”.",
            "No request has come.",
            width=24,
        ),
    ),
)
