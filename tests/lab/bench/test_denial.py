"""What is heavy is what it says, and what others wait is told with the aim."""

from __future__ import annotations

from itertools import islice

import orjson
import pytest

from tests.lab.bench.http_denial import COMMENTS, DRIPS, ENDLESS, HELD, HUGE, LOADS, PATTERN, WHOLE, measure, pieces
from tests.lab.bench.others import Others


def test_the_aim_is_about_what_heavy_calls_add() -> None:
    """Not about what the other's calls take by themselves; the longest of a hundred is not the p99 but is shown."""
    quiet = [0.010] * 100
    kept, missed = Others(quiet, [0.090] * 99 + [0.700]), Others(quiet, [0.150] * 100)

    assert "10.000, 10.000; 90.000, 700 (within)" == kept.shown
    assert "10.000, 10.000; 150, 150 (MISSES 100)" == missed.shown
    assert {"p50_ms": 90.0, "p99_ms": 90.0, "most_ms": 700.0} == kept.facts()["under"]


@pytest.mark.parametrize("name", LOADS)
def test_heavy_messages_are_json(name: str) -> None:
    """The door reads them: they are heavy, not wrong."""
    load = LOADS[name]

    assert load.answer in {PATTERN, WHOLE, DRIPS, HUGE, COMMENTS, ENDLESS, HELD}
    assert orjson.loads(orjson.dumps(load.messages(0.001)))


@pytest.mark.parametrize(("answer", "events"), [(DRIPS, 1), (HUGE, 2), (HELD, 2), (COMMENTS, 0), (ENDLESS, 0)])
def test_a_hostile_stream_has_events_or_none(answer: str, events: int) -> None:
    """Comments are no events, and an event ends with an empty line."""
    sent = b"".join(piece for piece, _ in islice(pieces(answer, 0.0001), 150 if answer == DRIPS else 2))

    assert events == sum(b"data:" in part for part in sent.split(b"\n\n")[:-1])


def test_a_provider_that_sends_comments_only() -> None:
    """Next to it the other client's requests are answered, and both ways of it are timed."""
    name = "a provider that sends comments without end"
    found = measure(name, 0.01, 3)

    assert (name, 4) == (found.name, found.begun)
    assert [3] * 4 == [len(each) for one in (found.others, found.straight) for each in (one.quiet, one.under)]
