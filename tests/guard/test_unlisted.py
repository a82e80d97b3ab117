"""Keys of services that no rule knows, beside the identifiers that agents see most."""

from __future__ import annotations

import random
import string

import pytest

from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import default_rules

ANTHROPIC = ("msg", "toolu", "srvtoolu", "file", "session", "msgbatch", "wrkspc", "container", "skill")
"""Beginnings of identifiers as its API reference has them."""
OPENAI = ("call", "resp", "rs", "fc", "tsc", "tso", "chatcmpl", "run", "file", "asst", "thread", "vs", "ftjob", "conv")
"""The same of its API reference."""
OTHERS = ("cus", "req", "lc", "pyd", "evt")
RULES = default_rules(GuardOptions(ENFORCE))


def drawn(characters: str, number: int, seed: str) -> str:
    """So many of these characters."""
    return "".join(random.Random(seed).choices(characters, k=number))


def found(text: str) -> list[str]:
    """The names of the rules that find something, in order."""
    return [find.rule.name for find in RULES.scan([text])[0]]


@pytest.mark.parametrize("prefix", [*ANTHROPIC, *OPENAI, *OTHERS])
def test_an_identifier_is_no_key(prefix: str) -> None:
    """However it is drawn; an agent has to write it as it is."""
    both = drawn(string.ascii_letters + string.digits, 32, prefix)
    lower = drawn("0123456789abcdef", 50, prefix)
    assert [] == found(f"see {prefix}_{both}, {prefix}-{both} and {prefix}_{lower}")


@pytest.mark.parametrize("prefix", ["qtask", "network", "disk"])
def test_the_last_letters_of_a_word_do_not_make_a_short_identifier_a_key(prefix: str) -> None:
    """Such as a KSUID of 27 letters and digits; `sk` alone or after a consonant does."""
    drawn_part = drawn(string.ascii_letters + string.digits, 27, "ksuid")
    assert [] == found(f"see {prefix}_{drawn_part}")
    assert ["unlisted_key"] == found(f"see qsk_{drawn_part}")


def test_a_key_is_found_by_its_form() -> None:
    """With both separators, but not as a part of a longer run, of a path or of an address."""
    key = "zorblat_" + drawn(string.ascii_letters + string.digits, 36, "key")
    assert ["unlisted_key"] == found(f"the deploy used {key} for it")
    assert ["unlisted_key"] == found(f"the deploy used {key.replace('_', '-')} for it")
    for before, after in (("Xq7_", ""), ("/assets/", ".js"), ("https://x.example/", "/a"), ("a-", "")):
        assert [] == found(f"the deploy used {before}{key}{after} for it")
