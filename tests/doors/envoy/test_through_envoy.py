"""Prompts through a real Envoy: trimmed where the sidecar answers, as they came where it does not."""

from __future__ import annotations

import http.client
import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.running import PATIENCE, Program, program
from tests.doors.envoy.through import LARGEST, Envoy, Provider, chat, configuration, envoy, envoy_binary, provider
from tests.real.needing import need
from tests.waiting import until

WINDOW = {"LIMITS__DEFAULT_WINDOW": "8000"}
LONG = chat(30, "a line of an answer that nobody will read again\n" * 40)
"""Some 15,000 tokens."""


@dataclass(frozen=True, slots=True)
class Way:
    """A sidecar, an Envoy that asks it, and a provider behind."""

    sidecar: Program
    envoy: Envoy
    provider: Provider
    listens: int
    """The port of the external processor."""
    metrics: int
    """The port of /metrics."""

    def counted(self, name: str, **labels: str) -> float:
        """Return a counter of the sidecar's."""
        return counted(self.metrics, name, **labels)

    def outcomes(self, outcome: str) -> float:
        """Return how many requests had an outcome."""
        return self.counted("prompt_sidecar_envoy_requests_total", outcome=outcome)


def counted(metrics: int, name: str, **labels: str) -> float:
    """Return a counter of the sidecar's whose /metrics is at this port."""
    connection = http.client.HTTPConnection("127.0.0.1", metrics, timeout=PATIENCE)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    parts = "".join(f'(?=[^}}]*{label}="{value}")' for label, value in labels.items())
    return sum(float(found) for found in re.findall(rf"^{name}{{{parts}[^}}]*}} (\S+)$", text, re.MULTILINE))


@contextmanager
def sidecar(port: int = 0, **settings: str) -> Iterator[tuple[Program, int, int]]:
    """Run the program with an external processor; give the ports of that and of /metrics."""
    address = f"127.0.0.1:{port}"
    more = WINDOW | {"TELEMETRY__METRICS_LISTEN": "127.0.0.1:0"} | settings
    with program("--listen", "127.0.0.1:0", "--ext-proc", address, **more) as started:
        metrics = int(started.wait_for(r"metrics.*127\.0\.0\.1:(\d+)")[1])
        listens = int(started.wait_for(r"external processor.* 127\.0\.0\.1:(\d+)")[1])
        started.wait_for("ready: listening")
        yield started, listens, metrics


@contextmanager
def way(folder: Path, timeout: str = "", **settings: str) -> Iterator[Way]:
    """Run all three."""
    need(envoy_binary)
    with (
        provider() as upstream,
        sidecar(0, **settings) as (started, listens, metrics),
        envoy(folder, configuration(listens, upstream.port, timeout=timeout)) as proxy,
    ):
        yield Way(started, proxy, upstream, listens, metrics)


def test_a_prompt_is_trimmed_on_its_way(tmp_path: Path) -> None:
    """It fits, has the length that its headers say, keeps the agent's headers and none of the sidecar's."""
    with way(tmp_path) as through:
        with through.envoy.open(LONG, authorization="Bearer secret", x_prompt_sidecar_run="r") as response:
            status, headers = response.status, dict(response.getheaders())
        seen = through.provider.next()

    assert 200 == status
    assert len(LONG) > 2 * len(seen.body)
    assert str(len(seen.body)) == seen.headers["content-length"]
    assert ["user", "assistant", "tool"] == [message["role"] for message in seen.messages[:3]]
    assert "Bearer secret" == seen.headers["authorization"]
    assert [] == [name for name in seen.headers if name.startswith("x-prompt-sidecar")]
    assert "r" == headers["x-prompt-sidecar-run"]
    assert "assumed" == headers["x-prompt-sidecar-window"]
    assert int(headers["x-prompt-sidecar-tokens-before"]) > 8_000 > int(headers["x-prompt-sidecar-tokens-after"])


