"""Text as a person reads it: places stay, codes are what they stand for, joints are gone, and the work is linear."""

from __future__ import annotations

import base64
import itertools
import json
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.guard import scanner
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.reading import cells, joined, read, written
from prompt_sidecar.guard.rules import default_rules
from tests.guard import slow_reading
from tests.guard.planting import named

_RULES = default_rules(GuardOptions(ENFORCE))
_VALUE = named(random.Random(11))
_PIECES = ["\\n", "\\u003d", '\\\\"', "%3D", "%22", "&quot;", "&#61;", "\x1b[31m", "é", "a", "=", '"', "\n", "+", " "]


_BESIDE = [
    "\\",
    "3D",
    "u00",
    "x1b",
    "[",
    "m",
    "'",
    ".",
    "\t",
    "\r",
    "b",
    "%0A",
    "&amp;",
    "\\u{5f}",
    "%3A%2F%2F",
    "!",
    "u",
]
_TABLES = ["|", "--", "-", "+", "\n", "\n", "a", "b c", " ", "(", "\t", "\x0b", "\r", "é", "\u2028", ": "]


@given(st.lists(st.sampled_from([*_PIECES, *_BESIDE])).map("".join))
def test_codes_and_joints_are_those_of_the_slow_twin(text: str) -> None:
    """However codes and joints are looked for, each is found, and stands for the same."""
    assert slow_reading.read(text.encode()) == read(text.encode())
    without = joined(text)
    assert slow_reading.joined(text) == (text if without is None else without.text)
    seen = written(text)
    if seen is not None:
        assert slow_reading.read(slow_reading.written(text).encode()).decode() == seen.text


@given(st.lists(st.sampled_from(_TABLES), max_size=24).map("".join))
def test_tables_are_those_of_the_slow_twin(text: str) -> None:
    """Lines of names, dashes and rows are found as one expression finds them."""
    seen = cells(text)
    assert slow_reading.cells(text) == (("", []) if seen is None else (seen.text, list(seen.places)))


@given(st.lists(st.sampled_from(_PIECES)).map("".join))
def test_a_reading_is_as_long_as_its_text(text: str) -> None:
    """Each place in a reading is the same place in its text, in bytes and in characters."""
    data = text.encode()
    seen = read(data)
    assert (len(data), len(text)) == (len(seen), len(seen.decode()))


@given(st.lists(st.sampled_from(_PIECES)).map("".join))
def test_a_joined_text_leads_back(text: str) -> None:
    """Each character of a text without joints is the one at its place in the text with them."""
    without = joined(text)
    if without is not None:
        assert list(without.text) == [text[without.place(at)] for at in range(len(without.text))]


@given(st.lists(st.sampled_from(_PIECES)).map("".join))
def test_a_text_with_a_character_for_each_code_leads_back(text: str) -> None:
    """Each character begins where its code does, and all of them together are the text."""
    seen = written(text)
    if seen is not None:
        assert text == "".join(text[seen.place(at) : seen.place(at + 1)] for at in range(len(seen.text)))


@given(st.lists(st.lists(st.sampled_from(["id", "a-b", "", "x y"]), min_size=2, max_size=2), min_size=1, max_size=4))
def test_cells_lead_back(rows: list[list[str]]) -> None:
    """Each cell stands where it says, and behind the name of its column."""
    table = "| name | other |\n|---|---|\n" + "".join(f"| {row[0]} | {row[1]} |\n" for row in rows)
    seen = cells(table)
    shown = [] if seen is None else [line.split(" = ") for line in seen.text.splitlines()]
    pairs = [(name, value) for row in rows for name, value in zip(("name", "other"), row, strict=True)]
    assert [[name, value] for name, value in pairs if value and " " not in value] == shown
    if seen is not None:
        for begin in seen.begins:
            value = seen.text[begin:].split("\n")[0]
            start, end = seen.span(begin, begin + len(value)) or (0, 0)
            assert value == table[start:end]


