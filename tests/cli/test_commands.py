"""The command line: help, version, check-config. `presets`, `probe` and `replay` have files of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from prompt_sidecar.cli.commands import main
from tests.cli.running import PATIENCE, environment, run


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    """The help shows each command and an example of it."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    shown = capsys.readouterr().out
    assert 0 == ended.value.code
    for command in ("serve", "probe", "presets", "check-config", "replay"):
        assert f"prompt-sidecar {command}" in shown


@pytest.mark.parametrize("arguments", [[], ["nonesuch"], ["serve", "--nonesuch"], ["probe", "--timeout", "soon"]])
def test_bad_flags(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A command line that cannot be read ends with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert 2 == ended.value.code
    assert "usage:" in capsys.readouterr().err


def test_version() -> None:
    """--version prints one line."""
    shown = run("--version")
    assert (0, 1) == (shown.returncode, len(shown.stdout.splitlines()))
    assert shown.stdout.startswith("prompt-sidecar ")


def test_light_commands_load_no_tokenizer() -> None:
    """Help, check-config and probe start without gRPC's server, the tokenizer or the core."""
    code = (
        "import sys; from prompt_sidecar.cli.commands import main; main(['check-config']); main(['presets']);"
        "print(sorted({'grpc', 'tiktoken', 'prompt_sidecar.runs.service',"
        " 'prompt_sidecar.server.lifecycle'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert "[]" == ended.stdout.splitlines()[-1]


def test_check_config_shows_what_is_in_force() -> None:
    """Every setting is shown as TOML with its source, and the key masked."""
    shown = run("check-config", "--set", "server.workers=3", KEY="0123456789abcdef", LIMITS__TIME_TO_LIVE="2h")
    assert 0 == shown.returncode
    assert "0123456789abcdef" not in shown.stdout
    values = tomllib.loads(shown.stdout)
    assert (3, "120m", "…") == (values["server"]["workers"], values["limits"]["time_to_live"], values["key"])
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert lines["server.workers"].endswith("# --set server.workers")
    assert lines["limits.time_to_live"].endswith("# PROMPT_SIDECAR_LIMITS__TIME_TO_LIVE")
    assert lines["policy.fit_high"].endswith("# preset cache_first")


def test_check_config_explains_the_policy() -> None:
    """After the settings: the preset, what was changed and by whom, what happens to a prompt, what makes no sense."""
    ended = run("check-config", "--preset", "lean", "--set", "policy.registry_share=0.01", POLICY__FIT_LOW="0.44")
    assert (0, "") == (ended.returncode, ended.stderr)
    told = [line.removeprefix("# ") for line in ended.stdout.splitlines() if line.startswith("#")]
    assert "The policy is preset lean (--set policy.preset), with:" in told
    assert "  fit_low = 0.44, as the preset has it (PROMPT_SIDECAR_POLICY__FIT_LOW)" in told
    assert "  registry_share = 0.01, in place of 0.0 (--set policy.registry_share)" in told
    assert any(line.startswith("- At every call, whatever room there is") for line in told)
    assert 1 == sum(line.startswith("warning: policy.registry_share is above 0") for line in told)
    tomllib.loads(ended.stdout)


def test_check_config_refuses(tmp_path: Path) -> None:
    """A faulty file ends check-config with exit code 2 and its path."""
    path = tmp_path / "f.toml"
    path.write_text("[server]\nlisten = 7\n")
    ended = run("check-config", "--config", str(path))
    assert (2, "") == (ended.returncode, ended.stdout)
    assert str(path) in ended.stderr


def test_a_fault_of_our_own_is_not_taken_for_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the package that cannot be imported is raised: no installation of dependencies would help."""
    monkeypatch.setitem(sys.modules, "prompt_sidecar.config.settings", None)
    with pytest.raises(ImportError, match="prompt_sidecar"):
        main(["check-config"])


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    """Output into a pipe that closes, as with `| head`, ends quietly."""
    messages = [{"role": role, "content": "Look."} for role in ("user", "assistant")] * 800
    path = tmp_path / "run.json"
    path.write_text(json.dumps(messages))
    command = [sys.executable, "-m", "prompt_sidecar", "replay", str(path), "--limit", "4000"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
        assert 0 == process.wait(PATIENCE)
