"""A provider is its own files and a row in each table: one that is made up works through every way there is.

A copy of the package gets the files in `made_up/`, a row in each of three tables, and a value of the protos' enum, with
the stubs made anew as `make protos` does. The enum is the contract with agents in all languages, so that its value is
the one thing beyond.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from prompt_sidecar.facts.tool_calls import SEARCH
from tests.cli.running import PATIENCE, environment, program

ROOT = Path(__file__).parents[2]
MADE_UP = Path(__file__).with_name("made_up")
ROWS = {
    "providers/table.py": ("BedrockConverse())\n", "BedrockConverse(), MadeUp())\n"),
    "prompt/formats.py": ("        conversation.FORMAT,\n", "        conversation.FORMAT,\n        made_up.FORMAT,\n"),
    "answers/table.py": ("BedrockConverse())\n", "BedrockConverse(), MadeUp())\n"),
}
"""In each table: what is replaced by it with a row more."""
IMPORTS = {
    "providers/table.py": "from prompt_sidecar.providers.made_up import MadeUp\n",
    "prompt/formats.py": "from prompt_sidecar.prompt import made_up\n",
    "answers/table.py": "from prompt_sidecar.answers.made_up import MadeUp\n",
}
SEARCHED = {"ref": "s1", "device": SEARCH, "with": '{"query": "iteration 3"}'}
"""A use of a tool of the sidecar's."""
OVER = {"over": True, "spent": {"read": 900, "reused": 100, "wrote": 7}}
"""What ends an answer."""
AGENT = Path(__file__).with_name("made_up") / "agent.py"


class Upstream(BaseHTTPRequestHandler):
    """The made-up provider: it searches the history if it can, and then it answers."""

    requests: ClassVar[list[dict[str, Any]]] = []

    def log_message(self, *_: object) -> None:
        """Be quiet."""

    def do_POST(self) -> None:
        """Answer a prompt."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.requests.append(body)
        offered = any(each["device"] == SEARCH for each in body.get("tools", ()))
        searches = offered and not any(each.get("ref") == SEARCHED["ref"] for each in body["dialogue"])
        events: list[dict[str, Any]] = (
            [{"nth": 0, "use": SEARCHED}] if searches else [{"said": "Found"}, {"said": " it."}]
        )
        events.append(OVER)
        if body.get("flow"):
            kind, answer = "text/event-stream", b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in events)
        else:
            reply = {"role": "machine", "said": "" if searches else "Found it.", "uses": [SEARCHED] if searches else []}
            kind, answer = "application/json", json.dumps({"reply": reply, **OVER}).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """The provider's address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, upstream: str) -> Path:
    """A copy of the package, with the provider; its parent is a path for Python."""
    root = tmp_path_factory.mktemp("house")
    for name in ("sidecar", "protos", ".ci"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "proto-base"))
    package = root / "sidecar" / "prompt_sidecar"
    for name, folder in {"provider": "providers", "prompt": "prompt", "answers": "answers"}.items():
        text = (MADE_UP / f"{name}.py").read_text(encoding="utf-8").replace("http://127.0.0.1:1", upstream)
        (package / folder / "made_up.py").write_text(text, encoding="utf-8")
    for table, (old, new) in ROWS.items():
        text = (package / table).read_text(encoding="utf-8")
        assert 1 == text.count(old), table
        head, mark, rest = text.replace(old, new).partition("from __future__ import annotations\n")
        (package / table).write_text(head + mark + IMPORTS[table] + rest, encoding="utf-8")
    proto = root / "protos" / "prompt_sidecar" / "v1" / "trim.proto"
    value = "  FORMAT_MCP_TOOL_RESULT = 7;\n"
    text = proto.read_text(encoding="utf-8")
    assert 1 == text.count(value)
    proto.write_text(text.replace(value, value + "  FORMAT_MADE_UP = 99;\n"), encoding="utf-8")
    subprocess.run([root / ".ci" / "stubs", root, sys.executable], check=True, timeout=PATIENCE, capture_output=True)
    return root / "sidecar"


