"""Single reductions: what each takes, and what each leaves."""

from __future__ import annotations

import json

import pytest

from prompt_sidecar.trim.condense.calls import SourceCall, call_of
from prompt_sidecar.trim.condense.grep import grouped
from prompt_sidecar.trim.condense.html_text import OPENING, as_text
from prompt_sidecar.trim.condense.json_rows import as_tables
from prompt_sidecar.trim.condense.long_output import CHARACTERS, ends_and_trouble
from prompt_sidecar.trim.condense.output import Output
from prompt_sidecar.trim.condense.padding import without_padding
from prompt_sidecar.trim.condense.repeats import counted, with_prefix_once
from prompt_sidecar.trim.condense.terminal import without_codes, without_overwritten
from prompt_sidecar.trim.condense.trouble import in_trouble

MAKE = call_of("bash", '{"command": "make"}')


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("no codes", None),
        ("\x1b[1;38;5;9mred\x1b[m", "red"),
        ("\x1b[2K\x1b[1A\x1b[?25lup\x1b(B\x1b=", "up"),
        ("\x1b]0;a title\x07x\x1b]2;another\x1b\\y", "xy"),
        ("\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\", "\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\"),
        ("\x1b[\x1b[0m31m", None),
        ("\x1b] a title without an end", "\x1b] a title without an end"),
    ],
)
def test_codes_go(text: str, plain: str | None) -> None:
    """Colours, movements, titles; links keep their address, and nothing new may come about."""
    assert plain == without_codes(Output(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\r\n", None),
        ("10%\r20%\r\nb\r\n", "20%\nb\r\n"),
        ("10%\r   \rdone", "done"),
        ("warning 1\rwarning 2\rok", "warning 1\nok"),
        ("error: a\rerror: b\rok", "error: a\nerror: b\nok"),
    ],
)
def test_what_was_overwritten(text: str, shown: str | None) -> None:
    """Ends of lines as on Windows overwrite nothing; of messages that differ in numbers, the first stays."""
    assert shown == without_overwritten(Output(text))


def test_identical_lines() -> None:
    """Three and more; two stay, and so do blank ones."""
    assert counted(Output("a\na\nb\nb")) is None
    assert counted(Output("\n\n\n\n   \n   \n   ")) is None
    assert "a\n[the line above 3 times]\nb\n[the line above 4 times]" == counted(Output("a\na\na\nb\nb\nb\nb"))


def test_a_prefix_stands_once() -> None:
    """Four lines and more, up to a separator that something follows."""
    lines = [f"packages/website build: step {name}" for name in ("one", "two", "three", "four")]
    header = '[the next 4 lines begin with "packages/website build: "]'
    assert f"x\n{header}\nstep one\nstep two\nstep three\nstep four\ny" == with_prefix_once(
        Output("\n".join(["x", *lines, "y"]))
    )
    assert with_prefix_once(Output("\n".join(lines[:3]))) is None
    assert with_prefix_once(Output("short: a\nshort: b\nshort: c\nshort: d")) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("src/a.go-1-w\nsrc/a.go:2:x\nsrc/a.go-3-y\n--\nsrc/a.go:9:z", "src/a.go\n1-w\n2:x\n3-y\n--\n9:z"),
        ("C:\\src\\a.go:1:x\nC:\\src\\a.go:2:y", "C:\\src\\a.go\n1:x\n2:y"),
        ("src/a.go:1:5: error\nsrc/a.go:2:7: error", "src/a.go\n1:5: error\n2:7: error"),
        ("2024-01-01T10:00:00 up\n2024-01-01T10:00:01 down", None),
        ("2024/01/01T10:00:00: up\n2024/01/01T10:00:01: down", None),
        ("host12:10:00 up\nhost12:10:01 down", None),
        ("src/a.go:1:x\nsrc/a.go:2:y\n--\n5:z", None),
        ("src/c.go\n5:z\nsrc/a.go:1:x\nsrc/a.go:2:y", None),
        ("src/a.go:4:x\nsrc/a.go-2024-01-01.log:5:y\nsrc/a.go:6:z", None),
        ("src/a.go:4:x\nsrc/a.go-2024-y\nsrc/a.go:6:z", None),
    ],
)
def test_paths_of_grep(text: str, shown: str | None) -> None:
    """Context goes with its matches; time stamps and dates in paths are none; what could be misread stays."""
    assert shown == grouped(Output(text))


ROWS = [{"id": number, "kind": "a"} for number in range(9)]


