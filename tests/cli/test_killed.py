"""A server that is killed costs one slower call: its successor with the same key answers as it would have."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from prompt_sidecar.v1 import retrieve_pb2, service_pb2_grpc, trim_pb2
from tests.cli.running import program
from tests.engine.runs.making import ANTHROPIC_MESSAGES, FORMATS, LIMIT, OPENAI_CHAT, body, history

KEY = "a key that both servers have"
NUMBERS = {OPENAI_CHAT: trim_pb2.FORMAT_OPENAI_CHAT, ANTHROPIC_MESSAGES: trim_pb2.FORMAT_ANTHROPIC_MESSAGES}
ITERATIONS = 16
KILLED_AT = (3, 9, 13)


class Sidecar:
    """A real server on a unix socket, which can be killed and started anew."""

    def __init__(self, stack: ExitStack, socket: Path) -> None:
        self._stack = stack
        self._socket = socket
        self.start()

    def start(self) -> None:
        """Start a process, and connect to it."""
        settings = {"KEY": KEY, "LOG__FORMAT": "text"}
        self._program = self._stack.enter_context(program("--listen", "", "--socket", str(self._socket), **settings))
        self._program.wait_for("ready: listening on")
        channel = self._stack.enter_context(grpc.insecure_channel(f"unix:{self._socket}"))
        self.stub = service_pb2_grpc.SidecarServiceStub(channel)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._program.process.kill()
        self._program.end()

    def trim(self, format: str, iterations: int, window: int, revision: bytes = b"") -> trim_pb2.TrimPromptResponse:
        """Send the untrimmed history of so many iterations."""
        raw = body(format, history(format, iterations))
        prompt = trim_pb2.JsonPrompt(format=NUMBERS[format], body=raw)
        request = trim_pb2.TrimPromptRequest(run_id="r", json=prompt, context_window=window, revision=revision)
        return self.stub.TrimPrompt(request)

    def original(self, stash_id: str) -> bytes:
        """An original, whole."""
        request = retrieve_pb2.RetrieveContentRequest(run_id="r", stash_id=stash_id, page_tokens=100_000)
        found = self.stub.RetrieveContent(request)
        assert retrieve_pb2.RETRIEVE_OUTCOME_HIT == found.outcome
        return found.content


@pytest.mark.parametrize(("format", "changing"), [(format, number % 2 == 1) for number, format in enumerate(FORMATS)])
def test_the_next_server_goes_on(format: str, changing: bool, tmp_path: Path) -> None:
    """Killed at several turns, a server is followed by one that gives the same bodies, ids and originals."""
    with ExitStack() as stack:
        steady, killed = (Sidecar(stack, tmp_path / name) for name in ("steady", "killed"))
        revision = b""
        for iterations in range(1, ITERATIONS + 1):
            window = LIMIT * (2 if changing and iterations > KILLED_AT[0] + 3 else 1)
            if iterations in KILLED_AT:
                killed.kill()
                killed.start()
            expected = steady.trim(format, iterations, window)
            found = killed.trim(format, iterations, window, revision if changing else b"")
            revision = found.revision
            assert expected.json_body == found.json_body
            assert list(expected.trims) == list(found.trims)
            if iterations in KILLED_AT:
                for trim in found.trims:
                    assert steady.original(trim.stash_id) == killed.original(trim.stash_id)
        assert found.trims
