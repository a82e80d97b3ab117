"""The engine as the promises see it: a run's use cases with a known key, a stepped clock, and plain arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from prompt_sidecar.engine.runs.archive import Archive
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.guard_calls import RestoreCall, RestoredArguments, ToolArguments
from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.facts.limits import CoreLimits, Limits, RecallLimits
from prompt_sidecar.facts.recall_calls import RetrieveAnswer, RetrieveCall, SearchCall
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.recall.found import SearchLimits, SearchQuery, SearchResult
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.tokens.count import Counter
from prompt_sidecar.tokens.vocabulary import load
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.trim.presets import preset

KEY = b"a key that is configured, thirty-two bytes and more"
CALLER = "promises"
RUN_ID = "run-1"
FIRST_WAIT = 30.0
"""Seconds that a first prompt waits for an archive: long, as only a fault makes it wait."""
LARGEST_PAGE = 200_000
"""Tokens: the largest page that may be asked for."""


@cache
def counter() -> Counter:
    """Return the counter that all engines share: its cache changes speed and nothing else."""
    return Counter({name: load(name) for name in ("o200k_base", "cl100k_base")})


@dataclass(slots=True)
class Clock:
    """Seconds that a test steps."""

    now: float = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass(slots=True)
class Engine:
    """One process's engine, asked on behalf of one caller and run."""

    limit: int
    """Tokens: the window, with no reserve."""
    preset: str = "cache_first"
    policy: Mapping[str, object] = field(default_factory=dict)
    model: str = ""
    """Empty: the body's own."""
    run_id: str = RUN_ID
    key: bytes = KEY
    previous_keys: Sequence[bytes] = ()
    limits: Limits = field(default_factory=Limits)
    clock: Clock = field(default_factory=Clock)
    search_limits: SearchLimits = field(default_factory=SearchLimits)
    recall_limits: RecallLimits = field(default_factory=RecallLimits)
    guard: GuardOptions = field(default_factory=GuardOptions)
    rules: Rules | None = None
    """What holds for whom; None: no ceilings."""
    archive: Archive | None = None
    first_wait: float = FIRST_WAIT
    """Seconds that a prompt waits for the archive."""
    journal_entries: int = 0
    models: Models = field(default_factory=Models)
    runs: Runs = field(init=False)

    def __post_init__(self) -> None:
        rules = self.rules or Rules(CallerRules(preset("cache_first")))
        own = {caller: replace(each, guard=self.guard) for caller, each in rules.own.items()}
        self.runs = Runs(
            counter(),
            Keys(self.key, tuple(self.previous_keys)),
            replace(rules, general=replace(rules.general, guard=self.guard), own=own),
            Clocks(self.clock),
            CoreLimits(self.limits, self.search_limits, self.recall_limits, self.journal_entries, self.models),
            self.archive,
            self.first_wait,
        )

    def trim(self, format: str, body: bytes, **fields: Any) -> TrimAnswer:
        """Trim a prompt; `fields` are further fields of the call."""
        values: dict[str, Any] = {
            "caller": CALLER,
            "run_id": self.run_id,
            "context_window": self.limit,
            "output_reserve": 0,
            "preset": self.preset,
            "policy": self.policy,
            "accept_bytes": 1 << 30,
            "model": self.model,
        }
        return self.runs.trim(TrimCall(format=format, body=body, **(values | fields)), _never)

    def retrieve(self, stash_id: str, **fields: Any) -> RetrieveAnswer:
        """Fetch an original, whole unless `fields` say otherwise."""
        values: dict[str, Any] = {"caller": CALLER, "run_id": self.run_id, "page_tokens": LARGEST_PAGE}
        return self.runs.recalling.retrieve(RetrieveCall(stash_id=stash_id, **(values | fields)))

    def original(self, stash_id: str) -> bytes | None:
        """Return an original, page by page if it is large; None if it is not found."""
        pieces: list[bytes] = []
        offset = 0
        while True:
            answer = self.retrieve(stash_id, offset=offset)
            if answer.outcome is not Outcome.HIT:
                return None
            pieces.append(answer.page.content)
            if not answer.page.more:
                return b"".join(pieces)
            assert answer.page.next_offset > offset
            offset = answer.page.next_offset

    def search(self, query: str, **fields: Any) -> SearchResult:
        """Search the run's history, until all of it is indexed: how much one search indexes depends on the machine."""
        call = SearchCall(CALLER, self.run_id, SearchQuery(query, **fields))
        while (found := self.runs.recalling.search(call, _never)).not_indexed_items:
            pass
        return found

    def call(self, name: str, arguments: Mapping[str, object], request_id: str = "") -> ToolAnswer:
        """Call one of the model's tools."""
        return self.runs.recalling.call_tool(
            ToolCall(CALLER, self.run_id, name, json.dumps(arguments), request_id), _never
        )

    def restore(self, tool: str, arguments: bytes) -> RestoredArguments:
        """Fill a tool call's arguments with the values of its masks."""
        call = RestoreCall(CALLER, self.run_id, [ToolArguments(tool, arguments)])
        return self.runs.restore(call).calls[0]

    def figures(self) -> RunFigures:
        """Return the run's figures."""
        return self.runs.figures(CALLER, self.run_id)


def _never() -> None:
    """No deadline passes."""
