"""The size of a history in calibrated tokens."""

from __future__ import annotations

import math

import pytest

from prompt_sidecar.facts.history_size import HistorySize, KindSize, SizeKind


@pytest.mark.parametrize("factor", [0.5, 0.77, 1.0, 1.4, 2.0])
def test_scaled_kinds_add_up(factor: float) -> None:
    """Multiplied by a calibration factor, kinds add up to their total, which is the total multiplied."""
    sizes = {kind: KindSize(13 * place + 1, 7 * place + 2, place) for place, kind in enumerate(SizeKind)}
    sent, returned = (
        sum(size.tokens_sent for size in sizes.values()),
        sum(size.tokens_returned for size in sizes.values()),
    )
    scaled = HistorySize(sizes, 3, 4, sent, returned, 0.5).scaled(lambda raw: math.ceil(raw * factor))
    assert (math.ceil(sent * factor), math.ceil(returned * factor)) == (scaled.tokens_sent, scaled.tokens_returned)
    assert scaled.tokens_sent == sum(size.tokens_sent for size in scaled.by_kind.values())
    assert scaled.tokens_returned == sum(size.tokens_returned for size in scaled.by_kind.values())
    assert all(abs(size.tokens_sent * factor - scaled.by_kind[kind].tokens_sent) <= 1.5 for kind, size in sizes.items())
    assert (3, 4, 0.5) == (scaled.messages, scaled.messages_returned, scaled.share_of_limit)
