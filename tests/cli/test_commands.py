"""The command line: help, version, check-config. `presets`, `probe` and `replay` have files of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from prompt_sidecar.cli.commands import main
from prompt_sidecar.config.settings import SETTINGS
from tests.cli.running import PATIENCE, environment, run


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    """The help shows each command and an example of it."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    shown = capsys.readouterr().out
    assert 0 == ended.value.code
    for command in ("serve", "probe", "doctor", "presets", "models", "check-config", "replay"):
        assert f"prompt-sidecar {command}" in shown


@pytest.mark.parametrize(
    "command", ["serve", "wrap", "probe", "presets", "models", "check-config", "replay", "mcp", "guard", "condense"]
)
def test_the_help_of_a_command_teaches(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It has what the command does, an example, exit codes, and where settings come from if it takes any."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert 0 == ended.value.code
    before, _, after = shown.partition("\noptions:")
    assert len(before.split("\n\n")[1].split()) > 10  # the description
    assert f"\nexamples:\n  prompt-sidecar {command}" in after
    assert "\nexit codes: 0 " in after
    assert ("--set NAME=VALUE" in shown) == ("A setting comes from, the last one winning" in after)
    assert all(len(line) <= 120 for line in shown.splitlines())


def test_the_help_names_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    """Of settings with a flag of their own it says what they are without it."""
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name in ("server.listen", "http.listen", "server.socket", "envoy.listen", "policy.preset"):
        assert f"({name}; default: {SETTINGS[name].default or 'none'})" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: COMMAND"),
        (["nonesuch"], "'nonesuch'"),
        (["serve", "--nonesuch"], "--nonesuch"),
        (["probe", "--timeout", "soon"], "--timeout: 'soon' is not a time in seconds"),
        (["probe", "--timeout=nan"], "--timeout: 'nan' is not a time in seconds"),
        (["probe", "--address", "here"], "--address: 'here' is not host:port"),
        (["probe", "--address", "localhost:99999"], "--address: 'localhost:99999' is not host:port"),
        (["probe", "--address", "unix:"], "--address: 'unix:' is not host:port"),
        (["replay", "run.json", "--window", "0"], "--window: '0' is not a whole number of tokens"),
        (["replay", "run.json", "--prices", "1,2"], "--prices: '1,2' is not four prices of a million tokens"),
        (["replay", "run.json", "--price-cached=-1"], "--price-cached: '-1' is not a price"),
    ],
)
def test_bad_flags(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command line that cannot be read ends with exit code 2 and one line: argument, value, what is accepted."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert 2 == ended.value.code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("prompt-sidecar: ")
    assert words in line
    assert line.endswith("--help")


def test_a_peer_writes_nothing_to_stderr() -> None:
    """A connection that ends with an error of HTTP/2 and a text of the peer's."""
    settings, words = b"\0\0\0\4\0\0\0\0\0", b"\0\0\0\0\0\0\0\2written by the peer"
    goes_away = len(words).to_bytes(3, "big") + b"\7\0\0\0\0\0" + words

    def answer(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with contextlib.suppress(OSError), connection:
                    connection.recv(4_096)
                    connection.sendall(settings + goes_away)
                    connection.recv(4_096)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=answer, args=(listening,), daemon=True).start()
        ended = run("probe", "--address", f"127.0.0.1:{listening.getsockname()[1]}", "--timeout", "1")
        listening.shutdown(socket.SHUT_RDWR)
    assert 1 == ended.returncode
    assert 1 == len(ended.stderr.splitlines()), ended.stderr
    assert "written by the peer" not in ended.stderr


@pytest.mark.parametrize(
    "command", ["--version", "check-config", "check-config --example", "presets", "guard --rules", "replay run.json"]
)
def test_a_full_disk(command: str, tmp_path: Path) -> None:
    """Output that cannot be written is one line and exit code 1."""
    messages = [{"role": role, "content": "Look. " * 200} for role in ("user", "assistant")] * 100
    (tmp_path / "run.json").write_text(json.dumps(messages))
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "prompt_sidecar", *command.split()],
            env=environment() | {"PYTHONUNBUFFERED": "1"},  # so that it fails in the middle of a run
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (1, "prompt-sidecar: No space left on device\n") == (ended.returncode, ended.stderr)


