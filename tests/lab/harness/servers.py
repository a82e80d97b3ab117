"""Servers in processes of their own: the sidecar of this tree or of another one, and what is measured beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Final, Self, TypeAlias

import grpc

from prompt_sidecar.v1 import service_pb2_grpc
from tests.cli.running import PATIENCE, Program
from tests.lab.harness.components import ROOT
from tests.lab.harness.processes import NotStarted

READY: Final = r"ready: listening on ([^\s,\"]+)"
LOCAL: Final = "127.0.0.1:0"
SERVICE: Final = "/prompt_sidecar.v1.SidecarService/"
WIDE: Final = [
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment has no business between two processes of one machine
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # else all channels would share a connection
]
_LAST_LINES: Final = 20

Send: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"
"""A method without serialisers: bytes out, bytes in."""


def environment(settings: Mapping[str, str], **more: str) -> dict[str, str]:
    """This process's environment without settings of a sidecar or of telemetry, with those that are given.

    A setting is named as `server.listen` or `SERVER__LISTEN`; a variable of telemetry or of Python has its own name.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PROMPT_SIDECAR_", "OTEL_"))}
    for name, value in settings.items():
        own = name.startswith(("OTEL_", "PYTHON"))
        clean[name if own else f"PROMPT_SIDECAR_{name.upper().replace('.', '__')}"] = value
    path = os.pathsep.join(filter(None, (str(ROOT), clean.get("PYTHONPATH", ""))))
    return clean | {"PYTHONPATH": path} | more


class Server:
    """A server process that is ready, and clients of it. Raises NotStarted."""

    def __init__(self, *command: str, variables: Mapping[str, str]) -> None:
        began = perf_counter()
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=dict(variables), stdin=pipe, stderr=pipe, text=True
        )
        self.log = Program(self.process)
        self._open = ExitStack()
        try:
            self.address = self.log.wait_for(READY)[1]
            """As its log tells it."""
        except AssertionError:
            self.kill()
            raise NotStarted(f"the server did not become ready:\n{self.last_words}") from None
        self.seconds = perf_counter() - began
        """From its beginning to ready."""
        self.log.keep_reading()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @cached_property
    def stub(self) -> service_pb2_grpc.SidecarServiceStub:
        """The generated client."""
        return service_pb2_grpc.SidecarServiceStub(self.channel())

    def channel(self) -> grpc.Channel:
        """A connection of its own, for messages of any size; it is closed with the server."""
        channel = grpc.insecure_channel(self.address, options=WIDE)
        self._open.callback(channel.close)
        return channel

    def method(self, name: str = "TrimPrompt") -> Send:
        """A method of the sidecar that takes and gives bytes, on a connection of its own."""
        send: Send = self.channel().unary_unary(name if name.startswith("/") else SERVICE + name)
        return send

    def found(self, pattern: str) -> str:
        """What a pattern's first group matches in the log before it was ready."""
        return next(match[1] for line in self.log.lines if (match := re.search(pattern, line)))

    @property
    def last_words(self) -> str:
        """The end of its log."""
        return "".join(self.log.lines[-_LAST_LINES:])

    def cpu(self) -> float:
        """Processor time that it has taken, in seconds; where the system does not tell: 0."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> int:
        """Bytes in memory; where the system does not tell: 0."""
        return memory(process=self.process.pid)

    def kill(self) -> None:
        """End it as a crash would; one that has ended already is left alone."""
        self.process.kill()
        self.process.wait()
        self._close()

    def stop(self) -> int:
        """End it as an orchestrator would, by force if it takes too long; return its exit code."""
        self._open.close()  # first: gRPC writes a line about a server that says goodbye
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        code = self.process.wait()
        self._close()
        return code

    def _close(self) -> None:
        self._open.close()
        for pipe in (self.process.stdin, self.process.stderr):
            assert pipe is not None
            pipe.close()


def sidecar(settings: Mapping[str, str], *arguments: str, listen: str = LOCAL, tree: Path = ROOT) -> Server:
    """Start `serve`, from the package in a tree."""
    variables = environment(settings)
    variables["PYTHONPATH"] = os.pathsep.join((str(tree / "sidecar"), variables["PYTHONPATH"]))
    return Server("-m", "prompt_sidecar", "serve", "--listen", listen, *arguments, variables=variables)


def memory(figure: str = "VmRSS", process: int | str = "self") -> int:
    """Bytes of a process's memory, by default of this one, by the kernel's name for the figure; 0: it tells none."""
    status = Path(f"/proc/{process}/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1_024 for line in lines if line.startswith(f"{figure}:")), 0)
