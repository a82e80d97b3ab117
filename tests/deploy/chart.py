"""Write deploy/kubernetes/standalone from the Helm chart: python -m tests.deploy.chart [--check]."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.deploy.helm import CHART, install
from tests.lab.harness.components import ROOT

STANDALONE: Final = ROOT / "deploy" / "kubernetes" / "standalone"
VALUES: Final = {
    "key": {"create": False, "existingSecret": "prompt-sidecar"},
    "auth": {
        "tokens": {"create": False},
        "tls": {"existingSecret": "prompt-sidecar-tls", "clientCertificates": True},
    },
    "doors": {"envoy": {"enabled": True}},
}
"""The kustomization's values: a Secret for the key, TLS with client certificates, all three doors."""
_HELMS: Final = re.compile(
    r"^ *(?:app\.kubernetes\.io/(?:instance|version|managed-by)|helm\.sh/chart): .*\n", re.MULTILINE
)  # fmt: skip
_IMAGE: Final = re.compile(r'image: "[^"]+/prompt-sidecar:[^"]+"')


def rendered() -> Mapping[str, str]:
    """Return the files of the kustomization that the chart makes, by name."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = install(VALUES, Path(folder)).manifest
    files: dict[str, list[str]] = {}
    for piece in manifest.split("---\n# Source: ")[1:]:
        source, _, text = piece.partition("\n")
        # Labels that say which release an object is of; images are the kustomization's.
        text = _IMAGE.sub("image: prompt-sidecar", _HELMS.sub("", text)).strip("\n")
        files.setdefault(source.rpartition("/")[2], []).append(text + "\n")
    head = f"# Made by `make chart` from {CHART.relative_to(ROOT)}; changes here are lost.\n"
    return {name: head + "---\n".join(pieces) for name, pieces in sorted(files.items())}


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a file is not current")
    check = parser.parse_args().check
    stale = 0
    for name, text in rendered().items():
        path = STANDALONE / name
        if path.is_file() and text == path.read_text("utf-8"):
            continue
        stale += 1
        if check:
            print(f"{path.relative_to(ROOT)} is not what the chart makes: run make chart")
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
