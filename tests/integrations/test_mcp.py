"""The MCP process with the real MCP client, over stdio and streamable HTTP, as the sidecar's callers."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.client import Client
from prompt_sidecar.mcp.options import MOST_CALLS
from tests.client.histories import FACT, history
from tests.client.serving import PATIENT
from tests.doors.grpc.serving import serving
from tests.integrations.environments import ready
from tests.integrations.running import PATIENCE, run, sidecar, variables
from tests.lab.harness.processes import free_port
from tests.telemetry.watched import watched

TOOLS = {"recall_elided_content", "search_conversation_history", "create_tasks", "update_task"}
ALICE, BOB = "alice-token-0123456789", "bob-token-0123456789"
Call = tuple[str, dict[str, Any]]


def trimmed(client: Client, run_id: str = "run") -> str:
    """Send a long prompt; return the id of something that left it."""
    done = client.trim(run_id, history("openai_chat", 20), context_window=4_000, output_reserve=500)
    return next(trim.stash_id for trim in done.trims if trim.kind == "result")


def calls(stash_id: str) -> list[Call]:
    """One call of each kind."""
    return [
        ("recall_elided_content", {"id": stash_id}),
        ("search_conversation_history", {"query": "build number of iteration 3"}),
        ("create_tasks", {"tasks": ["read the log"]}),
    ]


def over_stdio(home: Path, target: str, asked: list[Call], *arguments: str, **more: str) -> Any:
    """Make calls through a process that the client starts."""
    environment = {"PROMPT_SIDECAR_TARGET": target} | {f"PROMPT_SIDECAR_{name}": value for name, value in more.items()}
    words = {"calls": asked, "environment": environment, "arguments": arguments}
    return run(ready("mcp"), "mcp_host", words, home)


def over_http(home: Path, url: str, asked: list[Call], **headers: str) -> Any:
    """Make calls through a process that listens."""
    return run(ready("mcp"), "mcp_host", {"calls": asked, "url": f"{url}/mcp", "headers": headers}, home)


@contextmanager
def listening(
    home: Path,
    target: str,
    *words_more: str,
    answer_seconds: float = 60,
    more: Mapping[str, str] = MappingProxyType({}),
    log: IO[str] | None = None,
) -> Iterator[str]:
    """A process that serves HTTP, and waits for so long until answers are taken; gives its address.

    `more` are variables of its environment, and `log` takes what it writes to stderr.
    """
    port = free_port()
    words = ["mcp", "--target", target, "--listen", f"127.0.0.1:{port}", *words_more]
    program = f"connections.ANSWER_SECONDS = {answer_seconds}; sys.exit(main())"
    imports = "import sys; from prompt_sidecar.__main__ import main; from prompt_sidecar.mcp import connections"
    command = [str(ready("mcp").python), "-c", f"{imports}; {program}", *words]
    with subprocess.Popen(command, cwd=home, env=variables(home, **more), stderr=log) as process:
        try:
            until = time.monotonic() + PATIENCE
            while asked(f"http://127.0.0.1:{port}/mcp") == 0:
                assert process.poll() is None
                assert time.monotonic() < until, "the process never answered"
                threading.Event().wait(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE)


def asked(url: str, body: Any = None, **headers: str) -> int:
    """The status of a plain request; 0: nobody answers."""
    given = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    request = urllib.request.Request(url, json.dumps(body or {}).encode(), given)
    try:
        with urllib.request.urlopen(request, timeout=PATIENT) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_over_stdio(tmp_path: Path) -> None:
    """The host sees the sidecar's tools, and gets what they answer; the run comes from the environment or a flag."""
    with sidecar() as (address, client):
        stash_id = trimmed(client)
        results = over_stdio(tmp_path, address, calls(stash_id), RUN="run")
        by_flag = over_stdio(tmp_path, address, calls(stash_id)[:1], "--run", "run")

        assert set(results["tools"]) == TOOLS
        assert ["read the log"] == [task.text for task in client.list_tasks("run")]
    assert [False, False, False] == [answer["error"] for answer in results["answers"]]
    recalled, found, _ = (answer["text"] for answer in results["answers"])
    assert FACT in recalled
    assert "iteration 3" in found
    assert FACT in by_flag["answers"][0]["text"]


