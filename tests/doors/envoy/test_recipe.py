"""The recipe of docs/scale.md for several processes on one machine, run as it stands but for ports."""

from __future__ import annotations

import http.client
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import grpc

from prompt_sidecar.calls.conversations import SESSION_HEADERS
from prompt_sidecar.client import Client, RunUnknown
from tests.cli.running import PATIENCE, environment
from tests.docs.pages import blocks
from tests.docs.test_shell import commands
from tests.doors.envoy.through import GATEWAY, REPLICAS, ROOT, chat, envoy_binary, provider
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, history
from tests.lab.harness.processes import free_port
from tests.real.needing import need
from tests.waiting import until

PAGE: Final = "docs/scale.md"
RUN: Final = "x-prompt-sidecar-run"
SUBAGENT: Final = "x-claude-code-agent-id"
"""Not hashed: with it a request has a session, too."""
RUNS: Final = [f"run-{number}" for number in range(12)]
_PORT: Final = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=port_value: )\d+")


def has(port: int, run_id: str) -> bool:
    """Whether a sidecar knows a run."""
    with Client(f"127.0.0.1:{port}", deadline=PATIENCE) as client:
        try:
            return client.get_run(run_id).calls > 0
        except RunUnknown:
            return False


def asked(port: int, name: str, header: str = RUN) -> tuple[int, str]:
    """Send a prompt to an HTTP door, with a name in a header; return the status and the run."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"content-type": "application/json", header: name, "authorization": "Bearer sk-test"}
    connection.request("POST", "/v1/chat/completions", chat(1, "a line"), headers)
    with connection.getresponse() as answer:
        answer.read()
        return answer.status, answer.headers[RUN]


def test_the_recipe(tmp_path: Path) -> None:
    """Both processes have runs, each run is at one of them, by both doors; and one that is killed is done without."""
    (code,) = (block.code for block in blocks("sh") if PAGE == block.page and "envoy --config-path" in block.code)
    ports: dict[str, int] = {}

    def moved(text: str) -> str:
        return _PORT.sub(lambda found: str(ports.setdefault(found[0], free_port())), text)

    with ExitStack() as stack:
        upstream = stack.enter_context(provider())
        servers: list[subprocess.Popen[bytes]] = []
        for words in commands(moved(code)):
            if words[0] in {"pip", "export"}:
                continue
            if "envoy" == words[0]:
                # Else its first health check may fail, and the next one is two seconds later.
                until(lambda: all(map(answers, (ports["7784"], ports["7785"]))))
                file = tmp_path / "envoy.yaml"
                file.write_text(moved((ROOT / words[words.index("--config-path") + 1]).read_text("utf-8")))
                words = [str(need(envoy_binary)), *words[1:]]  # noqa: PLW2901
                words[words.index("--config-path") + 1] = str(file)
                words.append("--disable-hot-restart")
            else:
                assert "prompt-sidecar" == words[0]
                words = [sys.executable, "-m", "prompt_sidecar", *words[1:]]  # noqa: PLW2901
            key = re.search(r"PROMPT_SIDECAR_KEY=(\w+)", code)
            assert key
            settings = environment(KEY=key[1], HTTP__OPENAI_UPSTREAM=f"http://127.0.0.1:{upstream.port}")
            process = subprocess.Popen(shlex.split(shlex.join(words)), env=settings, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            servers.append(process)
        first, second, _ = servers
        assert [None] * 3 == [process.poll() for process in servers]
        grpc_port, http_port = ports["7717"], ports["7780"]
        with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            grpc.channel_ready_future(channel).result(PATIENCE)
        client = stack.enter_context(Client(f"127.0.0.1:{grpc_port}", deadline=PATIENCE, fail_open=False))
        until(lambda: answers(http_port))
        for run_id in RUNS:
            client.trim(run_id, history(OPENAI_CHAT, 2), context_window=LIMIT)
            client.trim(run_id, history(OPENAI_CHAT, 3), context_window=LIMIT)
            assert [(200, f"http-{run_id}")] * 2 == [asked(http_port, f"http-{run_id}") for _ in range(2)]
        sessions = [asked(http_port, f"session-{run_id}", "session_id")[1] for run_id in RUNS]
        assert sessions == [asked(http_port, f"session-{run_id}", "session_id")[1] for run_id in RUNS]
        assert len(RUNS) == len({*sessions})
        for names in (RUNS, [f"http-{run_id}" for run_id in RUNS], sessions):
            places = [tuple(has(ports[port], name) for port in ("7727", "7737")) for name in names]
            assert {(True, False), (False, True)} == {*places}
        first.kill()
        first.wait()
        assert [200] * len(RUNS) == [asked(http_port, f"http-{run_id}")[0] for run_id in RUNS]
        for run_id in RUNS:
            client.trim(run_id, history(OPENAI_CHAT, 4), context_window=LIMIT)
        assert second.poll() is None


def test_what_is_hashed() -> None:
    """The page, both files and the door agree on the headers that tell a run."""
    page = (ROOT / PAGE).read_text("utf-8").partition("### What to hash")[2].partition("\n## ")[0]
    listed = re.findall(
        r"`([\w-]+)`", "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    )
    assert {RUN, *SESSION_HEADERS} - {SUBAGENT} == {*listed}
    for file in (REPLICAS, GATEWAY):
        hashed = re.findall(r"header_name: ([\w-]+) }, terminal: true", file.read_text("utf-8"))
        assert listed == hashed


def answers(port: int) -> bool:
    """Whether an HTTP door, or Envoy before one, is ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/readyz")
        return 200 == connection.getresponse().status
    except OSError:
        return False
