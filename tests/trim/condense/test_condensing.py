"""Condensing as a whole: right values, what stays byte for byte, and what holds for every text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.trim.condense.calls import SourceCall, call_of
from prompt_sidecar.trim.condense.condensing import REDUCTIONS, Level, condensed, label, reduced
from prompt_sidecar.trim.condense.output import Output
from tests.steps import growth
from tests.trim.condense.reading_back import original, spelled, value_of

BASH = "bash"
ROWS = json.dumps([{"id": number, "state": "ok", "name": f"job-{number}"} for number in range(4)], indent=2)
PASSED = [f"(pass) a > b{number} [1ms]" for number in range(6)]
FAILED = ["(fail) c > d", "error: expected 1", " 6 pass", " 1 fail"]
SOURCE = "x = 1  \n\n\n\nx = 1\nx = 1\nx = 1\nx = 1"


def shell(command: str) -> SourceCall:
    """A call of a shell."""
    return call_of(BASH, json.dumps({"command": command}))


def made(text: str, call: SourceCall | None = None, level: Level = Level.SAFE) -> str:
    """The text after all reductions."""
    done = reduced(Output(text, call or shell("make")), level)
    return text if done is None else done.text


def by_words(text: str) -> int:
    """Count as a tokenizer does, about."""
    return len(text) // 4


def test_colours_go() -> None:
    """A terminal shows no codes."""
    assert "FAIL x" == made("\x1b[31mFAIL\x1b[0m x")


def test_carriage_returns() -> None:
    """Of what was overwritten, trouble stays."""
    text = "fetch 10%\rfetch 50%\rerror: disk full\rfetch 100%\ndone"
    assert "error: disk full\nfetch 100%\ndone" == made(text)


def test_identical_lines() -> None:
    """The line once, with its number."""
    line = "waiting for the server"
    assert f"a\n{line}\n[the line above 4 times]\nc" == made("\n".join(["a", *[line] * 4, "c"]))


def test_rows_become_a_table() -> None:
    """What is the same in all, the names, and a row a line."""
    header = '[rows of JSON: 4; in all: {"state":"ok"}; columns: ["id","name"]]'
    assert f'{header}\n0,"job-0"\n1,"job-1"\n2,"job-2"\n3,"job-3"' == made(ROWS)


def test_rows_of_a_file() -> None:
    """A file that was read stays."""
    assert made(ROWS, call_of("read", '{"path": "x.json"}')) == ROWS


@pytest.mark.parametrize(
    "text",
    [
        '[{"a":1.0,"a":2,"b":1e5},\n {"a":1.10,"b":1e5},\n {"a":3,"b":1e5,"c":0.1000000000000000055511}]',
        '[{"a": NaN, "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1}]',
        '[{"a": "\\ud800", "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1}]',
    ],
)
def test_json_without_one_meaning(text: str) -> None:
    """A name twice, what is no JSON, half a surrogate pair: the text stays."""
    assert made(text + " " * 80) == text + " " * 80


def test_numbers_as_they_are_spelled() -> None:
    """Neither 1.10 nor 1e5 nor a number that no double holds changes."""
    rows = ", ".join(
        f'{{"price": {number}, "currency": "EUR"}}' for number in ("1.10", "1e5", "0.10000000000000000555")
    )
    header = '[rows of JSON: 3; in all: {"currency":"EUR"}; columns: ["price"]]'
    assert f"{header}\n1.10\n1e5\n0.10000000000000000555" == made(f"[{rows}]" + " " * 40)


def test_grep_is_grouped() -> None:
    """The path once, where two lines and more of a file are in a row."""
    text = "src/a.go:1:x\nsrc/a.go:22:y\nsrc/b.go:3:z\nsrc/a.go:9:w"
    assert "src/a.go\n1:x\n22:y\nsrc/b.go:3:z\nsrc/a.go:9:w" == made(text, shell("rg -n x"))


@pytest.mark.parametrize(("path", "form"), [("src/a/very/long/path/of/a/package/app.go", True), ("src/app.go", False)])
def test_exact_asks_of_another_form_that_it_saves_half(path: str, form: bool) -> None:
    """`safe` takes it wherever it saves something."""
    text = "".join(f"{path}:{number}:\tcheck(order_{number})\n" for number in range(90))
    grouped = f"{path}\n{text.replace(f'{path}:', '')}"
    assert form == (2 * len(grouped) <= len(text))
    assert made(text, shell("rg -n check"), Level.EXACT) == (grouped if form else text)
    assert made(text, shell("rg -n check")) == grouped
    assert made(ROWS, level=Level.EXACT) == made(ROWS)


def test_grep_with_a_stray_line() -> None:
    """A line that would be read as one of the file's keeps the text as it is."""
    text = "src/a.go:1:x\nsrc/a.go:22:y\nsrc/a.go:23:y\n5:require z"
    assert made(text, shell("grep -n x")) == text


