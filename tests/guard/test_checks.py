"""What decides whether a match of a rule is a find, beside slower forms."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.guard import checks
from tests.guard import slow_checks

NAMES = (
    "max",
    "next",
    "Page",
    "token",
    "keys",
    "api",
    "Secret",
    "auth",
    "pwd",
    "id",
    "names",
    "ority",
    "tokenizer",
    "x",
)
JOINTS = ("_", "-", "", " ", ".")
ENDS = (*"\"'`\\]} \t\n", "=>", ":=", "=", ":", ">", "||", "?=", "b", "ur")
befores = st.tuples(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(JOINTS)), max_size=6),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(ENDS), max_size=8),
).map(lambda parts: "".join([*map("".join, parts[0]), parts[1], *parts[2]]))


@given(befores)
@settings(max_examples=500)
def test_names_that_name_no_secret_are_found_as_by_one_expression(before: str) -> None:
    """Where the name must be, in place of at each character."""
    whole = checks._NO_SECRET.pattern.removesuffix(r"\Z") + checks._NAME_END.pattern  # noqa: SLF001
    assert (re.search(whole, before) is not None) == checks.is_no_secret(before)


def test_lengths_are_those_of_the_expressions() -> None:
    """A longer name would not be found: the text before it is not looked at."""
    for expression, length in (
        (checks._NO_SECRET, checks._NO_SECRET_LENGTH),  # noqa: SLF001
        (checks._NAME_END, checks._NAME_END_LENGTH - len("\n")),  # noqa: SLF001
    ):
        assert length == re._parser.parse(expression.pattern).getwidth()[1]  # type: ignore[attr-defined]  # noqa: SLF001


def test_names_that_name_no_secret() -> None:
    """In capitals and not, with the ends that names have in code, JSON and shells."""
    for before in (
        "max_tokens = ",
        '"nextPageToken": "',
        "PUBLIC_KEY=",
        "keyId: '",
        "secret_name => ",
        "tokenizer:",
        'idempotencyKey: "',
    ):
        assert checks.is_no_secret(f"a line\n{before}")
    for before in ("token = ", '"client_secret": "', "API_KEY=", "xmax_tokens", "keep the token: ", "maxtoken\n"):
        assert not checks.is_no_secret(f"a line\n{before}")


VALUES = (
    *(
        "q7Xk2v",
        "ZpR9w",
        "secret",
        "password",
        "get",
        "Key",
        "token",
        "self",
        "config",
        "utf8",
        "x",
        "5f4d",
        "cc3b",
        "7",
    ),
    *("1f0e4a2b-3c5d-4e6f-8a9b-0c1d2e3f4a5b", "11111111-1111-1111-1111-111111111112", "Qwzxj", "hnvbqtr", "Correct"),
    *(".", "-", "_", "!", "?", "(", ")", "=", ":", "/", "$", "*", "&", ",", "...", "@", " "),
)
values = st.lists(st.sampled_from(VALUES), min_size=1, max_size=7).map("".join)


@given(values, befores, st.sampled_from(["", "(", " ", '"', ".x"]))
@settings(max_examples=150)
def test_the_order_of_conditions_makes_no_difference(value: str, before: str, after: str) -> None:
    """What few values are is asked first, which decides the same."""
    assert slow_checks.is_generated(value) == checks.is_generated(value)
    assert slow_checks.named(value, before, after) == checks.named(value, before, after)
    assert slow_checks.line(value, before, after) == checks.line(value, before, after)
    assert slow_checks.argument(value, before) == checks.argument(value, before, after)
