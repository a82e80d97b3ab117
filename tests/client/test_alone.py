"""The client in interpreters of its own: without the server, and with protobuf runtimes that agents have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.cli.running import environment
from tests.doors.grpc.serving import serving
from tests.repo.test_dependencies import client as dependencies
from tests.repo.test_dependencies import least

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("alone.py")
PATIENCE = 300.0
"""Seconds for an installation or a program; both take less than ten."""
EXPECTED = {
    "fits": True,
    "action": "clipped",
    "policy": False,
    "outcome": "hit",
    "found": "found",
    "tasks": ["pending"],
    "tool": "ok",
    "tools": 4,
    "year": True,
    "error": "INVALID_REQUEST max_snippets",
    "asyncio": True,
    "down": "UNAVAILABLE",
}
"""What `alone.py` tells, but for the version."""
OURS = ("prompt_sidecar.client", "prompt_sidecar.providers")
ALLOWED = ("google.protobuf", "google._upb", "grpc", *OURS, "typing_extensions")
"""What may be imported beside Python's own; gRPC has used typing_extensions since 1.73."""
BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        parents = [name.rsplit(".", n)[0] for n in range(name.count(".") + 1)]
        wanted = set(parents) & set({ALLOWED!r}) or name in ("prompt_sidecar", "google")
        if not wanted and name.split(".")[0] not in sys.stdlib_module_names:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
"""
OLDEST = [f"{name}=={least(requirement)}" for name, requirement in dependencies().items()]
VERSIONS = {"oldest": OLDEST, "protobuf 5": ["protobuf==5.*"], "protobuf 6": ["protobuf==6.*"], "newest": []}


def run(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program without this process's paths."""
    clean = {name: value for name, value in environment().items() if not name.startswith("PYTHON")}
    return subprocess.run(
        list(map(str, command)),
        cwd="/",
        env=clean | more,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def facts_of(*command: str | Path, **more: str) -> dict[str, Any]:
    """Run `alone.py` beside a real server; return what it told."""
    with serving() as served:
        ended = run(*command, served.address, **more)
    assert 0 == ended.returncode, ended.stderr
    seen: dict[str, Any] = json.loads(ended.stdout)
    return seen


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    if find_spec("hatchling") is None:
        pytest.skip("needs hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE)
    return next(folder.glob("*.whl"))


def test_nothing_of_the_server_is_imported() -> None:
    """With all other packages out of reach the client works all the same, and loads none of the server's modules."""
    code = (
        f"{BLOCKER}\nsys.path.insert(0, {str(ROOT / 'sidecar')!r})\nimport runpy\nsys.argv[0] = {str(PROGRAM)!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
        f"ours = {{m for m in sys.modules if m.startswith('prompt_sidecar') and not m.startswith({OURS!r})}}\n"
        "assert ours == {'prompt_sidecar'}, ours\n"
        "assert 'prompt_sidecar.providers.catalogue' not in sys.modules  # a large table\n"
    )

    seen = facts_of(sys.executable, "-c", code)

    assert EXPECTED == {name: seen[name] for name in EXPECTED}


def test_the_blocker_blocks() -> None:
    """Else the test above would show nothing."""
    for module in ("numpy", "opentelemetry.trace", "google.rpc.status_pb2", "prompt_sidecar.errors"):
        ended = run(sys.executable, "-c", f"{BLOCKER}\nsys.path.insert(0, {str(ROOT / 'sidecar')!r})\nimport {module}")
        assert "ImportError: blocked: " in ended.stderr, module


def test_the_runtime_written_in_python() -> None:
    """Platforms without a compiled protobuf have it in Python."""
    more = {"PYTHONPATH": str(ROOT), "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    seen = facts_of(sys.executable, PROGRAM, **more)

    assert EXPECTED == {name: seen[name] for name in EXPECTED}


@pytest.mark.parametrize("versions", VERSIONS.values(), ids=VERSIONS.keys())
def test_an_installation_of_the_client_alone(versions: list[str], wheel: Path, tmp_path: Path) -> None:
    """The wheel in a fresh environment, with the oldest versions that it asks for, ones between, and the newest."""
    venv.create(tmp_path / "v", symlinks=True)
    python = tmp_path / "v" / "bin" / "python"
    # The pip of this interpreter: one of its own takes longer to make than all the rest.
    pip = (sys.executable, "-m", "pip", "--python", python)
    installed = run(*pip, "install", "--quiet", "--only-binary", ":all:", wheel, *versions)
    if installed.returncode and not os.environ.get("CI") and "No matching distribution" in installed.stderr:
        pytest.skip("the package registry does not answer, or has not got these versions")
    assert 0 == installed.returncode, installed.stderr

    seen = facts_of(python, PROGRAM)
    version = Version(seen["protobuf"])
    assert EXPECTED == {name: seen[name] for name in EXPECTED}
    if versions == OLDEST:
        assert least(dependencies()["protobuf"]) == version
    packages = {each["name"].lower() for each in json.loads(run(*pip, "list", "--format=json").stdout)}
    assert packages <= {"grpcio", "protobuf", "prompt-sidecar", "typing-extensions", "typing_extensions"}
    typed = "import prompt_sidecar, pathlib; p = pathlib.Path(prompt_sidecar.__file__).parent; "
    held = "print((p / 'py.typed').exists(), (p / 'protos/prompt_sidecar/v1/trim.proto').exists())"
    assert "True True" == run(python, "-c", typed + held).stdout.strip()
    refused = run(tmp_path / "v" / "bin" / "prompt-sidecar", "serve")
    assert 2 == refused.returncode
    assert "pip install '.[server]' in a checkout" in refused.stderr
    assert 1 == len(refused.stderr.splitlines())
