"""`make docs` is strict, its reference is whole, and the pages outside of docs/ lead somewhere too."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from prompt_sidecar import errors
from prompt_sidecar.v1 import service_pb2
from tests.docs.pages import PAGES, ROOT, TOP

README_LINES = 110
"""A new user reads it at one go; everything else stands in docs/."""


def built(tmp_path: Path, **pages: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Build a small site with the project's configuration, as strictly as the Makefile does."""
    if find_spec("sphinx") is None:
        pytest.skip("needs Sphinx, which the dependency group docs has")
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name, text in pages.items():
        (source / f"{name}.md").write_text(text)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    strictness = re.search(r"sphinx-build (.*) --builder", makefile)
    assert strictness
    command = [sys.executable, "-m", "sphinx", *strictness[1].split(), "-c", str(ROOT / "docs"), str(source), str(site)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False), site


INDEX = "# Pages\n\n```{toctree}\nother\n```\n"


def test_a_site_without_faults_is_built(tmp_path: Path) -> None:
    """The two tests after this one fail for what they plant, and for nothing else."""
    ended, site = built(tmp_path, index=INDEX, other="# Other\n\n[back](index.md#pages)\n")
    assert 0 == ended.returncode, ended.stderr
    assert (site / "other.html").is_file()


@pytest.mark.parametrize("target", ["nowhere.md", "index.md#nothing", "../nowhere.toml", "#nothing"])
def test_a_dead_link_fails_the_build(tmp_path: Path, target: str) -> None:
    """To a page, to a heading of another page or of this one, to a file."""
    ended, _ = built(tmp_path, index=INDEX, other=f"# Other\n\n[away]({target})\n")
    assert 0 != ended.returncode
    assert "xref_missing" in ended.stderr


def test_an_orphan_page_fails_the_build(tmp_path: Path) -> None:
    """One that no list of pages has."""
    ended, _ = built(tmp_path, index="# Pages\n", other="# Other\n")
    assert 0 != ended.returncode
    assert "toc.not_included" in ended.stderr


def test_the_reference_is_whole(tmp_path: Path) -> None:
    """Every reason of an error; every method, message, enum, field and value of the protos."""
    marks = "\n\n".join(f"<!-- made from the sources: {name} -->" for name in ("errors", "protos"))
    ended, site = built(tmp_path, index=f"# Reference\n\n{marks}\n")
    assert 0 == ended.returncode, ended.stderr
    words = set(re.findall(r"\w+", re.sub(r"<[^>]+>", " ", (site / "index.html").read_text(encoding="utf-8"))))
    reasons = {kind.reason for _, kind in inspect.getmembers(errors, inspect.isclass) if hasattr(kind, "reason")}
    assert set() == reasons - words
    service = service_pb2.DESCRIPTOR.services_by_name["SidecarService"]
    files = [service_pb2.DESCRIPTOR, *service_pb2.DESCRIPTOR.dependencies]
    assert {"trim.proto", "service.proto"} <= {file.name.rsplit("/", 1)[1] for file in files}
    named = {method.name for method in service.methods}
    for file in files:
        for message in file.message_types_by_name.values():
            named |= {message.name, *(field.name for field in message.fields)}
        for enum in file.enum_types_by_name.values():
            named |= {enum.name, *(value.name for value in enum.values)}
    assert set() == named - words


@pytest.mark.parametrize("name", TOP)
def test_links_of_the_pages_at_the_top_lead_somewhere(name: str) -> None:
    """To files that are there, and to headings that these have."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        found = ROOT / path if path else ROOT / name
        assert found.exists(), target
        assert not heading or heading in headings(found.read_text(encoding="utf-8")), target


def headings(text: str) -> set[str]:
    """The names that a page's headings have in links, as code hosts and MyST make them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"(?m)^#+ (.+)$", text)
    }


def test_no_page_is_unknown_to_the_site() -> None:
    """`docs/index.md` names every page for readers on a code host, runbooks by their own list."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {page.name for page in PAGES if page.parent == ROOT / "docs"} - {"index.md"}
    assert set() == {page for page in pages if f"({page})" not in index}


def test_the_readme_is_short() -> None:
    """See `README_LINES`."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def test_the_glossary_is_short_and_each_word_is_there_once() -> None:
    """At most 40 words in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    words = re.findall(r"(?m)^\| ([a-z, ]+) \|", text.split("\n## Words\n")[1].split("\n## ")[0])
    each = [word for row in words if row != "word" for word in row.split(", ")]
    assert 20 < len(each) <= 40 + len([row for row in words if ", " in row])
    assert len(set(each)) == len(each)


def test_each_page_is_in_a_list_of_pages() -> None:
    """Without a build: a page that no table of contents names fails `make docs`."""
    listed: set[Path] = set()
    for page in PAGES:
        for contents in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            names = [line for line in contents.splitlines() if line and not line.startswith(":")]
            listed.update(found for name in names for found in page.parent.glob(f"{name}.md"))
    assert set() == set((ROOT / "docs").rglob("*.md")) - listed - {ROOT / "docs" / "index.md"}


GROUPS = ("Start", "Connect an agent", "Operate", "Understand", "Reference", "Research")
"""In the order in which a new reader meets them."""


def test_each_page_is_in_one_group() -> None:
    """In the list that people read, and in the same one of the site's contents."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"(?ms)^## ([^\n]+)\n(.*?)(?=^## |^```)", index))
    contents = dict(re.findall(r"(?ms)^```\{toctree\}\n:hidden:\n(?::glob:\n)?:caption: ([^\n]+)\n\n(.*?)^```", index))
    assert (GROUPS, GROUPS) == (tuple(listed), tuple(contents))
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"} | {"runbooks/README"}
    for name in GROUPS:
        read = re.findall(r"\]\((?!\.\.)([\w/-]+)\.md\)", listed[name])
        assert read == [line for line in contents[name].split() if "*" not in line]
        assert set() == set(read) - pages
        pages -= set(read)
    assert set() == pages


def test_each_page_says_who_it_is_for() -> None:
    """In one line, right below its title; runbooks are for who got their alert, as their list says."""
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.stem != "index"]
    first = {path.stem: path.read_text(encoding="utf-8").splitlines()[:4] for path in pages}
    first["runbooks"] = (ROOT / "docs" / "runbooks" / "README.md").read_text(encoding="utf-8").splitlines()[:4]
    assert [] == [
        name
        for name, lines in first.items()
        if not (lines[0].startswith("# ") and lines[2].startswith("For those who") and lines[3] == "")
    ]
