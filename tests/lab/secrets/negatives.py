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
from collections.abc import Iterator, Sequence
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
LATER_PYTHON: Final = (
    *("flask==3.1.2", "httpx==0.28.1", "tornado==6.5.2", "redis==7.0.1", "pymongo==4.15.4", "hvac==2.4.0"),
    *("docker==7.1.0", "fabric==3.2.2", "mlflow-skinny==3.6.0", "langchain-core==1.0.5", "jupyter-server==2.17.0"),
    *("starlette==0.50.0", "pyramid==2.0.2", "minio==7.2.18", "pandas==2.3.3", "pydantic==2.12.4"),
)
LATER_NODE: Final = (
    *("fastify@5.6.2", "pg@8.16.3", "mysql2@3.15.3", "nodemailer@7.0.10", "vite@7.2.2", "webpack@5.102.1"),
    *("eslint@9.39.1", "parse-server@8.4.0", "openid-client@6.8.1", "nestjs@0.0.1"),
    *("@aws-sdk/client-s3@3.932.0", "@nestjs/core@11.1.9"),
)
LAST_PYTHON: Final = (
    *("bokeh==3.8.1", "apache-airflow-core==3.1.3", "dask==2025.11.0", "nltk==3.9.2", "jinja2==3.1.6"),
    *("sphinx==8.2.3", "gunicorn==23.0.0", "elasticsearch==9.2.0", "stripe==13.2.0", "twilio==9.8.7"),
    *("pyjwt==2.10.1", "oauthlib==3.3.1", "docker-compose==1.29.2", "azure-storage-blob==12.27.1"),
    "google-cloud-storage==3.6.0",
)
LAST_NODE: Final = (
    *("prisma@6.19.0", "koa@3.1.1", "socket.io@4.8.1", "ts-node@10.9.2", "webpack-dev-server@5.2.2"),
    *("playwright-core@1.56.1", "@octokit/rest@22.0.1", "stripe@20.0.0", "twilio@5.10.5", "jest-worker@30.2.0"),
)
"""Packages that no rule had seen when a set was read for the first time; then rules were tuned on them."""
SETS: Final = {"": (PYTHON, NODE), "later": (LATER_PYTHON, LATER_NODE), "last": (LAST_PYTHON, LAST_NODE)}
"""Packages by the folder under FOLDER that they are fetched into; the first set is split into two halves."""
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


def gather(folder: Path, python: Sequence[str] = PYTHON, node: Sequence[str] = NODE) -> None:
    """Fetch what is not there yet.

    Raises `subprocess.CalledProcessError` if a registry lacks something.
    """
    archives, texts = folder / "archives", folder / "texts"
    archives.mkdir(parents=True, exist_ok=True)
    wheels = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(archives)]
    subprocess.run([*wheels, *python], check=True)
    for name in node:
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
    for part, (wheels, packages) in SETS.items():
        gather(Path(sys.argv[1]) / part, wheels, packages)
