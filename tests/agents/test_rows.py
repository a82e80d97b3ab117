"""SDKs, frameworks and aider run sixty calls behind the HTTP door by their default settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.judging import faults
from tests.agents.programs import AGENTS
from tests.agents.rows import ROWS, Row
from tests.agents.running import session

IN_CI = [row for row in ROWS if row.in_ci and row.agent not in AGENTS]


@pytest.mark.parametrize("row", IN_CI, ids=lambda row: row.agent.name)
def test_sixty_calls(row: Row, tmp_path: Path) -> None:
    """Forty of them over the limit: none is lost or doubled, each prompt is valid, recall is answered."""
    with session(row.script(row.agent), tmp_path) as work:
        work.run()

    found = faults(work, *row.checks)
    assert [] == found, "\n".join(found)
