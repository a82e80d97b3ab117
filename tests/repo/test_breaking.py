"""`.ci/check-breaking` compares the protos with one named earlier state, and fails where that is missing."""

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


class Checkout:
    """A folder with the script, buf's settings and one proto."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = folder / ".ci" / "proto-base"
        self.base.mkdir(parents=True)
        (folder / "protos" / "prompt_sidecar" / "v1").mkdir(parents=True)
        shutil.copy(ROOT / ".ci" / "check-breaking", folder / ".ci")
        shutil.copy(ROOT / "protos" / "buf.yaml", folder / "protos")

    def write(self, proto: str) -> None:
        """Put the proto into the work tree."""
        (self.folder / "protos" / "prompt_sidecar" / "v1" / "thing.proto").write_text(proto)

    def describe(self, name: str) -> None:
        """Take what the work tree holds as an earlier state."""
        command = [str(BUF), "build", "protos", "--exclude-source-info", "-o", str(self.base / f"{name}.binpb")]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

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
def checkout(tmp_path: Path) -> Checkout:
    """Return a checkout without an earlier state."""
    return Checkout(tmp_path / "checkout")


def test_what_is_added_breaks_nobody(checkout: Checkout) -> None:
    """The state that was compared with is named."""
    checkout.write(BEFORE)
    checkout.describe("0123abc")
    checkout.write(ADDED)

    assert (True, "breaking: none against 0123abc") == checkout.check()


def test_what_changes_its_type_breaks(checkout: Checkout) -> None:
    """The line says what a client would misread."""
    checkout.write(BEFORE)
    checkout.describe("0123abc")
    checkout.write(BROKEN)

    passed, last = checkout.check()

    assert not passed
    assert 'changed type from "string" to "int32"' in last


def test_without_an_earlier_state_it_fails(checkout: Checkout) -> None:
    """A check that compares with nothing would pass whatever changed."""
    checkout.write(BEFORE)

    passed, last = checkout.check()

    assert not passed
    assert last.endswith("must hold one description of an earlier state, but holds 0")


def test_two_earlier_states_are_one_too_many(checkout: Checkout) -> None:
    """Which of them clients hold would be a guess."""
    checkout.write(BEFORE)
    checkout.describe("0123abc")
    checkout.describe("4567def")

    assert not checkout.check()[0]


def test_the_earlier_state_is_that_of_the_commit_in_its_name(tmp_path: Path) -> None:
    """Where the clone holds that commit."""
    (base,) = (ROOT / ".ci" / "proto-base").glob("*.binpb")
    archive = subprocess.run(["git", "archive", base.stem, "protos"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip("this clone does not hold the commit that .ci/proto-base names")
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=archive.stdout, check=True)
    again = tmp_path / "again.binpb"
    command = [str(BUF), "build", str(tmp_path / "protos"), "--exclude-source-info", "-o", str(again)]
    subprocess.run(command, check=True)

    assert base.read_bytes() == again.read_bytes()
