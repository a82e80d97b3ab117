"""The languages: what each needs on the machine, and how its agent is built and run as docs/clients.md tells."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "clients.md"
EXAMPLE = ("127.0.0.1:7717", "log.txt")
"""The arguments with which the document runs each agent."""
PATIENCE = 900.0
"""Seconds for a build; C++ and Java take half a minute on two idle cores."""

_NO_REGISTRY = re.compile(r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT)\b")


@dataclass(frozen=True, slots=True)
class Language:
    """One language's agent, in the folder of that name."""

    name: str
    heading: str
    """Of its section in the document."""
    programs: tuple[str, ...]
    """What its build and its agent run."""
    files: tuple[str, ...] = ()
    """Of libraries, where no program tells that they are there."""
    builds: bool = True
    """Whether there is something to build."""
    unix: bool = True
    """Whether its gRPC reaches a unix socket with what the build installs."""
    leaves_out: bool = False
    """Whether it does as the client in Python does: it sends only new messages, leaves the oldest iterations out where
    there is no sidecar, and stops calling one that is down."""

    @property
    def folder(self) -> Path:
        """Its sources."""
        return Path(__file__).parent / self.name

    @property
    def missing(self) -> list[str]:
        """What this machine lacks."""
        return [program for program in self.programs if shutil.which(program) is None] + [
            file for file in self.files if not Path(file).exists()
        ]

    @property
    def section(self) -> str:
        """Its section of the document. Raises AssertionError where there is none."""
        found = re.search(rf"(?ms)^## {re.escape(self.heading)}$(.*?)(?=^## |\Z)", DOCUMENT.read_text())
        assert found, f"docs/clients.md has no section {self.heading}"
        return found[1]

    def block(self, title: str) -> str:
        """The shell commands under a subheading of its section. Raises AssertionError where there is none."""
        found = re.search(rf"(?ms)^{re.escape(title)}:\n\n```sh\n(.*?)^```$", self.section)
        assert found, f"docs/clients.md has no block {title!r} in its section {self.heading}"
        return found[1]

    def command(self, *arguments: str) -> list[str]:
        """The command that runs the built agent: the document's, with other arguments."""
        words = shlex.split(self.block("Run"))
        assert EXAMPLE == tuple(words[-2:])
        program = [sys.executable if word == "python" else word for word in words[:-2]]
        return ["env", *program, *arguments]  # env takes the words NAME=VALUE before the program


LANGUAGES = (
    Language("node", "Node and TypeScript", ("node", "npm", "npx")),
    Language("connect", "Connect in Node", ("node", "npm", "npx", "protoc")),
    Language(
        "go",
        "Go",
        ("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc"),
        ("/usr/share/gocode/src/google.golang.org/grpc", "/usr/share/gocode/src/google.golang.org/protobuf"),
    ),
    Language(
        "cpp",
        "C++",
        ("g++", "pkg-config", "protoc", "grpc_cpp_plugin"),
        ("/usr/include/grpcpp/grpcpp.h", "/usr/include/google/protobuf/message.h"),
    ),
    Language(
        "java",
        "Java",
        ("java", "javac", "protoc", "grpc_java_plugin"),
        tuple(
            f"/usr/share/java/{jar}.jar"
            for jar in ("grpc-netty", "protobuf", "gson", "netty-codec-http2", "perfmark-api")
        ),
        unix=False,
    ),
    Language("python", "Python", (), builds=False, leaves_out=True),
)


def built(language: Language, base: Path) -> Path:
    """The folder with the built agent; the first that asks builds it, with the document's commands.

    What this machine lacks is a reason to skip, and in CI to fail.

    Args:
        language: whose.
        base: a folder that all workers of this test session share.
    """
    if language.missing:
        reason = f"{', '.join(language.missing)} missing: .ci/install-clients installs what {language.heading} needs"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = base / f"client-{language.name}"
    output = base / f"client-{language.name}.log"
    with (base / f"client-{language.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            _build(language, folder, output)
    code, _, output_text = output.read_text().partition("\n")
    if code != "0" and not os.environ.get("CI") and _NO_REGISTRY.search(output_text):
        pytest.skip("the npm registry does not answer")
    assert "0" == code, output_text
    return folder


def _build(language: Language, folder: Path, output: Path) -> None:
    """Run the document's commands in a folder of their own; write the exit code and what they printed."""
    shutil.copytree(
        language.folder, folder, ignore=shutil.ignore_patterns("node_modules", "gen", "dist", "__pycache__")
    )
    shutil.copytree(ROOT / "protos", folder / "protos")
    commands = language.block("Build") if language.builds else ""
    ended = subprocess.run(
        ["sh", "-eux"],
        input=commands,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
        check=False,
    )
    output.write_text(f"{ended.returncode}\n{ended.stdout}")