def test_a_signal_ends_it_while_its_host_says_nothing(tmp_path: Path) -> None:
    """Over stdio, after its answer to the first request; by the signal itself, once what it measured is pushed."""
    words = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
    asks = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": words}
    imports = "import sys; from prompt_sidecar.__main__ import main"
    command = [str(ready("mcp").python), "-c", f"{imports}; sys.exit(main())", "mcp", "--target", "127.0.0.1:1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=variables(tmp_path), stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(asks).encode() + b"\n")
            process.stdin.flush()
            assert 1 == json.loads(process.stdout.readline())["id"]
            process.terminate()
            assert -signal.SIGTERM == process.wait(PATIENCE)
        finally:
            process.kill()


def test_over_http(tmp_path: Path) -> None:
    """Each request names its run in a header."""
    with sidecar() as (address, client), listening(tmp_path, address) as url:
        first, second = trimmed(client, "one"), trimmed(client, "two")
        one = over_http(tmp_path, url, [*calls(first), *calls(second)[:1]], **{"x-prompt-sidecar-run": "one"})

        assert set(one["tools"]) == TOOLS
        assert [False, False, False, False] == [answer["error"] for answer in one["answers"]]
        assert FACT in one["answers"][0]["text"]
        assert FACT not in one["answers"][3]["text"]
        assert [] == list(client.list_tasks("two"))


def test_what_left_the_prompt_is_recalled_however_often(tmp_path: Path) -> None:
    """By a host whose agent sends its prompts to the sidecar; a repeat is told where the prompt holds it."""
    with sidecar() as (address, client), listening(tmp_path, address) as url:
        stash_id = trimmed(client)
        asked: list[Call] = [("recall_elided_content", {"id": stash_id})] * 4
        headers = {"x-prompt-sidecar-run": "run"}
        results = []
        for number in range(21, 24):
            results += over_http(tmp_path, url, asked, **headers)["answers"]
            client.trim("run", history("openai_chat", number), context_window=4_000, output_reserve=500)

    assert [True, True, True, False] + [True, False, False, False] * 2 == [FACT in answer["text"] for answer in results]
    assert "is in the prompt, at iteration 21; it is not shown again while it is there" in results[3]["text"]


def test_no_tool_takes_a_run_or_a_credential(tmp_path: Path) -> None:
    """What the model writes chooses no run: without the header there is none, whatever the arguments say."""
    with sidecar() as (address, client), listening(tmp_path, address) as url:
        stash_id = trimmed(client)
        forged = {"id": stash_id, "run": "run", "run_id": "run"}
        results = over_http(tmp_path, url, [("recall_elided_content", forged)])

    assert results["answers"][0]["error"]
    assert "No run is named" in results["answers"][0]["text"]
    assert not any("run" in schema.get("properties", {}) for schema in results["schemas"])


def test_a_credential_is_the_requests_own(tmp_path: Path) -> None:
    """The sidecar sees the caller that the request's token names, and no other: the process lends none of its own."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice:{ALICE}\nbob:{BOB}\n")
    tokens.chmod(0o600)
    options = ServerOptions(listen="127.0.0.1:0", tokens_file=str(tokens))
    with (
        serving(options) as served,
        Client(served.address, token=ALICE, deadline=PATIENT) as alice,
        listening(tmp_path, served.address) as url,
    ):
        wanted = calls(trimmed(alice))[:1]
        run_header = {"x-prompt-sidecar-run": "run"}
        hers = over_http(tmp_path, url, wanted, authorization=f"Bearer {ALICE}", **run_header)
        his = over_http(tmp_path, url, wanted, authorization=f"Bearer {BOB}", **run_header)
        stdio = over_stdio(tmp_path, served.address, wanted, RUN="run", TOKEN=ALICE)

        assert FACT in hers["answers"][0]["text"]
        assert his["answers"][0]["error"]
        assert FACT not in his["answers"][0]["text"]
        assert FACT in stdio["answers"][0]["text"]


def test_spans_join_the_hosts_trace(tmp_path: Path) -> None:
    """As MCP's library sends it in the request, over stdio and HTTP; over HTTP its header will do."""
    with watched() as server:
        with Client(server.served.address, deadline=PATIENT) as client:
            wanted = calls(trimmed(client))[:1]
        environment = {"PROMPT_SIDECAR_TARGET": server.served.address, "PROMPT_SIDECAR_RUN": "run"}
        run(
            ready("mcp"),
            "mcp_host",
            {"calls": wanted, "environment": environment, "arguments": [], "trace": 1},
            tmp_path,
        )
        with listening(tmp_path, server.served.address) as url:
            words = {"calls": wanted, "url": f"{url}/mcp", "headers": {"x-prompt-sidecar-run": "run"}}
            run(ready("mcp"), "mcp_host", {**words, "trace": 2}, tmp_path)
            words["headers"] |= {"traceparent": f"00-{3:032x}-{1:016x}-01"}  # type: ignore[operator]
            run(ready("mcp"), "mcp_host", words, tmp_path)
        spans = [span for each in server.spans().values() for span in each if span.name.endswith("CallTool")]

    assert [1, 2, 3] == sorted(span.context.trace_id for span in spans)[:3]


def test_other_hosts_and_origins_are_refused(tmp_path: Path) -> None:
    """A web page that resolves its own name to this machine reaches nothing; a name that is allowed does."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with listening(tmp_path, "127.0.0.1:1", "--allow-host", "tools.test") as url:
        address = f"{url}/mcp"
        assert 421 == asked(address, body, host="evil.test")
        assert 403 == asked(address, body, origin="https://evil.test")
        assert asked(address, body, host="tools.test") not in (421, 403)
        assert asked(address, body, origin="https://tools.test") not in (421, 403)


def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    """The oldest that has not sent its request gives way, whether it is silent or has begun one."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    begun = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"
    with listening(tmp_path, "127.0.0.1:1") as url, ExitStack() as stack:
        for at in range(2 * MOST_CALLS):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))))
            if at % 2:
                silent.sendall(begun)
        until = time.monotonic() + PATIENCE
        while (status := asked(f"{url}/mcp", ping)) != 200:  # the calls of those that gave way are ending
            assert 503 == status
            assert time.monotonic() < until, "nobody gets through"


