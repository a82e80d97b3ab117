"""What the answers told the agents, added up by metric: the figures that Prometheus must show, to the last token.

A fact is counted under a metric of the catalogue and those of its labels that an answer tells; where it tells less than
a label does, the label's value is a regular expression. What no answer tells (how many ids are new, how long a thread
waited) is not here.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from prompt_sidecar.engine.tools.definitions import TOOLS
from prompt_sidecar.facts.history_size import SizeKind
from prompt_sidecar.facts.tool_calls import ToolOutcome
from prompt_sidecar.facts.trim_calls import NoFit
from prompt_sidecar.facts.usage_calls import CacheUse, Calibrated, UsageOutcome
from prompt_sidecar.recall.found import SearchOutcome
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import OTHER, Metric
from prompt_sidecar.v1 import retrieve_pb2, run_pb2, search_pb2, tool_pb2, trim_pb2, usage_pb2

Labels = tuple[tuple[str, str], ...]


def _word(enum: object, value: int, prefix: str) -> str:
    """An enum's name on the wire as the label says it."""
    name: str = enum.Name(value)  # type: ignore[attr-defined]
    return name.removeprefix(prefix).lower()


class Facts:
    """The sums; safe for many agents at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: Counter[tuple[str, Labels]] = Counter()

    def add(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Add to a sum. A fact of zero makes a sum of zero."""
        assert set(labels) <= set(metric.labels), (metric.name, labels)
        with self._lock:
            self._sums[metric.name, tuple(sorted(labels.items()))] += amount  # type: ignore[assignment]

    def __iter__(self) -> Iterator[tuple[Metric, dict[str, str], float]]:
        """Every sum with its metric and labels."""
        with self._lock:
            sums = dict(self._sums)
        metrics = {metric.name: metric for metric in catalog.CATALOG}
        for (name, labels), value in sorted(sums.items()):
            yield metrics[name], dict(labels), float(value)

    def trimmed(self, answer: trim_pb2.TrimPromptResponse, format: str) -> None:
        """A prompt that was answered."""
        self.add(catalog.PROMPTS, outcome="trimmed|condensed|untouched|over_budget", format=format)
        if not answer.fits:
            self.add(catalog.PROMPTS, outcome="over_budget")
            reason = NoFit(_word(trim_pb2.NoFitReason, answer.no_fit_reason, "NO_FIT_REASON_"))
            self.add(catalog.UNFIT, reason=reason.value)
        self.add(catalog.PROMPT_TOKENS, answer.tokens.before, state="before", format=format)
        self.add(catalog.PROMPT_TOKENS, answer.tokens.after, state="after", format=format)
        for kind in answer.history_size.kinds:
            word = SizeKind(_word(trim_pb2.SizeKind, kind.kind, "SIZE_KIND_")).value
            self.add(catalog.HISTORY_TOKENS, kind.tokens_sent, state="before", kind=word)
            self.add(catalog.HISTORY_TOKENS, kind.tokens_returned, state="after", kind=word)
        for mark in answer.crossed_percent:
            self.add(catalog.WINDOW_CROSSINGS, mark=str(mark))
        self.add(catalog.OWN_TEXT_TOKENS, answer.tokens.own_text)
        self.add(catalog.PREFIX_TOKENS, answer.cache.kept_prefix_tokens, state="kept")
        self.add(catalog.PREFIX_TOKENS, answer.cache.rewritten_tokens, state="rewritten")

    def aside(self, mode: str) -> None:
        """A prompt that was to change nothing."""
        self.add(catalog.PROMPTS_ASIDE, mode=mode)

    def refused(self) -> None:
        """A prompt that got an error."""
        self.add(catalog.PROMPTS, outcome="refused")

    def retrieved(self, answer: retrieve_pb2.RetrieveContentResponse, via: str) -> None:
        """An original that was asked for."""
        word = Outcome(_word(retrieve_pb2.RetrieveOutcome, answer.outcome, "RETRIEVE_OUTCOME_")).value
        self.add(catalog.RETRIEVALS, outcome=word, via=via)

    def searched(self, answer: search_pb2.SearchHistoryResponse, via: str) -> None:
        """A search."""
        word = SearchOutcome(_word(search_pb2.SearchOutcome, answer.outcome, "SEARCH_OUTCOME_")).value
        self.add(catalog.SEARCHES, outcome=word, via=via)
        self.add(catalog.SEARCH_SNIPPETS, len(answer.snippets), via=via)

    def called(self, name: str, answer: tool_pb2.CallToolResponse) -> None:
        """A tool that the model called, and what it did."""
        word = ToolOutcome(_word(tool_pb2.ToolOutcome, answer.outcome, "TOOL_OUTCOME_")).value
        self.add(catalog.TOOL_CALLS, tool=name if name in TOOLS else OTHER, outcome=word)
        match answer.WhichOneof("result"):
            case "recalled":
                self.retrieved(answer.recalled, "tool")
            case "found":
                self.searched(answer.found, "tool")

    def created(self, count: int) -> None:
        """Tasks that are new."""
        self.add(catalog.TASKS, count, event="created")

    def completed(self) -> None:
        """A task that is done."""
        self.add(catalog.TASKS, event="completed")

    def reported(self, asked: usage_pb2.ReportUsageRequest, answer: usage_pb2.ReportUsageResponse) -> None:
        """A report on a model call."""
        outcome = UsageOutcome(_word(usage_pb2.UsageOutcome, answer.outcome, "USAGE_OUTCOME_"))
        self.add(catalog.USAGE_REPORTS, outcome=outcome.value)
        if outcome is not UsageOutcome.RECORDED:
            return
        if asked.HasField("refusal"):
            self.add(catalog.PROVIDER_REFUSALS)
            return
        use = Calibrated(_word(usage_pb2.CalibrationUse, answer.calibration_use, "CALIBRATION_USE_"))
        self.add(catalog.CALIBRATIONS, outcome=use.value)
        cache = CacheUse(_word(usage_pb2.CacheUse, answer.cache_use, "CACHE_USE_").replace("unspecified", "not_told"))
        self.add(catalog.PROVIDER_CACHE, outcome=cache.value)
        self.add(catalog.REPORTED_TOKENS, answer.real_tokens, kind="input")
        self.add(catalog.REPORTED_TOKENS, answer.cached_tokens, kind="cached")
        self.add(catalog.REPORTED_TOKENS, answer.cached_tokens_expected, kind="cache_expected")
        self.add(catalog.REPORTED_TOKENS, asked.output_tokens, kind="output")

    def started(self) -> None:
        """A run's first prompt was answered."""
        self.add(catalog.RUNS_STARTED)

    def ended(self, answer: run_pb2.EndRunResponse) -> None:
        """A run that its agent ended: what it lost is told now, and at no other time."""
        if answer.ended:
            self.add(catalog.RUNS_FORGOTTEN, cause="ended")
            self.add(catalog.UNFINISHED_TASKS, len(answer.run.unfinished_tasks))
            self.lost(answer.run.stash)

    def lost(self, stash: run_pb2.StashFigures) -> None:
        """Originals that a run has lost, as its figures tell."""
        self.add(catalog.STASH_LOSSES, stash.expired, cause="expired")
        self.add(catalog.STASH_LOSSES, stash.evicted, cause="run_budget|total_budget")
