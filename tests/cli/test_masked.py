"""A real server that masks: nothing of a secret leaves the process, and a kill between two calls is healed."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import grpc

from prompt_sidecar.v1 import guard_pb2, retrieve_pb2, search_pb2, service_pb2_grpc, trim_pb2
from tests.cli.running import Program, program
from tests.engine.runs.making import OPENAI_CHAT, body, history
from tests.lab.harness.processes import free_port

SECRET = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
PASSWORD = "FaKe0rNoTrEaL1bUt"
SETTINGS = {
    "KEY": "a key that both servers have",
    "GUARD__MODE": "enforce",
    "GUARD__RESTORE": '["deploy:github_token"]',
    "LOG__LEVEL": "debug",
}


def messages(iterations: int) -> list[object]:
    """A history with secrets in the system prompt, a file listing, a user's message and a call's arguments."""
    made = history(OPENAI_CHAT, iterations, task=f"Deploy with {SECRET}, please.")
    made[0]["content"] += f" The database is postgres://app:{PASSWORD}@db.internal/orders."
    for at, message in enumerate(made):
        if message["role"] == "tool" and at % 4 == 3:
            message["content"] = f".env:1: TOKEN={SECRET}\nnotes:2: {PASSWORD}\n" + message["content"]
        if "tool_calls" in message:
            arguments = json.dumps({"path": "x", "env": json.dumps({"T": f"{SECRET} {PASSWORD}"})})
            message["tool_calls"][0]["function"]["arguments"] = arguments
    return made


class Agent:
    """Sends prompts of one run, and looks at all that comes back."""

    def __init__(self, stack: ExitStack, socket: Path, metrics: str) -> None:
        self._stack, self._socket, self._metrics = stack, socket, metrics
        self.seen = ""
        self.start()

    def start(self) -> None:
        """Start a server, and connect to it."""
        arguments = (
            "--listen",
            "",
            "--socket",
            str(self._socket),
            "--set",
            f"telemetry.metrics_listen={self._metrics}",
        )
        self.program: Program = self._stack.enter_context(program(*arguments, **SETTINGS))
        self.program.wait_for("ready: listening on")
        channel = self._stack.enter_context(grpc.insecure_channel(f"unix:{self._socket}"))
        self.stub = service_pb2_grpc.SidecarServiceStub(channel)

    def trim(self, iterations: int, *, edits: bool = False) -> trim_pb2.TrimPromptResponse:
        """Send the history of so many iterations."""
        prompt = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=body(OPENAI_CHAT, messages(iterations)))
        mode = trim_pb2.RESPONSE_MODE_EDITS if edits else trim_pb2.RESPONSE_MODE_FULL
        request = trim_pb2.TrimPromptRequest(run_id="r", json=prompt, context_window=6_000, response_mode=mode)
        answer = self.stub.TrimPrompt(request)
        self.seen += answer.SerializeToString().decode("latin-1")
        return answer

    def restore(self, tool: str, mask: str) -> guard_pb2.RestoredArguments:
        """Have a call's arguments filled."""
        call = guard_pb2.ToolArguments(tool=tool, arguments=json.dumps({"token": mask}).encode())
        return self.stub.RestoreSecrets(guard_pb2.RestoreSecretsRequest(run_id="r", calls=[call])).calls[0]

    def look(self) -> None:
        """Search, read originals, read metrics."""
        for query in ("token", "postgres notes", "Deploy with"):
            found = self.stub.SearchHistory(search_pb2.SearchHistoryRequest(run_id="r", query=query))
            self.seen += found.SerializeToString().decode("latin-1")
        for trim in self.trim(9).trims:
            request = retrieve_pb2.RetrieveContentRequest(run_id="r", stash_id=trim.stash_id, page_tokens=100_000)
            self.seen += self.stub.RetrieveContent(request).SerializeToString().decode("latin-1")
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=60) as page:
            self.seen += page.read().decode()


def test_nothing_of_a_secret_leaves_and_a_kill_is_healed(tmp_path: Path) -> None:
    """No answer, original, snippet, metric or line of the log holds one; the listed tool gets the value."""
    with ExitStack() as stack:
        agent = Agent(stack, tmp_path / "socket", f"127.0.0.1:{free_port()}")
        first = agent.trim(3)
        mask = "⟦github_token:" + first.json_body.decode().partition("⟦github_token:")[2][:11]
        assert {"github_token", "url_password"} <= {finding.rule for finding in first.findings}
        assert SECRET in agent.restore("deploy", mask).arguments.decode()
        injected = agent.restore("http_post", mask)
        assert (1, 0) == (injected.not_allowed, injected.restored)
        assert SECRET not in injected.arguments.decode()
        agent.trim(8, edits=True)
        agent.look()
        assert 'prompt_sidecar_guard_restored_total{kind="github_token"' in agent.seen
        lines = agent.program.lines
        agent.program.process.kill()
        agent.program.end()

        agent.start()
        gone = agent.restore("deploy", mask)
        assert (0, 1) == (gone.restored, gone.unknown)
        again = agent.trim(9)
        assert mask in again.json_body.decode()
        assert SECRET in agent.restore("deploy", mask).arguments.decode()
        agent.look()
        raw = b'{"messages":[{"role":"user","content":"%s \\ud83d"}]}' % SECRET.encode()
        prompt = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=raw)
        odd = agent.stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id="odd", json=prompt))
        assert b"github_token:" in odd.json_body
        agent.seen += odd.SerializeToString().decode("latin-1")
        agent.program.process.terminate()
        agent.program.end()
        everything = agent.seen + "".join((*lines, *agent.program.lines))
        assert "RestoreSecrets" in everything
        for value in (SECRET, PASSWORD):
            assert value not in everything
