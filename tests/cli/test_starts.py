"""A process that starts holds agents' requests until it is ready, so that a restart is a pause and no error."""

from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.request
from contextlib import closing

import openai
import pytest

from tests.cli.running import PATIENCE, program
from tests.client.provider import Says
from tests.doors.http.upstream import Upstream


def free_port() -> int:
    """A port that nobody listens at."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def connected(port: int) -> socket.socket:
    """A connection, as soon as there can be one."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), PATIENCE)
        except ConnectionRefusedError:
            continue


def arguments(port: int, upstream: str, health: int = 0) -> list[str]:
    """Flags of `serve`."""
    probes = [f"server.health_listen=127.0.0.1:{health}"] if health else []
    settings = [*probes, f"http.openai_upstream={upstream}", "telemetry.metrics_listen="]
    return ["--listen", "", "--http", f"127.0.0.1:{port}", *(word for each in settings for word in ("--set", each))]


def is_ready(port: int) -> bool:
    """What a probe finds; one that is not answered finds no readiness."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False


def test_a_request_of_the_first_moments_is_answered() -> None:
    """It is taken long before the process is ready, says nothing until then, and is answered like any other."""
    port, health = free_port(), free_port()
    with (
        Upstream(lambda _: Says("held")) as upstream,
        program(*arguments(port, upstream.url, health)) as server,
        closing(connected(port)) as early,
    ):
        assert not is_ready(health)
        body = b'{"model": "next", "messages": [{"role": "user", "content": "go"}]}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        early.sendall(head.encode() + body)
        server.wait_for("connections that have waited for the start: 1")
        server.wait_for("ready")
        answer = http.client.HTTPResponse(early)
        answer.begin()
        assert 200 == answer.status
        assert b"held" in answer.read()
        assert is_ready(health)


@pytest.mark.parametrize("kills", [1, 3])
def test_a_kill_is_no_error_to_an_sdk(kills: int) -> None:
    """SIGKILL and a start again under a client with its default two retries.

    It asks as soon as the new process listens, long before that is ready: on a busy machine the time until then may be
    more than its retries take.
    """
    port = free_port()
    with Upstream(lambda body: Says(f"turn {len(body['messages'])}")) as upstream:
        flags = arguments(port, upstream.url)
        model = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="k", timeout=PATIENCE)
        messages = [{"role": "user", "content": "go"}]
        for _ in range(kills):
            with program(*flags) as server:
                server.wait_for("ready")
                server.process.kill()
                server.end()
            with program(*flags):
                connected(port).close()
                answer = model.chat.completions.create(model="next", messages=messages)  # type: ignore[arg-type]
                assert f"turn {len(messages)}" == answer.choices[0].message.content
                messages += [{"role": "assistant", "content": "done"}, {"role": "user", "content": "go on"}]
    assert 2 == model.max_retries
