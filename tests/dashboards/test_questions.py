"""The table of questions in docs/dashboards.md: each row sends its reader to a panel that there is."""

from __future__ import annotations

from tests.dashboards.questions import questions
from tests.dashboards.tools import boards, panels


def test_there_are_ten_questions_and_each_has_its_panels() -> None:
    """On the board that the row names, by the panel's whole title, with what to read there."""
    rows = questions()
    titles = {
        board["title"].rpartition(" / ")[2]: {panel["title"] for panel in panels(board)} for board in boards().values()
    }

    assert 10 == len([row for row in rows if row.question.endswith("?")])
    assert [] == [row for row in rows if row.panel not in titles[row.board]]
    assert all(row.read for row in rows)
