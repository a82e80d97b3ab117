"""`make release-dry-run`: it finds what is missing and what has no place, and runs the README's own commands."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.deploy import release
from tests.deploy.release import NEEDED, Failed, readme_program, readme_serve, run, wrong_in_sources, wrong_in_wheel
from tests.docs.pages import ROOT
from tests.real.needing import lack

PROTO = "protos/prompt_sidecar/v1/trim.proto"
WHEEL = {
    *(f"prompt_sidecar/{name}" for name in NEEDED),
    f"prompt_sidecar/{PROTO}",
    "prompt_sidecar/app.py",
    "prompt_sidecar-0.2.0.dist-info/METADATA",
    "prompt_sidecar-0.2.0.dist-info/licenses/LICENSE",
}
SOURCES = {"pyproject.toml", "README.md", "LICENSE", "sidecar", "tests"}


def test_a_whole_wheel_has_nothing_wrong() -> None:
    """So that the cases below fail for what they plant."""
    assert [] == wrong_in_wheel(WHEEL, {PROTO})


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ("prompt_sidecar/trim/test_elide.py", "is a test"),
        ("tests/conftest.py", "is a test"),
        ("prompt_sidecar/providers/recorded.jsonl.gz", "no code"),
        ("other/__init__.py", "outside of the package"),
        ("prompt_sidecar/__pycache__/app.pyc", "outside of the package"),
    ],
)
def test_what_has_no_place_in_a_wheel_is_found(more: str, word: str) -> None:
    """Tests, data, other packages, and what Python made."""
    assert any(
        more.removeprefix("prompt_sidecar/") in each and word in each
        for each in wrong_in_wheel({*WHEEL, more}, {PROTO})
    )


@pytest.mark.parametrize("name", ["py.typed", "providers/catalogue.tsv", "v1/service_pb2.pyi", PROTO])
def test_what_is_missing_in_a_wheel_is_found(name: str) -> None:
    """Types, the catalogue of models, generated stubs, protos."""
    assert [f"{name} is missing"] == wrong_in_wheel(WHEEL - {f"prompt_sidecar/{name}"}, {PROTO})


def test_a_wheel_without_its_licence_is_found() -> None:
    """Apache-2.0 wants a copy of it with each distribution."""
    assert ["the licence is missing"] == wrong_in_wheel({name for name in WHEEL if "LICENSE" not in name}, {PROTO})


def test_what_is_wrong_in_a_source_archive_is_found() -> None:
    """A folder of the machine, what a program made, and a page that is not there."""
    assert [] == wrong_in_sources(SOURCES)
    wrong = wrong_in_sources((SOURCES - {"LICENSE"}) | {"notes/plan.txt", "tests/__pycache__/a.pyc"})
    assert ["notes has no place in it", "tests/__pycache__/a.pyc was made by a program", "LICENSE is missing"] == wrong


def test_every_file_that_is_no_code_is_known() -> None:
    """The list is that of the package: a new file is added to it, one that is gone leaves it."""
    package = ROOT / "sidecar" / "prompt_sidecar"
    files = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert release.DATA == {name for name in files if not name.endswith((".py", ".pyi", ".pyc"))}


def test_the_readme_has_what_a_release_runs() -> None:
    """Its server, and its program that trims a prompt without a model."""
    assert ["prompt-sidecar", "serve", "--http", "127.0.0.1:7780"] == readme_serve()
    assert "127.0.0.1:7717" in readme_program()


def test_a_program_that_fails_is_reported_with_its_last_words() -> None:
    """What it was, its exit code, and the end of what it printed."""
    with pytest.raises(Failed, match=r"the try ended with exit code 3:\nno such thing"):
        run("the try", sys.executable, "-c", "import sys; print('no such thing', file=sys.stderr); sys.exit(3)")


def test_images_are_named_by_the_projects_version() -> None:
    """In the kustomizations and their page; tests/deploy/test_kubernetes.py has the chart's."""
    folder = ROOT / "deploy" / "kubernetes"
    named = {
        path.relative_to(folder).as_posix(): set(re.findall(r"newTag: (\S+)|/prompt-sidecar:(\d+\.[\d.]+)", text))
        for path in [*folder.rglob("kustomization.yaml"), folder / "README.md"]
        if (text := path.read_text(encoding="utf-8")) and "newTag" in text
    }
    assert {"README.md", "sidecar/kustomization.yaml", "standalone/kustomization.yaml"} == set(named)
    assert {release.version()} == {"".join(each) for found in named.values() for each in found}


def test_the_page_of_releases_names_files_that_are_there() -> None:
    """Each promise on it says what holds it."""
    page = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
    holders = re.findall(r"`((?:tests|\.ci)/[\w./-]+)`", page)
    assert len(holders) >= 5
    assert [] == [name for name in holders if not (ROOT / name).exists()]


def test_a_release_from_its_beginning_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both archives are built, installed and tried, and the bill of materials and the licences name each package."""
    code = release.main(["--into", str(tmp_path)])
    out, err = capsys.readouterr()
    if code and ("installing the other packages" in err or "the tools that write them" in err):
        lack(f"needs a package index: {err.strip().splitlines()[-1][:200]}")
    assert (0, "") == (code, err)
    assert "[7/7]" in out
    names = {path.name for path in tmp_path.iterdir()}
    stem = f"prompt-sidecar-{release.version()}"
    assert {f"{stem}.cdx.json", f"{stem}-licences.md", f"{stem}-licences.txt"} < names
    bill = (tmp_path / f"{stem}.cdx.json").read_text(encoding="utf-8")
    pins = re.findall(
        r"(?m)^([\w.-]+)==", (ROOT / "deploy" / "requirements" / "server.txt").read_text(encoding="utf-8")
    )
    assert '"CycloneDX"' in bill
    assert str(tmp_path) not in bill
    assert "file:" not in bill
    table = (tmp_path / f"{stem}-licences.md").read_text(encoding="utf-8").lower().replace("_", "-")
    assert [] == [name for name in ("prompt-sidecar", "grpcio", "tiktoken", "valkey") if f"| {name} " not in table]
    assert len(pins) - 5 <= bill.count('"purl"')
