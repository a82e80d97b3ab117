"""Tables for people, and what the programs of the lab print and write beside them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
from rich.console import Console
from rich.table import Table

from tests.lab.harness.figures import Section

T = TypeVar("T")
INTERRUPTED: Final = 130
"""Exit code of Ctrl-C: 128 and the signal's number, as shells count."""
TITLED: Final[Mapping[str, Any]] = {"title_justify": "left", "title_style": "bold"}
"""How the title of a table stands that has others beside it."""


def options(program: str, about: str | None, *, facts: bool = False) -> argparse.ArgumentParser:
    """A command line of the lab, with `--json` where there are facts to write."""
    made = argparse.ArgumentParser(
        prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if facts:
        made.add_argument("--json", type=Path, metavar="FILE", help="write the facts there too")
    return made


def console(width: int) -> Console:
    """The terminal, or as many columns as that where there is none."""
    return Console(width=None if sys.stdout.isatty() else width, highlight=False)


def write_facts(file: Path | None, facts: Mapping[str, object]) -> None:
    """Write facts as JSON, all at once; None: nowhere."""
    if file is not None:
        part = file.with_name(f"{file.name}.part")
        part.write_bytes(orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        part.replace(file)


def sorry(program: str, why: object, code: int = 1) -> int:
    """Say why a program ends; return the exit code."""
    print(f"{program}: {why}", file=sys.stderr)
    return code


def table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]] = (),
    *,
    left: Iterable[int] = (0,),
    no_wrap: bool = False,
    **more: Any,
) -> Table:
    """A table whose columns stand to the right, but for those that are named; `more` is rich's."""
    made, text = Table(title=title, **more), set(left)
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="left" if number in text else "right", no_wrap=no_wrap and number > 0)
    for row in rows:
        made.add_row(*row)
    return made


def table_of(title: str, columns: Mapping[str, Callable[[T], str]], items: Iterable[T], **more: Any) -> Table:
    """A table with a row for each item: what each column says of it."""
    return table(title, list(columns), [[say(item) for say in columns.values()] for item in items], **more)


def show(section: Section, to: Console) -> None:
    """Print a section."""
    to.print(section.title, style="bold", highlight=False)
    made = Table()
    for number, column in enumerate(section.columns):
        made.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    for row in section.rows:
        made.add_row(*row)
    to.print(made)
    for remark in section.remarks:
        to.print(f"  {remark}", style="dim", highlight=False)
    to.print()


def show_all(sections: Iterable[Section], to: Console, file: Path | None) -> None:
    """Print each section as soon as it is there; then write the facts of all."""
    facts = {}
    for section in sections:
        show(section, to)
        facts[section.name] = section.facts
    write_facts(file, facts)
