"""On recorded runs, where a guard that masks finds nothing, it changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.guard.options import GuardOptions
from tests.oracle.runs import recorded, recorded_paths, turns
from tests.promises.engine import Engine

paths = pytest.mark.parametrize("path", recorded_paths(), ids=lambda path: path.name.split(".")[0])


@paths
def test_answers_are_the_same_bytes_where_nothing_is_found(path: Path) -> None:
    """Own text apart, which says that values are masked; compared up to the first find."""
    run = recorded(path)
    fields: dict[str, Any] = {"policy": {"own_text_max_tokens": 0}}
    off = GuardOptions(actions=("secrets=off", "personal=off", "lookalikes=off"))
    plain, masking = Engine(limit=30_000, guard=off), Engine(limit=30_000, guard=GuardOptions(mode="enforce"))
    lengths = turns(run.messages)
    for length in lengths[:: max(1, len(lengths) // 12)]:
        answer = masking.trim(run.format, run.body(length), **fields)
        if any(finding.action == "masked" for finding in answer.guard.findings):
            break
        assert plain.trim(run.format, run.body(length), **fields).prompt.body == answer.prompt.body
