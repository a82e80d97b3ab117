"""Write the blocking client from asyncio's, with unasync; with --check, fail if the committed one is out of date.

`make client` runs it, and `make check` with --check.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

import unasync

CLIENT = Path("sidecar/prompt_sidecar/client")
SOURCE = CLIENT / "asynchronous" / "client.py"
GENERATED = CLIENT / "blocking" / "client.py"
NAMES = {
    "AsyncChannels": "Channels",
    "AsyncClient": "Client",
    "AsyncRun": "Run",
    "AsyncStreamed": "Streamed",
    "asynchronous": "blocking",
}
RUFF = Path(sysconfig.get_path("scripts")) / "ruff"


def blocking() -> str:
    """Return the blocking client's code, as unasync makes it, with imports sorted and formatted."""
    rule = unasync.Rule("/asynchronous/", "/blocking/", additional_replacements=NAMES)
    with TemporaryDirectory() as folder:
        source = Path(folder) / "asynchronous" / SOURCE.name
        source.parent.mkdir()
        source.write_text(SOURCE.read_text(encoding="utf-8"), encoding="utf-8")
        unasync.unasync_files([str(source)], [rule])
        code = (Path(folder) / "blocking" / SOURCE.name).read_text(encoding="utf-8")
    for command in (("check", "--quiet", "--select", "I", "--fix"), ("format", "--quiet")):
        code = subprocess.run(
            [RUFF, *command, "--stdin-filename", GENERATED, "-"],
            input=code,
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    return code


def main(arguments: list[str]) -> int:
    """Write or check; return the exit status."""
    code = blocking()
    if arguments != ["--check"]:
        GENERATED.write_text(code, encoding="utf-8")
        return 0
    if GENERATED.exists() and GENERATED.read_text(encoding="utf-8") == code:
        return 0
    print(f"{GENERATED} is not what {SOURCE} makes: edit the latter, run make client, and commit both", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
