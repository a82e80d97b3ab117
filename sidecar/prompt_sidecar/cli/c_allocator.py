"""Lets the C library manage a server's memory: the process executes itself again with PYTHONMALLOC=malloc.

CPython's own allocator returns memory by the megabyte, and only if nothing in it is in use, so much of the memory of
ended runs stays allocated (docs/operations.md, How much memory). CPython chooses its allocator by the environment,
before any of our code runs.

The process stays the same: its id, name, arguments, standard streams, inherited file descriptors, signal mask, limits.
It happens before anything is opened or slow modules are imported: imports here are done twice, so neither pathlib nor
typing is imported (8 ms).
"""

from __future__ import annotations

import os
import sys

VARIABLE = "PYTHONMALLOC"
ALLOCATOR = "malloc"
_NAME = "/proc/self/comm"
_NAME_CHARACTERS = 15
"""Characters of a process's name, as Linux stores it."""


def use() -> None:
    """Execute the process again with the C library's allocator; return if that is not wanted, or impossible.

    Nothing is done if the variable is already set, to any value; if the interpreter ignores its environment (-E, -I) or
    runs in its development mode; or if the C library is not glibc: others were not measured.
    """
    if VARIABLE in os.environ or sys.flags.ignore_environment or sys.flags.dev_mode or not _is_glibc():
        return
    command = _command()
    if not command:
        return
    try:
        os.execve(command[0], command, {**os.environ, VARIABLE: ALLOCATOR})  # noqa: S606  # this very program
    except OSError:  # for example because of a limit on its arguments: the server works with either allocator
        return


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, OSError, ValueError):  # another C library, or another system
        return False


def _command() -> list[str]:
    """Return the command that started this process; empty if it would not start it again."""
    program, words = sys.argv[0], sys.argv[1:]
    began_with = sys.orig_argv[len(sys.orig_argv) - len(words) :]
    if program in ("", "-") or not sys.executable or began_with != words:
        return []  # the program came from standard input, or the arguments have changed since
    if program.startswith("/") and _began_as(program):
        return [program, *words]
    return [sys.executable, *sys.orig_argv[1:]]


def _began_as(script: str) -> bool:
    """Whether the process was started as a script, and so has its name, rather than as an interpreter."""
    try:
        with open(_NAME, encoding="utf-8") as file:  # noqa: PTH123 - see the file's docstring
            name = file.read().rstrip("\n")
    except (OSError, ValueError):
        return False
    return name == script.rpartition("/")[2][:_NAME_CHARACTERS] and os.access(script, os.X_OK)
