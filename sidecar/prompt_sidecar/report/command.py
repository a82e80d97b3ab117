"""`prompt-sidecar replay` when it makes a report: its input files and its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from prompt_sidecar.report.figures import Report
from prompt_sidecar.report.output import as_json, is_figures, table
from prompt_sidecar.report.transcripts.finding import files_of, find_sessions
from prompt_sidecar.report.transcripts.model import TranscriptError
from prompt_sidecar.report.work import Measurement, measured

_MOST_TOLD: Final = 10
"""Files without figures that are named on the terminal."""


class ReportError(Exception):
    """A report cannot be made; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a report."""

    named: Sequence[Path]
    """Files that were requested by name."""
    found: Sequence[Path]
    """Files of folders."""

    @classmethod
    def of(cls, runs: Sequence[str], *, find: bool) -> Files:
        """Collect them; `find` adds the sessions in the user's home. Raises TranscriptError if there are none."""
        paths = [Path(run) for run in runs]
        found = [path for folder in paths if folder.is_dir() for path in files_of(folder)]
        found += find_sessions(Path.home()) if find else []
        files = cls([path for path in paths if not path.is_dir()], found)
        if not files.all:
            raise TranscriptError(f"{', '.join(runs)} holds no .json or .jsonl files")
        return files

    @property
    def all(self) -> list[Path]:
        """Return every file once."""
        return list(dict.fromkeys([*self.named, *self.found]))


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a report goes."""

    html: Path | None
    json: Path | None

    def check(self, files: Files) -> None:
        """Check that no transcript is overwritten. Raises ReportError."""
        taken = {path.resolve() for path in files.all}
        for path in filter(None, (self.html, self.json)):
            if path.resolve() in taken:
                raise ReportError(f"{path} is a transcript of this report; choose another file to write to")
        try:
            if self.json is not None and self.json.exists() and not is_figures(self.json):
                raise ReportError(f"{self.json} exists and holds no figures of a report; choose another file")
        except OSError as error:
            raise ReportError(f"{self.json} cannot be written: {error.strerror}") from None


def report(files: Files, job: Measurement, outputs: Outputs, out: TextIO, progress: TextIO) -> bool:
    """Measure the files and write the report. Returns whether every file requested by name has figures.

    Raises:
        ReportError: nothing can be measured, or written.
        ImportError: the page's libraries are not installed.
    """
    outputs.check(files)
    if outputs.html is not None:
        from prompt_sidecar.report import page  # before the work, so that no work is lost
    made = measured(files.all, job, progress)
    if not made.runs:
        raise ReportError("\n  ".join(["nothing to report:", *_reasons(made)]))
    progress.writelines(f"left out: {line}\n" for line in _reasons(made))
    if outputs.html is not None:
        _write(outputs.html, page.page(made), out)
    if outputs.json is not None:
        _write(outputs.json, as_json(made), out)
    out.writelines(line + "\n" for line in table(made))
    named = {path.name for path in files.named}
    return not any(one.name in named for one in made.skipped)


def _write(path: Path, text: str, out: TextIO) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}") from None
    out.write(f"wrote {path}\n")


def _reasons(made: Report) -> list[str]:
    reasons = [one.why for one in made.skipped[:_MOST_TOLD]]
    rest = len(made.skipped) - len(reasons)
    return [*reasons, f"and {rest} more"] if rest else reasons