def test_without_recall_no_ids_are_shown(tmp_path: Path) -> None:
    """A model that has no tools to fetch with is shown no ids; a header says that it has some."""
    with way(tmp_path) as through:
        through.envoy.send(LONG, x_prompt_sidecar_run="without")
        without = through.provider.next()
        through.envoy.send(LONG, x_prompt_sidecar_run="with", x_prompt_sidecar_recall="mcp")
        with_tools = through.provider.next()

    assert b"id=" not in without.body
    assert b"id=" in with_tools.body


def test_the_largest_body_passes(tmp_path: Path) -> None:
    """64 MiB are taken from Envoy and given back trimmed; what is larger Envoy itself refuses."""
    empty = chat(64, "")
    filler = "0123456789 abcde" * ((LARGEST - len(empty)) // 64 // 16)
    largest = chat(64, filler)
    largest += b" " * (LARGEST - len(largest))

    # The time to send it counts as well, which is long where other tests run beside this one.
    with way(tmp_path, timeout="60s") as through:
        status, _ = through.envoy.send(largest)
        seen = through.provider.next()
        refused, _ = through.envoy.send(largest + b" " * 2**21)

    assert LARGEST == len(largest)
    assert 200 == status
    assert len(seen.body) < LARGEST / 10
    assert 413 == refused


def test_a_killed_sidecar_fails_open(tmp_path: Path) -> None:
    """Prompts go on as they came while there is none, and are trimmed again once there is."""
    with way(tmp_path) as through:
        through.envoy.send(LONG)
        first = through.provider.next().body
        through.sidecar.process.send_signal(signal.SIGKILL)
        through.sidecar.process.wait(PATIENCE)
        status, _ = through.envoy.send(LONG)
        second = through.provider.next().body
        with sidecar(through.listens):
            until(lambda: through.envoy.send(LONG)[0] == 200 and len(through.provider.next().body) < len(LONG))

    assert len(first) < len(LONG)
    assert 200 == status
    assert LONG == second


def test_a_sidecar_killed_while_a_response_streams_breaks_nothing(tmp_path: Path) -> None:
    """The agent gets the rest of the stream byte for byte."""
    with way(tmp_path) as through:
        through.provider.content_type = "text/event-stream"
        through.provider.pieces = (b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n")
        with through.envoy.open(LONG) as response:
            first = response.readline()
            through.sidecar.process.send_signal(signal.SIGKILL)
            through.sidecar.process.wait(PATIENCE)
            through.provider.gate.release(2)
            rest = response.read()

    assert b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n" == first + rest


def test_a_sidecar_that_hangs_fails_open(tmp_path: Path) -> None:
    """After Envoy's message_timeout the prompt goes on as it came; the sidecar is asked again the next time."""
    with way(tmp_path, timeout="0.3s") as through:
        through.sidecar.process.send_signal(signal.SIGSTOP)
        status, _ = through.envoy.send(LONG)
        untrimmed = through.provider.next().body
        through.sidecar.process.send_signal(signal.SIGCONT)
        until(lambda: through.envoy.send(LONG)[0] == 200 and len(through.provider.next().body) < len(LONG))
        timeouts = through.envoy.figure("ext_proc.message_timeouts")

    assert 200 == status
    assert LONG == untrimmed
    assert timeouts >= 1


def test_a_stream_flows_and_its_usage_is_reported(tmp_path: Path) -> None:
    """Each event reaches the agent before the provider has sent the next; the figures at the end are reported."""
    usage = {"model": "gpt-4o", "choices": [], "usage": {"prompt_tokens": 7_000, "completion_tokens": 9}}
    events = (
        b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"two"}}]}\n\n',
        b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]\n\n",
    )
    with way(tmp_path) as through:
        through.provider.content_type = "text/event-stream"
        through.provider.pieces = events
        with through.envoy.open(LONG) as response:
            got = [response.read(len(events[0]))]
            for event in events[1:]:
                through.provider.gate.release()
                got.append(response.read(len(event)))
            rest = response.read()
        until(lambda: through.counted("prompt_sidecar_usage_reports_total", outcome="recorded") == 1)
        tokens = through.counted("prompt_sidecar_reported_tokens_total", kind="input")

    assert list(events) == got
    assert b"" == rest
    assert 7_000 == tokens


