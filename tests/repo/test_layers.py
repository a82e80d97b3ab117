"""The import contracts of pyproject.toml find what they are there to find."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"

pytestmark = pytest.mark.skipif(
    not LINT_IMPORTS.exists(), reason="needs import-linter beside the Python that runs this"
)


@pytest.mark.parametrize(
    ("module", "planted", "contract"),
    [
        ("prompt/planted.py", "import prompt_sidecar.trim.policy", "The way of a prompt"),
        ("providers/planted.py", "import prompt_sidecar.prompt.items", "The way of a prompt"),
        ("trim/planted.py", "import prompt_sidecar.facts.trim_calls", "The way of a prompt"),
        ("planted.py", "", "The way of a prompt"),
        ("engine/steps/planted.py", "import prompt_sidecar.v1.trim_pb2", "Wire types stay at the edges"),
        ("engine/runs/planted.py", "import grpc", "Up to engine/"),
        ("trim/planted.py", "import opentelemetry.trace", "Up to engine/"),
        ("recall/planted.py", "import socket", "Up to engine/"),
        ("facts/planted.py", "import asyncio", "Up to engine/"),
        ("engine/steps/planted.py", "import ssl", "Up to engine/"),
        ("engine/tools/planted.py", "import http.client", "Up to engine/"),
        ("engine/runs/planted.py", "import prometheus_client", "Only telemetry knows"),
        ("config/planted.py", "import prompt_sidecar.app", "The way of a prompt"),
        ("doors/grpc/planted.py", "import prompt_sidecar.config.settings", "The way of a prompt"),
        ("report/planted.py", "import prompt_sidecar.cli.commands", "The way of a prompt"),
        ("cli/planted.py", "import prompt_sidecar.v1.trim_pb2", "Wire types stay at the edges"),
        ("client/planted.py", "import prompt_sidecar.errors", "The client, integrations"),
        ("doors/grpc/planted.py", "import prompt_sidecar.client.options", "The client is for agents"),
        ("cli/planted.py", "import prompt_sidecar.integrations.naming", "Integrations are for agents"),
        ("integrations/planted.py", "import prompt_sidecar.errors", "The client, integrations"),
        ("mcp/planted.py", "import prompt_sidecar.engine.runs.service", "The client, integrations"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, module: str, planted: str, contract: str) -> None:
    """An import against the direction, a module without a layer, a wire type or I/O in the core breaks a contract."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "sidecar", tmp_path / "sidecar", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "sidecar" / "prompt_sidecar" / module).write_text(planted)

    result = subprocess.run(
        [LINT_IMPORTS, "--no-logo", "--no-cache"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "sidecar")},
        capture_output=True,
        text=True,
        check=False,
    )

    # Long names wrap, so that their end and the verdict stand on the next line.
    lines = result.stdout.splitlines()
    verdicts = [" ".join(lines[at : at + 2]) for at, line in enumerate(lines) if line.startswith(contract)]
    assert 1 == result.returncode
    assert any("BROKEN" in verdict for verdict in verdicts), result.stdout
