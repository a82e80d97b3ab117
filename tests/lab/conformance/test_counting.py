"""The scripted counts: additive, the same for the same seed, and what each kind of block adds."""

from __future__ import annotations

import pytest

from tests.conformance.conversations import dumps
from tests.lab.conformance.counting import FRAMES, MESSAGE, SIGNATURE, TEXT, Coefficients, CountingProvider, cost
from tests.lab.conformance.counts import seeds

PLAIN = Coefficients(text=2.0, signature=0.25, frames=100.0, noise=0.0)


def counted(*blocks: object, coefficients: Coefficients = PLAIN) -> int:
    """Tokens of one message with these blocks, without its frame."""
    body = dumps({"messages": [{"role": "user", "content": list(blocks)}]})
    return CountingProvider(coefficients, "seed").count(body) - MESSAGE


def test_what_each_block_adds() -> None:
    """Text by its factor, signatures by their length, frames by half a pair; readable thinking nothing."""
    assert 2 * 2 == counted({"type": "text", "text": "hello world"})
    assert 100 == counted({"type": "thinking", "thinking": "hello world", "signature": "A" * 400})
    assert 100 == counted({"type": "redacted_thinking", "data": "A" * 400})
    assert 50 + 2 * 1 == counted({"type": "tool_use", "id": "a", "name": "read", "input": {}})
    assert 50 + 2 * 2 == counted({"type": "tool_result", "tool_use_id": "a", "content": "hello world"})


def test_a_prompt_is_the_sum_of_its_pieces() -> None:
    """System prompt and tools too, so that a message counts the same wherever it stands."""
    provider = CountingProvider(Coefficients.drawn("1"), "1")
    message = {"role": "user", "content": "hello world"}
    one, two = (dumps({"system": "Be careful.", "messages": [message] * number}) for number in (1, 2))
    pieces = provider.pieces(two)
    assert provider.count(two) - provider.count(one) == pytest.approx(pieces[-1], abs=1)
    assert pieces[2] == pieces[3]
    assert round(sum(pieces)) == provider.count(two)


def test_coefficients_come_from_the_seed() -> None:
    """The same for the same, within what was measured."""
    drawn = [Coefficients.drawn(str(number)) for number in range(50)]
    assert drawn[3] == Coefficients.drawn("3")
    assert 50 == len(set(drawn))
    for name, (least, most) in (("text", TEXT), ("signature", SIGNATURE), ("frames", FRAMES)):
        assert all(least <= getattr(each, name) <= most for each in drawn)


def test_noise_is_an_items_own() -> None:
    """The same item is off by the same share, another by another."""
    provider = CountingProvider(Coefficients(1.0, 0.25, 0.0, 0.1), "1")
    bodies = [dumps({"messages": [{"role": "user", "content": word * 400}]}) for word in ("one ", "two ", "six ")]
    assert 3 == len({provider.count(body) for body in bodies})
    assert [provider.count(body) for body in bodies] == [provider.count(body) for body in bodies]


def test_cost_of_kept_and_rewritten_tokens() -> None:
    """A tenth for the prefix shared with the prompt before, five quarters for the rest."""
    a, b, c = (b"a", 10.0), (b"b", 20.0), (b"c", 40.0)
    assert 1.25 * 30 == cost([[a, b]])
    assert 1.25 * 30 + 0.1 * 10 + 1.25 * 60 == pytest.approx(cost([[a, b], [a, c, b]]))


def test_seeds_are_read_as_lists_and_ranges() -> None:
    """Lists and ranges."""
    assert [3, 5, 7, 8] == seeds("3,5,7-8")
