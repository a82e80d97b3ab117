"""The usage that providers report in their answers."""

from __future__ import annotations

from prompt_sidecar.answers.answer_json import read
from prompt_sidecar.facts.usage_calls import InputCounting, ReportedRefusal, UsageCall
from prompt_sidecar.providers import usage_reader
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.providers.usage import ProviderUsage


class UsageReader(usage_reader.UsageReader):
    """Reads the usage in one answer of a format, with the JSON reader for answers. Not thread-safe."""

    def __init__(self, format_name: str, status: int, content_type: str, *, encoded: bool = False) -> None:
        super().__init__(APIS.get(format_name), status, content_type, encoded=encoded, read=read)


def usage_call(usage: ProviderUsage, caller: str, run_id: str, revision: bytes) -> UsageCall:
    """Return the report on a run's prompt."""
    refusal = ReportedRefusal(usage.refusal) if usage.refusal else None
    return UsageCall(
        caller=caller,
        run_id=run_id,
        model=usage.model,
        input_tokens=None if refusal else usage.input_tokens,
        cached_tokens=None if refusal else usage.cached_tokens,
        cache_write_tokens=None if refusal else usage.cache_write_tokens,
        cache_write_hour_tokens=None if refusal else usage.cache_write_hour_tokens,
        service_tier=usage.service_tier,
        output_tokens=None if refusal else usage.output_tokens,
        counting=InputCounting.AS_PROVIDER,
        refusal=refusal,
        revision=revision,
    )
