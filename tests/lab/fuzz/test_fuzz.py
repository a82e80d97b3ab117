"""No input gives INTERNAL or UNKNOWN: a short run of the fuzzer; `make fuzz` is the long one."""

from __future__ import annotations

from random import Random
from typing import Any

import grpc
import pytest

from prompt_sidecar.v1 import trim_pb2
from tests.doors.grpc.serving import serving
from tests.lab.fuzz.__main__ import main
from tests.lab.fuzz.mixing import mixed_to
from tests.lab.fuzz.mixing_at_door import PATHS, cases_at_door
from tests.lab.fuzz.requests import JSON_FORMATS, of_prompt, places, prompt, replaced, spelled, sweep, swept
from tests.lab.fuzz.target import FORBIDDEN, Findings, chance_case, in_process, sweep_case

SEED = 20
EVERY = 151
"""Of a sweep's cases, the share that is tried here."""


@pytest.mark.parametrize("tens", range(12))
def test_by_chance(tens: int) -> None:
    """Odd requests of all RPCs, in runs that have a history."""
    found = Findings()
    for number in range(10 * tens, 10 * tens + 10):
        chance_case(in_process(), SEED, number, found)
    assert [] == found.faults
    assert found.statuses.get("OK")


@pytest.mark.parametrize("tens", range(4))
def test_mixed_histories(tens: int) -> None:
    """Agents that go on from parts of what they sent and of what came back."""
    found = Findings()
    for number in range(10 * tens, 10 * tens + 10):
        mixed_to(found, SEED, number)
    assert [] == found.faults
    assert found.statuses.get("OK")


@pytest.mark.parametrize("path", PATHS)
def test_mixed_histories_behind_the_http_door(path: str) -> None:
    """The same of agents whose prompts go through a real door to a provider that judges them."""
    found = Findings()
    cases_at_door(path, SEED, range(10), found)
    assert [] == found.faults
    assert 100 == found.calls
    assert found.statuses["OK"] > 80


@pytest.mark.parametrize("format", JSON_FORMATS)
def test_odd_values_at_every_place(format: str) -> None:
    """A part of the sweep: each value in its turn, at places all over a prompt of each format."""
    found = Findings()
    for number, case in list(enumerate(sweep(format)))[7::EVERY]:
        sweep_case(in_process(), f"--sweep {format} --case {number}", swept(format, case), found)
    assert [] == found.faults
    assert found.calls


@pytest.mark.parametrize("format", JSON_FORMATS)
@pytest.mark.parametrize("odd", [{}, [], [[]], 7, None], ids=repr)
def test_every_type_and_role_may_be_odd(format: str, odd: object) -> None:
    """What readers look up in tables: values that cannot be a key of one."""
    value = prompt(format, 1)
    found = Findings()
    named = [place for place in places(value) if place and place[-1] in {"type", "role", "name", "id", "call_id"}]
    for place in named[::7]:
        sweep_case(in_process(), str(place), of_prompt(format, spelled(replaced(value, place, odd)), Random(0)), found)
    assert [] == found.faults


def test_over_a_socket() -> None:
    """The same of a real server, by the statuses that a client sees."""
    found = Findings()
    with serving() as served:

        def call(name: str, raw: bytes) -> tuple[str, bytes]:
            method: Any = served.channel.unary_unary(f"/prompt_sidecar.v1.SidecarService/{name}")
            try:
                return "OK", method(raw, timeout=60)
            except grpc.RpcError as error:
                return error.code().name, b""

        for number in range(25):
            chance_case(call, SEED + 1, number, found)
    assert [] == found.faults
    assert found.statuses.get("OK")


def test_it_finds_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """A status that is forbidden is told with what repeats it; the same seed and case make the same calls."""
    seen: list[list[tuple[str, bytes]]] = []
    for _ in range(2):
        calls: list[tuple[str, bytes]] = []

        def broken(name: str, raw: bytes, calls: list[tuple[str, bytes]] = calls) -> tuple[str, bytes]:
            calls.append((name, raw))
            return "INTERNAL", b""

        found = Findings()
        chance_case(broken, 3, 4, found)
        assert found.faults
        assert found.faults[0].startswith("--seed 3 --case 4: ")
        seen.append(calls)
    assert seen[0] == seen[1]
    assert set(found.statuses) <= FORBIDDEN
    assert 0 == main(["--seed", "3", "--case", "4"])
    assert "0 faults" in capsys.readouterr().out


def test_every_format_is_fuzzed() -> None:
    """Each that a prompt may be in."""
    formats = {name.removeprefix("FORMAT_").lower() for name in trim_pb2.Format.DESCRIPTOR.values_by_name} - {
        "unspecified"
    }
    assert formats == set(JSON_FORMATS)
