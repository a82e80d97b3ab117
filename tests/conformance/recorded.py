"""Recorded requests through the real core: every preset, at limits that force trimming and one that forces nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from prompt_sidecar.trim.presets import PRESETS
from tests.conformance.case import Case
from tests.conformance.traffic import Request, recorded
from tests.promises.engine import Engine

SHARES = (0.95, 0.8, 0.5, 0.2)
"""Limits as shares of a prompt's own tokens."""
TINY = 40
"""Tokens: a limit that nothing fits."""
CAP = {"cap_text_bytes": 1_024, "cap_media_bytes": 0}
"""The lowest caps there are: the presets' own are passed by no recorded result."""
WHOLE = 200_000
"""Tokens: a limit that all recorded requests fit, with room for our own text."""


@dataclass(slots=True)
class Tally:
    """What became of one format's requests under one preset."""

    prompts: int = 0
    trimmed: int = 0
    fit: int = 0
    items: Counter[str] = field(default_factory=Counter)
    """Trims by action."""
    defects: list[str] = field(default_factory=list)

    def row(self) -> str:
        """The figures as one line."""
        actions = ", ".join(f"{count} {action}" for action, count in sorted(self.items.items()))
        figures = f"{self.prompts:5} prompts, {self.trimmed:4} trimmed, {self.fit:4} fit, {len(self.defects)} defects"
        return f"{figures}; {actions}"


def sent(body: Any) -> bytes:
    """A body as Python clients write it."""
    return json.dumps(body, ensure_ascii=False).encode()


def tally(case: Case, preset: str) -> Tally:
    """Trim every accepted request of a format under a preset, at every limit, and judge what comes back."""
    found = Tally()
    for request in recorded(case.traffic, 200):
        raw = sent(request.body)
        for limit in limits_of(case, raw):
            answer = Engine(limit=limit, preset=preset, policy=CAP).trim(case.format, raw)
            found.prompts += 1
            found.trimmed += bool(answer.trimmed.trims)
            found.fit += answer.fits
            found.items.update(trim.action.value for trim in answer.trimmed.trims)
            returned = json.loads(answer.prompt.body or b"")
            found.defects += [f"limit {limit}: {defect}" for defect in case.defects(returned)]
    return found


def limits_of(case: Case, raw: bytes) -> Iterator[int]:
    """The limits at which a request is trimmed."""
    tokens = Engine(limit=WHOLE).trim(case.format, raw, dry_run=True, recall_unavailable=True).tokens.before
    yield WHOLE
    yield from sorted({max(TINY, int(share * tokens)) for share in SHARES} | {TINY}, reverse=True)


def changed(case: Case) -> list[Request]:
    """Requests that do not come back byte for byte though nothing forces a change."""
    found = []
    for request in recorded(case.traffic, 200):
        for raw in (sent(request.body), json.dumps(request.body, separators=(",", ":")).encode()):
            for fields in ({"recall_unavailable": True}, {"recall_unavailable": True, "edits": True}):
                answer = Engine(limit=WHOLE).trim(case.format, raw, **fields)
                if (list(answer.prompt.edits) if "edits" in fields else answer.prompt.body) != (
                    [] if "edits" in fields else raw
                ):
                    found.append(request)
    return found


def presets() -> list[str]:
    """The names of all presets."""
    return list(PRESETS)
