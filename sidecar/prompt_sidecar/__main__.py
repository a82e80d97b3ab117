"""`python -m prompt_sidecar`, and the entry point of the command `prompt-sidecar`."""

from __future__ import annotations

import sys

from prompt_sidecar.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