def test_streams_that_say_nothing_are_not_offered(tmp_path: Path) -> None:
    """A host that asks for one goes on without it, as MCP's specification has it; a few would take all places."""
    with listening(tmp_path, "127.0.0.1:1") as url:
        request = urllib.request.Request(f"{url}/mcp", headers={"accept": "text/event-stream"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=PATIENCE)
        assert (405, "POST") == (refused.value.code, refused.value.headers["allow"])
        refused.value.close()


def test_an_answer_that_is_not_taken_ends_its_connection(tmp_path: Path) -> None:
    """One that takes its answers may ask for as long as it likes."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    asking = f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body
    with sidecar() as (target, _), listening(tmp_path, target, answer_seconds=4) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as silent, suppress(ConnectionError):
            while True:
                silent.sendall(asking)
        taking = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        until = time.monotonic() + 6
        while time.monotonic() < until:
            taking.request("POST", "/mcp", body, headers)
            connection = taking.sock
            assert 200 == (answer := taking.getresponse()).status
            assert answer.read()
            assert connection is taking.sock, "it was closed"
        taking.close()


def test_beyond_loopback_it_wants_names(tmp_path: Path) -> None:
    """An address that other machines reach is refused without the names that they use."""
    command = [str(ready("mcp").python), "-m", "prompt_sidecar", "mcp", "--listen", "0.0.0.0:0"]
    done = subprocess.run(
        command, cwd=tmp_path, env=variables(tmp_path), capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert 2 == done.returncode
    assert "--allow-host" in done.stderr


def searched(url: str, **more: str) -> Any:
    """The answer to a plain request that calls a tool."""
    parameters = {"name": "search_conversation_history", "arguments": {"query": "x"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters}
    accepted = "application/json, text/event-stream"
    given = {"content-type": "application/json", "accept": accepted, "x-prompt-sidecar-run": "run", **more}
    request = urllib.request.Request(f"{url}/mcp", json.dumps(body).encode(), given)
    with urllib.request.urlopen(request, timeout=PATIENT) as response:
        return json.loads(response.read())


def test_a_token_that_no_header_can_hold_is_refused_at_the_start(tmp_path: Path) -> None:
    """As one that was read from a file with the end of its line; what it is is told to nobody."""
    command = [str(ready("mcp").python), "-m", "prompt_sidecar", "mcp", "--run", "run"]
    given = variables(tmp_path, PROMPT_SIDECAR_TOKEN=f"{ALICE}\n")
    done = subprocess.run(
        command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=PATIENCE, check=False, input=""
    )

    assert 2 == done.returncode
    assert "no header can carry" in done.stderr
    assert ALICE not in done.stderr


@pytest.mark.parametrize("name", ["authorization", "x-prompt-sidecar-run", "traceparent", "tracestate"])
def test_headers_that_are_no_ascii(name: str, tmp_path: Path) -> None:
    """The model is told something; what the header holds is told to nobody."""
    with sidecar() as (address, client), listening(tmp_path, address) as url:
        trimmed(client)
        answer = searched(url, **{name: "Bearer \xff\xfesecret"})

    assert answer["result"]["content"][0]["text"]
    assert "secret" not in json.dumps(answer)


def test_without_a_sidecar_the_model_gets_a_notice(tmp_path: Path) -> None:
    """A host that knows the tools gets an answer that says that they cannot be reached."""
    with listening(tmp_path, "127.0.0.1:1") as url:
        answer = searched(url)

    assert answer["result"]["isError"]
    assert "cannot be reached" in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("words", [["--listen", "nowhere"], ["--tls-ca", "/no/such/file"]])
def test_wrong_words_are_refused(words: list[str], tmp_path: Path) -> None:
    """The message names what is wrong; the exit code says that it was the caller's mistake."""
    command = [str(ready("mcp").python), "-m", "prompt_sidecar", "mcp", *words]
    done = subprocess.run(
        command, cwd=tmp_path, env=variables(tmp_path), capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert 2 == done.returncode
    assert words[1] in done.stderr