_TOKEN = "_".join(["ghp", "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x " + _TOKEN.replace("_", "\\u005f"), _TOKEN.replace("_", "\\u005f")),
        ("x " + _TOKEN.replace("_", "\\u{5f}"), _TOKEN.replace("_", "\\u{5f}")),
        (
            f'{{"a": 1, "password": "{_VALUE[:9]}\\u002d{_VALUE[9:]}\\u003d", cut',
            f"{_VALUE[:9]}\\u002d{_VALUE[9:]}\\u003d",
        ),
        (f"REDIS\\u005fPASS\\u003d\\u0022{_VALUE}\\u0022", _VALUE),
        (f"next=postgres%3A%2F%2Fapp%3A{_VALUE}%40db.example.org%3A5432%2Fshop", _VALUE),
        (
            "u=https%3A%2F%2Fhooks.zapier.com%2Fhooks%2Fcatch%2F6598971%2F4tne4to%2F",
            "hooks%2Fcatch%2F6598971%2F4tne4to",
        ),
        (f"PASSWORD=\n=3D{_VALUE}\nRegards", _VALUE),
        (f"PASSWORD=3D=\n{_VALUE}\nRegards", _VALUE),
        (f"\\u001b[36mdb_password\\u001b[39m: \\u001b[32m'{_VALUE}'\\u001b[39m", _VALUE),
        (f" id |  db_password\n----+------------\n  1 | {_VALUE}\n(1 row)\n", _VALUE),
        (
            f"+----+-------------+\n| id | db_password |\n+----+-------------+\n|  1 | {_VALUE} |\n+----+-----+\n",
            _VALUE,
        ),
        (f"| id | db_password |\n|---|---|\n| 1 | {_VALUE} |\n", _VALUE),
        (f"| DB_PASSWORD | `{_VALUE}` |", _VALUE),
        (f"x = os.environ.get('DB_PASSWORD') or '{_VALUE}'", _VALUE),
        (f"gh secret set DB_PASSWORD --body {_VALUE} --repo a/b", _VALUE),
        (f"smbclient //host/share -U ada%{_VALUE}", _VALUE),
        (f"the vendor key is {_VALUE} until May", _VALUE),
        (f"key=user_{_TOKEN}_profile", _TOKEN),
        (
            '{"outputs": {"x_token": {\n "value": "34f6e732-7d05-4514-872d-2e6852f698c1"',
            "34f6e732-7d05-4514-872d-2e6852f698c1",
        ),
    ],
)
def test_the_whole_of_a_value_is_found(text: str, value: str) -> None:
    """Codes that are a part of a value are masked with it; a name may be the head of a column."""
    assert value in {text[find.start : find.end] for find in _RULES.scan([text])[0]}


@given(
    st.lists(st.integers(3, 700), min_size=1, max_size=3),
    st.integers(3, 40),
    st.sampled_from(['" "', '" + "', '"\n    "', '" \\\n  "', "' . '"]),
    st.integers(0, 2),
)
def test_the_strings_that_continue_a_value_are_masked_whole(
    lengths: list[int], first: int, joint: str, encoded: int
) -> None:
    """However many and however long they are, in code and in JSON in text: 256 characters of the second were."""
    chance = random.Random(str((lengths, first)))
    value = "ghp_" + "".join(chance.choices(string.ascii_letters + string.digits, k=40 + sum(lengths)))
    cuts = [0, first, *(first + 37 + sum(lengths[:count]) for count in range(len(lengths))), len(value)]
    parts = [value[start:end] for start, end in itertools.pairwise(cuts) if start < end]
    text = f"token = {joint[0]}{joint.join(parts)}{joint[0]}\n"
    for _ in range(encoded):
        text = json.dumps(text)
    masked = "".join(text[find.start : find.end] for find in _RULES.scan([text])[0])
    assert [] == [part for part in parts if part not in masked]


@given(st.lists(st.sampled_from([*_PIECES, *_BESIDE, "' '", '" "', '"\n"'])).map("".join), st.integers(0, 20))
def test_the_end_of_a_value_is_behind_all_its_joints(text: str, at: int) -> None:
    """As the slow twin finds it, which tries each character; where text is escaped, strings may go on farther."""
    at, limit = min(at, len(text)), len(text)
    end, clear = scanner._value_end(text, at, limit)  # noqa: SLF001
    slow = slow_reading.value_end(text, at)
    assert (end if end >= 0 else clear) >= slow
    if "\\" not in text:
        assert (end if end >= 0 else clear) == slow


