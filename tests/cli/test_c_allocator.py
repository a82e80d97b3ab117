"""`serve` has the C library's allocator however it is started, in the process that was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipapp
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import PATIENCE, ROOT, Program, environment, run

READY = r"ready: listening on (\S+)"
SERVE = ("serve", "--listen", "127.0.0.1:0")
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or "CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="glibc's alone"
)


def without(name: str) -> dict[str, str]:
    """The environment of a program, without one variable."""
    return {each: value for each, value in environment().items() if each != name}


@contextmanager
def started(command: Sequence[str], inherited: Sequence[int] = (), **more: str) -> Iterator[Program]:
    """Start a server, wait until it is ready; it is killed at the end if it still runs."""
    given = without("PYTHONMALLOC") | more
    with subprocess.Popen(
        [*command, *SERVE], env=given, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=inherited
    ) as process:
        served = Program(process)
        try:
            served.wait_for(READY)
            yield served
        finally:
            process.kill()


def of_process(served: Program, name: str) -> list[str]:
    """The words of one of the kernel's files about the process that was started."""
    return Path(f"/proc/{served.process.pid}/{name}").read_text().rstrip("\0\n").split("\0")


def script(folder: Path) -> Path:
    """The console script as pip writes it."""
    made = folder / "prompt-sidecar"
    made.write_text(f"#!{sys.executable}\nimport sys\nfrom prompt_sidecar.__main__ import main\nsys.exit(main())\n")
    made.chmod(0o755)
    return made


def commands(folder: Path) -> dict[str, list[str]]:
    """The ways to start the program."""
    application = folder / "app"
    application.mkdir()
    (application / "__main__.py").write_text("import sys\nfrom prompt_sidecar.__main__ import main\nsys.exit(main())\n")
    zipapp.create_archive(application, folder / "sidecar.pyz")
    return {
        "module": [sys.executable, "-m", "prompt_sidecar"],
        "script": [str(script(folder))],
        "interpreter": [sys.executable, "-X", "utf8", str(script(folder))],
        "zipapp": [sys.executable, str(folder / "sidecar.pyz")],
    }


@pytest.mark.parametrize("way", ["module", "script", "interpreter", "zipapp"])
def test_a_server_has_it(way: str, tmp_path: Path) -> None:
    """In the same process with the same arguments, name and open files; it drains at a signal, and ends with 0."""
    reading, writing = os.pipe()
    try:
        command = commands(tmp_path)[way]
        with started(command, (writing,)) as served:
            assert "PYTHONMALLOC=malloc" in of_process(served, "environ")
            assert list(SERVE) == of_process(served, "cmdline")[-len(SERVE) :]
            assert ["prompt-sidecar"[:15]] == of_process(served, "comm") or way != "script"
            there, here = (Path(f"/proc/{who}/fd/{writing}").readlink() for who in (served.process.pid, "self"))
            assert there == here
            assert 1 == "".join(served.lines).count("ready: listening")
            served.process.send_signal(signal.SIGTERM)
            assert 0 == served.end()
    finally:
        os.close(reading)
        os.close(writing)


ASKED = (
    "import os, sys; from prompt_sidecar.cli import c_allocator; c_allocator.use(); sys._debugmallocstats(); "
    "print(os.getpid(), os.environ.get('PYTHONMALLOC'))"
)


def output_of(*command: str, given: str | None = None, **more: str) -> tuple[int, str, str]:
    """Run an interpreter with the words of `serve`; return its process's id, and what it said on both streams."""
    with subprocess.Popen(
        [sys.executable, *command, *SERVE],
        env=without("PYTHONMALLOC") | more,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        output, errors = process.communicate(given, PATIENCE)
        return process.pid, output.strip(), errors


def test_it_is_in_use() -> None:
    """The interpreter's own allocator has no statistics then, and has them otherwise."""
    pid, allocator, statistics = output_of("-c", ASKED)
    assert f"{pid} malloc" == allocator
    assert "arenas" not in statistics
    assert "arenas" in output_of("-c", ASKED, PYTHONMALLOC="pymalloc")[2]


@pytest.mark.parametrize("value", ["pymalloc", "malloc_debug", ""])
def test_what_the_environment_says_stays(value: str) -> None:
    """Whoever has chosen an allocator has chosen it."""
    pid, allocator, _ = output_of("-c", ASKED, PYTHONMALLOC=value)
    assert f"{pid} {value}".strip() == allocator


def test_the_development_mode_keeps_its_own() -> None:
    """It finds faults in native code by it."""
    pid, allocator, _ = output_of("-X", "dev", "-c", ASKED)
    assert f"{pid} None" == allocator


def test_an_interpreter_that_ignores_its_environment_is_left_alone() -> None:
    """It would be begun anew without end."""
    pid, allocator, _ = output_of("-E", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'sidecar')!r}); {ASKED}")
    assert f"{pid} None" == allocator


def test_a_program_from_standard_input_goes_on() -> None:
    """What was read from there is not there a second time."""
    pid, allocator, _ = output_of("-", given=ASKED)
    assert f"{pid} None" == allocator


def test_words_that_a_program_has_changed_are_not_taken_from_the_command_line() -> None:
    """The process would not do again what it does."""
    pid, allocator, _ = output_of("-c", f"import sys; sys.argv.append('--http'); {ASKED}")
    assert f"{pid} None" == allocator


def test_exit_codes_and_errors_are_as_before() -> None:
    """Said once, with the code of a wrong setting."""
    ended = run("serve", "--listen", "nowhere")
    assert 2 == ended.returncode
    assert 1 == ended.stderr.count("--listen")