def test_passed_tests() -> None:
    """The first of them, their number, and all that is no passed test."""
    text = "\n".join([*PASSED, *FAILED])
    lines = [PASSED[0], "[5 more lines of passed tests left out]", *FAILED]
    assert "\n".join(lines) == made(text, shell("bun test"))
    assert made(text, shell("bun test"), Level.EXACT) == text


@pytest.mark.parametrize(
    "command", ["sed -n 1,9p a.py", "cd x && cat a.py", "bash -lc 'head -50 a.py'", "git show HEAD:a.py"]
)
@pytest.mark.parametrize("level", Level)
def test_source_stays(command: str, level: Level) -> None:
    """What a command reads of a file stays."""
    text = f"{SOURCE}\n{ROWS}\n{'the same line again and again' + chr(10)}" * 9
    assert condensed(text, shell(command), level, by_words) is None
    assert condensed(text, call_of("read_file", '{"path": "a.py"}'), level, by_words) is None


def test_diffs_stay() -> None:
    """A diff stays, whatever made it."""
    text = "@@ -1,9 +1,9 @@\n" + "-the same line again and again\n" * 99
    assert condensed(text, shell("make diff"), Level.FULL, by_words) is None


def test_small_results_stay() -> None:
    """Below 2 KiB nothing is done."""
    line = "the same line again and again\n"
    assert condensed(line * (2_047 // len(line)), shell("make"), Level.SAFE, by_words) is None
    assert condensed(line * (2_048 // len(line) + 1), shell("make"), Level.SAFE, by_words) is not None


def test_small_savings() -> None:
    """What saves less than 24 tokens is not done."""
    text = "\n".join(f"{number} is a number of its own" for number in range(200))
    assert condensed(text + "\x1b[31m" * 20, shell("make"), Level.SAFE, by_words) is not None
    assert condensed(text + "\x1b[31m" * 10, shell("make"), Level.SAFE, by_words) is None


def test_what_is_reported() -> None:
    """Which reductions were made, what each saved, and whether the text tells the original."""
    repeated = "waiting for the server\n" * 200
    once = condensed(repeated, shell("make"), Level.SAFE, by_words)
    assert once is not None
    assert ["identical_lines"] == [saving.reduction for saving in once.savings]
    assert len(repeated) - len(once.text) == once.savings[0].characters
    assert once.can_be_read_back
    twice = condensed(f"\x1b[31m{repeated}", shell("make"), Level.SAFE, by_words)
    assert twice is not None
    assert ["codes", "identical_lines"] == [saving.reduction for saving in twice.savings]
    assert not twice.can_be_read_back


def test_only_what_can_be_read_back() -> None:
    """Without recall the text has to tell the original."""
    text = "\x1b[31mred\n" + "waiting for the server\n" * 200
    done = condensed(text, shell("make"), Level.FULL, by_words, only_what_can_be_read_back=True)
    assert done is not None
    assert original(done.text, [saving.reduction for saving in done.savings]) == text


def test_without_a_call() -> None:
    """Where the call is not known, only what is exact is done."""
    text = "\n".join([*PASSED, *FAILED])
    assert reduced(Output(text), Level.FULL) is None
    assert reduced(Output("\x1b[31mred"), Level.FULL) is not None


@pytest.mark.parametrize("marker", [reduction.marker for reduction in REDUCTIONS if reduction.marker])
def test_lines_as_we_write_them(marker: str) -> None:
    """A text that has one is left alone, but for what a terminal would not show."""
    text = f"{marker}\n" + "waiting for the server\n" * 9
    assert made(text) == text
    assert made(f"\x1b[31m{text}") == text


def test_the_label_names_the_original() -> None:
    """By its id, or not at all where the model could not fetch it."""
    assert "[condensed — id=abcdefghjk]" == label("abcdefghjk")
    assert "[condensed]" == label("")


def test_arguments_spelled_otherwise() -> None:
    """Order, white space and escapes of arguments change nothing."""
    one = call_of(BASH, '{"command": "make über", "timeout": 5, "args": ["some", "words"]}')
    assert one == call_of(BASH, '{"args":["some","words"],"timeout":5.0,"command":"make \\u00fcber"}')
    assert ("some", "words", "make", "über") == one.words


REVERSIBLE = [reduction for reduction in REDUCTIONS if reduction.can_be_read_back]

# -- what holds for every text -----------------------------------------------------------------------------------------

PIECES = [
    *("", " ", "--", "a", "src/a.go", "src/a.go:1:x", "src/a.go-2-y", "src/a.go:3:z", "src/b.go:3:z"),
    *("5:require z", "6-x", "src/b.go-4-z", "2024-01-01T10:00:00: up", "/log/2024-01-01.txt:7:x", "12-a/b.c"),
    *("build/web: a", "build/web: b", "build/web: c", "build/web: [the line", "waiting for the server"),
    *("src/a.go-2024-01-01:5:x", "src/a.go--1-x"),
    *("[the line above 3 times]", '[the next 2 lines begin with "a"]', "(pass) a > b", "=== RUN   TestA", "✓ works"),
    *("--- FAIL: TestA", "\x1b[31mred\x1b[0m", "\x1b[\x1b[0m31m", "10%\r20%", "error\r10%\r", "{", "[", "]", "}"),
    *('[{"a":1},{"a":2},{"a":3}]', '{"a":"[rows 1]","b":[{"c":1,"d":2},{"c":1,"d":2},{"c":1,"d":2},{"c":1,"d":2}]}'),
    *("     1\tx", "<html><b>x</b>", "\x1b]0;title\x07", "::", "a::b PASSED", "C:\\a\\b.c:5:x", "é 日本 🙂", "\ud800"),
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.integers(1, 30).map(lambda n: f"src/a.go:{n}:x"), max_size=40).map(
    "\n".join
)
repeated = st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 6)), max_size=12).map(
    lambda pairs: "\n".join(piece for piece, times in pairs for _ in range(times))
)
calls = st.sampled_from(
    [None, shell("make test"), shell("rg -n x"), SourceCall("list_jobs"), SourceCall("fetch"), shell("cat x")]
)
levels = st.sampled_from(Level)


@settings(max_examples=400)
@given(texts | repeated, calls, levels)
def test_made_once(text: str, call: SourceCall | None, level: Level) -> None:
    """A text that was reduced is smaller, and is not reduced again."""
    done = reduced(Output(text, call), level, ["fetch"])
    if done is None:
        return
    assert len(done.text) < len(text)
    assert done == reduced(Output(text, call), level, ["fetch"])
    assert reduced(Output(done.text, call), level, ["fetch"]) is None


@settings(max_examples=400)
@given(texts | repeated, calls)
def test_read_back(text: str, call: SourceCall | None) -> None:
    """What says that it can be read back tells the original."""
    done = reduced(Output(text, call), Level.FULL, (), REVERSIBLE)
    if done is None:
        return
    assert done.can_be_read_back
    names = [saving.reduction for saving in done.savings]
    if "rows" not in names:
        assert original(done.text, names) == text


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
cells = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=3), scalars, max_size=2)
lists = st.lists(st.dictionaries(st.sampled_from("abcd"), cells, min_size=2), min_size=1, max_size=6)


