"""What becomes of a language whose tools this machine lacks, or whose build fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.clients import languages
from tests.clients.languages import LANGUAGES, Language, built

LACKING = Language("go", "Go", ("no-such-compiler",), ("/no/such/header.h",))
PYTHON = LANGUAGES[-1]


def test_missing_tools_skip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a developer's machine the tests are skipped, and say what is missing and what installs it."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(
        pytest.skip.Exception, match=r"no-such-compiler, /no/such/header.h missing: .ci/install-clients"
    ):
        built(LACKING, tmp_path)


def test_missing_tools_fail_in_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In CI nothing is skipped for want of a tool."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-compiler"):
        built(LACKING, tmp_path)


@pytest.mark.parametrize(("ci", "expected"), [("true", AssertionError), ("", pytest.skip.Exception)])
def test_a_registry_that_does_not_answer(
    ci: str, expected: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It skips a developer's tests and fails CI's; and a build is tried once, whoever asks."""
    monkeypatch.setenv("CI", ci)
    (tmp_path / "client-python.log").write_text("1\nnpm error code ENOTFOUND\n")
    for _ in range(2):
        with pytest.raises(expected):
            built(PYTHON, tmp_path)


def test_a_failed_build_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command of the document that fails fails the tests of its language, with what it printed, anywhere."""
    monkeypatch.setenv("CI", "")
    document = tmp_path / "clients.md"
    document.write_text("## Python\n\nBuild:\n\n```sh\necho wrong flag\nfalse\necho not reached\n```\n")
    monkeypatch.setattr(languages, "DOCUMENT", document)
    with pytest.raises(AssertionError, match=r"(?s)^(?!.*not reached).*wrong flag"):
        built(replace(PYTHON, builds=True), tmp_path)