@pytest.mark.parametrize(
    "text",
    [
        " id |  key_type\n----+------------\n  1 | PrimaryKeyField2\n(1 row)\n",
        "u=https%3A%2F%2Fexample.org%3Fpage%3D2%26token_type%3Dbearer",
        "private_key: x25519.X25519PrivateKey",
        "The raw bytes of the private key (64-byte form).",
        'TOKEN_HEADER_KEY = "oauth-2025-04-20"',
        'open("http://wrong:info@example.org/")',
        "a.passive=!1})},lock({scope:e}){if(!f())return",
        "b.onKeyLine=!0;const c=1",
        ".a{--icon-keyForeground: #616161;--icon-other:#fff}",
        "case 8:h.key=i?l.C0.ESC+o:s;break",
        "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==",
        '"Lock-Token": "urn:uuid:a515cfa4-5da4-22e1-f5b5-00a0451e6bf7"',
        'Key: "objectkey1"',
        '"access_token": "abc123def456ghi789"',
        "fails with KeyError GH#19966",
        "wrkspc_011CZkZaBF1tNoB5wlCeusgy",
        "chatcmpl-CQ8mTqv2L7xWbR4nYd9KfJ3sZ6aE1H",
        "rs_68af4030ba2c8195a39f0c3e5d7b1f2e0c9d8b7a6f5e4d3c",
        "toolu_01A09q90qw90lq917835lq9rTz2mW4Kx",
        "imports.wbg_queueMicrotask_5a8a9131f3f0b37b",
        "mlflow-1f0e4a2b3c5d4e6f8a9b0c1d2e3f4a5b6c7d8e9f",
        "assets/chunk-Bq7Lm2Xv9RtYw4NzKc8Pd1Hf6Js3Ga.js",
    ],
)
def test_names_and_codes_alone_are_no_values(text: str) -> None:
    """Types, remarks, dates of versions and words of examples are left alone."""
    assert [] == [find.rule.name for find in _RULES.scan([text])[0] if find.rule.group == "secrets"]


@pytest.mark.parametrize(
    "text",
    [
        f"\x1b[1mDB_PASSWORD\x1b[0m=\x1b[32m{_VALUE}\x1b[0m",
        f'INFO body={{\\"password\\":\\"{_VALUE}\\"}} status=200',
        f"ref=1%26db_password%3D{_VALUE}%26page%3D2",
        f"<pre>{{&quot;password&quot;: &quot;{_VALUE}&quot;}}</pre>",
        f"PASSWORD={_VALUE[:9]}\\\n{_VALUE[9:]}",
        f'PASSWORD = (\n    "{_VALUE[:9]}"\n    "{_VALUE[9:]}"\n)',
        base64.b64encode(f"user=app\npassword={_VALUE}\nport=80\n".encode()).decode(),
    ],
)
def test_a_value_behind_codes_is_found(text: str) -> None:
    """One value is found in each of these, and where it begins is where it stands."""
    finds = _RULES.scan([text])[0]
    assert 1 == len(finds)
    assert _VALUE[:9] in text[finds[0].start :][: len(_VALUE)] or finds[0].rule.name == "base64_secret"


@pytest.mark.parametrize(
    "piece",
    [
        *("password=", "%22key%22%3A", "\\\\\\\\", '"\n"', "token: a1b2c3d4 ", "\x1b[", "QUFB"),
        "password=a1b2!c3 " + "\\" * 250 + " ",
        "password=a1b2!c3" + "\\" * 16_000,
        "password=a1b2!c3-'" + " " * 250,
        'password=a1b2!c3-" "',
        "password=a1b2!c3-" + '"' * 250,
        "password=a1b2!c3--" + "|" * 250,
    ],
)
def test_hostile_text_costs_linear_time(piece: str) -> None:
    """300 kB of what begins a code, a joint or a name and goes on without end: their square would never end."""
    _RULES.scan([piece * (300_000 // len(piece))])