@settings(max_examples=200)
@given(lists | st.dictionaries(st.sampled_from(["x", "[rows 1]", "y"]), lists | scalars), st.sampled_from([None, 1, 2]))
def test_rows_read_back(value: object, indent: int | None) -> None:
    """A table tells each value, and how each number was spelled."""
    text = json.dumps(value, indent=indent)
    done = reduced(Output(text, SourceCall("list_jobs")), Level.EXACT)
    if done is not None and ["rows"] == [saving.reduction for saving in done.savings]:
        assert value_of(done.text) == spelled(text)


HOSTILE = [
    "\x1b[", "\x1b]0;", "\x1b[31m", "\r", "a\r", "error 1\r", "[\n", "{\n", '[{"a":1},\n', '{"a":1}\n', "[[", '{"a":',
    "src/a.go:1:x\n", "src/a.go-1-x\n", "src/a.go:1:x\n--\n", "src/a.go\n", "5:x\n", "a/b:1:c\nsrc/d:1:e\n", ":",
    "a:1:", "aaaaaaa: b\n", "aaaaaaa: b\naaaaaaa: c\nx\n", "waiting for x\n", "a\na\nb\n", "        : ", "\n", " \n",
    "✓ \n", "a::", "a:: PASSED", "=== RUN   x\n", "--- FAIL: x\n=== RUN   x\n", "(pass) \n", "ok 1 \n",
    "<html>", "<script>", "<!--", "<", "<a href=x", "<a href='/x'>", "&amp;", "<svg", "</script ", "<html \t",
    "[ RUN      ] x\n", "error\n", "E  \n", "at x (", "1", "0x1", "1\t", "→", "@@ -", '"', "\\", "x",
]  # fmt: skip
HEADS = {"<": "<!doctype html>", "&": "<!doctype html>"}


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_is_linear(piece: str) -> None:
    """Twice the text takes twice the steps at most, and a megabyte ends."""

    def run(size: int) -> None:
        head = next((head for start, head in HEADS.items() if piece.startswith(start)), "")
        for call in (shell("make test"), SourceCall("fetch")):
            reduced(Output(head + piece * (size // len(piece)), call), Level.FULL, ["fetch"])

    assert 2.3 > growth(run, 10_000, times=2)
    run(1_000_000)


@pytest.mark.parametrize(
    "piece", ["a=", "cat ", ";cat", "a/", "sudo ", "git ", "git diff", "-lc ", "\n", "x", "TestSomething1 "]
)
def test_linear_in_the_command(piece: str) -> None:
    """The command is as hostile as the result."""
    text = "(pass) TestSomething1\n" * 200

    def run(size: int) -> None:
        reduced(Output(text, shell(piece * (size // len(piece)))), Level.FULL)

    assert 2.3 > growth(run, 10_000, times=2)
    run(1_000_000)


def test_rows_with_names_of_their_own() -> None:
    """Rows that share no name take no time by name and row."""
    text = json.dumps([{f"name{number}": number} for number in range(40_000)])
    assert reduced(Output(text, shell("make")), Level.FULL) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["src/a.go:1:x", "src/a.go:2:y", "web: up", "web: down", "web: up", '{"a":1}', "", ROWS]))
)
def test_lines_stay_whole(lines: list[str]) -> None:
    """At the default level each line is one of the text's, or says how often the one above stood there.

    Another form of them makes the text half as long.
    """
    text = "\n".join(lines)
    done = made(text, level=Level.EXACT)
    whole = {*text.split("\n")}
    if 2 * len(done) > len(text):
        assert all(line in whole or line.startswith("[the line above ") for line in done.split("\n"))
