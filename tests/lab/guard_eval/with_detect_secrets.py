"""Runs in an environment of its own: reads texts from a JSON file, writes what detect-secrets finds in each.

Usage: python with_detect_secrets.py TEXTS.json FOUND.json
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def main(source: str, target: str) -> None:
    """Write for each text a list of the lines that its default plugins and filters report."""
    collection: Any = importlib.import_module("detect_secrets.core.secrets_collection")
    settings: Any = importlib.import_module("detect_secrets.settings")
    found = []
    with tempfile.TemporaryDirectory() as folder, settings.default_settings():
        file = Path(folder) / "text.txt"
        for text in json.loads(Path(source).read_text(encoding="utf-8")):
            file.write_bytes("\n".join(text.splitlines()).encode(errors="replace"))
            secrets = collection.SecretsCollection()
            secrets.scan_file(str(file))
            found.append([[secret.line_number, secret.type] for _, secret in secrets])
    Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