def test_rows_within_an_object() -> None:
    """The list is named, and its table follows."""
    text = as_tables(Output(json.dumps({"total": 9, "page": {"items": ROWS}}), MAKE))
    assert text is not None
    head, header, *rows = text.split("\n")
    assert '{"total":9,"page":{"items":[rows 1]}}' == head
    assert '[rows of JSON: 9 as rows 1; in all: {"kind":"a"}; columns: ["id"]]' == header
    assert [str(number) for number in range(9)] == rows


def test_lines_of_json() -> None:
    """An object on each line."""
    text = as_tables(Output("\n".join(map(json.dumps, ROWS)), MAKE))
    assert text is not None
    assert text.startswith('[rows of JSON: 9, a line each; in all: {"kind":"a"}; columns: ["id"]]\n0\n1\n')


def test_rows_below_other_lines() -> None:
    """What is around them stays."""
    text = as_tables(Output(f"Output:\n{json.dumps(ROWS, indent=1)}\ndone", MAKE))
    assert text is not None
    assert text.startswith('Output:\n[rows of JSON: 9; in all: {"kind":"a"}; columns: ["id"]]\n0\n')
    assert text.endswith("\n8\ndone")


def test_absent_members() -> None:
    """A row without a member has a dash there; a list whose rows share little stays."""
    rows = [{"identity": 1, "kind": "first"}, {"identity": 2}, {"identity": 3, "kind": "third"}]
    assert '[rows of JSON: 3; columns: ["identity","kind"]]\n1,"first"\n2,-\n3,"third"' == as_tables(
        Output(json.dumps(rows), MAKE)
    )
    assert as_tables(Output(json.dumps([{"a": 1}, {"b": 2}, {"c": 3}], indent=4), MAKE)) is None


def test_json_of_a_tool_that_is_no_shell() -> None:
    """Its white space goes; what a shell wrote may be a file."""
    text = json.dumps({"price": 1.10, "tags": ["a", "b"]}, indent=4).replace("1.1", "1.10")
    assert '{"price":1.10,"tags":["a","b"]}' == as_tables(Output(text, SourceCall("get_price")))
    assert as_tables(Output(text, MAKE)) is None
    assert as_tables(Output(text)) is None


def test_padding_goes() -> None:
    """The spaces before numbers go, those of the file stay."""
    lines = "     9→  x  \n    10→\n    11→\n   no number\n    12\ty"
    assert "9→  x  \n10→\n11→\n   no number\n12\ty" == without_padding(Output(lines))
    assert without_padding(Output("     9→x\n     7→y\n     8→z")) is None


def test_long_output() -> None:
    """Head, tail, and what speaks of trouble in between, within 8 KiB."""
    lines = [f"step {number} of the build went well" for number in range(1_000)]
    lines[500] = "error: no such file"
    lines[600] = "step 600 was fast"
    lines[700] = "(!) src/a.ts is dynamically imported by src/b.ts"
    shown = ends_and_trouble(Output("\n".join(lines), MAKE))
    assert shown is not None
    assert len(shown) <= CHARACTERS + 200
    assert shown.startswith("step 0 of the build went well\n")
    assert shown.endswith("\nstep 999 of the build went well")
    left, trouble, end = shown.partition("speak of trouble:]\n")[0].split("\n")[-1], lines[500], "[end of the lines"
    assert left.startswith("[")
    assert f"speak of trouble:]\n{trouble}\n{lines[700]}\n{end}" in shown
    assert "step 600 was fast" not in shown
    assert ends_and_trouble(Output("x" * 10_000, MAKE)) is None
    assert ends_and_trouble(Output("\n".join(lines), SourceCall("fetch"))) is None


def test_what_speaks_of_trouble() -> None:
    """Words of trouble, marks, and stacks; not parts of other words."""
    lines = [
        "all is well",
        "Error: x",
        "no terrors",
        "✗ a",
        "    at run (a.js:1)",
        "TypeError",
        "exit code 1",
        "exit code 2",
    ]
    assert [1, 3, 4, 5, 6] == in_trouble(lines)


def test_a_page_as_text() -> None:
    """Words and addresses, without markup, scripts and styles."""
    page = (
        "<!DOCTYPE html><html><head><title>T</title><style>p{}</style></head><body><script>if (a<b) {}</script>"
        "<p>One &amp; <b>two</b></p><ul><li>a</li><li><a href='https://example.com/?a=1&amp;b=2'>there</a></li></ul>"
        "<!-- <p>not this</p> --><table><tr><td>1</td><td>2</td></tr></table>a < b</body></html>"
    )
    shown = as_text(Output(page))
    assert f"{OPENING}\nT\nOne & two\na\nthere (https://example.com/?a=1&b=2)\n1 2\na < b" == shown
    assert as_text(Output("# Markdown")) is None
