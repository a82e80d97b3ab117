"""`.ci/check-breaking` compares the protos with the state that clients hold, in every shape of clone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUF = Path(sys.executable).parent / "buf"
HEAD_OF_FILE = 'syntax = "proto3";\n\npackage prompt_sidecar.v1;\n\n'
BEFORE = HEAD_OF_FILE + "// A thing.\nmessage Thing {\n  // Its name.\n  string name = 1;\n}\n"
ADDED = BEFORE.replace("}\n", "  // Its size.\n  int32 size = 2;\n}\n")
BROKEN = BEFORE.replace("string name = 1", "int32 name = 1")

pytestmark = pytest.mark.skipif(
    not BUF.exists() or shutil.which("git") is None, reason="needs git, and buf beside the Python that runs the tests"
)


class Repository:
    """A git repository with the script, buf's settings and one proto."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir(parents=True)
        (folder / "protos" / "prompt_sidecar" / "v1").mkdir(parents=True)
        shutil.copy(ROOT / ".ci" / "check-breaking", folder / ".ci")
        shutil.copy(ROOT / "protos" / "buf.yaml", folder / "protos")
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> None:
        """Run git here, as nobody in particular and free of the settings of whoever runs the tests."""
        options = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *options, *arguments], cwd=self.folder, check=True, capture_output=True)

    def write(self, proto: str) -> None:
        """Put the proto into the work tree."""
        (self.folder / "protos" / "prompt_sidecar" / "v1" / "thing.proto").write_text(proto)

    def commit(self, proto: str) -> None:
        """Write the proto and commit everything."""
        self.write(proto)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=change")

    def check(self) -> tuple[bool, str]:
        """Run the script; return whether it passed and the last line that it printed."""
        result = subprocess.run(
            ["bash", str(self.folder / ".ci" / "check-breaking"), str(BUF)],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = (result.stdout + result.stderr).splitlines()
        return result.returncode == 0, lines[-1] if lines else ""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return a repository without a commit."""
    return Repository(tmp_path / "checkout")


def test_without_a_commit_there_is_nothing_to_compare_with(repository: Repository) -> None:
    """The first commit of all can be checked."""
    repository.write(BEFORE)

    assert (True, "breaking: nothing to compare with, as there is no commit") == repository.check()


def test_a_first_commit_guards_what_is_not_committed(repository: Repository) -> None:
    """It has no parent, so that only the work tree can break it."""
    repository.commit(BEFORE)
    assert (True, "breaking: none against the commit itself") == repository.check()

    repository.write(BROKEN)
    passed, last = repository.check()
    assert not passed
    assert 'changed type from "string" to "int32"' in last


def test_on_main_the_commit_before_is_compared(repository: Repository) -> None:
    """Until there is a release, it stands for what others may have."""
    repository.commit(BEFORE)
    repository.commit(ADDED)
    assert (True, "breaking: none against the commit before") == repository.check()

    repository.commit(BROKEN)
    passed, _ = repository.check()
    assert not passed


def test_on_main_the_newest_release_is_compared(repository: Repository) -> None:
    """What was added and taken back between releases breaks nobody; what a release had is kept, commits later too."""
    repository.commit(BEFORE)
    repository.git("tag", "v1.0.0")
    repository.commit(ADDED)
    repository.commit(BEFORE)
    assert (True, "breaking: none against v1.0.0") == repository.check()

    repository.commit(BROKEN)
    repository.commit(BROKEN)
    passed, _ = repository.check()
    assert not passed


def test_a_release_is_compared_with_the_one_before(repository: Repository) -> None:
    """The tag of the commit at hand would compare it with itself."""
    repository.commit(BEFORE)
    repository.git("tag", "v1.0.0")
    repository.commit(BROKEN)
    repository.git("tag", "v1.1.0")

    passed, _ = repository.check()
    assert not passed


def test_a_branch_is_compared_with_main(repository: Repository) -> None:
    """It is main that the branch will join."""
    repository.commit(BEFORE)
    repository.git("switch", "--quiet", "--create", "topic")
    repository.commit(ADDED)
    assert (True, "breaking: none against main") == repository.check()

    repository.commit(BROKEN)
    repository.commit(BROKEN)
    passed, _ = repository.check()
    assert not passed


def test_a_shallow_clone_is_checked(repository: Repository, tmp_path: Path) -> None:
    """A clone of depth one has no commit before; it compares with itself and does not fail."""
    repository.commit(BEFORE)
    repository.commit(ADDED)
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.folder}", str(tmp_path / "clone"))
    result = subprocess.run(
        ["bash", str(tmp_path / "clone" / ".ci" / "check-breaking"), str(BUF)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "breaking: none against the commit itself\n" == result.stdout


def test_a_main_without_protos_is_nothing_to_compare_with(repository: Repository) -> None:
    """The branch that brings the protos can be checked."""
    shutil.move(repository.folder / "protos", repository.folder.parent / "protos")
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message=change")
    shutil.move(repository.folder.parent / "protos", repository.folder / "protos")
    repository.git("switch", "--quiet", "--create", "topic")
    repository.commit(BEFORE)

    assert (True, "breaking: nothing to compare with, as main holds no protos") == repository.check()