@pytest.mark.parametrize("command", ["check-config --example", "guard --rules", "replay --help"])
def test_a_terminal_of_few_characters(command: str) -> None:
    """What an encoding lacks is written as an escape."""
    ended = subprocess.run(
        [sys.executable, "-m", "prompt_sidecar", *command.split()],
        env=environment() | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (0, b"") == (ended.returncode, ended.stderr)
    assert b"\\u" in ended.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_output(closed: str, tmp_path: Path) -> None:
    """Whoever closes an output gets none, and no traceback on the other."""
    command = f"{shlex.quote(sys.executable)} -m prompt_sidecar guard --rules {closed}"
    ended = subprocess.run(
        ["/bin/sh", "-c", command], env=environment(), cwd=tmp_path, capture_output=True, timeout=PATIENCE, check=False
    )
    assert (0, b"") == (ended.returncode, ended.stderr)


def test_version_is_one_line() -> None:
    """--version prints one line."""
    shown = run("--version")
    assert (0, 1) == (shown.returncode, len(shown.stdout.splitlines()))
    assert shown.stdout.startswith("prompt-sidecar ")


def test_light_commands_load_no_tokenizer() -> None:
    """Help, check-config and probe start without gRPC's server, the tokenizer or the core."""
    code = (
        "import sys; from prompt_sidecar.cli.commands import main; main(['check-config']); main(['presets']);"
        "print(sorted({'grpc', 'tiktoken', 'prompt_sidecar.engine.runs.service',"
        " 'prompt_sidecar.doors.grpc.lifecycle'} & set(sys.modules)))"
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
    lines = [line.removeprefix("# ") for line in ended.stdout.splitlines() if line.startswith("#")]
    assert "The policy is preset lean (--preset), with:" in lines
    assert "  fit_low = 0.44, as the preset has it (PROMPT_SIDECAR_POLICY__FIT_LOW)" in lines
    assert "  registry_share = 0.01, in place of 0.0 (--set policy.registry_share)" in lines
    assert any(line.startswith("- At every call, whatever room there is") for line in lines)
    assert 1 == sum(line.startswith("warning: policy.registry_share is above 0") for line in lines)
    assert 1 == sum(line.startswith("The catalogue of models is ") for line in lines)
    tomllib.loads(ended.stdout)


def test_check_config_refuses(tmp_path: Path) -> None:
    """A faulty file ends check-config with exit code 2 and its path."""
    path = tmp_path / "f.toml"
    path.write_text("[server]\nlisten = 7\n")
    ended = run("check-config", "--config", str(path))
    assert (2, "") == (ended.returncode, ended.stdout)
    assert str(path) in ended.stderr


def test_check_config_finds_what_serve_would_refuse(tmp_path: Path) -> None:
    """Files, folders and groups that cannot be used are told at once; unless they are on another machine."""
    (tmp_path / "password").write_bytes(b"\xff")
    settings = [
        "server.tokens_file=missing",
        "server.tls_certificate=missing",
        "server.tls_key=missing",
        "server.socket=nowhere/s.sock",
        "admin.listen=127.0.0.1:0",
        "admin.tokens_file=gone",
        "store.url=valkey://127.0.0.1:1",
        f"store.password_file={tmp_path / 'password'}",
    ]
    flags = [part for each in settings for part in ("--set", each)]
    ended = run("check-config", *flags, KEY="0123456789abcdef")
    assert (2, "") == (ended.returncode, ended.stdout)
    assert [
        "prompt-sidecar: these settings cannot be used:",
        "  server.tokens_file missing cannot be read: No such file or directory",
        "  server.tls_key missing cannot be read: No such file or directory",
        "  server.socket nowhere/s.sock: there is no folder nowhere; make it first",
        "  admin.tokens_file gone cannot be read: No such file or directory",
        f"  store.password_file {tmp_path / 'password'} is not UTF-8",
    ] == ended.stderr.splitlines()
    assert 0 == run("check-config", "--no-files", *flags, KEY="0123456789abcdef").returncode


def test_files_that_never_end_are_reported(tmp_path: Path) -> None:
    """A pipe that nobody writes to and a device are no settings, tokens, keys or passwords; nothing waits for them."""
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    settings = [
        f"server.tokens_file={fifo}",
        f"server.tls_certificate={fifo}",
        f"server.tls_key={fifo}",
        "store.url=valkey://127.0.0.1:1",
        "store.password_file=/dev/zero",
    ]
    flags = [part for each in settings for part in ("--set", each)]
    ended = run("check-config", *flags, KEY="0123456789abcdef")
    assert [
        "prompt-sidecar: these settings cannot be used:",
        f"  server.tokens_file {fifo} cannot be read: it is not a regular file, and did not end within 5 s",
        f"  server.tls_key {fifo} cannot be read: it is not a regular file",
        "  store.password_file /dev/zero cannot be read: it has more than 16,777,216 bytes",
    ] == ended.stderr.splitlines()
    ended = run("check-config", "--config", "/dev/zero")
    assert (
        "  the settings file /dev/zero cannot be read: it has more than 16,777,216 bytes" in ended.stderr.splitlines()
    )


@pytest.mark.parametrize(
    "settings",
    [
        ["server.tokens_file=missing"],
        ["server.tls_certificate=missing", "server.tls_key=missing"],
        ["server.socket=nowhere/s.sock"],
        ["server.socket=pyproject.toml"],
        ["server.socket=s.sock", "server.socket_group=nobody-has-this-name"],
        ["admin.listen=127.0.0.1:0", "admin.tokens_file=missing"],
        ["store.url=valkey://127.0.0.1:1", "store.password_file=missing"],
    ],
)
def test_serve_and_check_config_say_the_same(settings: list[str], tmp_path: Path) -> None:
    """What keeps a server from starting is the same line from both."""
    (tmp_path / "pyproject.toml").write_text("")
    flags = [part for each in settings for part in ("--set", each)]
    with contextlib.chdir(tmp_path):
        served = run("serve", "--listen", "127.0.0.1:0", *flags, KEY="0123456789abcdef")
        checked = run("check-config", *flags, KEY="0123456789abcdef")
    assert (2, 2) == (served.returncode, checked.returncode)
    [fault] = [line.strip() for line in checked.stderr.splitlines()[1:]]
    assert f"prompt-sidecar: {fault}" in served.stderr.splitlines()


def test_a_file_that_cannot_be_read_for_mcp() -> None:
    """The flag is named."""
    ended = run("mcp", "--run", "run-1", "--tls-ca", "missing")
    assert 2 == ended.returncode
    assert "prompt-sidecar: --tls-ca missing cannot be read: No such file or directory\n" == ended.stderr


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


@pytest.mark.parametrize("module", ["c_allocator", "commands"])
def test_ctrl_c_while_it_is_imported(module: str) -> None:
    """An interrupt that comes before the command runs ends it as one that comes later: no traceback, and 130."""
    program = f"""
import sys

class Interrupted:
    def find_spec(name, path=None, target=None):
        if name == "prompt_sidecar.cli.{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted)
from prompt_sidecar.__main__ import main
sys.exit(main())
"""
    command = [sys.executable, "-c", program, "serve"]
    ended = subprocess.run(
        command, capture_output=True, check=False, timeout=PATIENCE, env=environment() | {"PYTHONMALLOC": "malloc"}
    )
    assert (130, b"", b"") == (ended.returncode, ended.stdout, ended.stderr)
