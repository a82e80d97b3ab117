"""The rules on recorded runs: hardly anything is found for nothing, and only what is found is changed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.guard.lookalikes import defang
from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.rules import RuleAction, default_rules
from tests.guard import slow
from tests.oracle.data import present

_RULES = default_rules(GuardOptions(ENFORCE, ("lookalikes=defang",)))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value if isinstance(value, list) else value.values():
            yield from _leaves(each)


@pytest.mark.parametrize("path", present("runs/*.json.gz"), ids=lambda path: path.name)
def test_a_recorded_run(path: Path) -> None:
    """At most one value a megabyte would be masked, and defanging changes only texts in which it finds something.

    No recorded run holds a secret; what is found in one is false.
    """
    texts = list(dict.fromkeys(_leaves(json.loads(gzip.decompress(path.read_bytes())))))
    found = _RULES.scan(texts)
    masked = [find for finds in found for find in finds if find.rule.action is RuleAction.MASK]
    assert len(masked) <= sum(map(len, texts)) / 1e6
    for text, finds in zip(texts, found, strict=True):
        broken = [find for find in finds if find.rule.action is RuleAction.DEFANG]
        assert (defang(text, finds) == text) is not bool(broken)


@pytest.mark.parametrize("path", present("runs/*.json.gz")[:2], ids=lambda path: path.name)
def test_a_recorded_run_as_the_slow_twin_reads_it(path: Path) -> None:
    """The finds in the shorter texts of a run are those of Python's `re`, rule by rule."""
    texts = [text for text in dict.fromkeys(_leaves(json.loads(gzip.decompress(path.read_bytes())))) if len(text) < 900]
    found = [[(find.start, find.end, find.rule.name) for find in finds] for finds in _RULES.scan(texts[:300])]
    expected = [
        [(find.start, find.end, find.rule.name) for find in slow.scan(_RULES.rules, text)] for text in texts[:300]
    ]
    assert expected == found
