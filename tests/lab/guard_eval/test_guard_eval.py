"""The evaluation itself: what it plants is what its kinds are, and what it calls harmless is."""

from __future__ import annotations

from pathlib import Path

from prompt_sidecar.guard.rules import RULES
from tests.lab.guard_eval import material
from tests.lab.guard_eval.material import KINDS, NAMED, SIZE, negatives, planted
from tests.lab.guard_eval.measuring import Guard

_HOST = "a line\n" * 40


def test_each_planted_kind_is_a_rule() -> None:
    """Values are planted by the names of rules."""
    assert {*KINDS, *NAMED} <= set(RULES)


def test_planted_values_are_where_they_are_listed() -> None:
    """Each case has its value at its place, and the rest of its text is the host's lines and one more."""
    for case in planted([_HOST], 3, 5):
        value = case.text[case.start : case.end]
        assert value
        assert _HOST.count("\n") <= case.text.replace(value, "").count("\n") <= _HOST.count("\n") + 1


def test_most_planted_values_are_found() -> None:
    """The rules find nearly all of what is drawn from the forms of their kinds."""
    cases = list(planted([_HOST], 10, 3))
    found = Guard().find([case.text for case in cases])
    hits = sum(
        any(start <= case.start and case.end <= end for start, end, _ in spans)
        for case, spans in zip(cases, found, strict=True)
    )
    assert hits >= 0.97 * len(cases)


def test_nothing_is_found_in_harmless_texts() -> None:
    """Lock files, ids, hashes, encoded data and code about secrets hold nothing that would be masked."""
    for name, text in negatives(2).items():
        assert SIZE <= len(text)
        assert [] == Guard().find([text])[0], name


def test_fixtures_are_read_from_the_sources_of_others(tmp_path: Path) -> None:
    """Parameters of Python tests and lists of Go texts are read as texts with and without a secret."""
    plugins = tmp_path / "tests" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "some_test.py").write_text('CASES = [("one", True), ("two", False), (3, True), (f"{x}", True)]\n')
    rules = tmp_path / "cmd" / "generate" / "config" / "rules"
    rules.mkdir(parents=True)
    (rules / "some.go").write_text(
        'func F() {\n\ttps := []string{\n\t\t"a\\"b", // why\n\t\t`raw`,\n\t\tcall("c"),\n\t}\n'
        '\tfps := []string{\n\t\t"d",\n\t}\n}\n'
    )
    assert [("one", True), ("two", False)] == [(each.text, each.secret) for each in material.detect_secrets(tmp_path)]
    assert [('a"b', True), ("raw", True), ("d", False)] == [
        (each.text, each.secret) for each in material.gitleaks(tmp_path)
    ]
