"""The table is clear at 80 columns, as plain lines and on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from tests.lab.demo.table import CAPTION, Lines, LiveTable, Row

ROW = Row(
    iteration=123,
    step="read a/very/long/path/to/some/module.py",
    before=1_234_567,
    after=28_000,
    limit=31_000,
    kept=0.034,
    batch_point=True,
    elided=12,
    clipped=345,
    dropped=678,
    milliseconds=1234.5,
)
FIRST = replace(ROW, iteration=1, step="list", before=394, after=481, kept=None, batch_point=False, milliseconds=1.26)


def test_the_caption_fits() -> None:
    """The legend fits as well."""
    assert all(len(line) <= 80 for line in CAPTION.splitlines())


def test_plain_lines_have_a_head_and_no_escapes() -> None:
    """Plain lines have a head, stay within 80 columns, and hold no escapes."""
    out = io.StringIO()
    with Lines(Console(file=out)) as lines:
        lines.show(FIRST)
        lines.show(replace(ROW, before=123_456))
    *_, head, first, last = out.getvalue().splitlines()
    assert "  # step                       before  after  limit kept * elid clip drop    ms" == head
    assert "  1 list                          394    481 31,000          12  345  678   1.3" == first
    assert "123 read a/very/long/path/to… 123,456 28,000 31,000   3% *   12  345  678 1234.5" == last
    assert "\x1b" not in out.getvalue()


def test_the_whole_table_is_left_at_the_end() -> None:
    """On a terminal of 80 columns the whole table is left at the end, more rows than the screen holds."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=10, color_system=None)
    with LiveTable(console) as table:
        for iteration in range(1, 31):
            table.show(replace(ROW, iteration=iteration, before=123_456, milliseconds=9.9))
    shown = [line.rstrip() for line in out.getvalue().rpartition("step")[2].splitlines()]
    rows = [line for line in shown if line.lstrip()[:1].isdigit()]
    assert [str(iteration) for iteration in range(1, 31)] == [row.split()[0] for row in rows]
    assert all(len(line) <= 80 for line in shown)
