"""Where recorded data are: runs, provider traffic, injections. None of it is part of the repository."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENT = "PROMPT_SIDECAR_DATA"
"""Names the data folder; without it, the folder `shared/data` next to the repository is used."""


def folder() -> Path | None:
    """Return the data folder, None if there is none."""
    named = os.environ.get(ENVIRONMENT)
    path = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    return path if path.is_dir() else None


def need(relative: str) -> Path:
    """Return a data file or folder; skip the test where it is absent."""
    root = folder()
    path = root / relative if root else None
    if path is None or not path.exists():
        pytest.skip(f"recorded data {relative} not found; {ENVIRONMENT} names the folder that holds it")
    return path


def present(relative: str) -> list[Path]:
    """Return the data files that match a pattern, by name; none where there is no data folder."""
    root = folder()
    return sorted(root.glob(relative)) if root else []


@cache
def lines(path: Path) -> tuple[Any, ...]:
    """Return the decoded lines of a gzipped JSON-lines file."""
    return tuple(_lines(path))


def _lines(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rb") as file:
        for line in file:
            yield json.loads(line)


@cache
def document(path: Path) -> Any:
    """Return a decoded gzipped JSON file."""
    with gzip.open(path, "rb") as file:
        return json.loads(file.read())
