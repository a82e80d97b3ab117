"""What decides whether a match of a rule is a find, beside slower forms."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.guard import checks

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
    for before in ("max_tokens = ", '"nextPageToken": "', "PUBLIC_KEY=", "keyId: '", "secret_name => ", "tokenizer:"):
        assert checks.is_no_secret(f"a line\n{before}")
    for before in ("token = ", '"client_secret": "', "API_KEY=", "xmax_tokens", "keep the token: ", "maxtoken\n"):
        assert not checks.is_no_secret(f"a line\n{before}")
