"""Recorded texts to count."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def recorded() -> list[str]:
    """Every string of every recorded run."""
    data = os.environ.get("PROMPT_SIDECAR_DATA")
    runs = (Path(data) if data else Path(__file__).parents[2].parent / "shared" / "data") / "runs"
    paths = sorted(runs.glob("*.json.gz"))
    if not paths:
        pytest.skip("no recorded runs: set PROMPT_SIDECAR_DATA to the folder that holds runs/")
    return [text for path in paths for text in _strings(json.loads(gzip.decompress(path.read_bytes()))["messages"])]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
