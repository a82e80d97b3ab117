"""Fail if a file that git knows holds the name of a package registry's host or a path of somebody's machine.

A checkout is built from whatever registry and folder its owner uses: an address in a pin file or a path in a test
works on one machine only, and tells strangers about it.

Usage: check-portable.py [FILE ...]; without files, all that are tracked or could be (untracked and not ignored).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# Written so that this file does not match itself.
FORBIDDEN = {
    "a registry's host": re.compile(
        rb"(?i)\b(?:pypi|pythonhosted|npmjs|yarnpkg|anaconda)\.(?:org|com)\b"
        rb"|\b(?:deb|security|snapshot)\.debian\.org\b"
        rb"|\b(?:archive|ports)\.ubuntu\.com\b"
        rb"|\b(?:proxy|sum)\.golang\.org\b"
        rb"|\b(?:index|static)\.crates\.io\b"
    ),
    "a registry option": re.compile(rb"(?m)^\s*--(?:extra-)?index-url\b|^\s*--find-links\b|^\s*--trusted-host\b"),
    "a machine's path": re.compile(rb"(?<![\w.\-])/(?:root|work|home/[a-z][\w-]*|Users/[A-Za-z][\w-]*|tmp/venv)/"),
}
NEWLINE = b"\n"
LOCK_FILES = re.compile(r"(?:^|/)(?:uv\.lock|pylock[^/]*\.toml|package-lock\.json)$")


def problems(path: Path) -> list[str]:
    """Return one line for each thing in the file that must not be there."""
    if LOCK_FILES.search(path.as_posix()):
        return [f"{path}: a lock file that records registry addresses; make pins writes one that does not"]
    content = path.read_bytes()
    return [
        f"{path}:{content.count(NEWLINE, 0, match.start()) + 1}: {what}"
        for what, pattern in FORBIDDEN.items()
        for match in pattern.finditer(content)
    ]


def known_to_git() -> list[Path]:
    """Return the files that are tracked, and those that would be after `git add`; none where there is no clone."""
    if not Path(".git").exists():
        print("portable: nothing to look at, as this is not a clone")
        return []
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True
    ).stdout
    return [path for name in listing.split(b"\0") if name and (path := Path(name.decode())).is_file()]


def main(arguments: list[str]) -> int:
    """Print what was found; return the exit status."""
    found = [line for path in [Path(name) for name in arguments] or known_to_git() for line in problems(path)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
