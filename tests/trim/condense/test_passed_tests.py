"""Passed tests: which lines say so, in the words of several runners, and which stay."""

from __future__ import annotations

import json

import pytest

from prompt_sidecar.trim.condense.calls import call_of
from prompt_sidecar.trim.condense.output import Output
from prompt_sidecar.trim.condense.passed_tests import without_passed


def shown(lines: list[str], command: str = "make") -> list[str]:
    """The lines that stay."""
    text = without_passed(Output("\n".join(lines), call_of("bash", json.dumps({"command": command}))))
    return lines if text is None else text.split("\n")


@pytest.mark.parametrize(
    "line",
    [
        "=== RUN   TestA/{}",
        "=== PAUSE TestA/{}",
        "    --- PASS: TestA/{} (0.00s)",
        "✓ works {} (3 ms)",
        "  ✔ works {} (0.3ms)",
        "(pass) suite > works {} [1.00ms]",
        "test module::works_{} ... ok",
        "tests/test_a.py::test_{} PASSED          [ 10%]",
        "[gw0] [ 10%] PASSED tests/test_a.py::test_{}",
        "tests/test_{}.py ......          [100%]",
        "[       OK ] Suite.Works{} (0 ms)",
        "ok 1 - works {}",
        "packages/core test: ✓ works {}",
    ],
)
def test_what_runners_write(line: str) -> None:
    """Ten lines become the first, and a count."""
    lines = [line.format(number) for number in range(10)]
    assert ["start", lines[0], "[9 more lines of passed tests left out]", "end"] == shown(["start", *lines, "end"])


@pytest.mark.parametrize(
    "line",
    [
        "ok  \texample.com/pkg\t0.1s",
        "--- FAIL: TestB (0.01s)",
        "(fail) suite > breaks",
        "test module::breaks ... FAILED",
        "tests/test_a.py::test_b FAILED",
        "not ok 3 - breaks",
        "ok 4 - later # SKIP not here",
        "12 passed, 1 failed in 3.1s",
        "✓ 12 tests passed",
        "✗ breaks",
        "--- SKIP: TestC (0.00s)",
        "warning: unused variable",
    ],
)
def test_what_stays(line: str) -> None:
    """Failures, sums, skipped tests, Go's packages, and all that is no test."""
    passed = [f"✓ works {number}" for number in range(6)]
    assert [passed[0], "[5 more lines of passed tests left out]", line] == shown([*passed, line])


def test_few_tests() -> None:
    """Four passed tests stay."""
    passed = [f"✓ works {number}" for number in range(4)]
    assert passed == shown(passed)


def test_what_the_call_names() -> None:
    """A test that was asked for stays; a word of all tests names none of them."""
    passed = [
        f"tests/test_a.py::test_{name} PASSED" for name in ("one", "two", "three", "four", "five", "six", "seven")
    ]
    shown_lines = shown(passed, "pytest tests/test_a.py -k 'three or seven'")
    assert [passed[0], "[4 more lines of passed tests left out]", passed[2], passed[6]] == shown_lines


def test_what_a_failed_test_wrote() -> None:
    """The line that says whose output follows stays, where that test failed."""
    lines = [
        *(f"=== RUN   Test{number}" for number in range(6)),
        "=== NAME  Test3",
        "    a_test.go:7: expected 1",
        "=== NAME  Test4",
        "    a_test.go:9: a note",
        "--- FAIL: Test3 (0.00s)",
        "--- PASS: Test4 (0.00s)",
    ]
    kept = ["=== RUN   Test0", "[7 more lines of passed tests left out]", *lines[6:8], lines[9], lines[10]]
    assert kept == shown(lines)


def test_lists_that_no_program_wrote() -> None:
    """What an agent ticked off is no test."""
    lines = [f"✓ did thing {number}" for number in range(9)]
    assert without_passed(Output("\n".join(lines), call_of("Task", '{"prompt": "do things"}'))) is None
    assert without_passed(Output("\n".join(lines))) is None
