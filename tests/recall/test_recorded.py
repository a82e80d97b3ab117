"""Recorded originals: through the stash, compressed, and back in pages, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prompt_sidecar.recall.holding import StoredOriginal
from prompt_sidecar.recall.retrieve import select
from prompt_sidecar.recall.stash import Stash
from prompt_sidecar.tokens import Counter, load
from tests.oracle.data import document, present


def texts(value: Any) -> Iterator[bytes]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value.encode()
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)


@pytest.mark.parametrize("path", present("runs/*.json.gz"), ids=lambda path: path.name)
def test_recorded_texts_come_back(path: Path) -> None:
    """Every text of a recorded run comes back whole, and the largest in pages that are full and make it up."""
    stash = Stash(268_435_456, 67_108_864, 3_600.0, lambda: 0.0)
    originals = list(texts(document(path)))
    for number, original in enumerate(originals):
        assert stash.put("run", "owner", str(number), original, "text/plain")
    while stash.compress_some():
        pass
    # Compared here: a difference between megabytes would take minutes to print.
    wanted = {str(number): StoredOriginal(original, "text/plain") for number, original in enumerate(originals)}
    assert [] == [stash_id for stash_id, held in wanted.items() if stash.get("run", stash_id) != held]

    counter = Counter({"o200k_base": load("o200k_base")})
    for original in sorted(originals, key=len)[-3:]:
        content, offset, more = b"", 0, True
        while more:
            page = select(original, "text/plain", None, offset, 1_000, lambda text: counter.count(text, "o200k_base"))
            assert page.content_tokens <= 1_000
            assert page.content_tokens >= 600 or not page.more
            content, offset, more = content + page.content, page.next_offset, page.more
        assert (len(original), True) == (len(content), original == content)
