"""Build a release and try it as a stranger would: python -m tests.deploy.release.

Nothing is published. The wheel and the source archive are built into a folder, each is installed into a clean
environment with the versions that the image holds, and the first commands of README.md run there, outside of the
checkout. Beside them are written a bill of materials (CycloneDX) and the licences of the packages that the image holds,
by tools that others maintain, in an environment of their own.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uv

from tests.cli.running import Program
from tests.docs.pages import blocks
from tests.lab.harness.components import ROOT
from tests.lab.harness.environments import Unavailable, environment
from tests.lab.harness.processes import free_port

REQUIREMENTS: Final = ROOT / "deploy" / "requirements"
TOOLS: Final = Path(__file__).parent / "requirements"
CACHE: Final = ROOT / ".cache" / "deploy"
PACKAGE: Final = "prompt_sidecar"
EXTRAS: Final = "[server,admin,fast,http,store]"
"""What the image has (`deploy/Dockerfile`)."""
PATIENCE: Final = 300.0
"""Seconds for one program; an installation takes longest."""
START_SECONDS: Final = 60.0
"""Patience with a server's start."""
DATA: Final = frozenset(
    {
        "client/ranges.json",
        "client/schema.binpb",
        "doors/admin/pages/base.html.jinja",
        "doors/admin/pages/item.html.jinja",
        "doors/admin/pages/page.css",
        "doors/admin/pages/run.html.jinja",
        "doors/admin/pages/runs.html.jinja",
        "providers/catalogue.tsv",
        "py.typed",
        "report/page.css",
        "report/page.html.jinja",
        "report/page.js",
    }
)
"""Files of the package that are no code: a new one is added here, so that nothing gets into a release by accident."""
NEEDED: Final = frozenset({"v1/service_pb2.py", "v1/service_pb2.pyi", "v1/service_pb2_grpc.py", "__main__.py"}) | DATA
TOP_OF_SOURCES: Final = frozenset(
    {".ci", ".gitignore", "LICENSE", "Makefile", "PKG-INFO", "dashboards", "deploy", "docs", "protos", "pyproject.toml"}
    | {"sidecar", "tests"}
)
"""What a source archive holds at its top, besides pages."""


class Failed(Exception):
    """A step of the release failed; the text says which and why."""


def version() -> str:
    """Return the project's version."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def wrong_in_wheel(names: Collection[str], protos: Collection[str]) -> list[str]:
    """What is wrong with the list of a wheel's files; `protos` are those that clients need."""
    own = [name.partition("/")[2] for name in names if name.startswith(f"{PACKAGE}/")]
    code = (".py", ".pyi")
    unknown = [name for name in own if not name.endswith(code) and name not in DATA and name not in protos]
    tests = [name for name in names if re.search(r"(^|/)(tests?/|test_|conftest)", name)]
    apart = [name for name in names if not name.startswith((f"{PACKAGE}/", f"{PACKAGE}-")) or "__pycache__" in name]
    licence = any(re.search(r"\.dist-info/licenses/LICENSE$", name) for name in names)
    return [
        *(f"{name} is missing" for name in sorted((NEEDED | set(protos)) - set(own))),
        *(f"{name} is a test" for name in tests),
        *(f"{name} is outside of the package" for name in apart),
        *(f"{name} is no code, and not in the list of known files (DATA)" for name in unknown),
        *([] if licence else ["the licence is missing"]),
    ]


def wrong_in_sources(names: Iterable[str]) -> list[str]:
    """What is wrong with the list of a source archive's files, without the folder that all are in."""
    paths = [Path(name) for name in names]
    tops = sorted({path.parts[0] for path in paths})
    made = [str(path) for path in paths if {"__pycache__", ".cache", ".venv", "dist"} & set(path.parts)]
    return [
        *(f"{top} has no place in it" for top in tops if top not in TOP_OF_SOURCES and not top.endswith(".md")),
        *(f"{name} was made by a program" for name in made),
        *(f"{name} is missing" for name in ("pyproject.toml", "README.md", "LICENSE", "sidecar") if name not in tops),
    ]


def readme_program() -> str:
    """Return the README's program that trims a prompt without a model.

    Raises:
        Failed: there is not one such program.
    """
    found = [block.code for block in blocks("python") if block.page == "README.md" and "client.trim(" in block.code]
    if len(found) != 1:
        raise Failed(f"README.md must have one Python program with client.trim, and has {len(found)}")
    return found[0]