def history(iterations: int) -> list[dict[str, Any]]:
    """A dialogue whose results exceed the window below."""
    dialogue: list[dict[str, Any]] = [{"role": "director", "said": "Be kind."}, {"role": "person", "said": "Go."}]
    for number in range(iterations):
        use = {"ref": f"c{number}", "device": "read", "with": json.dumps({"path": f"f{number}"})}
        dialogue.append({"role": "machine", "said": "", "uses": [use]})
        dialogue.append(
            {"role": "device", "ref": f"c{number}", "said": f"the log of iteration {number}: nothing\n" * 60}
        )
    return dialogue


@pytest.fixture(scope="module")
def seen(house: Path, upstream: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an agent saw of a server that knows the provider."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "run.json").write_text(json.dumps({"format": "made_up", "dialogue": history(12)}))
    paths = {"PYTHONPATH": os.pathsep.join((str(house), str(ROOT)))}
    listen = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--set", "telemetry.metrics_listen=")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", paths["PYTHONPATH"])
        with program(*listen, LIMITS__DEFAULT_WINDOW="4000") as served:
            ready = served.wait_for(r"listening on (?P<grpc>[0-9.:]+), (?P<http>http://[0-9.:]+)")
            served.keep_reading()
            ended = subprocess.run(
                [sys.executable, AGENT, ready["grpc"], ready["http"], upstream, folder / "run.json"],
                env=environment() | paths,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
    assert 0 == ended.returncode, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_prompt_by_grpc(seen: dict[str, Any]) -> None:
    """It is trimmed to fit, and its messages have the provider's roles."""
    fits, has_trims, roles = seen["trimmed"]

    assert (True, True) == (fits, has_trims)
    assert {"director", "person", "machine", "device"} == set(roles)


def test_the_client_drives_its_sdk(seen: dict[str, Any]) -> None:
    """The model's search is answered, its second turn is the answer, and both reports have its counts."""
    assert ["Found it.", 2, 1] == seen["whole"]
    assert [2, 1_800, 200, 14] == seen["reported"]


def test_the_client_drives_its_streams(seen: dict[str, Any]) -> None:
    """The agent sees the second turn's events alone."""
    assert ["Found it.", 1] == seen["streamed"]
    assert [{"said": "Found"}, {"said": " it."}, OVER] == seen["events"]


def test_the_http_door(seen: dict[str, Any]) -> None:
    """A turn that only searches stays hidden, in a whole answer and in a stream."""
    status, answer = seen["door"]
    assert (200, {"role": "machine", "said": "Found it.", "uses": []}) == (status, json.loads(answer)["reply"])

    status, answer = seen["door_streamed"]
    events = [json.loads(line.removeprefix("data: ")) for line in answer.splitlines() if line]
    assert (200, [{"said": "Found"}, {"said": " it."}, OVER]) == (status, events)


def test_the_doors_errors(seen: dict[str, Any]) -> None:
    """They are in the provider's shape."""
    status, answer = seen["door_error"]

    assert (400, "INVALID_REQUEST") == (status, json.loads(answer)["problem"]["what"])


def test_what_the_provider_was_sent(seen: dict[str, Any]) -> None:
    """All prompts that it was sent are trimmed, and hold the answers to its searches in its own form."""
    assert seen
    answers = [entry for each in Upstream.requests for entry in each["dialogue"] if entry.get("ref") == SEARCHED["ref"]]

    assert all("[content clipped" in json.dumps(each) for each in Upstream.requests)
    assert {"device"} == {entry["role"] for entry in answers}
    assert all("iteration 3" in entry["said"] for entry in answers)


def test_a_replay(seen: dict[str, Any]) -> None:
    """Its run file is replayed turn by turn; each prompt fits."""
    *turns, summary = map(json.loads, seen["replay"].splitlines())

    assert 13 == summary["summary"]["turns"] == len(turns)
    assert all(turn["fits"] for turn in turns)
    assert any(turn["trims"] for turn in turns)
