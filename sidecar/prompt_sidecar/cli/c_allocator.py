"""A server whose memory the C library manages: the process executes itself once more with PYTHONMALLOC=malloc.

CPython's own allocator gives memory back by the megabyte, and only where nothing in it is in use, so that much of what
ended runs had taken stays (docs/operations.md, How much memory). Which allocator there is, CPython decides before any
code of ours runs, by its environment.

The process stays the same: its id, name, arguments, standard streams, inherited file descriptors, signal mask, limits.
It happens before anything is opened or imported that costs more than a moment: what is imported here, the process
imports twice, so neither pathlib nor typing is (8 ms).
"""

from __future__ import annotations

import os
import sys

VARIABLE = "PYTHONMALLOC"
ALLOCATOR = "malloc"
_NAME = "/proc/self/comm"
_NAME_CHARACTERS = 15
"""Of a process's name, as Linux keeps it."""


def use() -> None:
    """Execute the process once more with the C library's allocator; return where that is not wanted, or cannot be.

    It is left alone where the variable is set already, to whatever value; where the interpreter ignores its environment
    (-E, -I) or runs in its development mode; and where the C library is not glibc: what others do with small blocks was
    not measured.
    """
    if VARIABLE in os.environ or sys.flags.ignore_environment or sys.flags.dev_mode or not _is_glibc():
        return
    command = _command()
    if not command:
        return
    try:
        os.execve(command[0], command, {**os.environ, VARIABLE: ALLOCATOR})  # noqa: S606  # this very program
    except OSError:  # such as a limit on its arguments: the server works with either allocator
        return


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, OSError, ValueError):  # another C library, or another system
        return False


def _command() -> list[str]:
    """The command that began this process; empty: it would not begin it again."""
    program, words = sys.argv[0], sys.argv[1:]
    began_with = sys.orig_argv[len(sys.orig_argv) - len(words) :]
    if program in ("", "-") or not sys.executable or began_with != words:
        return []  # the program came by standard input, or the words were changed since
    if program.startswith("/") and _began_as(program):
        return [program, *words]
    return [sys.executable, *sys.orig_argv[1:]]


def _began_as(script: str) -> bool:
    """Whether the process was begun as a script, whose name it has then, rather than as an interpreter's."""
    try:
        with open(_NAME, encoding="utf-8") as file:  # noqa: PTH123 - see the file's docstring
            name = file.read().rstrip("\n")
    except (OSError, ValueError):
        return False
    return name == script.rpartition("/")[2][:_NAME_CHARACTERS] and os.access(script, os.X_OK)
