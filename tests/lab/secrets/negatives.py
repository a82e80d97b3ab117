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
FOURTH_PYTHON: Final = [
    "acme==5.9.0",
    "alembic==1.20.1",
    "asyncssh==2.24.1",
    "botocore==1.44.8",
    "bottle==0.13.4",
    "buildbot==4.3.0",
    "certbot==5.8.0",
    "click==8.5.1",
    "dash==4.4.1",
    "django_allauth==65.22.1",
    "django_oauth_toolkit==3.4.1",
    "djangorestframework==3.18.3",
    "dulwich==1.2.21",
    "graphene==3.4.3",
    "httpie==3.2.4",
    "kafka_python==3.0.12",
    "langgraph==1.2.24",
    "ldap3==2.9.1",
    "litellm==1.110.2",
    "locust==2.47.0",
    "marshmallow==4.4.0",
    "mitmproxy==11.0.2",
    "moto==5.2.5",
    "networkx==3.6.1",
    "passlib==1.7.4",
    "pika==1.4.4",
    "praw==8.0.3",
    "prefect==3.9.1",
    "psycopg2==2.9.13",
    "pygithub==2.10.0",
    "pymysql==1.2.4",
    "pysaml2==7.5.5",
    "python_gitlab==8.6.0",
    "python_jose==3.5.0",
    "rich==15.0.0",
    "sanic==25.12.1",
    "slack_sdk==3.48.0",
    "trio==0.35.0",
    "tweepy==4.17.0",
    "twine==7.0.0",
    "uvicorn==0.54.0",
    "werkzeug==3.1.9",
]
FOURTH_NODE: Final = [
    "react-dom@19.3.1",
    "vue@3.5.45",
    "svelte@5.57.3",
    "rollup@4.68.8",
    "esbuild@0.28.2",
    "@babel/core@7.29.13",
    "prettier@3.10.1",
    "mocha@12.0.3",
    "jest-cli@30.5.2",
    "puppeteer-core@24.43.1",
    "sequelize@6.37.8",
    "typeorm@1.1.1",
    "knex@3.3.0",
    "ioredis@6.0.0",
    "bcryptjs@3.0.3",
    "pm2@7.0.4",
    "hexo@8.1.2",
    "auth0-js@10.2.1",
    "oidc-client-ts@3.5.0",
    "@azure/msal-browser@5.30.0",
    "simple-oauth2@5.1.0",
    "grant@5.4.24",
    "aws-sdk@2.1693.0",
    "googleapis@178.0.0",
    "@google-cloud/storage@7.22.0",
    "@slack/web-api@8.2.0",
    "discord.js@14.28.1",
    "node-red@4.1.15",
    "n8n-workflow@2.41.0",
    "@hapi/hapi@21.4.10",
    "restify@11.1.0",
    "swagger-ui-dist@5.35.0",
    "mermaid@11.17.2",
    "highlight.js@11.12.0",
    "codemirror@6.0.2",
    "pdfjs-dist@5.6.205",
    "monaco-editor@0.57.0",
    "chart.js@4.6.1",
    "bootstrap@5.3.9",
    "jquery@4.0.0",
    "@strapi/core@5.54.0",
    "ghost@5.130.6",
    "keycloak-js@26.2.4",
    "superagent@10.4.2",
    "got@14.6.6",
    "nock@15.0.2",
    "pouchdb@9.0.0",
    "sails@1.5.18",
    "meteor-node-stubs@1.2.30",
    "cypress@15.3.0",
    "web3@4.16.0",
    "ethers@6.17.0",
    "firebase@13.2.0",
    "supabase@3.1.0",
    "@supabase/supabase-js@2.109.0",
    "langchain@1.5.14",
    "@anthropic-ai/sdk@1.14.0",
    "ai@6.0.326",
]
FOURTH_SOURCES: Final = [
    "caddy=2.6.2",
    "curl=7.88.1",
    "docker.io=20.10.24+dfsg1",
    "dovecot=2.3.19.1+dfsg1",
    "etcd=3.4.23",
    "freeradius=3.2.1+dfsg",
    "gradle=4.4.1",
    "keepassxc=2.7.4+dfsg.1",
    "libspring-java=4.3.30",
    "maven=3.8.7",
    "mosquitto=2.0.11",
    "nginx=1.22.1",
    "openssh=9.2p1",
    "openvpn=2.6.14",
    "php-laravel-framework=8.83.26+dfsg",
    "phpmyadmin=5.2.1+dfsg",
    "prometheus=2.42.0+ds",
    "rabbitmq-server=3.10.8",
    "rails=6.1.7.10+dfsg",
    "rclone=1.60.1+dfsg",
    "redis=7.0.15",
    "restic=0.14.0",
    "ruby-devise=4.8.1",
    "rust-ripgrep=13.0.0",
    "squid=5.7",
    "strongswan=5.9.8",
    "symfony=5.4.53+dfsg",
    "wordpress=6.1.9+dfsg1",
]
"""The fourth set, which `gather` does not fetch: of Python twelve source archives and thirty wheels, packages of npm,
and the upstream parts of Debian's source packages; of each at most a megabyte, of files chosen by their names."""
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
