"""SDKs and frameworks run sixty calls behind the HTTP door by their default settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.judging import faults
from tests.agents.programs import READ_LOG
from tests.agents.rows import ROWS, Row
from tests.agents.running import session
from tests.agents.scripts import Script

IN_CI = [row for row in ROWS if row.in_ci]


@pytest.mark.parametrize("row", [row for row in IN_CI if row.agent.tool == READ_LOG], ids=lambda row: row.agent.name)
def test_sixty_calls(row: Row, tmp_path: Path) -> None:
    """Forty of them over the limit: none is lost or doubled, each prompt is valid, recall is answered."""
    with session(Script(row.agent), tmp_path) as work:
        work.run()

    found = faults(work, *row.checks)
    assert [] == found, "\n".join(found)
