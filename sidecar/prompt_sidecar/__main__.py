"""`python -m prompt_sidecar`, and the entry point of the command `prompt-sidecar`."""

from __future__ import annotations

import gc
import os
import signal
import sys

_INTERRUPTED = 130
"""Exit code after Ctrl-C, the same as that of all commands."""
_NOT_TO_END = ("SIGHUP", "SIGUSR1", "SIGUSR2")
"""Signals that end a process by default, but have no effect on a server that has not read its files yet."""
_SERVERS = (["serve"], ["wrap"])
"""Commands that put gRPC's own lines into the form of the log."""


def _ignore_early() -> None:
    """Ignore signals that must not end a server during its start, which takes seconds."""
    for name in _NOT_TO_END:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_IGN)


def main() -> int:
    """Run the command that the process was started with, and return its exit code."""
    if sys.argv[1:2] not in _SERVERS:
        # Unset, gRPC writes to stderr whenever a peer closes a connection with an error, in the peer's own words.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        if sys.argv[1:2] == ["serve"]:
            _ignore_early()
            from prompt_sidecar.cli import c_allocator

            c_allocator.use()  # may start the process again, so nothing else is imported before
            gc.disable()  # until it serves: collecting garbage during imports takes a fifth of their time, in vain
        from prompt_sidecar.cli import commands
    except KeyboardInterrupt:
        return _INTERRUPTED
    return commands.main()


if __name__ == "__main__":
    sys.exit(main())
