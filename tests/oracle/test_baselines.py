"""The ruler and the two plain strategies, on prompts small enough to check by hand."""

from __future__ import annotations

from tests.oracle.baselines import Control, Entry, Sized, cost, cost_of, kept_prefix, trim_every_call


def _run(groups: int, tokens: int = 10) -> list[Sized]:
    """A user message, then groups of an assistant message and a result, each message of `tokens`."""
    messages = [Sized((b"u", tokens), opens=False)]
    for group in range(groups):
        messages += [Sized((b"a%d" % group, tokens), opens=True), Sized((b"r%d" % group, tokens), opens=False)]
    return messages


def _names(entries: list[Entry]) -> list[bytes]:
    return [digest for digest, _ in entries]


def test_cost_of_a_growing_prompt() -> None:
    """What was there is read at 0.1, what is new is written at 1.25."""
    first: list[Entry] = [(b"a", 100)]
    assert 125 + 10 + 62.5 == cost([first, [*first, (b"b", 50)]])


def test_cost_of_a_changed_prompt() -> None:
    """After the first change everything is written again."""
    assert 2 * 125 + 1.25 * 30 * 2 == cost([[(b"a", 100), (b"b", 30)], [(b"x", 100), (b"b", 30)]])


def test_cost_of_some_entries() -> None:
    """The shares of all entries add up to the cost."""
    prompts: list[list[Entry]] = [[(b"a", 100)], [(b"a", 100), (b"b", 50)]]
    own = [frozenset({0}), frozenset({1})]
    rest = [frozenset(), frozenset({0})]
    assert cost(prompts) == cost_of(prompts, own) + cost_of(prompts, rest)
    assert 125 + 62.5 == cost_of(prompts, own)


def test_kept_prefix() -> None:
    """A longer or shorter prompt keeps what both begin with."""
    a, b, c = (b"a", 1), (b"b", 1), (b"c", 1)
    assert kept_prefix([], [a]) == 0
    assert kept_prefix([a, b], [a, b, c]) == 2
    assert kept_prefix([a, b], [a, c]) == 1
    assert kept_prefix([a, b], [a]) == 1


def test_control_drops_to_half_and_remembers() -> None:
    """Above the limit it drops to half of it, and drops nothing more until it is above again."""
    control = Control(limit=70)
    assert _names([m.entry for m in _run(3)]) == _names(control.prompt(_run(3)))
    assert [b"u", b"a3", b"r3"] == _names(control.prompt(_run(4)))
    assert [b"u", b"a3", b"r3", b"a4", b"r4"] == _names(control.prompt(_run(5)))


def test_control_keeps_the_newest_call() -> None:
    """However small the limit, the opening and the newest group stay."""
    assert [b"u", b"a2", b"r2"] == _names(Control(limit=1).prompt(_run(3)))


def test_trim_every_call_drops_to_the_limit() -> None:
    """It drops no more than it must, at every call again."""
    assert [b"u", b"a1", b"r1", b"a2", b"r2", b"a3", b"r3"] == _names(trim_every_call(_run(4), 70))
    assert [b"u", b"a2", b"r2", b"a3", b"r3", b"a4", b"r4"] == _names(trim_every_call(_run(5), 70))


def test_remembering_costs_less() -> None:
    """On a growing run the control beats trimming at every call, which is why it is the one to beat."""
    control, sent = Control(limit=300), [_run(groups) for groups in range(1, 80)]
    assert cost([control.prompt(prompt) for prompt in sent]) < cost([trim_every_call(prompt, 300) for prompt in sent])
