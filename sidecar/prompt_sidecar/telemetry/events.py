"""Events as OTLP logs: one record for each cut, each break of the cache by an agent, each refused prompt, each finding.

Metrics give frequencies, spans are sampled; a record shows that an event happened in this run. Records hold numbers,
words of closed sets and the run's id; never text of a prompt, of a model or of a tool. A record that is written during
a traced call names its trace and span. Without an exporter there are no records: `on` is false.
"""

from __future__ import annotations

from collections import Counter
from time import time_ns
from typing import Final

from opentelemetry._logs import Logger, SeverityNumber
from opentelemetry.util.types import AttributeValue

from prompt_sidecar.errors import SidecarError
from prompt_sidecar.facts.guard_calls import FindingAction
from prompt_sidecar.facts.trim_calls import CacheBreak, TrimAnswer, TrimCall
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.telemetry import changes
from prompt_sidecar.telemetry.catalog import OTHER

CUT: Final = "prompt_sidecar.cut"
"""A prompt was returned with items newly trimmed."""
CACHE_BREAK: Final = "prompt_sidecar.cache_break"
"""A prompt does not begin with the previous one, as its agent changed what it had sent. Cuts are their own event."""
REFUSAL: Final = "prompt_sidecar.refusal"
"""A prompt got an error."""
FINDING: Final = "prompt_sidecar.finding"
"""A rule of the guard found something in a prompt's new text."""
EVENTS: Final = (CUT, CACHE_BREAK, REFUSAL, FINDING)
MOST_FINDINGS: Final = 16
"""Records of findings for one prompt, those with the highest counts: an attacker must not fill the queue with them."""
INTERNAL: Final = "INTERNAL"
"""The reason of a refusal whose error is not in the sidecar's tree."""
_ALTERED: Final = frozenset({FindingAction.MASKED, FindingAction.DEFANGED})


class EventLog:
    """Writes records with a logger, or none if the logger is None. Thread-safe."""

    def __init__(self, logger: Logger | None) -> None:
        self._logger = logger

    @property
    def on(self) -> bool:
        """Whether records are exported."""
        return self._logger is not None

    def trimmed(self, call: TrimCall, answer: TrimAnswer, model: str) -> None:
        """Write the events of one answered prompt, if there are any; `model` is the label of its model."""
        news, cuts = answer.news, answer.news.cuts
        if changes.aside(call) or not (cuts or news.cache_break is CacheBreak.AGENT or answer.guard.findings):
            return
        run = self._run(call, model) | {"prompt_sidecar.prompt.iteration": answer.iteration}
        if cuts:
            of_tokens: dict[str, AttributeValue] = {
                "prompt_sidecar.batch.items": len(cuts),
                "prompt_sidecar.batch.tokens": sum(trim.tokens_saved for trim in cuts),
                "prompt_sidecar.batch.batch_point": answer.cache.batch_point,
                "prompt_sidecar.batch.reasons": sorted({trim.reason.value for trim in cuts}),
                "prompt_sidecar.prompt.tokens.before": answer.tokens.before,
                "prompt_sidecar.prompt.tokens.after": answer.tokens.after,
                "prompt_sidecar.prompt.tokens.limit": answer.tokens.limit,
            }
            if answer.tokens.ceiling:
                of_tokens["prompt_sidecar.prompt.tokens.ceiling"] = answer.tokens.ceiling
            self._emit(CUT, SeverityNumber.INFO, run | of_tokens)
        if news.cache_break is CacheBreak.AGENT:
            cause: dict[str, AttributeValue] = {
                "prompt_sidecar.cache.break.cause": CacheBreak.AGENT.value,
                "prompt_sidecar.prefix.tokens.kept": answer.cache.kept,
                "prompt_sidecar.prefix.tokens.rewritten": answer.cache.rewritten,
            }
            self._emit(CACHE_BREAK, SeverityNumber.WARN, run | cause)
        found: Counter[tuple[str, FindingAction]] = Counter()
        for finding in answer.guard.findings:
            found[changes.rule_label(finding.rule), finding.action] += finding.count
        for (rule, action), count in found.most_common(MOST_FINDINGS):
            what: dict[str, AttributeValue] = {
                "prompt_sidecar.guard.rule": rule,
                "prompt_sidecar.guard.action": action.value,
                "prompt_sidecar.guard.count": count,
            }
            self._emit(FINDING, SeverityNumber.WARN if action in _ALTERED else SeverityNumber.INFO, run | what)

    def refused(self, call: TrimCall | None, model: str, error: BaseException) -> None:
        """Write that a prompt got an error; None: it was not a valid request."""
        known = isinstance(error, SidecarError)
        attributes: dict[str, AttributeValue] = {
            "error.type": error.reason if isinstance(error, SidecarError) else INTERNAL
        }
        if isinstance(error, SidecarError) and error.bound:
            attributes["prompt_sidecar.bound"] = error.bound
        if call is not None:
            attributes = self._run(call, model) | attributes
        self._emit(REFUSAL, SeverityNumber.WARN if known else SeverityNumber.ERROR, attributes)

    @staticmethod
    def _run(call: TrimCall, model: str) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "prompt_sidecar.run.id": call.run_id,
            "prompt_sidecar.prompt.format": call.format if call.format in FORMATS else OTHER,
        }
        return attributes if model == OTHER else attributes | {"gen_ai.request.model": model}

    def _emit(self, name: str, severity: SeverityNumber, attributes: dict[str, AttributeValue]) -> None:
        assert self._logger is not None
        self._logger.emit(
            timestamp=time_ns(),
            event_name=name,
            severity_number=severity,
            severity_text=severity.name,
            attributes=attributes,
        )
