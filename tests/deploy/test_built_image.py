"""The image is built for real and started: it serves without root, capabilities or a disk to write to."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.building import built, need
from tests.deploy.contained import USER, container

MOST_ADDED = 110_000_000
"""Bytes that the image may add to its base, unpacked."""
ASK = """
from prompt_sidecar.client import Client
with Client("127.0.0.1:7717", fail_open=False, deadline=60) as client:
    messages = [{"role": "user", "content": "hello"}]
    for number in range(20):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "nothing to see here " * 100})
    made = client.trim("run", {"model": "gpt-4o", "messages": messages}, context_window=4_000)
    print(made.trimmed, made.fits)
"""


@pytest.mark.timeout(840)
def test_it_builds_and_serves(record_property: Callable[[str, object], None]) -> None:
    """In one go, as a build takes minutes: size, a start, a probe, a prompt, an end."""
    need()
    folder = Path(tempfile.mkdtemp(prefix="prompt-sidecar-image-"))
    try:
        image = built(folder)
        figures = f"{image.added_bytes / 1e6:.0f} MB above a base of {image.base_bytes / 1e6:.0f} MB"
        record_property("image", figures)

        with container(image) as running:
            running.program.wait_for("ready: listening on 127.0.0.1:7717")
            status = running.status()
            assert [USER] * 4 == status["Uid"].split()
            assert {"0" * 16} == {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
            assert "1" == status["NoNewPrivs"]
            assert "Read-only file system" in running.run("touch", "/opt/prompt-sidecar/new").stderr

            probed = running.run(*image.config["Healthcheck"]["Test"][1:])
            assert (0, "127.0.0.1:7717: SERVING\n") == (probed.returncode, probed.stdout), probed.stderr
            asked = running.run("python", "-c", ASK)
            assert "True True\n" == asked.stdout, asked.stderr

            assert 0 == running.stop(), running.program.lines
        assert image.added_bytes <= MOST_ADDED, figures
    finally:
        shutil.rmtree(folder)
