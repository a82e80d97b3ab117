"""What the bench measures with: the same bytes each time, of the sizes and shapes that it says."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from prompt_sidecar.doors.grpc.conversion.trim import trim_call as read_call
from tests.lab.bench.unseen import MAKERS
from tests.lab.harness.prompts import ACCEPT_BYTES, CALLER, Prompts, Writer, recorded, request, run, trim_call
from tests.oracle.validity import defects


def test_a_run_is_made_from_its_seed() -> None:
    """The same seed gives the same run, another seed another."""
    assert run(1, 5, 30_000) == run(1, 5, 30_000)
    assert run(1, 5, 30_000).slices != run(2, 5, 30_000).slices


@pytest.mark.parametrize("kind", ["", "code", "log", "listing", "diff", "json", "prose"])
def test_text_has_the_size_that_was_asked_for(kind: str) -> None:
    """So that a megabyte is one."""
    assert [0, 1, 5_000] == [len(Writer(3).text(size, kind)) for size in (0, 1, 5_000)]


@pytest.mark.parametrize(("iterations", "size"), [(100, 1_000_000), (30, 60_000)])
def test_a_run_grows_to_its_size(iterations: int, size: int) -> None:
    """A call for each iteration and one at the end; the last sends about the bytes that were asked for."""
    made = run(4, iterations, size)
    *_, last = made.bodies()

    assert iterations + 1 == len(made)
    assert made.size == len(last)
    assert 0.85 * size < len(last) < 1.15 * size


def test_each_body_is_the_history_so_far() -> None:
    """Every call sends what the one before sent, and the messages that are new."""
    made = run(5, 4, 20_000)
    sent = [orjson.loads(body)["messages"] for body in made.bodies()]

    assert list(made.lengths) == [len(messages) for messages in sent]
    assert [orjson.loads(part) for part in made.slices] == sent[-1]
    assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(sent))


def test_a_salted_run_has_new_texts_of_the_same_size() -> None:
    """So that each round counts what is new, at the same calls."""
    made = run(9, 5, 50_000)
    salted = made.salted(3)
    long = [orjson.loads(part)["content"] for part in salted.slices if len(part) > 2_000]

    # An escaped character among those replaced is a byte or two.
    assert abs(made.size - salted.size) < 2 * len(made.slices)
    assert {"0003"} == {text[:4] for text in long}
    assert salted == made.salted(3)


def test_a_synthetic_run_has_no_defect() -> None:
    """Calls are answered, results answer calls."""
    made = run(6, 60, 200_000)

    assert [] == list(defects(made.format, [orjson.loads(part) for part in made.slices]))


@pytest.mark.parametrize("packed", [False, True])
def test_a_recorded_run_is_read_from_its_file(tmp_path: Path, packed: bool) -> None:
    """JSON, gzipped or not, in either spelling of the format."""
    messages = [
        {"role": "user", "content": "é"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    content = orjson.dumps({"format": "anthropic", "messages": messages})
    path = tmp_path / "short.anthropic.json"
    path.write_bytes(gzip.compress(content) if packed else content)

    found = recorded(path)

    assert ("short", "anthropic_messages", [1, 3]) == (found.name, found.format, list(found.lengths))
    assert messages == orjson.loads(list(found.bodies())[-1])["messages"]


@pytest.mark.parametrize("content", [b"[]", b'{"format":"openai_chat"}', b'{"format":"other","messages":[{}]}'])
def test_a_file_that_holds_no_run_is_refused(tmp_path: Path, content: bytes) -> None:
    """With what it lacks."""
    path = tmp_path / "run.json"
    path.write_bytes(content)

    with pytest.raises(ValueError, match=r"run\.json"):
        recorded(path)


def test_the_wire_and_the_engine_get_the_same_call() -> None:
    """What is measured in process is what the server makes of the request."""
    body = next(Prompts("one", "openai_chat", [b'{"role":"user","content":"a"}'], [1]).bodies())
    read = read_call(request("run", "openai_chat", body, 1_000), CALLER, ACCEPT_BYTES)
    made = trim_call("run", "openai_chat", body, 1_000)

    assert (made.body, made.run_id, made.context_window, made.output_reserve, made.accept_bytes) == (
        read.body,
        read.run_id,
        read.context_window,
        read.output_reserve,
        read.accept_bytes,
    )


@pytest.mark.parametrize("name", MAKERS)
def test_a_hostile_prompt_is_json_of_about_its_size(name: str) -> None:
    """It is hostile, not wrong: it must get through the reader."""
    body = MAKERS[name](20_000)

    assert isinstance(orjson.loads(body), list)
    assert 14_000 < len(body) < 32_000