def test_a_refusal_teaches_the_limit(tmp_path: Path) -> None:
    """The provider's error reaches the agent as it is; the next prompt of the run is shorter."""
    error = {
        "error": {
            "message": "This model's maximum context length is 4000 tokens. However, your messages resulted in 7000 "
            "tokens. Please reduce the length of the messages.",
            "code": "context_length_exceeded",
        }
    }
    with way(tmp_path) as through:
        through.provider.status, through.provider.pieces = 400, (json.dumps(error).encode(),)
        status, body = through.envoy.send(LONG, x_prompt_sidecar_run="r")
        first = through.provider.next().body
        until(lambda: through.counted("prompt_sidecar_provider_refusals_total", limit="named") == 1)
        through.provider.status = 200
        through.envoy.send(LONG, x_prompt_sidecar_run="r")
        second = through.provider.next().body

    assert (400, error) == (status, json.loads(body))
    assert len(second) < len(first)


def test_many_streams_at_once_are_all_trimmed(tmp_path: Path) -> None:
    """24 responses stream at the same time, three times as many as there are threads; no prompt passes untrimmed."""
    streams = 24
    done = threading.Semaphore(0)
    with way(tmp_path) as through:
        through.provider.content_type = "text/event-stream"
        through.provider.pieces = (b"data: 1\n\n", b"data: [DONE]\n\n")

        def agent(number: int) -> None:
            status, _ = through.envoy.send(chat(30, f"answer {number} " * 300), x_prompt_sidecar_run=str(number))
            assert 200 == status
            done.release()

        for number in range(streams):
            threading.Thread(target=agent, args=(number,), daemon=True).start()
        bodies = [through.provider.next().body for _ in range(streams)]  # none is answered to its end before all came
        through.provider.gate.release(streams)
        for _ in range(streams):
            assert done.acquire(timeout=PATIENCE)
        answered = through.outcomes("answered")

    whole = len(chat(30, "answer 1 " * 300))
    assert [] == [len(body) for body in bodies if len(body) > whole / 2]
    assert streams == answered


@pytest.mark.parametrize(
    ("path", "headers", "outcome"),
    [
        ("/v1/embeddings", {}, "not_a_prompt"),
        ("/v1/chat/completions", {"content_encoding": "gzip"}, "unreadable"),
        ("/v1/chat/completions", {"authorization": "AWS4-HMAC-SHA256 Credential=a"}, "unreadable"),
        ("/v1/responses", {}, "invalid"),
    ],
)
def test_what_cannot_be_trimmed_passes_unchanged(
    tmp_path: Path, path: str, headers: dict[str, str], outcome: str
) -> None:
    """Other paths, compressed and signed bodies, and bodies that are not of their path's format."""
    with way(tmp_path) as through:
        status, _ = through.envoy.send(LONG, path, **headers)
        seen = through.provider.next()
        counted = through.outcomes(outcome)

    assert 200 == status
    assert LONG == seen.body
    assert 1 == counted


def test_without_usage_no_stream_outlives_its_request(tmp_path: Path) -> None:
    """The response does not pass through the sidecar: it gets no headers of ours, and keeps its compression."""
    with way(tmp_path, ENVOY__USAGE="false") as through:
        with through.envoy.open(LONG, accept_encoding="gzip") as response:
            headers = dict(response.getheaders())
        seen = through.provider.next()

    assert len(seen.body) < len(LONG)
    assert "gzip" == seen.headers["accept-encoding"]
    assert "x-prompt-sidecar-run" not in headers


def test_a_websocket_for_prompts_is_sent_to_http(tmp_path: Path) -> None:
    """Codex uses HTTP at once where it is told so; any other WebSocket is refused, as nothing on it could be read."""
    opening = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }

    def status(path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", through.envoy.port, timeout=PATIENCE)
        connection.request("GET", path, headers=opening)
        return connection.getresponse().status

    with way(tmp_path) as through:
        assert [426, 426, 403] == [status(path) for path in ("/v1/responses", "/v1/responses?x=1", "/v1/realtime")]
        assert 200 == through.envoy.send(LONG, "/v1/chat/completions")[0]
