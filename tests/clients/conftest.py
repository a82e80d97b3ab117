"""Each language in turn, its agent built, and the file that its tool reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.clients.languages import LANGUAGES, Language, built

LOG = "".join(f"{second:05} request {second * 7919 % 100_003} took {second * 31 % 977} ms\n" for second in range(220))
"""What a day's log holds. Twelve of these exceed the agents' window of 16,000 tokens twice over."""


@pytest.fixture(params=LANGUAGES, ids=lambda language: language.name)
def language(request: pytest.FixtureRequest) -> Language:
    """Each language in turn."""
    found: Language = request.param
    return found


@pytest.fixture
def folder(language: Language, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its built agent is."""
    base = tmp_path_factory.getbasetemp()
    # With pytest-xdist each worker has a folder in one that all share; each agent is built once for all of them.
    return built(language, base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture
def log(tmp_path: Path) -> str:
    """The file that the agent's tool reads."""
    path = tmp_path / "log.txt"
    path.write_text(LOG)
    return str(path)
