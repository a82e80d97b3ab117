"""Where the real components come from: what is installed is taken, else what the script `.ci/promtool` unpacked.

Nothing is installed on the machine: Debian's package is unpacked into a folder, and its services never start.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
CACHE = ROOT / ".cache"
"""What was fetched, and what was built from it. Git ignores it; removing it costs one more download."""


class Missing(Exception):
    """A component is neither installed nor can be fetched; the message says what would help."""


def prometheus() -> Path:
    """The Prometheus server.

    Raises:
        Missing: see there.
    """
    if installed := shutil.which("prometheus"):
        return Path(installed)
    beside = promtool().with_name("prometheus")
    if not beside.is_file():
        raise Missing(f"promtool is installed, but not the server: there is no {beside}")
    return beside


def promtool() -> Path:
    """Prometheus's tool that checks rules and metrics.

    Raises:
        Missing: see there.
    """
    found = subprocess.run([ROOT / ".ci" / "promtool"], capture_output=True, text=True, check=False)
    if found.returncode:
        raise Missing(found.stderr.strip())
    return Path(found.stdout.strip())


def rotel() -> Path:
    """The OpenTelemetry collector rotel, which comes as a Python package.

    Raises:
        Missing: see there.
    """
    agent = _rotel()
    tried = subprocess.run([agent, "--version"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise Missing(
            f"the collector rotel does not start ({tried.stderr.strip()}); on Debian, see .ci/install-clients"
        )
    return agent


def _rotel() -> Path:
    if installed := shutil.which("rotel-agent"):
        return Path(installed)
    found = importlib.util.find_spec("rotel")
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (agent := Path(folder) / "rotel-agent").is_file():
            return agent
    raise Missing("the collector rotel is not installed; `pip install rotel`, or run `make observe`, which brings it")
