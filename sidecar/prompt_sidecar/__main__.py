"""`python -m prompt_sidecar`, and the entry point of the command `prompt-sidecar`."""

from __future__ import annotations

import sys

_INTERRUPTED = 130
"""Exit code after Ctrl-C, as of all commands."""


def main() -> int:
    """Run the command that the process was started with, and return its exit code."""
    try:
        if sys.argv[1:2] == ["serve"]:
            from prompt_sidecar.cli import c_allocator

            c_allocator.use()  # may begin the process anew, so nothing else is imported before
        from prompt_sidecar.cli import commands
    except KeyboardInterrupt:
        return _INTERRUPTED
    return commands.main()


if __name__ == "__main__":
    sys.exit(main())
