"""A run that goes from replica to replica goes on from its newest decisions, wherever each prompt goes.

The replicas are told other counts of tokens, so each would decide otherwise from what it knows by itself.
"""

from __future__ import annotations

from functools import cache

import pytest

from prompt_sidecar.facts.trim_calls import RevisionUse
from tests.conformance.case import Case
from tests.conformance.table import CASES
from tests.store.hopping import LIMIT, Grown, Played, grown, play
from tests.store.sharing import Valkey, one_kind

SHORT, LONG = 60, 130
"""Turns."""
WIDE = 30_000
"""Tokens that a prompt of a long run may take."""
MOST = 1.05
"""Times what one replica has the provider write to its cache."""
ONE_CUT = 0.05
"""The share of a short run's writing that one cut more or less makes."""
formats = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@cache
def history(format: str, turns: int, *, masked: bool) -> Grown:
    """The same prompts for all routes."""
    return grown(CASES[format], 1, turns, masked=masked)


@cache
def by_one(format: str, turns: int, limit: int, *, masked: bool) -> Played:
    """What the run costs where nothing moves."""
    return play(None, history(format, turns, masked=masked), "one", masked=masked, limit=limit)


def check(played: Played, one: Played, most: float) -> None:
    """Nothing that was decided is lost, and the provider reads as much from its cache as with one replica."""
    assert one.cuts > 1
    assert RevisionUse.AHEAD in played.uses
    assert 0 == played.other
    assert most * one.written >= played.written


@formats
def test_random_hops_with_the_revision(case: Case) -> None:
    """The agent sends the revision of its last answer; nothing is shared."""
    played = play(None, history(case.format, SHORT, masked=True), "random", carries=True, masked=True)
    check(played, by_one(case.format, SHORT, LIMIT, masked=True), MOST + ONE_CUT)


@pytest.mark.parametrize(
    ("_server", "case"),
    [(("valkey", "redis")[number % 2], case) for number, case in enumerate(CASES.values())],
    ids=CASES,
    indirect=["_server"],
)
def test_random_hops_with_a_store(valkey: Valkey, case: Case) -> None:
    """The agent sends none, so what is newest comes from the store."""
    played = play(valkey, history(case.format, SHORT, masked=True), "random", masked=True)
    check(played, by_one(case.format, SHORT, LIMIT, masked=True), MOST + ONE_CUT)


@pytest.mark.parametrize(
    ("format", "routing", "carries"),
    [
        ("openai_chat", "each_call", False),
        ("openai_responses", "every_five", False),
        ("gemini_contents", "away_and_back", True),
        ("bedrock_converse", "each_call", True),
    ],
)
@one_kind
def test_every_routing(valkey: Valkey, format: str, routing: str, carries: bool) -> None:
    """Longer runs, by each routing that is not at random; what is routed does not depend on the server's kind."""
    played = play(valkey, history(format, LONG, masked=False), routing, carries=carries, limit=WIDE)
    check(played, by_one(format, LONG, WIDE, masked=False), MOST)


def test_a_replica_that_is_behind_would_decide_otherwise() -> None:
    """Without a revision and without a store the same hops lose decisions: the reports do differ."""
    alone = play(None, history("openai_chat", SHORT, masked=True), "random", masked=True)
    assert alone.other > 0
    assert by_one("openai_chat", SHORT, LIMIT, masked=True).written * (MOST + ONE_CUT) < alone.written
