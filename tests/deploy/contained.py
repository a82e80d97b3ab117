"""A container of an unpacked image, without an engine: as strict as a cluster's policy for pods can be.

Its root is read-only, /tmp is memory, its user is one that the image does not know, without any capability or a way to
get one, in namespaces of its own. The first process is the image's entry point, as in any container.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.running import Program
from tests.deploy.building import NAMESPACES, PATIENCE, Image

USER = "54321"
_LOOPBACK = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 1))"
"""Sets the flag IFF_UP of the interface: what `ip link set lo up` does, which not every machine has."""
_SETUP = """
set -eu
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t tmpfs tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
"$2" -c "$3"
root=$1
shift 3
exec chroot "$root" "$@"
"""


@dataclass(frozen=True, slots=True)
class Container:
    """A running container."""

    program: Program
    image: Image

    @property
    def pid(self) -> int:
        """Its first process, as this machine numbers it."""
        parent = self.program.process.pid
        return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run one more program in it, as its user."""
        into = ("nsenter", "--target", str(self.pid), *NAMESPACES, "--root", "--wd")
        words = [*into, *_as_user(self.image), *command]
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def status(self) -> dict[str, str]:
        """What the kernel tells of its first process."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def stop(self) -> int:
        """End it as a cluster does; return the exit code of its first process."""
        os.kill(self.pid, signal.SIGTERM)
        return self.program.end()


@contextmanager
def container(image: Image) -> Iterator[Container]:
    """Start the image with its own command; it is killed at the end if it still runs."""
    command = [*image.config["Entrypoint"], *image.config["Cmd"]]
    setup = ["sh", "-c", _SETUP, "sh", str(image.root), sys.executable, _LOOPBACK, *_as_user(image), *command]
    words = ["unshare", *NAMESPACES, "--fork", "--kill-child", *setup]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Container(Program(process), image)
        finally:
            process.kill()


def _as_user(image: Image) -> list[str]:
    """The words before a command that make its user and environment."""
    drop = ("--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")
    here = ("env", "--ignore-environment", f"--chdir={image.config['WorkingDir']}", *image.config["Env"])
    return ["setpriv", "--reuid", USER, "--regid", USER, *drop, *here]
