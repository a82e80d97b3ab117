"""The Go program of docs/go.md: built with the page's command for the stubs, run against a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.languages import LANGUAGES, PATIENCE
from tests.docs.pages import ROOT, blocks
from tests.doors.grpc.serving import serving


def test_it_prints_a_trimmed_prompt(tmp_path: Path) -> None:
    """Without modules, as Debian's Go packages are used; with modules the same files stand in the same places."""
    (go,) = [language for language in LANGUAGES if language.name == "go"]
    if go.missing:
        reason = f"{', '.join(go.missing)} missing: .ci/install-clients installs what Go needs"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path / "src" / "prompt-sidecar"
    folder.mkdir(parents=True)
    environment = os.environ | {
        "CHECKOUT": str(ROOT),
        "GO111MODULE": "off",
        "GOPATH": f"{tmp_path}:/usr/share/gocode",
        "GOFLAGS": "",
    }
    (code,) = [block.code for block in blocks("go") if block.page == "docs/go.md"]
    (shell,) = [block.code for block in blocks("sh") if block.page == "docs/go.md"]
    stubs = re.search(r"(?m)^PATH=.+ protoc (?:.*\\\n)*.*$", shell)
    assert stubs
    with serving() as served:
        (folder / "main.go").write_text(code.replace("127.0.0.1:7717", served.address))
        ended = subprocess.run(
            ["sh", "-eux"],
            input=f"{stubs[0]}\ngofmt -l . | grep main && exit 1\ngo vet .\ngo run .\n",
            cwd=folder,
            env=environment,
            text=True,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    assert 0 == ended.returncode, ended.stderr
    assert "action:TRIM_ACTION_ELIDED" in ended.stdout
    assert ended.stdout.rstrip().endswith("<nil>")
