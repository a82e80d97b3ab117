"""What `make test` leaves out is still there, and stays out for the reason that the table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import lanes
from tests.costs import costs, means

ROOT = Path(__file__).parents[2]

PLACES = [*lanes.THOROUGH, *lanes.SAMPLED, *lanes.EACH_VALUE]


@pytest.mark.parametrize("place", PLACES)
def test_a_place_in_a_lane_exists(place: str) -> None:
    """A file that moves, or a test that gets another name, takes its row with it."""
    file, _, test = place.partition("::")
    assert (ROOT / file).exists()
    assert not test or f"def {test}" in (ROOT / file).read_text(encoding="utf-8")


def test_files_without_a_test_of_the_lane() -> None:
    """One in which a test stays is read, and one of a folder that is left out is not."""
    whole = [lanes.left_whole(f"tests/{file}") for file in ("lab/scale/test_scale.py", "real/test_collector.py")]
    part = [lanes.left_whole(f"tests/{file}") for file in ("client/test_killed.py", "trim/test_elide.py")]
    assert ([True, True], [False, False]) == (whole, part)


def test_costly_tests_exist() -> None:
    """A test that has gone is not in the file of costs any more."""
    files = {test.partition("::")[0] for test in costs()}
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in files if (ROOT / file).is_file()}

    def exists(test: str) -> bool:
        file, name = test.split("::")[:2]
        return bool(re.search(rf"^(async )?(def|class) {name}\b|^{name} = ", texts.get(file, ""), re.MULTILINE))

    assert [] == [test for test in costs() if not exists(test)]


def test_the_means_of_costly_tests() -> None:
    """Those whose cases take little together are left out."""
    spent = {"a.py::one[1]": 0.3, "a.py::one[2]": 0.5, "a.py::two": 0.1, "a.py::three": 2.0}
    assert {"a.py::one": 0.4, "a.py::three": 2.0} == means(spent)


@pytest.mark.parametrize("letter", ["a", "b", "c"])
@pytest.mark.parametrize(("number", "square"), [(1, {1}), (2, {4})])
def test_some_cases_have_each_value(request: pytest.FixtureRequest, number: int, square: set[int], letter: str) -> None:
    """Of this test's own six, three do; what a value is makes no difference, such as one that cannot be hashed."""
    del number, square, letter  # they are looked at as pytest has them
    name = f"{Path(__file__).name}::{request.node.originalname}["
    cases = [item for item in request.session.items if name in item.nodeid]
    if len(cases) < 6:
        pytest.skip("needs all of its cases to be chosen")
    covering = [item.callspec.params for item in lanes.covering(cases)]  # type: ignore[attr-defined]
    assert 3 == len(covering)
    assert {1, 2} == {each["number"] for each in covering}
    assert {"a", "b", "c"} == {each["letter"] for each in covering}


def test_the_longest_place_counts() -> None:
    """A place that stays may be within one that is left out."""
    places = ("tests/a/", "tests/a/test_b.py", "tests/a/test_b.py::test_c")
    assert "tests/a/test_b.py::test_c" == lanes.place_of("tests/a/test_b.py::test_c[1]", places)
    assert "tests/a/" == lanes.place_of("tests/a/test_d.py::test_c", places)
    assert lanes.place_of("tests/test_e.py::test_f", places) is None


@pytest.mark.parametrize(("usual", "tried"), [(1, 1), (4, 4), (10, 4), (100, 25), (500, 125)])
def test_a_property_tries_a_quarter_of_its_examples(usual: int, tried: int) -> None:
    """And some, where a quarter is nothing."""
    assert tried == lanes.examples(usual)
