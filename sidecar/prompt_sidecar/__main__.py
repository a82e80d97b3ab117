"""`python -m prompt_sidecar`, and the entry point of the command `prompt-sidecar`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command that the process was started with, and return its exit code."""
    if sys.argv[1:2] == ["serve"]:
        from prompt_sidecar.cli import c_allocator

        c_allocator.use()  # may begin the process anew, so nothing else is imported before
    from prompt_sidecar.cli import commands

    return commands.main()


if __name__ == "__main__":
    sys.exit(main())
