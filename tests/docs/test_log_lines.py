"""Lines of the log that pages quote are lines that the program logs: a runbook says what really stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.log_calls import log_calls
from tests.docs.pages import PAGES, ROOT, Block, blocks

LINE: Final = re.compile(r"(DEBUG|INFO|WARNING|ERROR) +([\w.]+): (.+)")
"""As the log has it in text, without its time."""
LOGGER: Final = re.compile(r"(?:log|logger)s?(?: of)? `(prompt_sidecar[\w.]*)`")
RUNBOOKS: Final = sorted((ROOT / "docs" / "runbooks").glob("Prompt*.md"))
QUOTED: Final = [
    (block, line.strip())
    for block in blocks("text")
    for line in block.code.splitlines()
    if LINE.fullmatch(line.strip())
]


@pytest.mark.parametrize(("block", "line"), QUOTED, ids=[f"{block}: {line[:60]}" for block, line in QUOTED])
def test_a_quoted_line_is_logged(block: Block, line: str) -> None:
    """With this level, by this logger, in these words."""
    found = LINE.fullmatch(line)
    assert found is not None
    level, logger, message = found.groups()
    assert any(
        (call.level, call.logger) == (level, logger) and call.pattern.fullmatch(message) for call in log_calls()
    ), f"{block}: nothing logs this"


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_runbook_that_names_the_log_quotes_it(page: Path) -> None:
    """Who is sent to the log sees what to look for."""
    quoting = {block.page for block, _ in QUOTED}
    if re.search(r"\b([Tt]he|[Ii]ts) log\b(?! of refused calls has)", page.read_text(encoding="utf-8")):
        assert page.relative_to(ROOT).as_posix() in quoting


def test_named_loggers_are_there() -> None:
    """A page that sends its reader to a logger names one that logs."""
    named = {name for page in PAGES for name in LOGGER.findall(page.read_text(encoding="utf-8"))}
    assert named
    assert named <= {call.logger for call in log_calls()}


@pytest.mark.parametrize(
    "line",
    [
        "WARNING prompt_sidecar.providers: the provider openai fails; agents get its errors",
        "INFO prompt_sidecar.store.commands: the shared store refuses commands (full): OOM",
        "WARNING prompt_sidecar.untrimmed: the provider openai answers again",
        "WARNING prompt_sidecar.refused: somebody refused a call",
    ],
)
def test_other_lines_are_not_logged(line: str) -> None:
    """Other words, another level, or another logger."""
    found = LINE.fullmatch(line)
    assert found is not None
    assert not any(
        (call.level, call.logger) == found.groups()[:2] and call.pattern.fullmatch(found[3]) for call in log_calls()
    )
