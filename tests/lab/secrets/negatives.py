"""Real text without secrets: the standard library, installed packages, lock files, and outputs that agents have seen.

`gather` fetches pinned packages through the clients of their registries and unpacks them; nothing of them is run. The
files are split by their names: rules are tuned on one half, and figures are of the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PYTHON: Final = (
    *("django==5.2.8", "twisted==25.5.0", "boto3==1.40.70", "ansible-core==2.19.4", "paramiko==4.0.0", "pip==25.3"),
    *(
        "requests==2.32.5",
        "cryptography==46.0.3",
        "aiohttp==3.13.2",
        "scrapy==2.13.3",
        "celery==5.5.3",
        "keyring==25.6.0",
    ),
    *("google-auth==2.43.0", "azure-identity==1.25.1", "kubernetes==34.1.0", "openai==2.8.0", "fastapi==0.121.2"),
)
NODE: Final = (
    *("express@5.1.0", "typescript@5.9.3", "axios@1.13.2", "lodash@4.17.21", "passport@0.7.0", "jsonwebtoken@9.0.2"),
    *("mongoose@8.19.3", "next-auth@4.24.13", "verdaccio@6.2.1", "serverless@3.40.0", "firebase-admin@13.6.0"),
)
LOCKED: Final = {"react-scripts": "5.0.1", "next": "15.5.6", "serverless": "3.40.0", "eslint": "9.39.1", "nx": "21.6.8"}
"""What a `package-lock.json` is made for, by npm."""
ENDINGS: Final = frozenset(
    [
        ".py",
        ".pyi",
        ".js",
        ".mjs",
        ".cjs",
        ".ts",
        ".json",
        ".md",
        ".rst",
        ".txt",
        ".toml",
        ".yaml",
        ".yml",
        ".cfg",
        ".ini",
        ".html",
        ".css",
        ".xml",
        ".sh",
        ".lock",
        ".po",
        ".log",
        ".csv",
        ".sql",
        ".svg",
        ".map",
    ]
)
LARGEST: Final = 400_000
"""Characters of a file that are read."""


def gather(folder: Path) -> None:
    """Fetch what is not there yet.

    Raises `subprocess.CalledProcessError` if a registry lacks something.
    """
    archives, texts = folder / "archives", folder / "texts"
    archives.mkdir(parents=True, exist_ok=True)
    wheels = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(archives)]
    subprocess.run([*wheels, *PYTHON], check=True)
    for name in NODE:
        subprocess.run(["npm", "pack", "--silent", name], cwd=archives, check=True, stdout=subprocess.DEVNULL)
    for path in sorted(archives.iterdir()):
        target = texts / path.stem
        if target.exists():
            continue
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                archive.extractall(target)
        else:
            with tarfile.open(path) as packed:
                packed.extractall(target, filter="data")
    lock = texts / "locked"
    lock.mkdir(parents=True, exist_ok=True)
    (lock / "package.json").write_text(json.dumps({"name": "locked", "version": "1.0.0", "dependencies": LOCKED}))
    if not (lock / "package-lock.json").exists():
        options = ["--package-lock-only", "--ignore-scripts", "--legacy-peer-deps", "--silent"]
        subprocess.run(["npm", "install", *options], cwd=lock, check=True)


def files(folder: Path, *, tuning: bool) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each file of a half, in order."""
    roots = [Path(sysconfig.get_path("stdlib")), folder / "texts"]
    for root in roots:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix not in ENDINGS or "site-packages" in name or not path.is_file():
                continue
            if (zlib.crc32(name.encode()) % 2 == 0) == tuning:
                yield name, path.read_text(encoding="utf-8", errors="replace")[:LARGEST]


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
