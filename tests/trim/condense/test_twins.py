"""What is found fast is what a plain reading of the same rule finds."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prompt_sidecar.trim.condense.calls import SourceCall
from prompt_sidecar.trim.condense.grep import grouped
from prompt_sidecar.trim.condense.kinds import is_numbered
from prompt_sidecar.trim.condense.output import Output
from prompt_sidecar.trim.condense.padding import without_padding
from prompt_sidecar.trim.condense.passed_tests import LEFT_OUT, without_passed
from prompt_sidecar.trim.condense.terminal import without_overwritten
from prompt_sidecar.trim.condense.trouble import in_trouble
from tests.trim.condense.test_condensing import texts

numbered_lines = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", " ", "     "]),
    st.sampled_from(["", "x", *map(str, range(7, 14))]),
    st.sampled_from(["→", "\t", "", ":"]),
    st.sampled_from(["", "a", " b"]),
)
numbered_texts = st.lists(numbered_lines, max_size=16).map("\n".join) | st.integers(0, 9).flatmap(
    lambda first: st.lists(st.integers(first, first + 20), max_size=14).map(
        lambda numbers: "\n".join(f"{number:6}\tx" for number in sorted(numbers))
    )
)


def slowly_numbered(text: str) -> bool:
    """Whether of the first lines more than six in ten begin with a number, and of these as many with the next one."""
    if "→" not in text[:1_024] and "\t" not in text[:1_024]:
        return False
    lines = [line[:80] for line in text[:2_048].split("\n") if line.strip()][:12]
    found = [re.match(r"\s{0,8}(\d{1,7})(?:→|\t)", line) for line in lines]
    numbers = [int(each[1]) for each in found if each]
    steps = sum(after == before + 1 for before, after in pairwise(numbers))
    return len(numbers) > 2 and len(numbers) > 0.6 * len(lines) and steps > 0.6 * len(numbers)


@settings(max_examples=400)
@given(numbered_texts | texts)
def test_numbered_lines(text: str) -> None:
    """The lines are counted to the end, and their padding is looked for at the start of each."""
    assert slowly_numbered(text) == is_numbered(text)
    plain = re.sub(r"^ +(?=\d+[→\t])", "", text, flags=re.MULTILINE)
    shown = without_padding(Output(text))
    assert (plain if slowly_numbered(text) else text) == (text if shown is None else shown)


pieces = st.sampled_from(["", "10%", "20%  ", "error 0x1f", "error 0x2e", "error 10x5", "done"])


@settings(max_examples=300)
@given(st.lists(st.lists(pieces, max_size=4).map("\r".join) | st.just("plain\r"), max_size=8).map("\n".join))
def test_overwritten_lines(text: str) -> None:
    """Line by line: the pieces that speak of trouble, each shape once in the text, then the last piece."""
    shown, shapes, changed = list[str](), set[str](), False
    for line in text.split("\n"):
        *before, last = line.rstrip("\r").split("\r")
        for piece in map(str.rstrip, before):
            shape = re.sub(r"0x[0-9a-f]+|[0-9]+", "#", piece)
            if "error" in piece and shape not in shapes:
                shown.append(piece)
            if "error" in piece:
                shapes.add(shape)
        shown.append(last.rstrip() if before else line)
        changed = changed or bool(before)
    assert ("\n".join(shown) if changed else None) == without_overwritten(Output(text))


@given(st.lists(st.text("0123xaf. ", max_size=8).map("error {}".format), max_size=12))
def test_lines_that_differ_in_numbers_only(lines: list[str]) -> None:
    """Of those the first, whatever is hexadecimal."""
    shapes: dict[str, int] = {}
    for place, line in enumerate(lines):
        shapes.setdefault(re.sub(r"0x[0-9a-f]+|[0-9]+", "#", line), place)
    assert list(shapes.values()) == in_trouble(lines)


def slowly_matched(line: str) -> tuple[str, str] | None:
    """The path and the number that a line begins with, by one expression."""
    found = re.match(r"((?:.(?=:\\):)?[^:]*):([^:]{1,7}):", line, re.DOTALL)
    if not found or not found[2].isdecimal():
        return None
    path = found[1]
    is_path = re.fullmatch(r"(?:[A-Za-z]:)?[^\s:]{5,300}", path) and not re.match(r"\d+[:-]", path)
    is_date = re.match(r"[^\w/.]?\d{2,4}[-/]\d\d[-/]\d\d", path)
    named = "/" in path or "\\" in path or re.search(r"\.[A-Za-z]\w{0,7}$", path)
    return (path, found[2]) if is_path and named and not is_date else None


PATHS = ["src/a.go", "src/a.go", "src/b.go", "src/a.g", "C:\\a\\b.c"]
matches = st.builds(
    "{}:{}:{}".format, st.sampled_from(PATHS), st.integers(1, 10**8), st.sampled_from(["x", "", ":1:y"])
)
others = st.builds(
    "{}:{}:x".format,
    st.sampled_from([*PATHS, "C:\\a", "a b/c", "12-a/b.c", "no"]),
    st.sampled_from(["1", "12345678", "", "x", "٣", "1²"]),
)


@settings(max_examples=400)
@given(
    st.tuples(st.lists(matches, max_size=8), st.lists(others, max_size=1)).map(
        lambda pair: "\n".join([*pair[0], *pair[1]])
    )
)
def test_matches_of_one_path(text: str) -> None:
    """The lines in a row that one expression finds to be of one path stand below it, where there are no others."""
    lines = text.split("\n")
    found = [slowly_matched(line) for line in lines]
    assume(all(found))
    shown: list[str] = []
    before, is_changed = None, False
    for place, (line, (path, _)) in enumerate((line, each) for line, each in zip(lines, found, strict=True) if each):
        goes_on = path == before
        after = found[place + 1] if place + 1 < len(found) else None
        begins = not goes_on and after is not None and after[0] == path
        shown += [path, line[len(path) + 1 :]] if begins else [line[len(path) + 1 :] if goes_on else line]
        before, is_changed = path, is_changed or begins
    assert ("\n".join(shown) if is_changed else None) == grouped(Output(text))


RESULTS = ["ok 1 a", "ok 2 b", "✓ works", "✓ 3 passed", "✓ all tests", "=== RUN   TestA", "--- FAIL: TestA", "noise"]


@given(st.lists(st.sampled_from(RESULTS), max_size=30))
def test_sums_among_passed_tests(lines: list[str]) -> None:
    """Lines of passed tests that are sums stay, and so does what a failed test wrote."""
    shown = without_passed(Output("\n".join(lines), SourceCall("bash", shell=True)))
    if shown is None:
        return
    kept = [line for line in shown.split("\n") if not line.endswith(LEFT_OUT)]
    for stays in ("✓ 3 passed", "✓ all tests", "--- FAIL: TestA", "noise"):
        assert lines.count(stays) == kept.count(stays)
