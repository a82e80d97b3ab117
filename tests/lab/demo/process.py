"""The real server in a process of its own, on a free loopback port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import grpc

from prompt_sidecar.v1 import service_pb2_grpc

ROOT = Path(__file__).parents[3]
START_SECONDS = 60.0
"""Start-up takes a second or two; a starved machine may need many times that."""
STOP_SECONDS = 15.0
_READY = re.compile(r"ready: listening on (\S+)")


class NotStarted(Exception):
    """The server ended or fell silent before it was ready; the message holds its last words."""


class Sidecar:
    """A running server and a client of it.

    Raises:
        NotStarted: it did not become ready.
    """

    def __init__(self, key: str) -> None:
        # Settings of the caller's environment must not change what the demo shows.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PROMPT_SIDECAR_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "prompt_sidecar", "serve", "--listen", "127.0.0.1:0"],
            cwd=ROOT,
            env=environment | {"PROMPT_SIDECAR_KEY": key},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._log: deque[str] = deque(maxlen=20)
        self._ready = threading.Event()
        self.address = ""
        """Where it listens."""
        # The log is read to its end, so that a full pipe never holds the server.
        self._reader = threading.Thread(target=self._read, name="log", daemon=True)
        self._reader.start()
        self._ready.wait(START_SECONDS)
        if not self.address:
            self.kill()
            raise NotStarted(f"the server did not become ready:\n{self.last_words}")
        # A proxy of the environment has no business between two processes of one machine.
        self._channel = grpc.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)])
        self.stub = service_pb2_grpc.SidecarServiceStub(self._channel)
        """The generated client."""

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def last_words(self) -> str:
        """The end of its log."""
        return "".join(self._log)

    def kill(self) -> None:
        """End it as a crash would; one that has ended already is left alone."""
        self._process.kill()
        self._process.wait()
        self._close()

    def stop(self) -> int:
        """End it as an orchestrator would; return its exit code."""
        self._channel.close()  # first: gRPC writes a line about a server that says goodbye
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code = self._process.wait()
        self._close()
        return code

    def _close(self) -> None:
        if hasattr(self, "_channel"):
            self._channel.close()
        self._reader.join(STOP_SECONDS)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line)
            if found := _READY.search(line):
                self.address = found[1].rstrip(",")
                self._ready.set()
        self._ready.set()
