"""The wheel holds what a user needs and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel of this checkout, built with the build tool at hand."""
    if find_spec("hatchling") is None:
        pytest.skip("needs hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == built.returncode, built.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_every_source_file_is_in(wheel: zipfile.ZipFile) -> None:
    """Code, stubs with their types, and the mark that says there are types."""
    files = [path for path in (ROOT / "sidecar").rglob("*") if path.is_file() and "__pycache__" not in path.parts]

    assert set() == {path.relative_to(ROOT / "sidecar").as_posix() for path in files} - set(wheel.namelist())


def test_the_protos_are_in(wheel: zipfile.ZipFile) -> None:
    """A client in another language generates its stubs from them, byte for byte those of the repository."""
    protos = sorted((ROOT / "protos" / "prompt_sidecar").rglob("*.proto"))

    assert {f"prompt_sidecar/{path.relative_to(ROOT)}": path.read_bytes() for path in protos} == {
        name: wheel.read(name) for name in wheel.namelist() if name.endswith(".proto")
    }


def test_nothing_stands_beside_the_package(wheel: zipfile.ZipFile) -> None:
    """Tests and scripts of the repository stay out of site-packages."""
    tops = {name.split("/")[0] for name in wheel.namelist()}

    assert {"prompt_sidecar"} == {top for top in tops if not top.endswith(".dist-info")}


def test_the_page_of_a_package_index_has_no_broken_link(wheel: zipfile.ZipFile) -> None:
    """Readers there have the README, and neither the pages nor the pictures that it leads to."""
    metadata = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
    page = wheel.read(metadata).decode().partition("\n\n")[2]
    targets = re.findall(r"\]\(([^)]*)\)|(?m:^\[[^\]]+\]: *(\S+))|(?:src|href)=\"([^\"]*)", page)

    assert page.startswith("# Prompt Sidecar")
    assert "docs/python-client.md" in page
    assert [] == [target for target in targets if not "".join(target).startswith(("https://", "http://", "#"))]


def test_the_command_is_declared(wheel: zipfile.ZipFile) -> None:
    """`prompt-sidecar` starts the command line."""
    name = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))

    assert "prompt-sidecar = prompt_sidecar.__main__:main" in wheel.read(name).decode()


def test_no_page_says_that_it_is_on_a_package_index() -> None:
    """It is not, yet: installing it by its name alone fails."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]

    assert [] == [page.name for page in pages if re.search(r"pip install '?prompt-sidecar\b", page.read_text("utf-8"))]


def test_pages_that_make_an_environment_name_the_package_of_debian() -> None:
    """There `python3 -m venv` fails where only python3 is installed, and so does the first command of a new user."""
    pages = {page: page.read_text("utf-8") for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]}
    making = {page.name: text for page, text in pages.items() if "python3 -m venv" in text}

    assert "README.md" in making
    assert [] == [name for name, text in making.items() if "python3-venv" not in text]