def readme_serve() -> list[str]:
    """Return the words of the README's command that starts a server.

    Raises:
        Failed: there is none.
    """
    for block in blocks("sh"):
        for line in block.code.splitlines() if block.page == "README.md" else ():
            if line.startswith("prompt-sidecar serve --http"):
                return line.partition("#")[0].split()
    raise Failed("README.md has no command `prompt-sidecar serve --http …`")


def run(what: str, *command: str, cwd: Path = ROOT, variables: Mapping[str, str] | None = None) -> str:
    """Run a program to its end; return what it printed.

    Raises:
        Failed: it ended with another exit code than 0, or took too long.
    """
    try:
        done = subprocess.run(
            command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{what} took more than {PATIENCE:.0f} s") from None
    if done.returncode:
        last = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-15:])
        raise Failed(f"{what} ended with exit code {done.returncode}:\n{last}")
    return done.stdout


class Release:
    """The steps, in order. `step` says on the terminal what begins."""

    def __init__(self, into: Path, scratch: Path, steps: int) -> None:
        self.into = into
        self.version = version()
        self._scratch = scratch
        self._steps = steps
        self._done = 0
        self._began = time.monotonic()
        clean = {name: os.environ[name] for name in ("LANG", "UV_CACHE_DIR") if name in os.environ}
        ways = ("PIP_", "UV_", "SSL_", "HTTP_", "HTTPS_", "NO_", "http_", "https_", "no_")
        # How a package index is reached is the machine's; nothing else of it is known to what is tried.
        self._index = {name: value for name, value in os.environ.items() if name.startswith(ways)}
        self._variables = clean | {"PATH": os.defpath, "HOME": str(scratch), "TMPDIR": str(scratch)}

    def step(self, what: str) -> None:
        """Say what begins."""
        self._done += 1
        seconds = time.monotonic() - self._began
        print(f"[{self._done}/{self._steps}] {seconds:>4.0f} s  {what}", flush=True)

    @property
    def wheel(self) -> Path:
        """The wheel."""
        return self.into / f"{PACKAGE}-{self.version}-py3-none-any.whl"

    @property
    def sources(self) -> Path:
        """The source archive."""
        return self.into / f"{PACKAGE}-{self.version}.tar.gz"

    def build(self) -> None:
        """Build both, by the pinned build tool that is installed here.

        Raises:
            Failed: the build failed, or gave files of other names.
        """
        self.step(f"build the wheel and the source archive of {self.version} into {self.into.name}/")
        self.into.mkdir(parents=True, exist_ok=True)
        targets = ("--target", "sdist", "--target", "wheel", "--directory", str(self.into))
        run("the build", sys.executable, "-m", "hatchling", "build", *targets)
        for path in (self.wheel, self.sources):
            if not path.is_file():
                raise Failed(f"the build wrote no {path.name}")

    def look(self) -> None:
        """Look at what both hold.

        Raises:
            Failed: something is missing, or has no place there.
        """
        self.step("look at what they hold")
        protos = {path.relative_to(ROOT).as_posix() for path in (ROOT / "protos" / PACKAGE).rglob("*.proto")}
        with zipfile.ZipFile(self.wheel) as archive:
            wrong = wrong_in_wheel(archive.namelist(), protos)
        with tarfile.open(self.sources) as sources:
            wrong += wrong_in_sources(member.name.partition("/")[2] for member in sources if member.isfile())
        if wrong:
            raise Failed("\n".join(wrong[:20]))

    def install(self, name: str) -> Path:
        """Install the wheel or the sources (`name`) into a clean environment; return the environment's programs.

        All versions but the package's own are the image's, held against their hashes.

        Raises:
            Failed: it cannot be installed, or these versions do not satisfy it.
        """
        self.step(f"install the {name} into a clean environment, with the image's versions of other packages")
        folder = self._scratch / name
        pip = (uv.find_uv_bin(), "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"))
        tool = self._variables | self._index
        run("making an environment", uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, str(folder))
        pins = [REQUIREMENTS / "server.txt", *([REQUIREMENTS / "build.txt"] if name == "sources" else [])]
        files = [word for file in pins for word in ("--requirement", str(file))]
        run("installing the other packages", *pip, "--require-hashes", *files, variables=tool)
        kind = {
            "wheel": ("--only-binary", ":all:"),
            "sources": ("--no-binary", PACKAGE.replace("_", "-"), "--no-build-isolation"),
        }[name]
        # Without an index: what the package needs must be there already.
        found = ("--no-index", "--find-links", str(self.into), *kind)
        wanted = f"prompt-sidecar{EXTRAS}=={self.version}"
        run(f"installing the {name}", *pip, *found, wanted, variables=self._variables)
        return folder / "bin"

    def try_readme(self, name: str, programs: Path) -> None:
        """Run the README's first commands.

        Raises:
            Failed: one of them failed, or did not do what the README says.
        """
        self.step(f"run the README's first commands with the {name}: help, presets, check-config, serve, probe, trim")
        sidecar = str(programs / "prompt-sidecar")
        for words in (["--help"], ["presets"], ["check-config"], ["serve", "--help"]):
            self._run(f"prompt-sidecar {' '.join(words)}", sidecar, *words)
        output = self._run("prompt-sidecar --version", sidecar, "--version")
        if self.version not in output:
            raise Failed(f"`prompt-sidecar --version` prints {output.strip()!r}, and not {self.version}")
        with self._serving(sidecar) as address:
            self._run("prompt-sidecar probe", sidecar, "probe", "--address", address)
            program = self._scratch / f"{name}.py"
            program.write_text(readme_program().replace("127.0.0.1:7717", address), encoding="utf-8")
            printed = self._run("the README's Python program", str(programs / "python"), str(program))
        if not (found := re.search(r"(\d+) -> (\d+) tokens", printed)) or int(found[2]) >= int(found[1]):
            raise Failed(f"the README's Python program trimmed nothing: {printed.strip()!r}")

    def _run(self, what: str, *command: str) -> str:
        return run(what, *command, cwd=self._scratch, variables=self._variables)

    @contextmanager
    def _serving(self, sidecar: str) -> Iterator[str]:
        """Start the README's server on free ports; yield its address of gRPC.

        Raises:
            Failed: it does not become ready, or does not end by itself.
        """
        grpc, http, metrics = (f"127.0.0.1:{free_port()}" for _ in range(3))
        words = [http if word.startswith("127.0.0.1:") else word for word in readme_serve()[1:]]
        command = [sidecar, *words, "--listen", grpc, "--metrics", metrics]
        with subprocess.Popen(
            command, cwd=self._scratch, env=self._variables, stderr=subprocess.PIPE, text=True
        ) as process:
            server = Program(process)
            try:
                try:
                    server.wait_for("ready: listening on")
                except AssertionError as error:
                    raise Failed(f"the server did not become ready: {error}") from None
                server.keep_reading()
                yield grpc
                process.terminate()
                if code := process.wait(START_SECONDS):
                    raise Failed(f"the server ended with exit code {code} after SIGTERM")
            except subprocess.TimeoutExpired:
                raise Failed("the server did not end after SIGTERM") from None
            finally:
                process.kill()

    def describe(self, programs: Path) -> Sequence[Path]:
        """Write the bill of materials and the licences of the wheel's environment; return the files.

        Raises:
            Failed: a tool failed, or a package names no licence.
        """
        self.step("write the bill of materials and the licences of the packages that the image holds")
        try:
            tools = environment("release", CACHE, TOOLS).folder / "bin"
        except Unavailable as error:
            raise Failed(f"the tools that write them: {error}") from None
        python = str(programs / "python")
        stem = f"prompt-sidecar-{self.version}"
        bill, table, texts = (self.into / f"{stem}{end}" for end in (".cdx.json", "-licences.md", "-licences.txt"))
        project = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application", "--output-reproducible")
        self._run(
            "cyclonedx-py", str(tools / "cyclonedx-py"), "environment", *project, "--output-file", str(bill), python
        )
        licences = (str(tools / "pip-licenses"), "--python", python, "--from", "mixed", "--order", "name")
        licences_table = self._run("pip-licenses", *licences, "--format", "markdown")
        if unknown := re.findall(r"(?m)^\| (\S+) .*\bUNKNOWN\b", licences_table):
            raise Failed(f"no licence is known of {', '.join(unknown)}")
        table.write_text(licences_table, encoding="utf-8")
        whole = ("--format", "plain-vertical", "--with-license-file", "--with-notice-file", "--no-license-path")
        texts.write_text(self._run("pip-licenses", *licences, *whole), encoding="utf-8")
        return bill, table, texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Do all steps; return the exit code: 0 if nothing failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.deploy.release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: dist")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="release-") as scratch:
        release = Release(asked.into.resolve(), Path(scratch), steps=7)
        try:
            release.build()
            release.look()
            described: Sequence[Path] = ()
            for name in ("wheel", "sources"):
                programs = release.install(name)
                release.try_readme(name, programs)
                described = described or release.describe(programs)
        except Failed as error:
            print(f"release: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    for path in (release.wheel, release.sources, *described):
        print(f"  {path.stat().st_size:>11,} bytes  {path.name}")
    print("Nothing was published.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
